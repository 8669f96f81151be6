//! Settings of an HTTPS client for a service that an operator configured.

use keys::Secret;
use outbound::guard::Guard;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// Settings of an HTTPS client for a service that an operator configured.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Roots that the service's TLS certificate must chain to, in PEM. They replace the system's roots.
    pub roots: Option<String>,
    /// TLS client certificate chain that is sent to the service, in PEM.
    pub client_certificate: Option<String>,
    /// Private key of the client certificate, in PEM.
    pub client_key: Option<Secret>,
    /// Timeout of one request, in seconds.
    pub request_seconds: u32,
    /// An obsolete setting. The configuration of the host now decides whether link-local addresses are allowed.
    pub allow_link_local: ObsoleteFlag,
    /// The addresses that may be connected to. Only the configuration of the host sets them, never an API request.
    #[serde(skip)]
    pub guard: Guard,
}

/// An obsolete flag that accepts only `false`, because stored configurations may contain it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObsoleteFlag;

impl<'de> Deserialize<'de> for ObsoleteFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !bool::deserialize(deserializer)? {
            return Ok(Self);
        }
        Err(D::Error::custom(
            "allow_link_local cannot be set in this object: remove it. To allow link-local and metadata addresses, set \
             outbound.allow_link_local in the server's configuration file",
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
            allow_link_local: ObsoleteFlag,
            guard: Guard::default(),
        }
    }
}
