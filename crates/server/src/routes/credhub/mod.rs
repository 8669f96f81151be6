//! The credential store with CredHub's API, on its own listener. The listener also serves endpoints that CredHub does not have.
//!
//! Status codes, texts and peculiarities are the same as in CredHub 2.15, because its clients expect them. An unsupported method
//! returns 404 with an empty body. A caller without read permission gets 404. An unknown field returns 422 when a value is set, and
//! 400 when a value is generated.

mod access;
pub(super) mod answer;
mod body;
mod certificates;
pub(crate) mod context;
mod data;
pub(super) mod deletion;
mod events;
mod leases;
pub(super) mod login;
mod lookup;
mod paging;
mod permissions;
pub(super) mod principal;
mod rotation;
mod wrap;

use api::credhub::{
    AppView, AuthServerView, InfoView, KeyUsageView, LinksView, ReadOnlyMode, StatusView, VersionInfo,
};
use axum::extract::{Request, State as With};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};

use crate::credhub::Refused;
pub use crate::credhub::{ActorRule, BadTemplate, ClaimTemplate, CredHub, CredHubOptions, UaaOptions};
use crate::peer::Peer;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};
use context::{Context, host};

use body::Body;
use principal::Principal;

/// The implemented version of CredHub.
const VERSION: &str = "2.15.20";

/// Returns the operations of the API with their required permissions. A trailing slash in a path is ignored.
pub(crate) fn operation_table() -> OperationTable<Context> {
    use NonApiAccess::{AtPath, Caller, Loopback, LoopbackManager, Nothing, OwnCredential};
    let on = PathOperations::new;
    let changed = on().get(AtPath, data::get).put(AtPath, data::set).post(AtPath, data::generate);
    let permissions = on().get(AtPath, permissions::list).post(AtPath, permissions::add);
    let permission = on().get(AtPath, permissions::one).put(AtPath, permissions::replace);
    let versions = on().get(AtPath, certificates::versions).post(AtPath, certificates::add);
    let certificate = "/api/v1/certificates/{id}";
    OperationTable::new()
        .route("/info", on().get(Nothing, info))
        .route("/health", on().get(Nothing, health))
        .route("/version", on().get(Caller, version))
        .route("/management", on().get(Loopback, management).post(LoopbackManager, manage))
        .route("/oauth/token", on().post(OwnCredential, login::token))
        .route("/oauth/token/revoke/{id}", on().delete(Caller, login::revoke))
        .route("/api/v1/key-usage", on().get(Caller, key_usage))
        .route("/api/v1/data", changed.delete(AtPath, data::delete))
        .route("/api/v1/data/{id}", on().get(AtPath, data::by_id))
        .route("/api/v1/regenerate", on().post(AtPath, data::regenerate))
        .route("/api/v1/bulk-regenerate", on().post(AtPath, data::bulk_regenerate))
        .route("/api/v1/interpolate", on().post(AtPath, data::interpolate))
        .route("/api/v1/lookup", on().post(AtPath, lookup::lookup))
        .route("/api/v1/events", on().get(Caller, events::follow))
        .route("/api/v1/deleted", on().get(AtPath, deletion::deleted))
        .route("/api/v1/undelete", on().post(AtPath, deletion::undelete))
        .route("/api/v1/versions", on().get(AtPath, deletion::versions).post(AtPath, deletion::change))
        .route("/api/v1/certificates", on().get(AtPath, certificates::list))
        .route(&format!("{certificate}/regenerate"), on().post(AtPath, certificates::regenerate))
        .route(&format!("{certificate}/versions"), versions)
        .route(&format!("{certificate}/versions/{{version}}"), on().delete(AtPath, certificates::remove))
        .route(
            &format!("{certificate}/update_transitional_version"),
            on().put(AtPath, certificates::transition),
        )
        .route("/api/v1/permissions", permissions.delete(AtPath, permissions::remove))
        .route("/api/v2/permissions", on().get(AtPath, permissions::find).post(AtPath, permissions::create))
        .merge(rotation::routes())
        .merge(leases::routes())
        .merge(wrap::routes())
        .merge(access::routes())
        .route(
            "/api/v2/permissions/{id}",
            permission.patch(AtPath, permissions::change).delete(AtPath, permissions::delete_one),
        )
}

/// Returns the router for the operations of [`operation_table`].
pub(crate) fn router(context: &Context) -> Router {
    operation_table()
        .router_with_slashes()
        .fallback(nothing)
        .method_not_allowed_fallback(nothing)
        .with_state(context.clone())
        .layer(from_fn_with_state(context.hub().clone(), writable))
}

async fn nothing() -> StatusCode {
    StatusCode::NOT_FOUND
}

/// Rejects changes while the store is in read-only mode, except changes of the mode itself and requests for tokens.
async fn writable(With(hub): With<CredHub>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let changes_nothing = ["/management", "/oauth/", "/api/v1/interpolate", "/api/v1/lookup"];
    if reads || changes_nothing.iter().any(|free| path.starts_with(free)) {
        return next.run(request).await;
    }
    if hub.is_read_only() {
        let text = "Service Unavailable. Credhub is currently in read only mode.";
        return Refused::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    next.run(request).await
}

/// Rejects changes that a web page makes a browser send, unless the request contains a token: browsers do not add tokens
/// automatically.
pub(crate) async fn reject_browser_writes(request: Request, next: Next) -> Response {
    let (method, headers) = (request.method(), request.headers());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let has_token = headers.contains_key(AUTHORIZATION) || headers.contains_key("x-vault-token");
    if !reads && !has_token && inbound::is_sent_by_web_page(headers) {
        let text = "A web page sent this request without a token. Send a token with the request.";
        return Refused::new(StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

/// Returns the response to every path on the listener of a server without a credential store.
pub(crate) async fn absent() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "This server does not run a credential store.")
}

async fn info(context: Context, uri: http::Uri, headers: http::HeaderMap) -> Json<InfoView> {
    let host = host(&headers, &uri);
    let hub = context.hub();
    let url = hub.uaa().map_or_else(|| hub.url(host), |uaa| uaa.url().to_owned());
    let prompts = [("username", "text", "Token name"), ("password", "password", "Token")];
    let prompts = prompts.map(|(field, kind, label)| (field.to_owned(), [kind.to_owned(), label.to_owned()]));
    Json(InfoView {
        auth_server: AuthServerView { url: url.clone() },
        app: AppView { name: "CredHub".to_owned(), version: VERSION.to_owned() },
        links: LinksView { login: url },
        prompts: prompts.into(),
    })
}

async fn health() -> Json<StatusView> {
    Json(StatusView { status: "UP".to_owned() })
}

async fn version(_: Principal) -> Json<VersionInfo> {
    Json(VersionInfo { version: VERSION.to_owned() })
}

async fn key_usage(context: Context, _: Principal) -> Result<Json<KeyUsageView>, Refused> {
    let usage = context.hub().credentials().key_usage().await?;
    Ok(Json(KeyUsageView {
        active_key: usage.active,
        inactive_keys: usage.inactive,
        unknown_keys: usage.unknown,
    }))
}

/// Rejects peers other than this machine.
fn local(peer: &Peer) -> Result<(), Refused> {
    if peer.address.is_loopback() {
        return Ok(());
    }
    Err(Refused::new(StatusCode::UNAUTHORIZED, "The request was send from an invalid IP address."))
}

async fn management(
    context: Context,
    axum::Extension(peer): axum::Extension<Peer>,
) -> Result<Json<ReadOnlyMode>, Refused> {
    local(&peer)?;
    Ok(Json(ReadOnlyMode { read_only_mode: Some(context.hub().is_read_only()) }))
}

/// Switches read-only mode on or off. The caller must authenticate: a local address is no credential, because other users and
/// browsers of this machine have the same address.
async fn manage(
    context: Context,
    axum::Extension(peer): axum::Extension<Peer>,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<ReadOnlyMode>, Refused> {
    local(&peer)?;
    if !requester.full_access {
        let text = "Switching the read-only mode needs the permission credential.manage.";
        return Err(Refused::new(StatusCode::FORBIDDEN, text));
    }
    let mode: ReadOnlyMode = body::read(&body)?;
    context.hub().credentials().set_read_only(mode.read_only_mode.ok_or_else(Refused::bad_request)?);
    Ok(Json(mode))
}
