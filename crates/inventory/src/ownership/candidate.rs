//! Endpoints and certificates that ownership rules are matched against.

use std::net::IpAddr;

use store::EndpointKey;

use crate::tables::ownership::OWNERSHIP_NAMES_MAX;

/// An endpoint or certificate that rules are matched against. Unknown texts are empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Candidate {
    /// Host name, address or path.
    pub host: String,
    /// The requested server name (SNI).
    pub server_name: String,
    /// IP address of the endpoint, if it is known.
    pub address: Option<IpAddr>,
    /// The certificate's subject alternative names, at most [`OWNERSHIP_NAMES_MAX`].
    pub names: Vec<String>,
    /// Issuer of the certificate.
    pub issuer: String,
    /// Protocol or cloud service: `tls`, `smtp`, `aws-acm`.
    pub protocol: String,
    /// Group of the watch that scans the endpoint.
    pub group: String,
    /// Tags of the cloud resource. For other endpoints, tags of all resources that contain the certificate, so that a key may
    /// have several values.
    pub tags: Vec<(String, String)>,
}

impl Candidate {
    /// Creates a candidate for an endpoint. Its address is the connected address, else the address in its key, else its host if
    /// the host is an address.
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

    /// Converts the texts to lower case, so that each rule need not do it.
    pub(super) fn lower(&self) -> Self {
        // For most endpoints SNI is the host name; then it is not matched twice.
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

    /// Sets the names of the certificate, at most the first [`OWNERSHIP_NAMES_MAX`].
    #[must_use]
    pub fn named(mut self, names: &[String]) -> Self {
        self.names = names.iter().take(OWNERSHIP_NAMES_MAX).cloned().collect();
        self
    }
}
