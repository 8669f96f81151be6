//! Who asks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A client: where it is and, where it had to say, who it is.
#[derive(Clone, Debug)]
pub struct Client {
    /// The address it connects from.
    pub address: SocketAddr,
    /// The name in the configuration of who has shown a password or a token.
    pub user: Option<Arc<str>>,
}

impl Client {
    /// Of whom no more is known.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, user: None }
    }

    /// The same, as `user`.
    pub fn known_as(&self, user: Option<Arc<str>>) -> Self {
        Self { address: self.address, user: user.or_else(|| self.user.clone()) }
    }

    /// Whether it is on this machine, and reaches what is of this machine alone without the proxy too.
    pub fn is_here(&self) -> bool {
        self.ip().is_loopback()
    }

    /// Its address alone, one of IPv4 as such.
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
