//! Tables by host name. An exact entry takes precedence over the entry of the nearest parent domain.

use std::collections::HashMap;
use std::net::IpAddr;

use x509::{HostName, HostOrIp};

/// Maximum patterns of one table.
const PATTERNS_MAX: usize = 1_000_000;

/// Reason why a pattern of host names or networks is rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRule {
    /// The pattern is neither a name, nor `*.` and a name, nor an IP address.
    #[error("{0:?} is not a host name or address; *.NAME matches all names below NAME")]
    Pattern(String),
    /// The pattern is neither a name, an address nor a network, with or without a port.
    #[error(
        "{0:?} is not a host name, address or network, with or without a port (10.0.0.0/8, [fd00::]/8:443, \
         a.example:8443); *.NAME matches all names below NAME"
    )]
    Destination(String),
    /// The pattern occurs twice.
    #[error("the pattern {0:?} occurs in two rules")]
    Twice(String),
    /// There are too many patterns.
    #[error("there are more than {PATTERNS_MAX} patterns")]
    TooMany,
}

/// A map from the patterns `NAME`, `*.NAME` and addresses to values.
#[derive(Clone, Debug)]
pub struct Names<T> {
    exact: HashMap<String, T>,
    below: HashMap<String, T>,
    addresses: HashMap<IpAddr, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), below: HashMap::new(), addresses: HashMap::new() }
    }
}

impl<T> Names<T> {
    /// Adds a pattern: `NAME`, `*.NAME`, or an address.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn add(&mut self, pattern: &str, value: T) -> Result<(), BadRule> {
        if self.exact.len() + self.below.len() + self.addresses.len() >= PATTERNS_MAX {
            return Err(BadRule::TooMany);
        }
        let before = match pattern.strip_prefix("*.") {
            Some(rest) => {
                let name = HostName::parse(rest).map_err(|_| BadRule::Pattern(pattern.to_owned()))?;
                self.below.insert(name.as_str().to_owned(), value)
            }
            None => match HostOrIp::parse(pattern).map_err(|_| BadRule::Pattern(pattern.to_owned()))? {
                HostOrIp::Dns(name) => self.exact.insert(name.as_str().to_owned(), value),
                HostOrIp::Ip(address) => self.addresses.insert(address, value),
            },
        };
        if before.is_some() { Err(BadRule::Twice(pattern.to_owned())) } else { Ok(()) }
    }

    /// Returns the value of `name`: of an exact pattern, or of the nearest parent domain.
    pub fn get(&self, name: &HostOrIp) -> Option<&T> {
        match name {
            HostOrIp::Ip(address) => self.addresses.get(address),
            HostOrIp::Dns(name) => self.exact.get(name.as_str()).or_else(|| self.above(name.as_str())),
        }
    }

    /// Returns the value of `name` and the specificity of its pattern: higher for a longer pattern, highest for an exact pattern.
    pub fn nearest(&self, name: &HostOrIp) -> Option<(usize, &T)> {
        if self.has(name) {
            return self.get(name).map(|value| (usize::MAX, value));
        }
        let name = name.dns()?;
        name.match_indices('.').find_map(|(dot, _)| {
            let parent = &name[dot + 1..];
            self.below.get(parent).map(|value| (parent.len(), value))
        })
    }

    /// Returns whether `name` has an exact entry.
    pub fn has(&self, name: &HostOrIp) -> bool {
        match name {
            HostOrIp::Ip(address) => self.addresses.contains_key(address),
            HostOrIp::Dns(name) => self.exact.contains_key(name.as_str()),
        }
    }

    fn above(&self, name: &str) -> Option<&T> {
        if self.below.is_empty() {
            return None;
        }
        name.match_indices('.').find_map(|(dot, _)| self.below.get(&name[dot + 1..]))
    }
}
