//! Cache of the limit overrides, indexed by subject and network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use parking_lot::RwLock;

use super::limits::Kind;
use super::options::Limit;
use crate::tables::acme::AcmeLimitOverride;

/// Length in bits of the IPv6 prefix that counts as one client. Networks usually have a prefix of this length.
const IPV6_PREFIX: u8 = 64;

/// Cache of the overrides. It is filled at the first use and refreshed regularly.
#[derive(Default)]
pub(crate) struct Overrides(pub(super) RwLock<CachedOverrides>);

#[derive(Default)]
pub(super) struct CachedOverrides {
    pub(super) read_at_us: Option<i64>,
    pub(super) all: Arc<Index>,
}

#[derive(Default)]
pub(super) struct Index {
    exact: HashMap<(Kind, Box<str>), Option<Limit>>,
    networks: Vec<(Kind, IpNet, Option<Limit>)>,
}

impl Index {
    pub(super) fn new(rows: Vec<AcmeLimitOverride>) -> Self {
        let mut index = Self::default();
        for row in rows {
            let kind = row.kind;
            let limit = row.allowed.map(|count| Limit { count, seconds: row.seconds });
            match row.subject.parse::<IpNet>() {
                Ok(network) => index.networks.push((kind, network, limit)),
                Err(_) => drop(index.exact.insert((kind, row.subject.into()), limit)),
            }
        }
        // Longest prefix first.
        index.networks.sort_by_key(|(_, network, _)| std::cmp::Reverse(network.prefix_len()));
        index
    }

    pub(super) fn of(&self, kind: Kind, subject: &str) -> Option<Option<Limit>> {
        if let Some(limit) = self.exact.get(&(kind, subject.into())) {
            return Some(*limit);
        }
        let address = subject.parse::<IpAddr>().ok()?;
        let found =
            self.networks.iter().find(|(of, network, _)| *of == kind && network.contains(&address))?;
        Some(found.2)
    }
}

/// Returns the network that counts as one client: an IPv4 address or an IPv6 network.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => Ipv6Net::new(address, IPV6_PREFIX)
            .map_or_else(|_| address.to_string(), |net| net.trunc().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn row(kind: Kind, subject: &str, allowed: Option<u32>) -> AcmeLimitOverride {
        AcmeLimitOverride {
            id: Uuid::nil(),
            kind,
            subject: subject.to_owned(),
            allowed,
            seconds: 60,
            note: String::new(),
            created_at_us: 0,
            created_by: String::new(),
        }
    }

    #[test]
    fn override_of_the_narrowest_network_applies() {
        let index = Index::new(vec![
            row(Kind::NewAccounts, "10.0.0.0/8", Some(1)),
            row(Kind::NewAccounts, "10.1.0.0/16", None),
            row(Kind::Orders, "account", Some(7)),
        ]);
        let limit = |count| Some(Some(Limit { count, seconds: 60 }));
        assert_eq!(index.of(Kind::NewAccounts, "10.2.0.1"), limit(1));
        assert_eq!(index.of(Kind::NewAccounts, "10.1.0.1"), Some(None));
        assert_eq!(index.of(Kind::NewAccounts, "11.0.0.1"), None);
        assert_eq!(index.of(Kind::Orders, "account"), limit(7));
        assert_eq!(index.of(Kind::Orders, "10.1.0.1"), None);
    }

    #[test]
    fn ipv6_clients_are_grouped_by_their_64_bit_prefix() {
        assert_eq!(network("10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1");
        assert_eq!(network("2001:db8:1:2:3::4".parse().unwrap()), "2001:db8:1:2::/64");
    }
}
