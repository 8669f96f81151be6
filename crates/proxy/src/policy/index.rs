//! Rules by host, identity and path.

use std::collections::HashMap;

use x509::HostOrIp;

use crate::rule_index::{ByHost, ByPath, HostPattern};

/// Rules by host, identity and path. Each list of rules is in the order of the configuration.
#[derive(Debug, Default)]
pub(super) struct Index(ByHost<ByIdentity>);

/// Rules of one host by the number of an identity, a team or a tag.
#[derive(Debug, Default)]
struct ByIdentity {
    keyed: HashMap<u32, Rules>,
    anyone: Rules,
}

/// Rules of one host and identity.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<u32>,
    paths: ByPath,
}

impl Index {
    /// Adds a rule. `hosts`, `keys` and `paths` are empty for rules of all hosts, clients and paths.
    pub(super) fn add(&mut self, hosts: &[HostPattern], keys: &[u32], paths: &[String], rule: u32) {
        self.0.add(hosts, |by_identity| {
            if keys.is_empty() {
                by_identity.anyone.add(paths, rule);
            }
            for key in keys {
                by_identity.keyed.entry(*key).or_default().add(paths, rule);
            }
        });
    }

    /// Calls `visit` with all rules that may be for `host` and the identity with `keys`.
    pub(super) fn visit<'a>(&'a self, host: &HostOrIp, keys: &[u32], visit: &mut dyn FnMut(&'a Rules)) {
        self.0.visit(host, |by_identity| {
            visit(&by_identity.anyone);
            if !by_identity.keyed.is_empty() {
                keys.iter().filter_map(|key| by_identity.keyed.get(key)).for_each(&mut *visit);
            }
        });
    }
}

impl Rules {
    fn add(&mut self, paths: &[String], rule: u32) {
        if self.all.last() != Some(&rule) {
            self.all.push(rule);
        }
        self.paths.add(paths, rule);
    }

    /// Calls `visit` with lists that have all rules for `path`, and perhaps others; with all rules where it is `None`.
    pub(super) fn visit(&self, path: Option<&str>, mut visit: impl FnMut(&[u32])) {
        match path {
            Some(path) => self.paths.visit(path, visit),
            None => visit(&self.all),
        }
    }
}
