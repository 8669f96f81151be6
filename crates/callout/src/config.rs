//! How a configured service is reached over HTTPS.

use keys::Secret;
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
    /// Allows link-local and cloud metadata addresses, which are refused otherwise. The host's configuration sets it, never a
    /// request.
    #[serde(deserialize_with = "never")]
    pub allow_link_local: bool,
}

/// Reads `false` alone: configurations that were stored before may hold it.
fn never<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    if bool::deserialize(deserializer)? {
        return Err(D::Error::custom(
            "allow_link_local is not set here: remove it, and set outbound.allow_link_local in the server's configuration \
             file if link-local and metadata addresses are really meant",
        ));
    }
    Ok(false)
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            roots: None,
            client_certificate: None,
            client_key: None,
            request_seconds: 30,
            allow_link_local: false,
        }
    }
}
