//! The credential store over CredHub's API, on a listener of its own: its paths are also Bulla's.
//!
//! Statuses, wordings and oddities are CredHub's (2.15), for its clients expect them: a wrong method is 404 with an empty
//! body, whoever may not read is told that nothing is there, a field nobody knows is 422 where it is set and 400 where it
//! is generated.

mod access;
pub(super) mod answer;
pub(super) mod away;
mod body;
mod certificates;
pub(crate) mod context;
mod data;
mod events;
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
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Json, Router};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};

use crate::credhub::Refused;
pub use crate::credhub::{ActorRule, BadTemplate, ClaimTemplate, CredHub, CredHubOptions, UaaOptions};
use crate::peer::Peer;
use crate::routing::endpoint;
use context::{Context, host};

use body::Body;
use principal::Principal;

/// The version of CredHub that is spoken.
const VERSION: &str = "2.15.20";

/// Every route. A slash at the end of a path changes nothing.
pub(crate) fn router(context: &Context) -> Router {
    let routes: [(&str, MethodRouter<Context>); 24] = [
        ("/info", get(endpoint(info))),
        ("/health", get(endpoint(health))),
        ("/version", get(endpoint(version))),
        ("/management", get(endpoint(management)).post(endpoint(manage))),
        ("/oauth/token", post(endpoint(login::token))),
        ("/oauth/token/revoke/{id}", delete(endpoint(login::revoke))),
        ("/api/v1/key-usage", get(endpoint(key_usage))),
        (
            "/api/v1/data",
            get(endpoint(data::get))
                .put(endpoint(data::set))
                .post(endpoint(data::generate))
                .delete(endpoint(data::delete)),
        ),
        ("/api/v1/data/{id}", get(endpoint(data::by_id))),
        ("/api/v1/regenerate", post(endpoint(data::regenerate))),
        ("/api/v1/bulk-regenerate", post(endpoint(data::bulk_regenerate))),
        ("/api/v1/interpolate", post(endpoint(data::interpolate))),
        ("/api/v1/lookup", post(endpoint(lookup::lookup))),
        ("/api/v1/events", get(endpoint(events::follow))),
        ("/api/v1/deleted", get(endpoint(away::deleted))),
        ("/api/v1/undelete", post(endpoint(away::undelete))),
        ("/api/v1/versions", get(endpoint(away::versions)).post(endpoint(away::change))),
        ("/api/v1/certificates", get(endpoint(certificates::list))),
        ("/api/v1/certificates/{id}/regenerate", post(endpoint(certificates::regenerate))),
        (
            "/api/v1/certificates/{id}/versions",
            get(endpoint(certificates::versions)).post(endpoint(certificates::add)),
        ),
        ("/api/v1/certificates/{id}/versions/{version}", delete(endpoint(certificates::remove))),
        ("/api/v1/certificates/{id}/update_transitional_version", put(endpoint(certificates::transition))),
        (
            "/api/v1/permissions",
            get(endpoint(permissions::list))
                .post(endpoint(permissions::add))
                .delete(endpoint(permissions::remove)),
        ),
        ("/api/v2/permissions", get(endpoint(permissions::find)).post(endpoint(permissions::create))),
    ];
    let mut router = Router::new();
    let own = [rotation::routes(), wrap::routes(), access::routes()].into_iter().flatten();
    for (path, methods) in routes.into_iter().chain(own) {
        router = router.route(path, methods.clone()).route(&format!("{path}/"), methods);
    }
    let one = get(endpoint(permissions::one))
        .put(endpoint(permissions::replace))
        .patch(endpoint(permissions::change))
        .delete(endpoint(permissions::delete_one));
    router
        .route("/api/v2/permissions/{id}", one.clone())
        .route("/api/v2/permissions/{id}/", one)
        .fallback(nothing)
        .method_not_allowed_fallback(nothing)
        .with_state(context.clone())
        .layer(from_fn_with_state(context.hub().clone(), writable))
}

async fn nothing() -> StatusCode {
    StatusCode::NOT_FOUND
}

/// While the store is read-only nothing is changed; the switch itself can be.
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

/// Refuses changes that a web page makes a browser send, unless they carry a token, which a browser does not add by itself.
pub(crate) async fn programs_only(request: Request, next: Next) -> Response {
    let (method, headers) = (request.method(), request.headers());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let has_token = headers.contains_key(AUTHORIZATION) || headers.contains_key("x-vault-token");
    if !reads && !has_token && inbound::is_sent_by_web_page(headers) {
        let text = "A web page made this browser ask. Send a token with the request.";
        return Refused::new(StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

/// What every path answers on a listener of a server without a credential store.
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

/// Only from this machine.
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

/// Switches writing on and off. Other users and browsers of this machine connect from it too, so the address is no credential.
async fn manage(
    context: Context,
    axum::Extension(peer): axum::Extension<Peer>,
    Principal(asker): Principal,
    Body(body): Body,
) -> Result<Json<ReadOnlyMode>, Refused> {
    local(&peer)?;
    if !asker.everything {
        let text = "Switching the read-only mode needs the permission credential.manage.";
        return Err(Refused::new(StatusCode::FORBIDDEN, text));
    }
    let mode: ReadOnlyMode = body::read(body)?;
    context.hub().credentials().set_read_only(mode.read_only_mode.ok_or_else(Refused::bad_request)?);
    Ok(Json(mode))
}
