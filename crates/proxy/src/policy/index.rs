//! Rules by host, identity and path. Each list of rules is in the order of the configuration.

use std::collections::HashMap;

use x509::HostOrIp;

use super::glob::Glob;

/// A host that a rule names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum HostPattern {
    Any,
    Exact(HostOrIp),
    /// All names below this one.
    Below(String),
}

/// Rules by host.
#[derive(Debug, Default)]
pub(super) struct Index {
    exact: HashMap<HostOrIp, ByIdentity>,
    below: HashMap<String, ByIdentity>,
    any: ByIdentity,
}

/// Rules of one host by the number of an identity, a team or a tag.
#[derive(Debug, Default)]
struct ByIdentity {
    keyed: HashMap<u32, ByPath>,
    anyone: ByPath,
}

/// Rules of one host and identity by path.
#[derive(Debug, Default)]
pub(super) struct ByPath {
    all: Vec<u32>,
    /// Paths without a star.
    whole: HashMap<String, Vec<u32>>,
    /// The part before the first star, up to its last slash.
    below: HashMap<String, Vec<u32>>,
    /// Bytes of the longest key of `below`.
    longest: usize,
    any: Vec<u32>,
}

impl Index {
    /// Adds a rule. `keys` is empty for rules of all clients, and `paths` for rules of all paths.
    pub(super) fn add(&mut self, hosts: &[HostPattern], keys: &[u32], paths: &[Glob], rule: u32) {
        for host in hosts {
            let by_identity = match host {
                HostPattern::Any => &mut self.any,
                HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
                HostPattern::Below(name) => self.below.entry(name.clone()).or_default(),
            };
            if keys.is_empty() {
                by_identity.anyone.add(paths, rule);
            }
            for key in keys {
                by_identity.keyed.entry(*key).or_default().add(paths, rule);
            }
        }
    }

    /// Calls `visit` with all rules that may be for `host` and the identity with `keys`.
    pub(super) fn visit<'a>(&'a self, host: &HostOrIp, keys: &[u32], visit: &mut dyn FnMut(&'a ByPath)) {
        self.any.visit(keys, visit);
        if let Some(found) = self.exact.get(host) {
            found.visit(keys, visit);
        }
        if let Some(name) = host.dns().filter(|_| !self.below.is_empty()) {
            for (dot, _) in name.match_indices('.') {
                if let Some(found) = self.below.get(&name[dot + 1..]) {
                    found.visit(keys, visit);
                }
            }
        }
    }
}

impl ByIdentity {
    fn visit<'a>(&'a self, keys: &[u32], visit: &mut dyn FnMut(&'a ByPath)) {
        visit(&self.anyone);
        if !self.keyed.is_empty() {
            keys.iter().filter_map(|key| self.keyed.get(key)).for_each(visit);
        }
    }
}

impl ByPath {
    fn add(&mut self, paths: &[Glob], rule: u32) {
        let put = |list: &mut Vec<u32>| {
            if list.last() != Some(&rule) {
                list.push(rule);
            }
        };
        put(&mut self.all);
        if paths.is_empty() {
            put(&mut self.any);
        }
        for path in paths {
            let (literal, is_whole) = path.literal();
            match (is_whole, literal.rfind('/')) {
                (true, _) => put(self.whole.entry(literal).or_default()),
                (false, Some(slash)) => {
                    self.longest = self.longest.max(slash + 1);
                    put(self.below.entry(literal[..=slash].to_owned()).or_default());
                }
                (false, None) => put(&mut self.any),
            }
        }
    }

    /// All rules, whatever their paths.
    pub(super) fn all(&self) -> &[u32] {
        &self.all
    }

    /// Calls `visit` with lists that have all rules for `path`, and perhaps others.
    pub(super) fn visit(&self, path: &str, visit: &mut dyn FnMut(&[u32])) {
        visit(&self.any);
        if let Some(found) = self.whole.get(path).filter(|_| !self.whole.is_empty()) {
            visit(found);
        }
        if self.below.is_empty() {
            return;
        }
        for (slash, _) in path.match_indices('/').take_while(|(slash, _)| *slash < self.longest) {
            if let Some(found) = self.below.get(&path[..=slash]) {
                visit(found);
            }
        }
    }
}
