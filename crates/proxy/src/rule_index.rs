//! Index of rules by host and path, so that a request does not try all rules. Each list of rules is in configuration order.

use std::collections::HashMap;

use x509::{HostName, HostOrIp};

use crate::setting::{InvalidSetting, invalid};

/// Host pattern of a rule: a name, an address, or all subdomains of a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum HostPattern {
    /// A name or an address.
    Exact(HostOrIp),
    /// All subdomains of this name, at any depth.
    Below(String),
}

impl HostPattern {
    /// Parses the patterns of setting `key`.
    pub(crate) fn read(key: &'static str, texts: &[String]) -> Result<Vec<Self>, InvalidSetting> {
        let read = |text: &String| {
            let pattern = match text.strip_prefix("*.") {
                Some(rest) => HostName::parse(rest).ok().map(|name| Self::Below(name.as_str().to_owned())),
                None => HostOrIp::parse(text).ok().map(Self::Exact),
            };
            let hint =
                "give a host name, *.NAME for all names below it, or an address, without port or scheme";
            pattern.ok_or_else(|| invalid(key, format!("{text:?} is not a host name or address"), hint))
        };
        texts.iter().map(read).collect()
    }

    /// Returns whether the pattern matches `host`.
    pub(crate) fn is_for(&self, host: &HostOrIp) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(name) => {
                let above = host.dns().and_then(|host| host.strip_suffix(name.as_str()));
                above.is_some_and(|above| above.len() > 1 && above.ends_with('.'))
            }
        }
    }
}

/// Rules by host: for an exact name, for all subdomains of a name, and for any host.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByHost<T> {
    exact: HashMap<HostOrIp, T>,
    below: HashMap<String, T>,
    any: T,
}

impl<T: Default> ByHost<T> {
    /// Calls `add` with the rules of each host pattern in `hosts`, or with the rules for all hosts if `hosts` is empty.
    pub(crate) fn add(&mut self, hosts: &[HostPattern], mut add: impl FnMut(&mut T)) {
        if hosts.is_empty() {
            return add(&mut self.any);
        }
        for host in hosts {
            add(match host {
                HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
                HostPattern::Below(name) => self.below.entry(name.clone()).or_default(),
            });
        }
    }

    /// Calls `visit` with all rules that are for `host`.
    pub(crate) fn visit<'a>(&'a self, host: &HostOrIp, mut visit: impl FnMut(&'a T)) {
        visit(&self.any);
        if let Some(found) = self.exact.get(host) {
            visit(found);
        }
        if let Some(name) = host.dns().filter(|_| !self.below.is_empty()) {
            for (dot, _) in name.match_indices('.') {
                if let Some(found) = self.below.get(&name[dot + 1..]) {
                    visit(found);
                }
            }
        }
    }
}

/// Rules by the literal prefix of their path, up to the first star.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesByPath {
    /// Paths without a star.
    whole: HashMap<String, Vec<u32>>,
    /// The part before the first star, up to its last slash: `/v1/` of `/v1/a*`.
    below: HashMap<String, Vec<u32>>,
    /// Bytes of the longest key of `below`.
    longest: usize,
    any: Vec<u32>,
}

impl RulesByPath {
    /// Adds a rule. Empty `patterns` mean all paths.
    pub(crate) fn add(&mut self, patterns: &[String], rule: u32) {
        let put = |list: &mut Vec<u32>| {
            if list.last() != Some(&rule) {
                list.push(rule);
            }
        };
        if patterns.is_empty() {
            put(&mut self.any);
        }
        for pattern in patterns {
            let literal = pattern.split_once('*').map(|(literal, _)| literal);
            match (literal, literal.and_then(|literal| literal.rfind('/'))) {
                (None, _) => put(self.whole.entry(pattern.clone()).or_default()),
                (Some(literal), Some(slash)) => {
                    self.longest = self.longest.max(slash + 1);
                    put(self.below.entry(literal[..=slash].to_owned()).or_default());
                }
                (Some(_), None) => put(&mut self.any),
            }
        }
    }

    /// Calls `visit` with lists that contain all rules for `path`, and possibly others.
    pub(crate) fn visit(&self, path: &str, mut visit: impl FnMut(&[u32])) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_its_exact_name_or_its_subdomains() {
        for (pattern, host, wanted) in [
            ("*.a.b", "x.a.b", true),
            ("*.a.b", "y.x.a.b", true),
            ("*.a.b", "a.b", false),
            ("*.a.b", "xa.b", false),
            ("A.b", "a.B", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "[::1]", true),
        ] {
            let read = HostPattern::read("host", &[pattern.to_owned()]).unwrap();
            assert_eq!(read[0].is_for(&HostOrIp::parse(host).unwrap()), wanted, "{pattern} {host}");
        }
        let wrong = HostPattern::read("host", &["https://a".to_owned()]).unwrap_err();
        assert_eq!((wrong.key, &*wrong.why), ("host", "\"https://a\" is not a host name or address"));
    }
}
