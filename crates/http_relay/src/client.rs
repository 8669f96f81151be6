//! The client of a request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::clock::now;

/// Open connections may go on for so long after the expiry of their client's JSON Web Token: a job cannot show another one on them.
const OPEN_AFTER_EXPIRY_S: i64 = 3_600;

/// How a client has authenticated.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// It has not, or its user is known without a credential.
    #[default]
    None,
    /// By a password or a token, which is valid until its end.
    Secret(Ended),
    /// By a certificate with these URI names.
    Certificate(Arc<[Arc<str>]>),
    /// By a JSON Web Token.
    Jwt(Arc<JwtClaims>),
}

/// The claims of a JSON Web Token whose signature, audience and time were verified.
#[derive(Clone, Debug)]
pub struct JwtClaims {
    /// The name of its issuer in the configuration.
    pub issuer: Arc<str>,
    /// The second (Unix time) from which it lets nobody in.
    pub expires: i64,
    /// All claims, a JSON object.
    pub claims: Value,
}

/// The end of a password or a token: it was removed or changed. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ended(CancellationToken);

impl Ended {
    /// Ends the password or token.
    pub fn end(&self) {
        self.0.cancel();
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A client: its address and, where it has authenticated, its name.
#[derive(Clone, Debug)]
pub struct Client {
    /// The address it connects from.
    pub address: SocketAddr,
    /// The name of the user, where the client has authenticated.
    pub user: Option<Arc<str>>,
    /// How it has authenticated.
    pub credential: Credential,
    /// Whether it is in a network namespace of its own, so that its loopback addresses are not those of this machine.
    confined: bool,
}

impl Client {
    /// A client that has not authenticated.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, user: None, credential: Credential::None, confined: false }
    }

    /// A client in a network namespace of its own, in which all clients are `user`.
    pub fn confined(address: SocketAddr, user: Arc<str>) -> Self {
        Self { address, user: Some(user), credential: Credential::None, confined: true }
    }

    /// The same client, authenticated as `user`.
    pub fn known_as(&self, user: Option<Arc<str>>) -> Self {
        match user {
            Some(user) => self.proven_by(user, Credential::None),
            None => self.clone(),
        }
    }

    /// The same client, authenticated as `user` by `credential`.
    pub fn proven_by(&self, user: Arc<str>, credential: Credential) -> Self {
        Self { user: Some(user), credential, ..self.clone() }
    }

    /// Waits until the client's password or token is removed or changed, or its JSON Web Token has expired for so long that open
    /// connections end.
    pub async fn ended(&self) {
        match &self.credential {
            Credential::Secret(ended) => ended.0.cancelled().await,
            Credential::Jwt(token) => loop {
                let left = token.expires.saturating_add(OPEN_AFTER_EXPIRY_S).saturating_sub(now().0);
                if left <= 0 {
                    return;
                }
                // The clock may be set meanwhile.
                tokio::time::sleep(Duration::from_secs(left.clamp(1, 60) as u64)).await;
            },
            Credential::None | Credential::Certificate(_) => std::future::pending().await,
        }
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
