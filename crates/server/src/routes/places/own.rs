//! What nodes ask for, over mutual TLS; enrolment alone is open, its token is in the body.

use std::collections::BTreeMap;

use axum::Extension;
use serde::{Deserialize, Serialize};
use sites::Sites;
use sites::policies::KeyPolicies;
use sites::work::{
    Beat, BeatAnswer, EnrolledNode, KeyNews, Membership, News, NodeEnrolment, NodeRenewal, PolicyNews,
    WrapNews,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::attributes::AREA;
use crate::access::{Caller, Permission};
use crate::api::{Access, Api, routes};
use crate::extract::{Json, Query};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::state::Component;

/// Octets of what a node sends: 4 KB with everything.
const BODY_MAX: usize = 32 * 1_024;

pub(super) fn routes() -> Api {
    let work = || Access::needs(Permission::NodeWork).body_max(BODY_MAX);
    Api::area(AREA)
        .route(Access::open().body_max(BODY_MAX), routes!(enroll))
        .route(work(), routes!(renew))
        .route(work(), routes!(beat))
        .route(work(), routes!(news))
}

/// A host that wants to become a node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyNodeEnrolment)]
struct EnrolmentBody {
    /// The node token, used once.
    token: String,
    /// A request for the certificate, signed with the key made on the host (P-256), PEM.
    csr_pem: String,
    /// The public key to which the node opens what is sealed for it: X-Wing, 1,216 octets, base64.
    kem: String,
    /// `HOST:PORT` where the other nodes ask it to sign.
    #[schema(example = "10.1.0.7:2410")]
    address: String,
    /// The node's name; one made of its identity when absent.
    #[schema(min_length = 1, max_length = 128)]
    name: Option<String>,
}

/// What is said of a node, signed.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeStatement)]
struct StatementView {
    /// JSON: node, name, site, address, KEM public key, attributes, and until when.
    payload: String,
    /// Ed25519 over `bulla node statement v1`, a line feed, and the payload; base64.
    signature: String,
}

/// What a node shows itself with, and what it believes others by.
#[derive(Serialize, ToSchema)]
#[schema(as = EnrolledKeyNode)]
struct EnrolledView {
    /// Who it is.
    node: Uuid,
    /// Its name.
    name: String,
    /// Its site's name.
    site: String,
    /// The certificate and what stands above it, PEM.
    certificate_pem: String,
    /// Certificates below which those of this server and of all nodes stand, PEM.
    ca_pem: String,
    /// What is said of it.
    statement: StatementView,
    /// SubjectPublicKeyInfo of the key that signs statements, DER in base64.
    statement_key: String,
}

impl From<EnrolledNode> for EnrolledView {
    fn from(enrolled: EnrolledNode) -> Self {
        let EnrolledNode { node, name, site, certificate_pem, ca_pem, statement, statement_key } = enrolled;
        let statement = StatementView { payload: statement.payload, signature: statement.signature };
        Self { node, name, site, certificate_pem, ca_pem, statement, statement_key }
    }
}

/// Makes a host a node of the key service.
///
/// The token is used once; the same token with the same keys gets the same node again, should the answer be lost.
#[utoipa::path(post, path = "/api/v1/key-nodes/enroll", operation_id = "enrollKeyNode",
    request_body = EnrolmentBody, responses((status = 200, body = EnrolledView)))]
async fn enroll(
    Component(places): Component<Sites>,
    Json(body): Json<EnrolmentBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let EnrolmentBody { token, csr_pem, kem, address, name } = body;
    let request = NodeEnrolment { token, csr_pem, kem, address, name };
    Ok(Json(places.enroll(&request).await?.into()))
}

/// The node that calls: its identity's certificate, with the key it was enrolled with.
async fn node_of(places: &Sites, caller: &Caller, peer: &Peer) -> Result<Uuid, Problem> {
    places.check_key(caller.id(), caller.shows(peer, "a node")?).await?;
    Ok(caller.id())
}

/// A request for the next certificate.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyNodeRenewal)]
struct RenewalBody {
    /// Signed with the key of the one before, PEM.
    csr_pem: String,
}

/// Renews a node's certificate.
#[utoipa::path(post, path = "/api/v1/key-nodes/self/renew", operation_id = "renewKeyNode",
    request_body = RenewalBody, responses((status = 200, body = EnrolledView)))]
async fn renew(
    Component(places): Component<Sites>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    Json(body): Json<RenewalBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let node = node_of(&places, &caller, &peer).await?;
    let renewal = NodeRenewal { csr_pem: body.csr_pem };
    Ok(Json(places.renew(node, &renewal.csr_pem).await?.into()))
}

/// A node is there.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyNodeBeat)]
struct BeatBody {
    /// Where the others ask it now; as before when absent.
    address: Option<String>,
    /// `since` of the last answer; 0 or absent for a node that knows nothing of the others.
    #[serde(default)]
    since: i64,
    /// Milliseconds to others and back; the nearest 64 are kept.
    #[serde(default)]
    measured: BTreeMap<Uuid, u32>,
}

/// Who came, changed and went.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeMembership)]
struct MembershipView {
    /// To be sent with the next beat.
    since: i64,
    /// Begin anew: who is not told in this answer and those that it goes on with is not there.
    anew: bool,
    /// There is more: ask again at once.
    more: bool,
    /// Nodes that are there and that are new or have changed, at most 256.
    nodes: Vec<StatementView>,
    /// Nodes that are not there any more.
    gone: Vec<Uuid>,
}

impl From<Membership> for MembershipView {
    fn from(told: Membership) -> Self {
        let Membership { since, anew, more, nodes, gone } = told;
        let nodes = nodes
            .into_iter()
            .map(|signed| StatementView { payload: signed.payload, signature: signed.signature });
        Self { since, anew, more, nodes: nodes.collect(), gone }
    }
}

/// What a node is told when it says that it is there.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeBeatAnswer)]
struct BeatView {
    /// This server's time, milliseconds since 1970.
    now_ms: i64,
    /// When to say so again, milliseconds.
    beat_every_ms: u64,
    /// How long it is believed without, milliseconds.
    lease_ms: u64,
    /// What changed among all nodes, itself included.
    membership: MembershipView,
    /// The number of the last change of policies, sealed keys and the node's wraps: what is new is at
    /// `/key-nodes/self/state`.
    state: i64,
}

/// Says that a node is there, and tells it what changed among the others.
#[utoipa::path(post, path = "/api/v1/key-nodes/self/beat", operation_id = "beatKeyNode", request_body = BeatBody,
    responses((status = 200, body = BeatView)))]
async fn beat(
    Component(places): Component<Sites>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    Json(body): Json<BeatBody>,
) -> Result<Json<BeatView>, Problem> {
    let node = node_of(&places, &caller, &peer).await?;
    let BeatBody { address, since, measured } = body;
    let BeatAnswer { now_ms, beat_every_ms, lease_ms, membership, state } =
        places.beat(node, Beat { address, since, measured }).await?;
    Ok(Json(BeatView { now_ms, beat_every_ms, lease_ms, membership: membership.into(), state }))
}

/// Since when.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NewsParams {
    /// `next` of the last answer; 0 or absent begins anew.
    #[serde(default)]
    after: i64,
}

/// What changed of keys and policies for the node that asks.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeNews)]
struct NewsView {
    /// To be asked with next, as `after`.
    next: i64,
    /// There is more: ask again at once.
    more: bool,
    /// Begin anew: what is not told in this answer and those that it goes on with is not there.
    anew: bool,
    /// Policies that are new, changed, or gone.
    policies: Vec<PolicyNewsView>,
    /// The node's wraps that are new or withdrawn. One comes no later than the keys that it opens.
    wraps: Vec<WrapNewsView>,
    /// Sealed keys that are new, sealed anew, or withdrawn, those of all policies.
    keys: Vec<KeyNewsView>,
}

/// A policy.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodePolicyNews)]
struct PolicyNewsView {
    /// Which.
    id: Uuid,
    /// Its name.
    name: String,
    /// Which nodes satisfy it.
    formula: String,
    /// Its newest pair.
    generation: u32,
    /// It is gone.
    removed: bool,
}

/// A policy's seed, sealed to the node.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeWrapNews)]
struct WrapNewsView {
    /// Of this policy.
    policy: Uuid,
    /// Of this pair of it.
    generation: u32,
    /// HPKE with X-Wing, base64; null once it is withdrawn.
    blob: Option<String>,
}

/// A private key, sealed to a policy.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyNodeKeyNews)]
struct KeyNewsView {
    /// Its SubjectPublicKeyInfo, DER in base64: what it is known by.
    spki: String,
    /// What people call it.
    name: String,
    /// Its kind.
    kind: String,
    /// Sealed to this policy.
    policy: Uuid,
    /// To this pair of it.
    generation: u32,
    /// HPKE with X-Wing, base64; null once it is withdrawn.
    blob: Option<String>,
}

impl From<News> for NewsView {
    fn from(told: News) -> Self {
        let policy = |PolicyNews { id, name, formula, generation, removed }| PolicyNewsView {
            id,
            name,
            formula,
            generation,
            removed,
        };
        let wrap = |WrapNews { policy, generation, blob }| WrapNewsView { policy, generation, blob };
        let key = |KeyNews { spki, name, kind, policy, generation, blob }| KeyNewsView {
            spki,
            name,
            kind,
            policy,
            generation,
            blob,
        };
        Self {
            next: told.next,
            more: told.more,
            anew: told.anew,
            policies: told.policies.into_iter().map(policy).collect(),
            wraps: told.wraps.into_iter().map(wrap).collect(),
            keys: told.keys.into_iter().map(key).collect(),
        }
    }
}

/// Tells a node what changed of keys and policies: at most 500 of each and 6 MB, in the order in which they changed.
#[utoipa::path(get, path = "/api/v1/key-nodes/self/state", operation_id = "readKeyNodeState", params(NewsParams),
    responses((status = 200, body = NewsView)))]
async fn news(
    Component(places): Component<Sites>,
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    Query(params): Query<NewsParams>,
) -> Result<Json<NewsView>, Problem> {
    let node = node_of(&places, &caller, &peer).await?;
    Ok(Json(policies.news(node, params.after).await?.into()))
}
