//! Nodes of the key service: their identifiers, addresses, and names in certificates.

use std::fmt;

use uuid::Uuid;
use x509::SpkiHash;

/// The prefix of the URI in a node's certificate. Only the profile for nodes issues such names, and a node is accepted with its
/// own key only.
pub const NODES_URI: &str = "spiffe://bulla/node";

/// The suffix of the DNS name in a node's certificate. No zone has it; it is never resolved.
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
    /// The URI of its certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{NODES_URI}/{self}")
    }

    /// The DNS name of its certificate.
    #[must_use]
    pub fn dns(&self) -> String {
        format!("{self}.{NODES_DNS}")
    }
}

/// A live node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its identifier.
    pub id: NodeId,
    /// Its name in logs and errors.
    pub name: String,
    /// Its site, as metrics write it.
    pub site: String,
    /// Host and port.
    pub address: String,
    /// SHA-256 of the public key in its certificate. A certificate with its name and another key is rejected.
    pub tls_spki_sha256: SpkiHash,
}

/// The node that a URI of a certificate names.
pub(crate) fn node_of_uri(uri: &str) -> Option<NodeId> {
    let text = uri.strip_prefix(NODES_URI)?.strip_prefix('/')?;
    let id = NodeId(Uuid::try_parse(text).ok()?.into_bytes());
    // No other way to write it.
    (id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_in_one_way() {
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
