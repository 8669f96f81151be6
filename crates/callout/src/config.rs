//! How a configured service is reached over HTTPS.

use keys::Secret;
use outbound::guard::Guard;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// How a configured service is reached over HTTPS.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Roots its TLS certificate must chain to, in PEM, instead of the system's.
    pub roots: Option<String>,
    /// Our TLS client certificate chain, in PEM.
    pub client_certificate: Option<String>,
    /// The key to it, in PEM.
    pub client_key: Option<Secret>,
    /// Longest one request may take, seconds.
    pub request_seconds: u32,
    /// A former member. Link-local addresses are the host's to allow.
    pub allow_link_local: FormerFlag,
    /// The addresses that may be connected to. The host's configuration sets it, never a request.
    #[serde(skip)]
    pub guard: Guard,
}

/// A flag that may be `false` alone: configurations that were stored before may hold it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FormerFlag;

impl<'de> Deserialize<'de> for FormerFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !bool::deserialize(deserializer)? {
            return Ok(Self);
        }
        Err(D::Error::custom(
            "allow_link_local is not set here: remove it, and set outbound.allow_link_local in the server's configuration \
             file if link-local and metadata addresses are really meant",
        ))
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            roots: None,
            client_certificate: None,
            client_key: None,
            request_seconds: 30,
            allow_link_local: FormerFlag,
            guard: Guard::default(),
        }
    }
}
