//! The protocol between nodes and the control plane.
//!
//! | request | response |
//! |---|---|
//! | `POST /api/v1/key-nodes/enroll` [`NodeEnrolment`] | [`EnrolledNode`] |
//! | `POST /api/v1/key-nodes/self/renew` [`NodeRenewal`] | [`EnrolledNode`] |
//! | `POST /api/v1/key-nodes/self/beat` [`Heartbeat`] | [`HeartbeatResponse`] |
//! | `GET /api/v1/key-nodes/self/state?after=N` | [`News`] |
//!
//! All requests but the first use mutual TLS. A node ignores unknown fields.

use std::collections::BTreeMap;

pub use keyless::places::SignedStatement;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Maximum number of membership statements in one heartbeat response. 256 statements are about 700 KB.
pub const MEMBERS_MAX: usize = 256;
/// Maximum number of nodes in a node's report of round-trip times: the nearest ones.
pub const MEASURED_MAX: usize = 64;

/// Request of a host to become a node.
#[derive(Deserialize, Serialize)]
pub struct NodeEnrolment {
    /// The single-use token.
    pub token: String,
    /// CSR in PEM, signed with the key generated on the host (P-256).
    pub csr_pem: String,
    /// The node's KEM public key (X-Wing) in base64. Policy keys are wrapped to it.
    pub kem: String,
    /// Address for signing requests of other nodes, `HOST:PORT`.
    pub address: String,
    /// Name of the node. Default: a name derived from the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Request of a node for its next certificate.
#[derive(Debug, Deserialize, Serialize)]
pub struct NodeRenewal {
    /// CSR in PEM, signed with the key of the current certificate.
    pub csr_pem: String,
}

/// A node's new certificate, and its trust anchors for other nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EnrolledNode {
    /// UUID that the control plane assigned to the node.
    pub node: Uuid,
    /// Name of the node, unique in the control plane.
    pub name: String,
    /// Name of the node's site.
    pub site: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// PEM trust anchors for the certificates of the server and of all nodes.
    pub ca_pem: String,
    /// The signed statement about the node.
    pub statement: SignedStatement,
    /// SubjectPublicKeyInfo of the key that signs statements, as base64 of the DER.
    pub statement_key: String,
}

/// A node's heartbeat: its address, the membership that it knows, and its measured round-trip times.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Heartbeat {
    /// Address for signing requests of other nodes. Absent: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// [`Membership::since`] of the last response; 0 for none.
    #[serde(default)]
    pub since: i64,
    /// Round-trip times to other nodes in milliseconds, at most [`MEASURED_MAX`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<Uuid, u32>,
}

/// Response to a heartbeat: time, intervals, and changes of nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HeartbeatResponse {
    /// Time of the control plane, milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
    /// Milliseconds until the next heartbeat.
    pub beat_every_ms: u64,
    /// Milliseconds for which the node counts as present without another heartbeat.
    pub lease_ms: u64,
    /// Changes of all nodes, including the receiving one.
    pub membership: Membership,
    /// Number of the last change of policies, sealed keys and the policy keys wrapped to the node. If it differs from the last
    /// known number, the node requests the changes as [`News`].
    #[serde(default)]
    pub state: i64,
}

/// Changes of the members: new and changed statements, and nodes that became absent or were retired.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Membership {
    /// Version of the membership after this response. The node sends it with the next heartbeat, and gets later changes only.
    pub since: i64,
    /// Whether a full listing starts: nodes that are neither in this response nor in its continuations are no members.
    #[serde(default)]
    pub anew: bool,
    /// Whether there are more changes: send the next heartbeat immediately.
    #[serde(default)]
    pub more: bool,
    /// Statements of present nodes, at most [`MEMBERS_MAX`].
    pub nodes: Vec<SignedStatement>,
    /// Nodes that are not present. Includes the nodes in `absent`, for older versions that ignore that field.
    pub gone: Vec<Uuid>,
    /// Nodes whose heartbeats the control plane does not receive, and that are not retired. Each is a member until its statement
    /// expires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<SignedStatement>,
}

/// Changes of keys and policies for one node. Idempotent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct News {
    /// Number to send as `after` in the next request; 0 starts a full listing.
    pub next: i64,
    /// Whether there are more changes: repeat the request immediately.
    pub more: bool,
    /// Whether a full listing starts, as after a restored backup: objects that are neither in this response nor in its
    /// continuations do not exist.
    #[serde(default)]
    pub anew: bool,
    /// New, changed and deleted policies.
    pub policies: Vec<PolicyUpdate>,
    /// Policy keys newly wrapped to the node, and withdrawn ones. A wrapped policy key is never sent after the sealed keys that it
    /// opens.
    pub wraps: Vec<WrapUpdate>,
    /// New, resealed and withdrawn keys of all policies.
    pub keys: Vec<SealedKeyUpdate>,
}

/// A new, changed or deleted policy.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyUpdate {
    /// UUID that the control plane assigned to the policy.
    pub id: Uuid,
    /// Name of the policy, unique among policies that are not deleted.
    pub name: String,
    /// Formula that selects the nodes: a [`keyless::places::Formula`].
    pub formula: String,
    /// Number of the newest generation.
    pub generation: u32,
    /// Whether the policy was deleted.
    pub removed: bool,
}

/// A policy's private key, wrapped to the node, for [`keys::sealed::NodeKey::unwrap_seed`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WrapUpdate {
    /// Id of the policy.
    pub policy: Uuid,
    /// Number of the policy's generation, from 1.
    pub generation: u32,
    /// The wrapped key in base64. Absent once withdrawn: the node then drops the opened key.
    pub blob: Option<String>,
}

/// A private key, sealed to a policy, for [`keys::sealed::PolicyKey::open_key`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SealedKeyUpdate {
    /// SubjectPublicKeyInfo, which identifies the key, DER in base64.
    pub spki: String,
    /// Display name, which need not be unique.
    pub name: String,
    /// Name of the key type, for example `rsa2048`.
    pub kind: String,
    /// Id of the policy that the key is sealed to.
    pub policy: Uuid,
    /// Generation that the key is sealed to.
    pub generation: u32,
    /// The sealed bytes in base64. Absent once withdrawn: the node then stops signing with the key.
    pub blob: Option<String>,
}
