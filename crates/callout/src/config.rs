//! How a configured service is reached over HTTPS.

use keys::Secret;
use serde::Deserialize;

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
    /// Allows link-local and cloud metadata addresses, which are refused otherwise.
    pub allow_link_local: bool,
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
