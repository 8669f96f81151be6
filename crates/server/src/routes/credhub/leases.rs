//! Dynamic credentials: connections to databases, roles, leases. An extension to CredHub.

use api::credhub::{
    ConnectionRequest, ConnectionView, Connections, DatabaseQuery, LeaseQuery, LeaseRequest as LeaseBody,
    LeaseView, NewLeaseView, RenewRequest, RevokeLeasesRequest, RevokedLease, RevokedLeases, RoleRequest,
    RoleView,
};
use axum::Json;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use credentials::{
    ConnectionSettings, ConnectionTls, CredentialError, DatabaseConnection, LeaseRequest, LeaseRow, Name,
    PermissionPath, Requester, RoleRow, RoleSettings,
};
use http::StatusCode;
use keys::Secret;
use reqwest::Url;
use uuid::Uuid;

use super::answer::time;
use super::body::{self, Body};
use super::context::Context;
use super::paging::Pages;
use super::principal::Principal;
use crate::credhub::Refused;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};

/// Default port of PostgreSQL, for a URL without one.
const PORT: u16 = 5_432;

pub(super) fn routes() -> OperationTable<Context> {
    use NonApiAccess::{AtPath, DatabaseManager};
    let on = PathOperations::new;
    let connections = on().get(DatabaseManager, connections).put(DatabaseManager, set_connection);
    let roles = on().get(AtPath, roles).put(DatabaseManager, set_role).delete(DatabaseManager, remove_role);
    OperationTable::new()
        .route("/api/v1/database-connections", connections.delete(DatabaseManager, remove_connection))
        .route("/api/v1/database-roles", roles)
        .route("/api/v1/leases", on().get(AtPath, leases).post(AtPath, create))
        .route("/api/v1/leases/revoke", on().post(AtPath, revoke_many))
        .route("/api/v1/leases/{id}", on().get(AtPath, lease).delete(AtPath, revoke))
        .route("/api/v1/leases/{id}/renew", on().post(AtPath, renew))
}

fn connection_view(connection: &DatabaseConnection) -> ConnectionView {
    let row = connection.row();
    let host = if row.host.contains(':') { format!("[{}]", row.host) } else { row.host.clone() };
    ConnectionView {
        name: row.name.clone(),
        url: format!("postgres://{}@{host}:{}/{}", row.username, row.port, row.database),
        tls: row.tls.to_string(),
        roots: row.roots.clone(),
        set_at: time(row.set_at_us),
        set_by: row.set_by.clone(),
    }
}

async fn connections(
    context: Context,
    Principal(requester): Principal,
) -> Result<Json<Connections>, Refused> {
    let all = context.hub().credentials().connections(&requester).await?;
    Ok(Json(Connections { items: all.iter().map(connection_view).collect() }))
}

/// Parses `postgres://USER@HOST:PORT/DATABASE`: host, port, user, database.
fn address(text: &str) -> Result<(String, u16, String, String), Refused> {
    let bad =
        |why: &str| Refused::bad(format!("The url {why}. Write it as postgres://USER@HOST:5432/DATABASE."));
    let url = Url::parse(text).map_err(|_| bad("cannot be parsed"))?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(bad("is not of a PostgreSQL server"));
    }
    if url.password().is_some() {
        return Err(bad(
            "contains a password, which would be shown in listings. Give the password separately",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("has parameters. Give tls and roots separately"));
    }
    let decoded = |text: &str| {
        let bytes = coded::percent_decoded(text).ok_or_else(|| bad("is not percent-encoded"))?;
        String::from_utf8(bytes).map_err(|_| bad("is not UTF-8"))
    };
    let host = url.host_str().unwrap_or_default();
    let host = decoded(host.trim_start_matches('[').trim_end_matches(']'))?;
    let database = decoded(url.path().trim_start_matches('/'))?;
    let user = decoded(url.username())?;
    for (what, text) in [("names no host", &host), ("names no user", &user), ("names no database", &database)]
    {
        if text.is_empty() {
            return Err(bad(what));
        }
    }
    Ok((host, url.port().unwrap_or(PORT), user, database))
}

async fn set_connection(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<ConnectionView>, Refused> {
    let request: ConnectionRequest<Secret> = body::read(&body)?;
    let (host, port, username, database) = address(&request.url)?;
    let tls = request.tls.as_deref().unwrap_or("verify-full");
    let tls: ConnectionTls = tls
        .parse()
        .map_err(|_| Refused::bad(format!("tls is {tls:?}: use verify-full, verify-ca or disable.")))?;
    let settings = ConnectionSettings {
        name: request.name,
        host,
        port,
        database,
        username,
        password: request.password,
        tls,
        roots: request.roots,
        same_database: request.same_database.unwrap_or(false),
    };
    let set = context.hub().credentials().set_connection(&requester, settings).await?;
    Ok(Json(connection_view(&set)))
}

async fn remove_connection(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<DatabaseQuery>,
) -> Result<StatusCode, Refused> {
    context.hub().credentials().delete_connection(&requester, &query.name.unwrap_or_default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn role_view(requester: &Requester, row: RoleRow) -> RoleView {
    RoleView {
        name: row.name,
        connection: row.connection,
        creation: requester.manages_databases.then_some(row.creation),
        revocation: requester.manages_databases.then_some(row.revocation),
        default_ttl_seconds: row.default_ttl_s,
        max_ttl_seconds: row.max_ttl_s,
        set_at: time(row.set_at_us),
        set_by: row.set_by,
    }
}

async fn roles(context: Context, Principal(requester): Principal, pages: Pages) -> Result<Response, Refused> {
    let page = context.hub().credentials().roles(&requester, pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, |row| role_view(&requester, row.clone())))
}

async fn set_role(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<RoleView>, Refused> {
    let request: RoleRequest = body::read(&body)?;
    let name = Name::parse(&request.name)?;
    let settings = RoleSettings {
        connection: request.connection,
        creation: request.creation,
        revocation: request.revocation,
        default_ttl_s: request.default_ttl_seconds,
        max_ttl_s: request.max_ttl_seconds,
    };
    let set = context.hub().credentials().set_role(&requester, &name, settings).await?;
    Ok(Json(role_view(&requester, set)))
}

async fn remove_role(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<DatabaseQuery>,
) -> Result<StatusCode, Refused> {
    let name = Name::parse(&query.name.unwrap_or_default())?;
    context.hub().credentials().delete_role(&requester, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn lease_view(lease: &LeaseRow) -> LeaseView {
    LeaseView {
        id: lease.id,
        name: lease.name.clone(),
        username: lease.username.clone(),
        actor: lease.actor.clone(),
        state: lease.state.to_string(),
        created_at: time(lease.created_at_us),
        expires_at: time(lease.expires_at_us),
        max_expires_at: time(lease.max_expires_at_us),
        ended_by: lease.ended_by.clone(),
        failures: lease.tries,
        error: lease.error.clone(),
    }
}

fn lease_id(text: &str) -> Result<Uuid, Refused> {
    Ok(text.parse().map_err(|_| CredentialError::NoLease)?)
}

/// Creates a dynamic credential and its lease: `{"name": …, "ttl_seconds": …}`.
async fn create(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<NewLeaseView>, Refused> {
    let request: LeaseBody = body::read(&body)?;
    let name = Name::parse(&request.name)?;
    let wanted = LeaseRequest { ttl_s: request.ttl_seconds, clamps_ttl: false };
    let new = context.hub().credentials().create_lease(&requester, &name, wanted).await?;
    Ok(Json(NewLeaseView { lease: lease_view(&new.lease), password: new.password.expose().to_owned() }))
}

async fn leases(
    context: Context,
    Principal(requester): Principal,
    Query(query): Query<LeaseQuery>,
    pages: Pages,
) -> Result<Response, Refused> {
    let path = query.path.as_deref().map(PermissionPath::parse).transpose()?;
    let store = context.hub().credentials();
    let page = store.leases(&requester, path.as_ref(), pages.after.as_ref(), pages.limit).await?;
    Ok(pages.answer(page, lease_view).into_response())
}

async fn lease(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
) -> Result<Json<LeaseView>, Refused> {
    Ok(Json(lease_view(&context.hub().credentials().lease(&requester, lease_id(&id)?).await?)))
}

async fn renew(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<LeaseView>, Refused> {
    let request: RenewRequest = body::read(&body)?;
    let wanted = LeaseRequest { ttl_s: request.ttl_seconds, clamps_ttl: true };
    Ok(Json(lease_view(&context.hub().credentials().renew_lease(&requester, lease_id(&id)?, wanted).await?)))
}

async fn revoke(
    context: Context,
    Principal(requester): Principal,
    Path(id): Path<String>,
) -> Result<Json<RevokedLease>, Refused> {
    Ok(Json(RevokedLease {
        revoked: context.hub().credentials().revoke_lease(&requester, lease_id(&id)?).await?,
    }))
}

/// Revokes the leases of a path, or of an actor: `{"path": …}` or `{"actor": …}`.
async fn revoke_many(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<RevokedLeases>, Refused> {
    let request: RevokeLeasesRequest = body::read(&body)?;
    let store = context.hub().credentials();
    let count = match (request.path, request.actor) {
        (Some(path), None) => store.revoke_leases_below(&requester, &PermissionPath::parse(&path)?).await?,
        (None, Some(actor)) => store.revoke_leases_of(&requester, &actor).await?,
        _ => return Err(Refused::bad("Give either the path or the actor whose leases are to be revoked.")),
    };
    Ok(Json(RevokedLeases { count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_addresses_are_parsed_without_passwords() {
        let parsed = |text: &str| address(text).map_err(|refused| refused.error().to_owned());
        let of = |host: &str, port, user: &str, database: &str| {
            Ok((host.to_owned(), port, user.to_owned(), database.to_owned()))
        };
        assert_eq!(parsed("postgres://admin@db.example/shop"), of("db.example", 5_432, "admin", "shop"));
        assert_eq!(parsed("postgresql://a%40b@[::1]:6000/x%20y"), of("::1", 6_000, "a@b", "x y"));
        for (text, fault) in [
            ("postgres://admin:secret@db/shop", "password"),
            ("postgres://db/shop", "no user"),
            ("postgres://admin@db", "no database"),
            ("postgres://admin@/shop", "USER@HOST"),
            ("postgres://admin@db/shop?sslmode=disable", "parameters"),
            ("mysql://admin@db/shop", "PostgreSQL"),
            ("db", "cannot be parsed"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(fault) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
