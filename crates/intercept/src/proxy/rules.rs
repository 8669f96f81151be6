//! What becomes of a connection, by the name it is for.

use std::collections::HashMap;
use std::net::IpAddr;

use x509::HostName;

use crate::mint::LeafName;

/// Patterns of all rules.
const PATTERNS_MAX: usize = 1_000_000;

/// What becomes of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Action {
    /// Its requests are seen.
    #[default]
    Intercept,
    /// Octets are passed on as they are.
    Tunnel,
    /// It is refused, with a page where there can be one.
    Reject,
}

/// A pattern that cannot be a rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRule {
    /// Neither a name, nor `*.` and one, nor an address.
    #[error("{0:?} is no host name or address; *.NAME stands for all below NAME")]
    Pattern(String),
    /// Twice.
    #[error("{0:?} stands in two rules")]
    Twice(String),
    /// More than are held.
    #[error("there are more than {PATTERNS_MAX} patterns")]
    TooMany,
}

/// All of them: a name's own before one below which it stands, the nearest of these first, then the default.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    exact: HashMap<String, Action>,
    below: HashMap<String, Action>,
    addresses: HashMap<IpAddr, Action>,
    default: Action,
}

impl Rules {
    /// With `default` for whatever no pattern is for.
    #[must_use]
    pub fn new(default: Action) -> Self {
        Self { default, ..Self::default() }
    }

    /// # Errors
    /// [`BadRule`]
    pub fn add(&mut self, patterns: &[String], action: Action) -> Result<(), BadRule> {
        for pattern in patterns {
            if self.exact.len() + self.below.len() + self.addresses.len() >= PATTERNS_MAX {
                return Err(BadRule::TooMany);
            }
            let before = match pattern.strip_prefix("*.") {
                Some(rest) => {
                    let name = HostName::parse(rest).map_err(|_| BadRule::Pattern(pattern.clone()))?;
                    self.below.insert(name.as_str().to_owned(), action)
                }
                None => match LeafName::parse(pattern).map_err(|_| BadRule::Pattern(pattern.clone()))? {
                    LeafName::Dns(name) => self.exact.insert(name.as_str().to_owned(), action),
                    LeafName::Ip(address) => self.addresses.insert(address, action),
                },
            };
            if before.is_some() {
                return Err(BadRule::Twice(pattern.clone()));
            }
        }
        Ok(())
    }

    /// For a name.
    #[must_use]
    pub fn decide(&self, name: &LeafName) -> Action {
        let found = match name {
            LeafName::Ip(address) => self.addresses.get(address),
            LeafName::Dns(name) => self.exact.get(name.as_str()).or_else(|| self.above(name.as_str())),
        };
        found.copied().unwrap_or(self.default)
    }

    fn above(&self, name: &str) -> Option<&Action> {
        if self.below.is_empty() {
            return None;
        }
        name.match_indices('.').find_map(|(dot, _)| self.below.get(&name[dot + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_pattern_decides() {
        let mut rules = Rules::new(Action::Intercept);
        let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        rules.add(&list(&["*.bank.example", "10.0.0.1", "[2001:db8::1]"]), Action::Tunnel).unwrap();
        rules.add(&list(&["*.ads.bank.example", "Evil.example"]), Action::Reject).unwrap();
        let decide = |name: &str| rules.decide(&LeafName::parse(name).unwrap());
        assert_eq!(decide("a.b.bank.example"), Action::Tunnel);
        assert_eq!(decide("bank.example"), Action::Intercept);
        assert_eq!(decide("x.ads.bank.example"), Action::Reject);
        assert_eq!(decide("ads.bank.example"), Action::Tunnel);
        assert_eq!(decide("EVIL.example."), Action::Reject);
        assert_eq!(decide("10.0.0.1"), Action::Tunnel);
        assert_eq!(decide("2001:db8::1"), Action::Tunnel);
        assert_eq!(decide("10.0.0.2"), Action::Intercept);
        let twice = rules.add(&list(&["evil.example"]), Action::Tunnel);
        assert_eq!(twice, Err(BadRule::Twice("evil.example".into())));
        assert!(matches!(rules.add(&list(&["a*.example"]), Action::Tunnel), Err(BadRule::Pattern(_))));
    }
}
