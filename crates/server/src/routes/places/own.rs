//! Endpoints for nodes, over mutual TLS. Only enrolment is without authentication: its token is in the body.

use api::key_nodes::{
    BeatBody, BeatView, EnrolledView, EnrolmentBody, KeyNewsView, MembershipView, NewsView, PolicyNewsView,
    RenewalBody, StatementView, WrapNewsView,
};
use serde::Deserialize;
use sites::Sites;
use sites::policies::KeyPolicies;
use sites::work::{
    EnrolledNode, Heartbeat, HeartbeatResponse, Membership, News, NodeEnrolment, NodeRenewal, PolicyUpdate,
    SealedKeyUpdate, SignedStatement, WrapUpdate,
};
use utoipa::IntoParams;
use uuid::Uuid;

use super::attributes::AREA;
use crate::access::{Caller, Permission};
use crate::extract::{Json, Query};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;

/// Maximum bytes of a node's request; a complete request has 4 KB.
const BODY_MAX: usize = 32 * 1_024;

pub(super) fn routes() -> Api {
    let work = || Access::needs(Permission::NodeWork).body_max(BODY_MAX);
    Api::area(AREA)
        .route(Access::open().body_max(BODY_MAX), routes!(enroll))
        .route(work(), routes!(renew))
        .route(work(), routes!(beat))
        .route(work(), routes!(news))
}

fn enrolled_view(enrolled: EnrolledNode) -> EnrolledView {
    let EnrolledNode { node, name, site, certificate_pem, ca_pem, statement, statement_key } = enrolled;
    let statement = StatementView { payload: statement.payload, signature: statement.signature };
    EnrolledView { node, name, site, certificate_pem, ca_pem, statement, statement_key }
}

/// Enrols a host as a node of the key service.
///
/// The token can be used once. If the response is lost, the same token with the same keys returns the same node again.
#[utoipa::path(post, path = "/api/v1/key-nodes/enroll", operation_id = "enrollKeyNode",
    request_body = EnrolmentBody, responses((status = 200, body = EnrolledView)))]
async fn enroll(
    Component(sites): Component<Sites>,
    Json(body): Json<EnrolmentBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let EnrolmentBody { token, csr_pem, kem, address, name } = body;
    let request = NodeEnrolment { token, csr_pem, kem, address, name };
    Ok(Json(enrolled_view(sites.enroll(&request).await?)))
}

/// Returns the calling node. Its client certificate must have the key that was enrolled for this node.
async fn node_of(sites: &Sites, caller: &Caller) -> Result<Uuid, Problem> {
    sites.check_key(caller.id(), caller.enrolled_certificate("a node")?).await?;
    Ok(caller.id())
}

/// Renews a node's certificate.
#[utoipa::path(post, path = "/api/v1/key-nodes/self/renew", operation_id = "renewKeyNode",
    request_body = RenewalBody, responses((status = 200, body = EnrolledView)))]
async fn renew(
    Component(sites): Component<Sites>,
    caller: Caller,
    Json(body): Json<RenewalBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let node = node_of(&sites, &caller).await?;
    let renewal = NodeRenewal { csr_pem: body.csr_pem };
    Ok(Json(enrolled_view(sites.renew(node, &renewal.csr_pem).await?)))
}

fn membership_view(update: Membership) -> MembershipView {
    let Membership { since, anew, more, nodes, gone, absent } = update;
    let views = |statements: Vec<SignedStatement>| -> Vec<StatementView> {
        let view =
            |signed: SignedStatement| StatementView { payload: signed.payload, signature: signed.signature };
        statements.into_iter().map(view).collect()
    };
    MembershipView { since, anew, more, nodes: views(nodes), gone, absent: views(absent) }
}

/// Reports the presence of a node, and returns changes of the other nodes.
#[utoipa::path(post, path = "/api/v1/key-nodes/self/beat", operation_id = "beatKeyNode", request_body = BeatBody,
    responses((status = 200, body = BeatView)))]
async fn beat(
    Component(sites): Component<Sites>,
    caller: Caller,
    Json(body): Json<BeatBody>,
) -> Result<Json<BeatView>, Problem> {
    let node = node_of(&sites, &caller).await?;
    let BeatBody { address, since, measured } = body;
    let HeartbeatResponse { now_ms, beat_every_ms, lease_ms, membership, state } =
        sites.beat(node, Heartbeat { address, since, measured }).await?;
    Ok(Json(BeatView { now_ms, beat_every_ms, lease_ms, membership: membership_view(membership), state }))
}

/// The position from which changes are read.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NewsParams {
    /// `next` of the last response; 0 or absent starts from the beginning.
    #[serde(default)]
    after: i64,
}

fn news_view(update: News) -> NewsView {
    let policy = |PolicyUpdate { id, name, formula, generation, removed }| PolicyNewsView {
        id,
        name,
        formula,
        generation,
        removed,
    };
    let wrap = |WrapUpdate { policy, generation, blob }| WrapNewsView { policy, generation, blob };
    let key = |SealedKeyUpdate { spki, name, kind, policy, generation, blob }| KeyNewsView {
        spki,
        name,
        kind,
        policy,
        generation,
        blob,
    };
    NewsView {
        next: update.next,
        more: update.more,
        anew: update.anew,
        policies: update.policies.into_iter().map(policy).collect(),
        wraps: update.wraps.into_iter().map(wrap).collect(),
        keys: update.keys.into_iter().map(key).collect(),
    }
}

/// Returns changes of keys and policies to a node: at most 500 of each and 6 MB, in the order of the changes.
#[utoipa::path(get, path = "/api/v1/key-nodes/self/state", operation_id = "readKeyNodeState", params(NewsParams),
    responses((status = 200, body = NewsView)))]
async fn news(
    Component(sites): Component<Sites>,
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Query(params): Query<NewsParams>,
) -> Result<Json<NewsView>, Problem> {
    let node = node_of(&sites, &caller).await?;
    Ok(Json(news_view(policies.news(node, params.after).await?)))
}
