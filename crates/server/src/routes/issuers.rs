//! The issuers and their settings.

use api::changes::ChangeView;
use api::issuers::{HealthView, IssuerPatch, IssuerTest, IssuerView, NewIssuerBody};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use issuers::{Breaker, IssuerError, IssuerView as Configured, Issuers, ManageError};
use serde_json::Value;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{GateChange, Gates, WriteResult};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

/// `Retry-After` in seconds when the database failed.
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

fn issuer_view(issuer: Configured) -> IssuerView {
    let Configured { row, config, secrets_set, problem } = issuer;
    let health = row.health;
    let (rests_until, failures) = match health.breaker {
        Breaker::Closed { failures } => (None, failures),
        Breaker::Open { until_us, rests } => (Some(until_us), rests),
        Breaker::HalfOpen { rests, .. } => (None, rests),
    };
    IssuerView {
        id: row.id,
        revision: row.revision,
        name: row.name,
        kind: row.kind.to_string(),
        config,
        secrets_set,
        enabled: row.enabled,
        problem: problem.map(|problem| problem.to_string()),
        account: row.account.and_then(|account| account.url),
        health: HealthView {
            breaker: health.breaker.code().to_owned(),
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

impl From<ManageError> for Problem {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::BadName | ManageError::BadConfig(_) | ManageError::MissingSecrets(_) => {
                Self::unprocessable(error)
            }
            ManageError::NameTaken => Self::conflict(error),
            ManageError::Stale => Self::precondition_failed(error),
            ManageError::Unknown => Self::not_found("such issuer"),
            ManageError::Store(error) => error.into(),
        }
    }
}

/// Lists the issuers, by name.
#[utoipa::path(get, path = "/api/v1/issuers", operation_id = "listIssuers", params(PageQuery),
    responses((status = 200, body = Listing<IssuerView>)))]
async fn list(
    Component(issuers): Component<Issuers>,
    paging: Paging,
) -> Result<Json<Listing<IssuerView>>, Problem> {
    let page = issuers.page(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, issuer_view)))
}

/// Creates an issuer.
///
/// Its secrets are encrypted and never shown again.
#[utoipa::path(post, path = "/api/v1/issuers", operation_id = "createIssuer", request_body = NewIssuerBody,
    responses((status = 201, body = IssuerView), (status = 202, body = ChangeView)))]
async fn create(
    Component(issuers): Component<Issuers>,
    With(gates): With<Gates>,
    caller: Caller,
    Json(body): Json<NewIssuerBody>,
) -> Result<Response, Problem> {
    let name = body.name.clone();
    let change = GateChange::CreateIssuer {
        name: body.name,
        config: Value::Object(body.config),
        enabled: body.enabled.unwrap_or(true),
    };
    let written = gates.write(&caller, change).await?;
    if matches!(written, WriteResult::Waits(_)) {
        return Ok(written.map(|()| StatusCode::CREATED).into_response());
    }
    let made = issuers.find_named(&name).await?;
    let made = made.ok_or_else(|| Problem::not_found(format_args!("issuer {name}")))?;
    let location =
        HeaderValue::from_str(&format!("/api/v1/issuers/{}", made.row.id)).map_err(Problem::internal)?;
    let revision = made.row.revision;
    Ok((StatusCode::CREATED, [(LOCATION, location)], Revision(revision, issuer_view(made))).into_response())
}

/// Shows an issuer.
#[utoipa::path(get, path = "/api/v1/issuers/{id}", operation_id = "getIssuer", params(("id" = Uuid, Path)),
    responses((status = 200, body = IssuerView)))]
async fn get_one(
    Component(issuers): Component<Issuers>,
    Path(id): Path<Uuid>,
) -> Result<Json<IssuerView>, Problem> {
    // The health changes without a new revision. The ETag is therefore a hash of the whole response.
    Ok(Json(issuer_view(find(&issuers, id).await?)))
}

/// Changes the name or settings of an issuer, or enables or disables it.
#[utoipa::path(patch, path = "/api/v1/issuers/{id}", operation_id = "updateIssuer", params(("id" = Uuid, Path)),
    request_body = IssuerPatch, responses((status = 200, body = IssuerView), (status = 202, body = ChangeView)))]
async fn update(
    Component(issuers): Component<Issuers>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<IssuerPatch>,
) -> Result<WriteResult<Revision<IssuerView>>, Problem> {
    let before = find(&issuers, id).await?;
    if_match.check(before.row.revision)?;
    let change = GateChange::UpdateIssuer {
        id,
        revision: before.row.revision,
        name: patch.name.unwrap_or(before.row.name),
        config: patch.config.map_or(before.config, Value::Object),
        enabled: patch.enabled.unwrap_or(before.row.enabled),
    };
    let written = gates.write(&caller, change).await?;
    let changed = find(&issuers, id).await?;
    Ok(written.map(|()| Revision(changed.row.revision, issuer_view(changed))))
}

/// Deletes an issuer. Its certificates remain, but renewals through it fail.
#[utoipa::path(delete, path = "/api/v1/issuers/{id}", operation_id = "deleteIssuer", params(("id" = Uuid, Path)),
    responses((status = 204), (status = 202, body = ChangeView)))]
async fn delete(
    Component(issuers): Component<Issuers>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    if_match.check(find(&issuers, id).await?.row.revision)?;
    let written = gates.write(&caller, GateChange::DeleteIssuer { id }).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}

/// Tests whether an issuer is reachable and accepts the credentials. Issues nothing.
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
        Err(error) => Ok(Json(IssuerTest {
            ok: false,
            message: error.to_string(),
            code: Some(error.code().to_owned()),
        })),
    }
}

async fn find(issuers: &Issuers, id: Uuid) -> Result<Configured, Problem> {
    let found = issuers.find(id).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("issuer {id}")))
}
