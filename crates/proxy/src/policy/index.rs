//! Rules by host, identity and path.

use x509::HostOrIp;

use crate::rule_index::{ByHost, HostPattern, RulesByPath};

/// Below this number of rules, all are tried in turn, which is faster than an index by path.
const FEW: usize = 8;

/// Rules by host, identity and path. Each list of rules is in the order of the configuration.
#[derive(Debug, Default)]
pub(super) struct Index(ByHost<RulesByIdentity>);

/// Rules of one host by the number of an identity, a team or a tag.
#[derive(Debug, Default)]
struct RulesByIdentity {
    /// Sorted by number, because most hosts have rules for few identities.
    keyed: Vec<(u32, Rules)>,
    anyone: Rules,
}

/// Rules of one host and one identity, team or tag.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<u32>,
    paths: Box<RulesByPath>,
}

impl Index {
    /// Adds a rule. Empty `hosts`, `keys` or `paths` mean all hosts, clients or paths.
    pub(super) fn add(&mut self, hosts: &[HostPattern], keys: &[u32], paths: &[String], rule: u32) {
        self.0.add(hosts, |by_identity| {
            if keys.is_empty() {
                by_identity.anyone.add(paths, rule);
            }
            keys.iter().for_each(|key| by_identity.keyed(*key).add(paths, rule));
        });
    }

    /// Calls `visit` with all rules that may apply to `host` and the identity with `keys`.
    pub(super) fn visit<'a>(&'a self, host: &HostOrIp, keys: &[u32], visit: &mut dyn FnMut(&'a Rules)) {
        self.0.visit(host, |by_identity| {
            let Some(((first, _), (last, _))) = by_identity.keyed.first().zip(by_identity.keyed.last())
            else {
                return visit(&by_identity.anyone);
            };
            visit(&by_identity.anyone);
            for key in keys.iter().filter(|key| (first..=last).contains(key)) {
                if let Ok(at) = by_identity.keyed.binary_search_by_key(key, |(key, _)| *key) {
                    visit(&by_identity.keyed[at].1);
                }
            }
        });
    }
}

impl RulesByIdentity {
    fn keyed(&mut self, key: u32) -> &mut Rules {
        let at = match self.keyed.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => at,
            Err(at) => {
                self.keyed.insert(at, (key, Rules::default()));
                at
            }
        };
        &mut self.keyed[at].1
    }
}

impl Rules {
    fn add(&mut self, paths: &[String], rule: u32) {
        if self.all.last() != Some(&rule) {
            self.all.push(rule);
        }
        self.paths.add(paths, rule);
    }

    /// Calls `visit` with lists that contain all rules for `path`, and possibly others; with all rules if `path` is `None`.
    pub(super) fn visit(&self, path: Option<&str>, mut visit: impl FnMut(&[u32])) {
        match path.filter(|_| self.all.len() > FEW) {
            Some(path) => self.paths.visit(path, visit),
            None => visit(&self.all),
        }
    }
}
