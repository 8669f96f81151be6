//! Requests of key service nodes, over mutual TLS: enrollment, heartbeat, changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A host that wants to become a node.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeEnrolment))]
pub struct EnrolmentBody {
    /// The node token, used once.
    pub token: String,
    /// A request for the certificate, signed with the key made on the host (P-256), PEM.
    pub csr_pem: String,
    /// The public key to which the node opens what is sealed for it: X-Wing, 1,216 bytes, base64.
    pub kem: String,
    /// `HOST:PORT` where the other nodes ask it to sign.
    #[cfg_attr(feature = "schemas", schema(example = "10.1.0.7:2410"))]
    pub address: String,
    /// The node's name; one made of its identity when absent.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
}

/// A signed statement about a node.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeStatement))]
pub struct StatementView {
    /// JSON: node, name, site, address, KEM public key, attributes, and until when.
    pub payload: String,
    /// Ed25519 over `bulla key node statement v1`, a line feed, and the payload; base64.
    pub signature: String,
}

/// A node's certificate, and the trust anchors for other nodes.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = EnrolledKeyNode))]
pub struct EnrolledView {
    /// The node.
    pub node: Uuid,
    /// Its name.
    pub name: String,
    /// Its site's name.
    pub site: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// Certificates below which those of this server and of all nodes stand, PEM.
    pub ca_pem: String,
    /// The signed statement about the node.
    pub statement: StatementView,
    /// SubjectPublicKeyInfo of the key that signs statements, DER in base64.
    pub statement_key: String,
}

/// A request for the next certificate.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeRenewal))]
pub struct RenewalBody {
    /// Signed with the key of the one before, PEM.
    pub csr_pem: String,
}

/// A node is there.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeBeat))]
pub struct BeatBody {
    /// Where the others ask it now; as before when absent.
    pub address: Option<String>,
    /// `since` of the last answer; 0 or absent for a node that knows nothing of the others.
    #[serde(default)]
    pub since: i64,
    /// Milliseconds to others and back; the nearest 64 are kept.
    #[serde(default)]
    pub measured: BTreeMap<Uuid, u32>,
}

/// Who came, changed and went.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeMembership))]
pub struct MembershipView {
    /// To be sent with the next beat.
    pub since: i64,
    /// Start over: a node that neither this answer nor its continuation names is not a member.
    pub anew: bool,
    /// There is more: ask again at once.
    pub more: bool,
    /// Nodes that are there and that are new or have changed, at most 256.
    pub nodes: Vec<StatementView>,
    /// Nodes that are not there any more. Those in `absent` are among them, unless the answer begins again.
    pub gone: Vec<Uuid>,
    /// Nodes that were not heard in time and are not retired: each is a node until its statement ends.
    pub absent: Vec<StatementView>,
}

/// Response to a node's heartbeat.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeBeatAnswer))]
pub struct BeatView {
    /// This server's time, milliseconds since 1970.
    pub now_ms: i64,
    /// When to say so again, milliseconds.
    pub beat_every_ms: u64,
    /// How long it is believed without, milliseconds.
    pub lease_ms: u64,
    /// What changed among all nodes, itself included.
    pub membership: MembershipView,
    /// The number of the last change of policies, sealed keys and the node's wraps: what is new is at
    /// `/key-nodes/self/state`.
    pub state: i64,
}

/// What changed of keys and policies for the node that asks.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeNews))]
pub struct NewsView {
    /// To be asked with next, as `after`.
    pub next: i64,
    /// There is more: ask again at once.
    pub more: bool,
    /// Start over: discard all state that this response and its continuation do not repeat.
    pub anew: bool,
    /// Policies that are new, changed, or gone.
    pub policies: Vec<PolicyNewsView>,
    /// The node's wraps that are new or withdrawn. One comes no later than the keys that it opens.
    pub wraps: Vec<WrapNewsView>,
    /// Sealed keys that are new, sealed again, or withdrawn, those of all policies.
    pub keys: Vec<KeyNewsView>,
}

/// A policy.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodePolicyNews))]
pub struct PolicyNewsView {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The formula: which nodes satisfy the policy.
    pub formula: String,
    /// Its newest pair.
    pub generation: u32,
    /// It is gone.
    pub removed: bool,
}

/// A policy's seed, sealed to the node.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeWrapNews))]
pub struct WrapNewsView {
    /// Of this policy.
    pub policy: Uuid,
    /// Of this pair of it.
    pub generation: u32,
    /// HPKE with X-Wing, base64; null once it is withdrawn.
    pub blob: Option<String>,
}

/// A private key, sealed to a policy.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyNodeKeyNews))]
pub struct KeyNewsView {
    /// Its SubjectPublicKeyInfo, DER in base64: what it is known by.
    pub spki: String,
    /// The display name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Sealed to this policy.
    pub policy: Uuid,
    /// To this pair of it.
    pub generation: u32,
    /// HPKE with X-Wing, base64; null once it is withdrawn.
    pub blob: Option<String>,
}
