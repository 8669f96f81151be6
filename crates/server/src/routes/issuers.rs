//! Issuers: who can issue, and how they do.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use issuers::{Breaker, IssuerError, IssuerView as Configured, Issuers, ManageError, NewIssuer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time;

/// Seconds after which to ask again when the database failed underneath.
const RETRY_SECONDS: u64 = 5;

pub(crate) fn routes() -> Api {
    Api::area("issuers")
        .route(Permission::IssuerRead, routes!(list))
        .route(Permission::IssuerManage, routes!(create))
        .route(Permission::IssuerRead, routes!(get_one))
        .route(Permission::IssuerManage, routes!(update))
        .route(Permission::IssuerManage, routes!(delete))
        .route(Permission::IssuerManage, routes!(test))
}

/// An issuer to configure.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewIssuerBody {
    /// Its name, unique: letters a-z, digits, `-`, `_` and `.`.
    #[schema(example = "letsencrypt", min_length = 1, max_length = 100)]
    name: String,
    /// Its settings with its secrets; `type` is `internal`, `acme`, `vault`, `step_ca`, `exec` or `webhook`. See
    /// docs/issuers.md for the members of each.
    #[schema(value_type = Object, example = json!({"type": "acme", "directory": "https://acme-v02.api.letsencrypt.org/directory", "terms_agreed": true}))]
    config: Map<String, Value>,
    /// Whether orders may go to it; true when absent.
    enabled: Option<bool>,
}

/// What to change of an issuer; members left out stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct IssuerPatch {
    /// Its name.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// All its settings. Secrets left out stay as they are, unless the type changes.
    #[schema(value_type = Option<Object>)]
    config: Option<Map<String, Value>>,
    /// Whether orders may go to it.
    enabled: Option<bool>,
}

/// An issuer.
#[derive(Serialize, ToSchema)]
struct IssuerView {
    /// Its identity.
    id: Uuid,
    /// Its name.
    name: String,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// Its settings without secrets.
    #[schema(value_type = Object)]
    config: Value,
    /// Which secrets are set, as JSON pointers into `config`.
    secrets_set: Vec<String>,
    /// Whether orders may go to it.
    enabled: bool,
    /// The URL of our account, where it is an ACME server that made one.
    account: Option<String>,
    /// How it does.
    health: HealthView,
    /// When it was made, RFC 3339.
    created_at: String,
    /// When its settings last changed, RFC 3339.
    updated_at: String,
}

/// How an issuer does.
#[derive(Serialize, ToSchema)]
struct HealthView {
    /// Its circuit breaker: `closed` (orders pass), `open` (it is given a rest) or `half_open` (one order finds out).
    breaker: &'static str,
    /// The end of its rest, RFC 3339.
    rests_until: Option<String>,
    /// Failures in a row.
    failures: u32,
    /// The last success, RFC 3339.
    last_success_at: Option<String>,
    /// The last error, RFC 3339.
    last_error_at: Option<String>,
    /// That error, a word: `refused`, `unavailable`, …
    last_error_code: Option<String>,
    /// That error, for people.
    last_error: Option<String>,
}

/// What a test found.
#[derive(Serialize, ToSchema)]
struct IssuerTest {
    /// Whether it could issue.
    ok: bool,
    /// What was found, for people.
    message: String,
    /// The kind of error, a word; null when there was none.
    code: Option<&'static str>,
}

impl IssuerView {
    fn of(issuer: Configured) -> Self {
        let Configured { row, config, secrets_set } = issuer;
        let health = row.health;
        let breaker: Breaker = serde_json::from_str(&health.breaker).unwrap_or_default();
        let (rests_until, failures) = match breaker {
            Breaker::Closed { failures } => (None, failures),
            Breaker::Open { until_us, rests } => (Some(until_us), rests),
            Breaker::HalfOpen { rests, .. } => (None, rests),
        };
        Self {
            id: row.id,
            name: row.name,
            kind: row.kind,
            config,
            secrets_set,
            enabled: row.enabled,
            account: row.account.and_then(|account| account.url),
            health: HealthView {
                breaker: breaker.code(),
                rests_until: time::maybe_shown(rests_until),
                failures,
                last_success_at: time::maybe_shown(health.last_success_at_us),
                last_error_at: time::maybe_shown(health.last_error_at_us),
                last_error_code: health.last_error_code,
                last_error: health.last_error,
            },
            created_at: time::shown(row.created_at_us),
            updated_at: time::shown(row.updated_at_us),
        }
    }
}

impl From<ManageError> for Problem {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::BadName | ManageError::BadConfig(_) => Self::unprocessable(error),
            ManageError::NameTaken => Self::conflict(error),
            ManageError::Stale => Self::precondition_failed(error),
            ManageError::Unknown => Self::not_found("such issuer"),
            ManageError::Store(error) => error.into(),
        }
    }
}

/// Lists the issuers, by name.
#[utoipa::path(get, path = "/api/v1/issuers", operation_id = "listIssuers", params(PagingParams),
    responses((status = 200, body = Listing<IssuerView>)))]
async fn list(
    Component(issuers): Component<Issuers>,
    paging: Paging,
) -> Result<Json<Listing<IssuerView>>, Problem> {
    let page = issuers.page(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, IssuerView::of)))
}

/// Configures an issuer.
///
/// Its secrets are sealed and never shown again.
#[utoipa::path(post, path = "/api/v1/issuers", operation_id = "createIssuer", request_body = NewIssuerBody,
    responses((status = 201, body = IssuerView)))]
async fn create(
    Component(issuers): Component<Issuers>,
    caller: Caller,
    Json(body): Json<NewIssuerBody>,
) -> Result<Response, Problem> {
    let new = NewIssuer {
        name: body.name,
        config: Value::Object(body.config),
        enabled: body.enabled.unwrap_or(true),
    };
    let made = issuers.create(new, caller.actor()).await?;
    let place =
        HeaderValue::from_str(&format!("/api/v1/issuers/{}", made.row.id)).map_err(Problem::internal)?;
    let revision = made.row.revision;
    Ok((StatusCode::CREATED, [(LOCATION, place)], Revision(revision, IssuerView::of(made))).into_response())
}

/// Shows an issuer.
#[utoipa::path(get, path = "/api/v1/issuers/{id}", operation_id = "getIssuer", params(("id" = Uuid, Path)),
    responses((status = 200, body = IssuerView)))]
async fn get_one(
    Component(issuers): Component<Issuers>,
    Path(id): Path<Uuid>,
) -> Result<Json<IssuerView>, Problem> {
    // Its health changes without its revision, so the ETag is that of the whole answer.
    Ok(Json(IssuerView::of(find(&issuers, id).await?)))
}

/// Changes an issuer's name or settings, or switches it on or off.
#[utoipa::path(patch, path = "/api/v1/issuers/{id}", operation_id = "updateIssuer", params(("id" = Uuid, Path)),
    request_body = IssuerPatch, responses((status = 200, body = IssuerView)))]
async fn update(
    Component(issuers): Component<Issuers>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<IssuerPatch>,
) -> Result<Revision<IssuerView>, Problem> {
    let before = find(&issuers, id).await?;
    if_match.check(before.row.revision)?;
    let new = NewIssuer {
        name: patch.name.unwrap_or(before.row.name),
        config: patch.config.map_or(before.config, Value::Object),
        enabled: patch.enabled.unwrap_or(before.row.enabled),
    };
    let changed = issuers.update(id, before.row.revision, new, caller.actor()).await?;
    Ok(Revision(changed.row.revision, IssuerView::of(changed)))
}

/// Removes an issuer. Certificates it made stay; those that should be renewed by it fail to.
#[utoipa::path(delete, path = "/api/v1/issuers/{id}", operation_id = "deleteIssuer", params(("id" = Uuid, Path)),
    responses((status = 204)))]
async fn delete(
    Component(issuers): Component<Issuers>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(find(&issuers, id).await?.row.revision)?;
    issuers.delete(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tests whether an issuer could issue: reachable, credentials accepted. Issues nothing.
#[utoipa::path(post, path = "/api/v1/issuers/{id}/test", operation_id = "testIssuer", params(("id" = Uuid, Path)),
    responses((status = 200, body = IssuerTest)))]
async fn test(
    Component(issuers): Component<Issuers>,
    Path(id): Path<Uuid>,
) -> Result<Json<IssuerTest>, Problem> {
    match issuers.test(id).await {
        Ok(Some(message)) => Ok(Json(IssuerTest { ok: true, message, code: None })),
        Ok(None) => Err(Problem::not_found(format_args!("issuer {id}"))),
        Err(IssuerError::Storage { reason }) => Err(Problem::unavailable(reason, RETRY_SECONDS)),
        Err(error) => {
            Ok(Json(IssuerTest { ok: false, message: error.to_string(), code: Some(error.code()) }))
        }
    }
}

async fn find(issuers: &Issuers, id: Uuid) -> Result<Configured, Problem> {
    let found = issuers.find(id).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("issuer {id}")))
}
