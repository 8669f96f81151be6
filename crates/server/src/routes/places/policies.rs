//! Policies of keys.

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde::{Deserialize, Serialize};
use sites::policies::{GenerationView, KeyPolicies, PolicyError, PolicyView, Resolved};
use store::places::PolicyRow;
use utoipa::ToSchema;
use uuid::Uuid;

use super::attributes::{AREA, AttributesBody, shown_pairs};
use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time::shown;

pub(super) fn routes() -> Api {
    Api::area(AREA)
        .route(Permission::KeyPolicyRead, routes!(list))
        .route(Permission::KeyPolicyRead, routes!(check))
        .route(Permission::KeyPolicyManage, routes!(create))
        .route(Permission::KeyPolicyRead, routes!(get_one))
        .route(Permission::KeyPolicyManage, routes!(rotate))
        .route(Permission::KeyPolicyManage, routes!(delete))
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::NotFound(what) => Self::not_found(format_args!("{what} of that name")),
            PolicyError::Invalid(_) | PolicyError::Formula(_) | PolicyError::SealedKey(_) => {
                Self::unprocessable(error)
            }
            PolicyError::Nobody { .. } => {
                Self::unprocessable(error).hint("`bulla key-policy check FORMULA` shows who satisfies one")
            }
            PolicyError::NameTaken(_) => Self::conflict(error).hint("choose another name"),
            PolicyError::Changed
            | PolicyError::Behind { .. }
            | PolicyError::HasKeys(_)
            | PolicyError::Rotating
            | PolicyError::Full { .. } => Self::conflict(error),
            PolicyError::Seed { .. } | PolicyError::Pair(_) | PolicyError::Stopped => Self::internal(error),
            PolicyError::Store(error) => error.into(),
        }
    }
}

/// A policy of keys.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicy)]
struct RowView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "eu")]
    name: String,
    /// Which nodes satisfy it.
    #[schema(example = "region: EU and not country: FR")]
    formula: String,
    /// Its newest pair, from 1.
    generation: u32,
    /// Who made it.
    created_by: String,
    /// When it was made.
    created_at: String,
    /// When it was last rotated, or made.
    updated_at: String,
}

impl RowView {
    fn of(row: PolicyRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            formula: row.formula,
            generation: row.generation,
            created_by: row.created_by,
            created_at: shown(row.created_at_us),
            updated_at: shown(row.updated_at_us),
        }
    }
}

/// A pair of a policy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicyGeneration)]
struct PairView {
    /// Which, from 1.
    generation: u32,
    /// Nodes that have it.
    wrapped: u64,
    /// Keys sealed to it.
    keys: u64,
    /// Names of nodes that should have it and have not yet, 20 at most.
    lagging: Vec<String>,
    /// What keys are sealed to: X-Wing, 1,216 octets, base64.
    public_key: String,
    /// When it was made.
    created_at: String,
}

impl PairView {
    fn of(view: GenerationView) -> Self {
        Self {
            generation: view.row.generation,
            wrapped: view.wrapped,
            keys: view.keys,
            lagging: view.lagging,
            public_key: STANDARD.encode(&view.row.public),
            created_at: shown(view.row.created_at_us),
        }
    }
}

/// A policy of keys, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicyDetail)]
struct DetailView {
    #[serde(flatten)]
    policy: RowView,
    /// How many nodes satisfy it.
    nodes: usize,
    /// Its pairs, the newest last: it seals, all of them open.
    generations: Vec<PairView>,
}

impl DetailView {
    fn of(view: PolicyView) -> Revision<Self> {
        let generations = view.generations.into_iter().map(PairView::of).collect();
        let revision = view.row.revision;
        Revision(revision, Self { policy: RowView::of(view.row), nodes: view.nodes, generations })
    }
}

/// A formula.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyPolicyFormula)]
struct FormulaBody {
    /// `name: value`, `and`, `or`, `not`, parentheses.
    #[schema(example = "country: JP or not region: EU", max_length = 4096)]
    formula: String,
}

/// A policy to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyPolicyBody)]
struct PolicyBody {
    /// Its name, unique.
    #[schema(example = "eu", min_length = 1, max_length = 64)]
    name: String,
    /// `name: value`, `and`, `or`, `not`, parentheses.
    #[schema(example = "region: EU", max_length = 4096)]
    formula: String,
}

/// What a formula means here and now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicyResolved)]
struct ResolvedView {
    /// As it was read.
    formula: String,
    /// Its normal form: two formulas with the same one are satisfied by the same nodes.
    canonical: String,
    /// Nodes that satisfy it.
    nodes: Vec<ResolvedNodeView>,
    /// Sites with such nodes.
    sites: Vec<ResolvedSiteView>,
    /// Nodes that are enrolled in all.
    enrolled: usize,
    /// The values of each attribute that enrolled nodes have.
    attributes: std::collections::BTreeMap<String, Vec<String>>,
}

/// A node that satisfies a formula.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicyNode)]
struct ResolvedNodeView {
    /// Its identity.
    id: Uuid,
    /// Its name.
    name: String,
    /// Its site's name.
    site: String,
    /// Its site's attributes, and its own over them.
    attributes: AttributesBody,
}

/// A site with nodes that satisfy a formula.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyPolicySite)]
struct ResolvedSiteView {
    /// Its name.
    name: String,
    /// How many of its nodes do.
    satisfying: usize,
    /// How many nodes it has.
    nodes: usize,
}

impl ResolvedView {
    fn of(resolved: Resolved) -> Self {
        let nodes = resolved.nodes.into_iter().map(|node| ResolvedNodeView {
            id: node.id,
            name: node.name,
            site: node.site,
            attributes: shown_pairs(&node.attributes),
        });
        let sites = resolved.sites.into_iter().map(|site| ResolvedSiteView {
            name: site.name,
            satisfying: site.satisfying,
            nodes: site.nodes,
        });
        let there_are = resolved.there_are.into_iter();
        Self {
            formula: resolved.formula.to_string(),
            canonical: resolved.canonical.to_string(),
            nodes: nodes.collect(),
            sites: sites.collect(),
            enrolled: resolved.enrolled,
            attributes: there_are.map(|attribute| (attribute.name, attribute.values)).collect(),
        }
    }
}

/// Lists the policies of keys, by name.
#[utoipa::path(get, path = "/api/v1/key-policies", operation_id = "listKeyPolicies", params(PagingParams),
    responses((status = 200, body = Listing<RowView>)))]
async fn list(
    Component(policies): Component<KeyPolicies>,
    paging: Paging,
) -> Result<Json<Listing<RowView>>, Problem> {
    let page = policies.policies(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, RowView::of)))
}

/// Shows which nodes satisfy a formula. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/key-policies/check", operation_id = "checkKeyPolicy", request_body = FormulaBody,
    responses((status = 200, body = ResolvedView)))]
async fn check(
    Component(policies): Component<KeyPolicies>,
    Json(body): Json<FormulaBody>,
) -> Result<Json<ResolvedView>, Problem> {
    Ok(Json(ResolvedView::of(policies.check(&body.formula).await?)))
}

/// Makes a policy of keys, and gives its pair to the nodes that satisfy it.
///
/// One that no enrolled node satisfies is refused.
#[utoipa::path(post, path = "/api/v1/key-policies", operation_id = "createKeyPolicy", request_body = PolicyBody,
    responses((status = 201, body = DetailView)))]
async fn create(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Json(body): Json<PolicyBody>,
) -> Result<Response, Problem> {
    let view = policies.create(&body.name, &body.formula, caller.actor()).await?;
    let at = HeaderValue::from_str(&format!("/api/v1/key-policies/{}", view.row.id));
    let mut response = (StatusCode::CREATED, DetailView::of(view)).into_response();
    response.headers_mut().extend(at.ok().map(|at| (LOCATION, at)));
    Ok(response)
}

/// Shows a policy of keys, by its name or its identity.
#[utoipa::path(get, path = "/api/v1/key-policies/{policy}", operation_id = "getKeyPolicy",
    params(("policy" = String, Path)), responses((status = 200, body = DetailView)))]
async fn get_one(
    Component(policies): Component<KeyPolicies>,
    Path(policy): Path<String>,
) -> Result<Revision<DetailView>, Problem> {
    let row = policies.policy(&policy).await?;
    Ok(DetailView::of(policies.view(row.id).await?))
}

/// Gives a policy its next pair.
///
/// Its nodes get it at once; keys are sealed to it by and by, and the former pair goes once none is sealed to it any more.
#[utoipa::path(post, path = "/api/v1/key-policies/{policy}/rotate", operation_id = "rotateKeyPolicy",
    params(("policy" = String, Path)), responses((status = 200, body = DetailView)))]
async fn rotate(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Path(policy): Path<String>,
    if_match: IfMatch,
) -> Result<Revision<DetailView>, Problem> {
    let row = policies.policy(&policy).await?;
    if_match.check(row.revision)?;
    Ok(DetailView::of(policies.rotate(row.id, caller.actor()).await?))
}

/// Removes a policy to which no key is sealed.
#[utoipa::path(delete, path = "/api/v1/key-policies/{policy}", operation_id = "deleteKeyPolicy",
    params(("policy" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Path(policy): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let row = policies.policy(&policy).await?;
    if_match.check(row.revision)?;
    policies.delete(row.id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
