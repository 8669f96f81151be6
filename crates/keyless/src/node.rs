//! Nodes of the key service: their identifiers, addresses, and names in certificates.

use std::fmt;

use uuid::Uuid;
use x509::SpkiHash;

/// Prefix of the URI in a node's certificate. Only the certificate profile for nodes permits such URIs. The public key in the
/// certificate must also be the node's key.
pub const NODES_URI: &str = "spiffe://bulla/node";

/// Suffix of the DNS name in a node's certificate. The domain does not exist; the name is never resolved.
pub const NODES_DNS: &str = "node.bulla.internal";

/// The permanent identifier of a node: a UUID.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).hyphenated().fmt(f)
    }
}

impl NodeId {
    /// Returns the URI in the node's certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{NODES_URI}/{self}")
    }

    /// Returns the DNS name in the node's certificate.
    #[must_use]
    pub fn dns(&self) -> String {
        format!("{self}.{NODES_DNS}")
    }
}

/// A node that is currently a member of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Permanent identifier, as in the node's certificate.
    pub id: NodeId,
    /// Name of the node in logs and errors.
    pub name: String,
    /// Name of the site, as used in metrics.
    pub site: String,
    /// Host and port of the node.
    pub address: String,
    /// SHA-256 of the public key in the node's certificate. A certificate with the node's name and another key is rejected.
    pub tls_spki_sha256: SpkiHash,
}

/// Returns the node that is named by a URI of a certificate.
pub(crate) fn node_of_uri(uri: &str) -> Option<NodeId> {
    let text = uri.strip_prefix(NODES_URI)?.strip_prefix('/')?;
    let id = NodeId(Uuid::try_parse(text).ok()?.into_bytes());
    // Accept only the canonical form.
    (id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_maps_to_exactly_one_spiffe_uri() {
        let id = NodeId([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(id.uri(), "spiffe://bulla/node/01234567-89ab-cdef-0102-030405060708");
        assert_eq!(id.dns(), "01234567-89ab-cdef-0102-030405060708.node.bulla.internal");
        assert_eq!(node_of_uri(&id.uri()), Some(id));
        for other in [
            "spiffe://bulla/agent/01234567-89ab-cdef-0102-030405060708",
            "spiffe://bulla/node01234567-89ab-cdef-0102-030405060708",
            "spiffe://bulla/node/01234567-89ab-cdef-0102-03040506070",
            "spiffe://bulla/node/01234567-89AB-cdef-0102-030405060708",
            "spiffe://bulla/node/0123456789abcdef0102030405060708",
            "spiffe://bulla/node/01234567-89ab-cdef-0102-030405060708/x",
            "spiffe://bulla/node/é1234567-89ab-cdef-0102-03040506070",
        ] {
            assert_eq!(node_of_uri(other), None, "{other}");
        }
    }
}
