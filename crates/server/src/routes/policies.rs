//! Policies, and what certificates do against them.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use lifecycle::policy::{Policy, Severity};
use lifecycle::{Lifecycle, PolicyRecord, ViolationRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::policies::ViolationFilter;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("policies")
        .route(Permission::PolicyRead, routes!(list))
        .route(Permission::PolicyManage, routes!(create))
        .route(Permission::PolicyRead, routes!(get_one))
        .route(Permission::PolicyManage, routes!(replace))
        .route(Permission::PolicyManage, routes!(delete))
        .route(Permission::PolicyRead, routes!(violations))
}

/// A policy to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPolicy {
    /// Its name, unique.
    #[schema(example = "production", min_length = 1, max_length = 200)]
    name: String,
    /// What it says: `description`, `applies_to` (`all`, `environments`, `teams`, `profiles`, `issuers`, `tags`),
    /// `enforcement` (`advisory` or `enforced`), `rules`, `renewal`, `requires_approval`. See docs/lifecycle.md.
    #[schema(value_type = Object, example = json!({"applies_to": {"environments": ["prod"]}, "enforcement": "enforced",
        "rules": [{"rule": "allowed_domains", "domains": ["example.org"], "severity": "error"}],
        "renewal": {"renew_before": {"days": 30}}}))]
    policy: Map<String, Value>,
}

/// What a policy is to say.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    /// As when it is made.
    #[schema(value_type = Object)]
    policy: Map<String, Value>,
}

/// A policy.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
struct PolicyView {
    /// Its name.
    name: String,
    /// What it says.
    #[schema(value_type = Object)]
    policy: Value,
    /// Moves with every change.
    revision: i64,
    /// When it was made, RFC 3339.
    created_at: String,
    /// When it last changed, RFC 3339.
    updated_at: String,
}

impl PolicyView {
    fn of(record: PolicyRecord) -> Self {
        Self {
            name: record.name,
            policy: serde_json::to_value(record.policy).unwrap_or_default(),
            revision: record.revision,
            created_at: time::shown(record.created_at_us),
            updated_at: time::shown(record.updated_at_us),
        }
    }
}

fn read(policy: Map<String, Value>) -> Result<Policy, Problem> {
    serde_json::from_value(Value::Object(policy))
        .map_err(|error| Problem::unprocessable(format_args!("the policy: {error}")))
}

/// Lists policies, by name.
#[utoipa::path(get, path = "/api/v1/policies", operation_id = "listPolicies", params(PagingParams),
    responses((status = 200, body = Listing<PolicyView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
) -> Result<Json<Listing<PolicyView>>, Problem> {
    let page = lifecycle.policies(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, PolicyView::of)))
}

/// Makes a policy. Everything under management is held against it in the background.
#[utoipa::path(post, path = "/api/v1/policies", operation_id = "createPolicy", request_body = NewPolicy,
    responses((status = 201, body = PolicyView)))]
async fn create(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<NewPolicy>,
) -> Result<Response, Problem> {
    let policy = read(body.policy)?;
    let made = lifecycle.put_policy(&body.name, &policy, None, caller.actor()).await?;
    let place = format!("/api/v1/policies/{}", crate::routes::people::segment(&made.name));
    let place = HeaderValue::from_str(&place).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], Revision(made.revision, PolicyView::of(made)))
        .into_response())
}

/// Shows a policy.
#[utoipa::path(get, path = "/api/v1/policies/{name}", operation_id = "getPolicy", params(("name" = String, Path)),
    responses((status = 200, body = PolicyView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    Path(name): Path<String>,
) -> Result<Revision<PolicyView>, Problem> {
    let record = lifecycle.policy(&name).await?;
    Ok(Revision(record.revision, PolicyView::of(record)))
}

/// Changes a policy to what the body says.
#[utoipa::path(put, path = "/api/v1/policies/{name}", operation_id = "replacePolicy",
    params(("name" = String, Path)), request_body = PolicyBody, responses((status = 200, body = PolicyView)))]
async fn replace(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<PolicyBody>,
) -> Result<Revision<PolicyView>, Problem> {
    let revision = lifecycle.policy(&name).await?.revision;
    if_match.check(revision)?;
    let policy = read(body.policy)?;
    let record = lifecycle.put_policy(&name, &policy, Some(revision), caller.actor()).await?;
    Ok(Revision(record.revision, PolicyView::of(record)))
}

/// Removes a policy that no certificate names.
#[utoipa::path(delete, path = "/api/v1/policies/{name}", operation_id = "deletePolicy",
    params(("name" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(lifecycle.policy(&name).await?.revision)?;
    lifecycle.delete_policy(&name, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A rule broken.
#[derive(Serialize, ToSchema)]
#[schema(as = Violation)]
struct ViolationView {
    /// The certificate.
    certificate: Uuid,
    /// Its name.
    name: String,
    /// The policy.
    policy: String,
    /// The rule.
    rule: String,
    /// `info`, `warning`, `error` or `critical`.
    severity: &'static str,
    /// For people.
    message: String,
    /// When it was first found, RFC 3339.
    found_at: String,
}

impl ViolationView {
    fn of(record: ViolationRecord) -> Self {
        Self {
            certificate: record.certificate,
            name: record.name,
            policy: record.policy,
            rule: record.rule,
            severity: record.severity.as_str(),
            message: record.message,
            found_at: time::shown(record.found_at_us),
        }
    }
}

/// Which violations to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ViolationParams {
    /// Of this policy.
    policy: Option<String>,
    /// Of this certificate.
    certificate: Option<Uuid>,
    /// At least so bad: `info`, `warning`, `error` or `critical`.
    severity: Option<String>,
}

/// Lists what certificates do against policies: the worst first, or by certificate within one policy.
#[utoipa::path(get, path = "/api/v1/violations", operation_id = "listViolations",
    params(PagingParams, ViolationParams), responses((status = 200, body = Listing<ViolationView>)))]
async fn violations(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
    Query(params): Query<ViolationParams>,
) -> Result<Json<Listing<ViolationView>>, Problem> {
    let severity = params.severity.as_deref().map(|word| {
        let all = [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical];
        let found = all.into_iter().find(|one| one.as_str() == word);
        found.ok_or_else(|| Problem::bad_request(format_args!("{word:?} is no severity")))
    });
    let page = lifecycle
        .violations_of(
            params.certificate,
            ViolationFilter {
                policy: params.policy.filter(|name| !name.contains('\0')),
                certificate: None,
                severity_from: severity.transpose()?.map(Severity::code),
            },
            paging.after.as_ref(),
            paging.limit,
        )
        .await?;
    Ok(Json(Listing::of(page, ViolationView::of)))
}
