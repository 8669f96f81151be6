//! The client of a request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A client: its address and, where it has authenticated, its name.
#[derive(Clone, Debug)]
pub struct Client {
    /// The address it connects from.
    pub address: SocketAddr,
    /// The name of the user, where the client has authenticated.
    pub user: Option<Arc<str>>,
    /// The URI names of its certificate, where it has authenticated by a certificate.
    pub certificate_uris: Option<Arc<[Arc<str>]>>,
    /// Whether it is in a network namespace of its own, so that its loopback addresses are not those of this machine.
    confined: bool,
}

impl Client {
    /// A client that has not authenticated.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, user: None, certificate_uris: None, confined: false }
    }

    /// A client in a network namespace of its own, in which all clients are `user`.
    pub fn confined(address: SocketAddr, user: Arc<str>) -> Self {
        Self { address, user: Some(user), certificate_uris: None, confined: true }
    }

    /// The same client, authenticated as `user`.
    pub fn known_as(&self, user: Option<Arc<str>>) -> Self {
        match user {
            Some(user) => Self { user: Some(user), certificate_uris: None, ..self.clone() },
            None => self.clone(),
        }
    }

    /// The same client, authenticated by a certificate of `user` with these URI names.
    pub fn certified_as(&self, user: Arc<str>, uris: Vec<Arc<str>>) -> Self {
        Self { user: Some(user), certificate_uris: Some(uris.into()), ..self.clone() }
    }

    /// Returns whether the client is on this machine, and reaches its loopback addresses without the proxy too.
    pub fn is_here(&self) -> bool {
        !self.confined && self.ip().is_loopback()
    }

    /// The client's IP address. IPv4-mapped addresses are IPv4.
    pub fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user}@{}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}
