//! Key policies.

use api::key_policies::{
    DetailView, FormulaBody, PairView, PolicyBody, ResolvedNodeView, ResolvedSiteView, ResolvedView, RowView,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use sites::policies::{GenerationView, KeyPolicies, PolicyError, PolicyView, Resolved};
use sites::tables::PolicyRow;

use super::attributes::{AREA, attribute_pairs};
use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
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
            PolicyError::NotFound(what) => Self::not_found(format_args!("{what} with that name")),
            PolicyError::Invalid(_) | PolicyError::Formula(_) | PolicyError::SealedKey(_) => {
                Self::unprocessable(error)
            }
            PolicyError::Nobody { .. } => Self::unprocessable(error)
                .hint("`bulla key policy check FORMULA` shows which nodes satisfy a formula"),
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

fn row_view(row: PolicyRow) -> RowView {
    RowView {
        id: row.id,
        name: row.name,
        formula: row.formula,
        generation: row.generation,
        created_by: row.created_by,
        created_at: shown(row.created_at_us),
        updated_at: shown(row.updated_at_us),
    }
}

fn generation_view(view: GenerationView) -> PairView {
    PairView {
        generation: view.row.generation,
        wrapped: view.wrapped,
        keys: view.keys,
        lagging: view.lagging,
        public_key: STANDARD.encode(&view.row.public),
        created_at: shown(view.row.created_at_us),
    }
}

fn detail_view(view: PolicyView) -> Revision<DetailView> {
    let generations = view.generations.into_iter().map(generation_view).collect();
    let revision = view.row.revision;
    Revision(revision, DetailView { policy: row_view(view.row), nodes: view.nodes, generations })
}

fn resolved_view(resolved: Resolved) -> ResolvedView {
    let nodes = resolved.nodes.into_iter().map(|node| ResolvedNodeView {
        id: node.id,
        name: node.name,
        site: node.site,
        attributes: attribute_pairs(&node.attributes),
    });
    let sites = resolved.sites.into_iter().map(|site| ResolvedSiteView {
        name: site.name,
        satisfying: site.satisfying,
        nodes: site.nodes,
    });
    let available_attributes = resolved.available_attributes.into_iter();
    ResolvedView {
        formula: resolved.formula.to_string(),
        canonical: resolved.canonical.to_string(),
        nodes: nodes.collect(),
        sites: sites.collect(),
        enrolled: resolved.enrolled,
        attributes: available_attributes.map(|attribute| (attribute.name, attribute.values)).collect(),
    }
}

/// Lists the key policies, by name.
#[utoipa::path(get, path = "/api/v1/key-policies", operation_id = "listKeyPolicies", params(PageQuery),
    responses((status = 200, body = Listing<RowView>)))]
async fn list(
    Component(policies): Component<KeyPolicies>,
    paging: Paging,
) -> Result<Json<Listing<RowView>>, Problem> {
    let page = policies.policies(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, row_view)))
}

/// Shows which nodes satisfy a formula. Changes nothing.
#[utoipa::path(post, path = "/api/v1/key-policies/check", operation_id = "checkKeyPolicy", request_body = FormulaBody,
    responses((status = 200, body = ResolvedView)))]
async fn check(
    Component(policies): Component<KeyPolicies>,
    Json(body): Json<FormulaBody>,
) -> Result<Json<ResolvedView>, Problem> {
    Ok(Json(resolved_view(policies.check(&body.formula).await?)))
}

/// Creates a key policy, and distributes its key pair to the nodes that satisfy it.
///
/// A policy that no enrolled node satisfies is rejected.
#[utoipa::path(post, path = "/api/v1/key-policies", operation_id = "createKeyPolicy", request_body = PolicyBody,
    responses((status = 201, body = DetailView)))]
async fn create(
    Component(policies): Component<KeyPolicies>,
    caller: Caller,
    Json(body): Json<PolicyBody>,
) -> Result<Response, Problem> {
    let view = policies.create(&body.name, &body.formula, caller.actor()).await?;
    let at = HeaderValue::from_str(&format!("/api/v1/key-policies/{}", view.row.id));
    let mut response = (StatusCode::CREATED, detail_view(view)).into_response();
    response.headers_mut().extend(at.ok().map(|at| (LOCATION, at)));
    Ok(response)
}

/// Shows a key policy, by its name or ID.
#[utoipa::path(get, path = "/api/v1/key-policies/{policy}", operation_id = "getKeyPolicy",
    params(("policy" = String, Path)), responses((status = 200, body = DetailView)))]
async fn get_one(
    Component(policies): Component<KeyPolicies>,
    Path(policy): Path<String>,
) -> Result<Revision<DetailView>, Problem> {
    let row = policies.policy(&policy).await?;
    Ok(detail_view(policies.view(row.id).await?))
}

/// Rotates the key pair of a policy.
///
/// Its nodes receive the new pair immediately. Keys are re-encrypted to it gradually, and the previous pair is deleted once no key
/// is encrypted to it.
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
    Ok(detail_view(policies.rotate(row.id, caller.actor()).await?))
}

/// Deletes a policy under which no key is encrypted.
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
