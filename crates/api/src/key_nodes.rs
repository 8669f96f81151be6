//! Requests of key service nodes, over mutual TLS: enrolment, heartbeat, changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request to enrol a host as a key service node.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeEnrolment))]
pub struct EnrolmentBody {
    /// The node token. It can be used once.
    pub token: String,
    /// CSR for the certificate, PEM, signed with the key (P-256) generated on the host.
    pub csr_pem: String,
    /// Public key for encryption to the node: X-Wing, 1,216 bytes, base64.
    pub kem: String,
    /// Address (`HOST:PORT`) to which other nodes send signing requests.
    #[cfg_attr(feature = "schemas", schema(example = "10.1.0.7:2410"))]
    pub address: String,
    /// Name of the node; derived from its identifier when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
}

/// A signed statement about a node.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeStatement))]
pub struct StatementView {
    /// JSON with the node, name, site, address, KEM public key, attributes and expiry time.
    pub payload: String,
    /// Ed25519 signature of `bulla key node statement v1`, a line feed, and the payload; base64.
    pub signature: String,
}

/// A node's certificate, and the trust anchors for other nodes.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = EnrolledKeyNode))]
pub struct EnrolledView {
    /// UUID of the node, as in `/api/v1/key-nodes/{node}`.
    pub node: Uuid,
    /// Name of the node.
    pub name: String,
    /// Name of the site.
    pub site: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// CA certificates that verify this server and all nodes, PEM.
    pub ca_pem: String,
    /// Signed statement with the node's name, site, address and attributes.
    pub statement: StatementView,
    /// Public key that verifies statements: SubjectPublicKeyInfo, DER, base64.
    pub statement_key: String,
}

/// A request for the next certificate.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeRenewal))]
pub struct RenewalBody {
    /// CSR, PEM, signed with the key of the current certificate.
    pub csr_pem: String,
}

/// Request body of a node's heartbeat: its address and its round-trip times to other nodes.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeBeat))]
pub struct BeatBody {
    /// New address for requests of other nodes; unchanged when absent.
    pub address: Option<String>,
    /// `since` of the last response; 0 or absent for a node that has no membership data.
    #[serde(default)]
    pub since: i64,
    /// Round-trip times to other nodes in milliseconds. The server stores the 64 shortest.
    #[serde(default)]
    pub measured: BTreeMap<Uuid, u32>,
}

/// Changes of the membership of the key service.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeMembership))]
pub struct MembershipView {
    /// Value to send as `since` in the next heartbeat.
    pub since: i64,
    /// Whether the node must discard its membership data. Only nodes in this response and its continuation are members.
    pub anew: bool,
    /// Whether more changes are available. Send the next request immediately.
    pub more: bool,
    /// Signed statements about active nodes that are new or have changed, at most 256.
    pub nodes: Vec<StatementView>,
    /// Nodes that are no longer active. The list includes the nodes in `absent`, unless `anew` is set.
    pub gone: Vec<Uuid>,
    /// Signed statements about nodes whose heartbeat is overdue and that are not retired. Each of these nodes stays a member until
    /// its statement expires.
    pub absent: Vec<StatementView>,
}

/// Response to a node's heartbeat.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeBeatAnswer))]
pub struct BeatView {
    /// Time of this server in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
    /// Interval of the heartbeats in milliseconds.
    pub beat_every_ms: u64,
    /// Time in milliseconds after the last heartbeat for which the node counts as active.
    pub lease_ms: u64,
    /// Changes of the membership, including the node itself.
    pub membership: MembershipView,
    /// Number of the last change of policies, of private keys, or of policy seeds encrypted to the node. `/key-nodes/self/state`
    /// returns the changes.
    pub state: i64,
}

/// Changes of keys and policies that concern the calling node.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeNews))]
pub struct NewsView {
    /// Value to send as `after` in the next request.
    pub next: i64,
    /// Whether more changes are available. Send the next request immediately.
    pub more: bool,
    /// Whether the node must discard its state. Only data in this response and its continuation are valid.
    pub anew: bool,
    /// Policies that are new, changed or deleted.
    pub policies: Vec<PolicyNewsView>,
    /// Policy seeds encrypted to this node that are new or withdrawn. A seed is sent before the private keys that it decrypts, or
    /// together with them.
    pub wraps: Vec<WrapNewsView>,
    /// Private keys of all policies that are new, re-encrypted or withdrawn.
    pub keys: Vec<KeyNewsView>,
}

/// A new, changed or deleted policy.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodePolicyNews))]
pub struct PolicyNewsView {
    /// UUID of the policy, to which seeds and private keys refer.
    pub id: Uuid,
    /// Name of the policy.
    pub name: String,
    /// Formula that determines which nodes satisfy the policy.
    pub formula: String,
    /// Generation of the newest key pair.
    pub generation: u32,
    /// Whether the policy was deleted.
    pub removed: bool,
}

/// The seed of a policy, encrypted to the node.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeWrapNews))]
pub struct WrapNewsView {
    /// UUID of the policy, as in `/api/v1/key-policies/{policy}`.
    pub policy: Uuid,
    /// Generation of the key pair.
    pub generation: u32,
    /// Ciphertext (HPKE with X-Wing), base64; null after withdrawal.
    pub blob: Option<String>,
}

/// A private key, encrypted to a policy.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeKeyNews))]
pub struct KeyNewsView {
    /// SubjectPublicKeyInfo that identifies the key, DER, base64.
    pub spki: String,
    /// Display name of the key; not unique.
    pub name: String,
    /// Key type.
    pub kind: String,
    /// Identifier of the policy to which the key is encrypted.
    pub policy: Uuid,
    /// Generation of the key pair to which the key is encrypted.
    pub generation: u32,
    /// Ciphertext (HPKE with X-Wing), base64; null after withdrawal.
    pub blob: Option<String>,
}
