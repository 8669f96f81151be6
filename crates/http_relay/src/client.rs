//! The client of a request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::clock::now;
use super::hangup::HangupSignal;

/// Seconds that open connections may continue after the expiry of their client's JSON Web Token. A client cannot present a new
/// token on an open connection.
const OPEN_AFTER_EXPIRY_S: i64 = 3_600;

/// Method by which a client authenticated.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// The client has not authenticated, or its user is known without a credential.
    #[default]
    None,
    /// A password or a token, and a signal for its removal.
    Secret(Ended),
    /// A client certificate with these URI names.
    Certificate(Arc<[Arc<str>]>),
    /// A JSON Web Token.
    Jwt(Arc<JwtClaims>),
}

/// Claims of a JSON Web Token whose signature, audience and validity were verified.
#[derive(Clone, Debug)]
pub struct JwtClaims {
    /// Name of the token's issuer in the configuration.
    pub issuer: Arc<str>,
    /// Expiry in seconds since 1970-01-01 UTC. The token is rejected from this second on.
    pub expires: i64,
    /// All claims, as a JSON object.
    pub claims: Value,
}

/// Signal that a password or a token was removed or changed. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub struct Ended(CancellationToken);

impl Ended {
    /// Marks the password or token as removed.
    pub fn end(&self) {
        self.0.cancel();
    }

    /// Returns whether both are signals of one password or token.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns whether the password or token was removed.
    pub fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A client: its address and, if authenticated, its user name.
#[derive(Clone, Debug)]
pub struct Client {
    /// Address that the client connects from.
    pub address: SocketAddr,
    /// The user name, if the client has authenticated.
    pub user: Option<Arc<str>>,
    /// Method by which the client authenticated.
    pub credential: Credential,
    /// Whether the client has its own network namespace, so that its loopback addresses differ from this machine's.
    confined: bool,
    /// Signals that the client has closed its connection.
    hangup: HangupSignal,
}

impl Client {
    /// Creates a client that has not authenticated.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            user: None,
            credential: Credential::None,
            confined: false,
            hangup: HangupSignal::default(),
        }
    }

    /// Creates a client in its own network namespace. All clients of this namespace have the user name `user`.
    pub fn confined(address: SocketAddr, user: Arc<str>) -> Self {
        let hangup = HangupSignal::default();
        Self { address, user: Some(user), credential: Credential::None, confined: true, hangup }
    }

    /// Returns the same client with a signal for the end of its connection.
    #[must_use]
    pub fn with_hangup(self, hangup: HangupSignal) -> Self {
        Self { hangup, ..self }
    }

    /// Waits until the client has closed its connection. Never returns for a client without a signal.
    pub async fn hung_up(&self) {
        self.hangup.closed().await;
    }

    /// Returns the same client with the user name `user`.
    pub fn known_as(&self, user: Option<Arc<str>>) -> Self {
        match user {
            Some(user) => self.authenticated_as(user, Credential::None),
            None => self.clone(),
        }
    }

    /// Returns the same client, authenticated as `user` by `credential`.
    pub fn authenticated_as(&self, user: Arc<str>, credential: Credential) -> Self {
        Self { user: Some(user), credential, ..self.clone() }
    }

    /// Waits until the client's connections must end: its password or token was removed or changed, or its JSON Web Token has
    /// expired for longer than the grace time.
    pub async fn ended(&self) {
        match &self.credential {
            Credential::Secret(ended) => ended.0.cancelled().await,
            Credential::Jwt(token) => loop {
                let left = token.expires.saturating_add(OPEN_AFTER_EXPIRY_S).saturating_sub(now().0);
                if left <= 0 {
                    return;
                }
                // Checked at least once a minute, because the clock may be set meanwhile.
                tokio::time::sleep(Duration::from_secs(left.clamp(1, 60) as u64)).await;
            },
            Credential::None | Credential::Certificate(_) => std::future::pending().await,
        }
    }

    /// Returns whether the client is on this machine and can reach the machine's loopback addresses without the proxy.
    pub fn is_local(&self) -> bool {
        !self.confined && self.ip().is_loopback()
    }

    /// Returns the client's IP address. IPv4-mapped addresses are IPv4.
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
