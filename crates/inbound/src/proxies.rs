//! Trusted proxies and load balancers in front of a listener. They may state the client's address.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks of trusted proxies. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Option<Arc<[IpNet]>>);

impl TrustedProxies {
    /// Creates a set of trusted proxies from their networks. An empty list trusts none.
    #[must_use]
    pub fn new(networks: &[IpNet]) -> Self {
        Self((!networks.is_empty()).then(|| networks.into()))
    }

    /// Returns whether `address` belongs to a trusted proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.as_ref().is_some_and(|networks| networks.iter().any(|network| network.contains(&address)))
    }
}
