//! Access reports: which actors have access to a name, and why. An extension to CredHub.

use api::credhub::{AccessChangeView, AccessDifferenceView, AccessQuery, AccessView};
use axum::extract::Query;
use axum::response::Response;
use credentials::{
    AccessChange, AccessDifference, AccessRow, AccessSource, Operation, Operations, PermissionPath,
};

use super::answer::time;
use super::context::Context;
use super::paging::Pages;
use super::principal::Principal;
use crate::access::{BUILT_IN_ROLES, Permission};
use crate::credhub::Refused;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};

pub(super) fn routes() -> OperationTable<Context> {
    OperationTable::new().route("/api/v1/access", PathOperations::new().get(NonApiAccess::AtPath, access))
}

/// Lists the actors with access. With `compared_with`, lists the actors with access to only one of two names. With `since`, lists
/// the changes of access since that time.
async fn access(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<AccessQuery>,
    pages: Pages,
) -> Result<Response, Refused> {
    let path = PermissionPath::parse(&query.name.unwrap_or_default())?;
    let operation = parse_operation(query.operation.as_deref().unwrap_or("read"))?;
    let store = context.hub().credentials();
    let (after, limit) = (pages.after.as_ref(), pages.limit);
    match (query.compared_with, query.since) {
        (Some(_), Some(_)) => Err(Refused::bad("Give compared_with or since, not both.")),
        (Some(other), None) => {
            let other = PermissionPath::parse(&other)?;
            let page = store.access_difference(&requester, (&path, &other), operation, after, limit).await?;
            Ok(pages.answer(page, difference))
        }
        (None, Some(since)) => {
            let since: jiff::Timestamp = since
                .parse()
                .map_err(|_| Refused::bad("since must be a time such as 2026-11-21T05:00:00Z."))?;
            let since_us = since.as_microsecond();
            let page = store.access_since(&requester, (&path, operation), since_us, after, limit).await?;
            Ok(pages.answer(page, change))
        }
        (None, None) => {
            let roles = roles(&context).await?;
            let page = store
                .access(&requester, (&path, operation), (&roles, context.hub().token_prefix()), after, limit)
                .await?;
            Ok(pages.answer(page, source))
        }
    }
}

fn parse_operation(text: &str) -> Result<Operation, Refused> {
    let one = Operations::parse(&[text])?.only();
    one.ok_or_else(Refused::bad_request)
}

/// Returns the names of the roles with full access to credentials.
async fn roles(context: &Context) -> Result<Vec<String>, Refused> {
    let own =
        context.server().access().roles().await.map_err(|problem| super::principal::refused(&problem))?;
    let built_in = BUILT_IN_ROLES.iter().map(|role| (role.name, role.permissions));
    let own = own.iter().filter_map(|(name, permissions)| Some((name.as_str(), (*permissions)?)));
    let all = built_in.chain(own).filter(|(_, permissions)| permissions.has(Permission::CredentialManage));
    Ok(all.map(|(name, _)| name.to_owned()).collect())
}

fn source(row: &AccessRow) -> AccessView {
    let (permission, path, role, changed) = match &row.source {
        AccessSource::Permission { id, path, changed_at_us } => (Some(*id), Some(path), None, *changed_at_us),
        AccessSource::Role { role } => (None, None, Some(role), None),
    };
    AccessView {
        actor: row.actor.clone(),
        permission,
        path: path.cloned(),
        role: role.cloned(),
        since: time(row.since_us),
        changed_at: changed.map(time),
        given_by: row.given_by.clone(),
    }
}

fn difference(row: &AccessDifference) -> AccessDifferenceView {
    AccessDifferenceView { actor: row.actor.clone(), here: row.here.clone(), there: row.there.clone() }
}

fn change(row: &AccessChange) -> AccessChangeView {
    AccessChangeView {
        at: time(row.at_us),
        actor: row.actor.clone(),
        path: row.path.clone(),
        change: if row.gained { "gained" } else { "lost" }.to_owned(),
        by: row.by.clone(),
    }
}
