//! What nodes and the control plane say to each other.
//!
//! | request | answer |
//! |---|---|
//! | `POST /api/v1/key-nodes/enroll` [`NodeEnrolment`] | [`EnrolledNode`] |
//! | `POST /api/v1/key-nodes/self/renew` [`NodeRenewal`] | [`EnrolledNode`] |
//! | `POST /api/v1/key-nodes/self/beat` [`Beat`] | [`BeatAnswer`] |
//! | `GET /api/v1/key-nodes/self/state?after=N` | [`News`] |
//!
//! All but the first over mutual TLS. A node passes over fields that it does not know.

use std::collections::BTreeMap;

pub use keyless::places::SignedStatement;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Statements in one answer: some 700 KB.
pub const MEMBERS_MAX: usize = 256;
/// Others to which a node says how far it is: the nearest of them.
pub const MEASURED_MAX: usize = 64;

/// A host that wants to become a node.
#[derive(Deserialize, Serialize)]
pub struct NodeEnrolment {
    /// The token, used once.
    pub token: String,
    /// A request for the certificate, signed with the key made on the host (P-256), PEM.
    pub csr_pem: String,
    /// The public key to which it opens what is sealed for it (X-Wing), base64.
    pub kem: String,
    /// `HOST:PORT` where the other nodes ask it to sign.
    pub address: String,
    /// The node's name; one of its site's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A request for the next certificate.
#[derive(Debug, Deserialize, Serialize)]
pub struct NodeRenewal {
    /// Signed with the key of the one before, PEM.
    pub csr_pem: String,
}

/// A node's new certificate, and its trust anchors for other nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct EnrolledNode {
    /// The node.
    pub node: Uuid,
    /// Its name.
    pub name: String,
    /// Its site's name.
    pub site: String,
    /// The certificate and its chain, PEM.
    pub certificate_pem: String,
    /// Certificates below which those of the server and of all nodes stand, PEM.
    pub ca_pem: String,
    /// The signed statement about the node.
    pub statement: SignedStatement,
    /// SubjectPublicKeyInfo of the key that signs statements, DER in base64.
    pub statement_key: String,
}

/// A node is there.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Beat {
    /// Where the others ask it now; as before when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What it knows of the others: [`Membership::since`] of the last answer; 0 for nothing.
    #[serde(default)]
    pub since: i64,
    /// Milliseconds to others and back, [`MEASURED_MAX`] of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<Uuid, u32>,
}

/// The response to a heartbeat.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BeatAnswer {
    /// The control plane's time, milliseconds since 1970.
    pub now_ms: i64,
    /// When to beat again, milliseconds.
    pub beat_every_ms: u64,
    /// How long it is believed to be there without, milliseconds.
    pub lease_ms: u64,
    /// What changed among all nodes, itself included.
    pub membership: Membership,
    /// The number of the last change of policies, sealed keys and the node's wraps: what is new is asked for as [`News`].
    #[serde(default)]
    pub state: i64,
}

/// Who came, changed and went.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Membership {
    /// To be sent with the next beat.
    pub since: i64,
    /// Begin again: who is not told in this answer and those that it goes on with is not there.
    #[serde(default)]
    pub anew: bool,
    /// There is more: ask again at once.
    #[serde(default)]
    pub more: bool,
    /// Nodes that are there, [`MEMBERS_MAX`] at most.
    pub nodes: Vec<SignedStatement>,
    /// Nodes that are not. Those in `absent` are among them, for nodes of a version that does not read that.
    pub gone: Vec<Uuid>,
    /// Nodes that the control plane does not hear and has not retired: each is a node until its statement ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<SignedStatement>,
}

/// Changed keys and policies for one node. Applying them twice changes nothing more.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct News {
    /// To be asked with next, as `after`; 0 begins again.
    pub next: i64,
    /// There is more: ask again at once.
    pub more: bool,
    /// Begin again, as after a restored backup: what is not told in this answer and those that it goes on with is not there.
    #[serde(default)]
    pub anew: bool,
    /// Policies that are new, changed, or gone.
    pub policies: Vec<PolicyNews>,
    /// The node's wraps that are new or withdrawn. One comes no later than the keys that it opens.
    pub wraps: Vec<WrapNews>,
    /// Sealed keys that are new, sealed again, or withdrawn, those of all policies.
    pub keys: Vec<KeyNews>,
}

/// A policy.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyNews {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Which nodes satisfy it: a [`keyless::places::Formula`].
    pub formula: String,
    /// Its newest pair.
    pub generation: u32,
    /// Whether it was deleted.
    pub removed: bool,
}

/// A seed, sealed to the node: for [`keys::sealed::NodeKey::unwrap_seed`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WrapNews {
    /// Of this policy.
    pub policy: Uuid,
    /// Of this pair of it.
    pub generation: u32,
    /// The wrap, base64; absent once withdrawn: the node then forgets the opened key.
    pub blob: Option<String>,
}

/// A private key, sealed to a policy: for [`keys::sealed::PolicyKey::open_key`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeyNews {
    /// Its SubjectPublicKeyInfo, DER in base64: what it is known by.
    pub spki: String,
    /// The display name.
    pub name: String,
    /// Its kind, a word.
    pub kind: String,
    /// Sealed to this policy.
    pub policy: Uuid,
    /// To this pair of it.
    pub generation: u32,
    /// What is sealed, base64; absent once it is withdrawn: sign with it no more.
    pub blob: Option<String>,
}
