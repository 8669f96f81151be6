//! The identity of a client, and the patterns by which a tenant matches it.

use rustls::pki_types::CertificateDer;
use x509::{Certificate, GeneralName, SpkiHash};

use crate::node::{NodeId, node_of_uri};

/// Pattern for the identity of a client.
#[derive(Debug)]
pub(super) enum Pattern {
    Organization(String),
    Dns(String),
    /// A DNS suffix that starts with a dot, and follows exactly one label.
    DnsBelow(String),
    Uri(String),
    UriBelow(String),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(organization) = text.strip_prefix("O=") {
            return (!organization.is_empty()).then(|| Self::Organization(organization.to_owned()));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let whole = !scheme.is_empty() && !rest.is_empty();
            let pattern = if text.ends_with('/') { Self::UriBelow } else { Self::Uri };
            return whole.then(|| pattern(text.to_owned()));
        }
        let lower = text.to_ascii_lowercase();
        let below = lower.strip_prefix('*').filter(|rest| rest.starts_with('.'));
        let name = below.map_or(lower.as_str(), |rest| &rest[1..]);
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if !name.split('.').all(label) {
            return None;
        }
        Some(below.map_or_else(|| Self::Dns(lower.clone()), |rest| Self::DnsBelow(rest.to_owned())))
    }

    pub(super) fn knows(&self, identity: &Identity) -> bool {
        match self {
            Self::Organization(name) => identity.organization.as_ref() == Some(name),
            Self::Dns(name) => identity.dns.contains(name),
            Self::DnsBelow(rest) => {
                let below = |name: &String| name.find('.').is_some_and(|at| at > 0 && name[at..] == **rest);
                identity.dns.iter().any(below)
            }
            Self::Uri(uri) => identity.uris.contains(uri),
            Self::UriBelow(uri) => {
                identity.uris.iter().any(|found| found.starts_with(uri) && !found.contains("/.."))
            }
        }
    }
}

/// The identity in a client certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Identity {
    pub(super) is_local: bool,
    /// Whether the client connected to the listener for nodes.
    is_node: bool,
    organization: Option<String>,
    /// DNS names in lower case.
    dns: Vec<String>,
    uris: Vec<String>,
    /// SHA-256 of the certificate's public key.
    spki_sha256: Option<SpkiHash>,
}

impl Identity {
    /// Returns the identity of a client on a Unix socket.
    #[must_use]
    pub fn socket() -> Self {
        Self { is_local: true, ..Self::default() }
    }

    /// Marks the identity as a node's. Nodes forward requests of other nodes' clients.
    #[must_use]
    pub(crate) fn into_node(self) -> Self {
        Self { is_node: true, ..self }
    }

    pub(crate) fn is_node(&self) -> bool {
        self.is_node
    }

    /// Returns SHA-256 of the public key in the client's certificate; `None` for a client on a Unix socket.
    pub(crate) fn spki_sha256(&self) -> Option<SpkiHash> {
        self.spki_sha256
    }

    /// Returns the node that the certificate names, and its public key.
    pub(crate) fn node(&self) -> Option<(NodeId, SpkiHash)> {
        Some((self.uris.iter().find_map(|uri| node_of_uri(uri))?, self.spki_sha256?))
    }

    /// Reads the identity from the verified leaf of a client. An unreadable certificate matches no tenant.
    #[must_use]
    pub fn of_chain(chain: Option<&[CertificateDer<'_>]>) -> Self {
        let Some(leaf) = chain.and_then(<[_]>::first) else { return Self::default() };
        let Ok(leaf) = Certificate::parse(leaf) else {
            tracing::info!("cannot parse a client certificate to find its tenant");
            return Self::default();
        };
        let mut identity = Self {
            organization: leaf.subject.organization.clone(),
            spki_sha256: Some(leaf.public_key.spki_sha256),
            ..Self::default()
        };
        for name in leaf.subject_alt_names {
            match name {
                GeneralName::Dns(name) => identity.dns.push(name.to_ascii_lowercase()),
                GeneralName::Uri(uri) => identity.uris.push(uri),
                _ => {}
            }
        }
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(organization: &str, dns: &[&str], uris: &[&str]) -> Identity {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Identity {
            organization: Some(organization.to_owned()),
            dns: own(dns),
            uris: own(uris),
            ..Identity::default()
        }
    }

    #[test]
    fn client_identity_matches_patterns_exactly() {
        let client = identity("A", &["edge.a.example", "x.y.b.example"], &["spiffe://a.example/edge/1"]);
        for (pattern, knows) in [
            ("O=A", true),
            ("O=a", false),
            ("O=AB", false),
            ("edge.a.example", true),
            ("EDGE.A.example", true),
            ("a.example", false),
            ("*.a.example", true),
            ("*.example", false),
            ("*.y.b.example", true),
            ("*.b.example", false),
            ("spiffe://a.example/edge/1", true),
            ("spiffe://a.example/edge/", true),
            ("spiffe://a.example/edge", false),
            ("spiffe://a.example/edge/1/", false),
            ("spiffe://a.exam/", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().knows(&client), knows, "{pattern}");
        }
        for bad in ["", "O=", "*", "*.", "a..b", "a b", "://x", "x://", "**.a", "*.*.a", "a.*", "*a.example"]
        {
            assert!(Pattern::parse(bad).is_none(), "{bad}");
        }
    }
}
