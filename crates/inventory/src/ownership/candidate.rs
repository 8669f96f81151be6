//! What rules of ownership are matched against.

use std::net::IpAddr;

use store::EndpointKey;

use crate::tables::ownership::OWNERSHIP_NAMES_MAX;

/// An endpoint or certificate that rules are matched against. Unknown texts are empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Candidate {
    /// Name, address or path.
    pub host: String,
    /// The requested server name (SNI).
    pub server_name: String,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// What the certificate speaks for: its subject alternative names, at most [`OWNERSHIP_NAMES_MAX`].
    pub names: Vec<String>,
    /// Issuer of the certificate.
    pub issuer: String,
    /// Protocol or cloud service: `tls`, `smtp`, `aws-acm`.
    pub protocol: String,
    /// The group of the watch that looks there.
    pub group: String,
    /// The tags that clouds and clusters give to it, or to the certificate wherever they keep it: one key may have several
    /// values then.
    pub tags: Vec<(String, String)>,
}

impl Candidate {
    /// An endpoint. Its address is the one connected to, else the one it is told apart by, else its host if that is one.
    #[must_use]
    pub fn of(endpoint: &EndpointKey, connected: Option<IpAddr>) -> Self {
        let address =
            connected.or_else(|| endpoint.address.parse().ok()).or_else(|| endpoint.host.parse().ok());
        Self {
            host: endpoint.host.clone(),
            server_name: endpoint.server_name.clone(),
            address,
            protocol: endpoint.protocol.clone(),
            ..Self::default()
        }
    }

    /// In lower case, once for all the rules it is held against.
    pub(super) fn lower(&self) -> Self {
        // Most endpoints are asked for by their host's name: once is enough.
        let server_name = if self.server_name == self.host { "" } else { &self.server_name };
        Self {
            host: self.host.to_ascii_lowercase(),
            server_name: server_name.to_ascii_lowercase(),
            address: self.address.map(|address| address.to_canonical()),
            names: self.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            issuer: self.issuer.to_lowercase(),
            protocol: self.protocol.to_ascii_lowercase(),
            group: self.group.to_ascii_lowercase(),
            tags: self
                .tags
                .iter()
                .map(|(key, value)| (key.to_ascii_lowercase(), value.to_ascii_lowercase()))
                .collect(),
        }
    }

    /// With the first of these names.
    #[must_use]
    pub fn named(mut self, names: &[String]) -> Self {
        self.names = names.iter().take(OWNERSHIP_NAMES_MAX).cloned().collect();
        self
    }
}
