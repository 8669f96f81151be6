//! What was deleted and can be taken back, and the versions of a name: not in CredHub.

use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Deleted, Name, VersionView, VersionsChange};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::answer::time;
use super::asking::Asking;
use super::body::{self, Body};
use super::context::Context;
use super::data::{QueryResult, query_of};
use crate::credhub::Refused;

/// Versions that one request changes.
pub(crate) const VERSIONS_MAX: usize = 1_000;

const DAY_US: i64 = 86_400_000_000;

const NAME_IS_TAKEN: &str = "The name is taken by a newer credential. Delete that first, then undelete again: the \
                             one that was deleted last comes back.";

/// What stands behind the question mark.
#[derive(Deserialize)]
pub(super) struct Query {
    name: Option<String>,
}

/// What was deleted and the caller may take back, the last deleted first.
pub(super) async fn deleted(context: Context, Asking(asker): Asking) -> Result<axum::Json<Json>, Refused> {
    let store = context.hub().credentials();
    let days = store.options().undelete_days;
    let all: Vec<Json> = store.deleted(&asker).await?.iter().map(|one| shown(one, days)).collect();
    Ok(axum::Json(json!({ "credentials": all })))
}

fn shown(deleted: &Deleted, days: u32) -> Json {
    json!({
        "name": deleted.name,
        "type": deleted.kind,
        "deleted_at": time(deleted.deleted_at_us),
        "kept_until": time(kept_until(deleted.deleted_at_us, days)),
    })
}

fn kept_until(ended_at_us: i64, days: u32) -> i64 {
    ended_at_us.saturating_add(i64::from(days).saturating_mul(DAY_US))
}

pub(super) async fn undelete(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<axum::Json<Json>, Refused> {
    body::only(&body, &["name"])?;
    let name = Name::parse(&body::text(&body, "name")?.unwrap_or_default())?;
    let restored = match context.hub().credentials().undelete(&asker, &name).await {
        Err(CredentialError::Changed) => return Err(Refused::new(StatusCode::CONFLICT, NAME_IS_TAKEN)),
        other => other?,
    };
    Ok(axum::Json(json!({ "name": restored.name, "type": restored.kind })))
}

/// The versions of a name, newest first, without their values.
pub(super) async fn versions(
    context: Context,
    Asking(asker): Asking,
    query: QueryResult<Query>,
) -> Result<axum::Json<Json>, Refused> {
    let name = query_of(query)?.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refused::bad("The query parameter name is required for this request."))?;
    let name = Name::parse(&name).map_err(|_| CredentialError::NotFound)?;
    let store = context.hub().credentials();
    let history = store.listed_versions(&asker, &name).await?;
    let (now_us, days) = (context.server().clock().now_us(), store.options().undelete_days);
    let all: Vec<Json> = history.versions.iter().map(|version| listed(version, now_us, days)).collect();
    Ok(axum::Json(json!({ "name": history.name, "type": history.kind, "versions": all })))
}

/// What has ended says since when and how long it can be taken back, what will end says when.
fn listed(version: &VersionView, now_us: i64, days: u32) -> Json {
    let mut shown = json!({
        "number": version.number,
        "id": version.id,
        "version_created_at": time(version.created_at_us),
    });
    match version.ends_at_us {
        None => {}
        Some(at_us) if at_us > now_us => shown["expires_at"] = time(at_us).into(),
        Some(at_us) => {
            shown["deleted_at"] = time(at_us).into();
            shown["kept_until"] = time(kept_until(at_us, days)).into();
        }
    }
    shown
}

/// `{"name": …, "versions": [1, 2], "change": "delete" | "undelete" | "destroy"}`
pub(super) async fn change(
    context: Context,
    Asking(asker): Asking,
    Body(body): Body,
) -> Result<Response, Refused> {
    body::only(&body, &["name", "versions", "change"])?;
    let name = Name::parse(&body::text(&body, "name")?.unwrap_or_default())?;
    let change = match body::text(&body, "change")?.as_deref() {
        Some("delete") => VersionsChange::Delete,
        Some("undelete") => VersionsChange::Undelete,
        Some("destroy") => VersionsChange::Destroy,
        _ => return Err(Refused::bad("The field change is one of delete, undelete and destroy.")),
    };
    let numbers: Option<Vec<u64>> =
        body.get("versions").and_then(|list| serde_json::from_value(list.clone()).ok());
    let numbers = numbers.filter(|numbers| (1..=VERSIONS_MAX).contains(&numbers.len()));
    let numbers = numbers.ok_or_else(|| {
        Refused::bad(format!("The field versions is a list of 1 to {VERSIONS_MAX} numbers."))
    })?;
    context.hub().credentials().change_versions(&asker, &name, Some(numbers), change).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
