//! The credential store over the API of Vault's KV store, version 2, so that its clients read and write here unchanged.
//!
//! One mount, `secret`, is the root of all names: `secret/team/db` is the credential `/team/db`. Whoever may not is 403,
//! whether anything is there or not; what is not there is 404 with no error in its list, for clients compare that.

mod answer;
mod data;
mod metadata;
mod mount;
mod path;
mod principal;
mod system;
mod token;
mod versions;

use axum::Router;
use axum::extract::{Request, State as With};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderValue, Method, StatusCode};

use super::credhub::context::Context;
use crate::credhub::CredHub;
use crate::routing::endpoint;
use answer::Refused;
use mount::{LIST, MOUNT};

/// A client that asks for its answer to be wrapped must not get it in the clear.
const WRAP: &str = "x-vault-wrap-ttl";

/// Where an Enterprise client has its secrets. There is one namespace here, the root's.
const NAMESPACE: &str = "x-vault-namespace";

/// How clients name the root namespace.
const ROOT: [&str; 2] = ["", "root"];

/// Every route, below `/v1`.
pub(super) fn router(context: &Context) -> Router {
    let metadata = get(endpoint(metadata::get))
        .post(endpoint(metadata::set))
        .put(endpoint(metadata::set))
        .patch(endpoint(metadata::patch))
        .delete(endpoint(metadata::delete))
        .fallback(endpoint(metadata::list_by_method));
    let roots = get(endpoint(metadata::list_root)).fallback(endpoint(metadata::list_root_by_method));
    let myself = get(endpoint(token::lookup)).post(endpoint(token::lookup)).put(endpoint(token::lookup));
    Router::new()
        .route(
            "/secret/data/{*path}",
            get(endpoint(data::get))
                .post(endpoint(data::set))
                .put(endpoint(data::set))
                .patch(endpoint(data::patch))
                .delete(endpoint(versions::delete_newest)),
        )
        .route("/secret/metadata/{*path}", metadata)
        .route("/secret/metadata", roots.clone())
        .route("/secret/metadata/", roots)
        .route("/secret/delete/{*path}", post(endpoint(versions::delete)).put(endpoint(versions::delete)))
        .route(
            "/secret/undelete/{*path}",
            post(endpoint(versions::undelete)).put(endpoint(versions::undelete)),
        )
        .route("/secret/destroy/{*path}", post(endpoint(versions::destroy)).put(endpoint(versions::destroy)))
        .route("/secret/subkeys/{*path}", get(endpoint(data::subkeys)))
        .route("/secret/config", get(endpoint(system::config)))
        .route("/sys/internal/ui/mounts", get(endpoint(system::visible_mounts)))
        .route("/sys/internal/ui/mounts/{*path}", get(endpoint(system::mount_of)))
        .route("/sys/mounts", get(endpoint(system::mounts)))
        .route("/sys/health", get(endpoint(system::health)))
        .route("/sys/seal-status", get(endpoint(system::seal_status)))
        .route("/sys/leader", get(endpoint(system::leader)))
        .route("/auth/token/lookup-self", myself)
        .route("/auth/token/renew-self", post(endpoint(token::renew)).put(endpoint(token::renew)))
        .route("/auth/token/revoke-self", post(endpoint(token::revoke)).put(endpoint(token::revoke)))
        .route("/auth/approle/login", post(endpoint(token::login)).put(endpoint(token::login)))
        .fallback(unknown)
        .method_not_allowed_fallback(unsupported)
        .with_state(context.clone())
        .layer(from_fn_with_state(context.hub().clone(), allowed))
}

async fn unknown(request: Request) -> Refused {
    let path = request.uri().path().trim_start_matches('/').chars().take(200).collect::<String>();
    Refused::new(
        StatusCode::NOT_FOUND,
        format!("no handler for route {path:?}. hint: the one mount is {MOUNT}, a KV store of version 2"),
    )
}

async fn unsupported() -> Refused {
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation")
}

/// Refuses what would be ignored otherwise; while the store is read-only nothing is changed.
async fn allowed(With(hub): With<CredHub>, request: Request, next: Next) -> Response {
    if request.headers().contains_key(WRAP) {
        return Refused::bad("answers are not wrapped here. hint: ask without -wrap-ttl").into_response();
    }
    // Ignored, a write meant for one namespace would land beside those meant for all others.
    let elsewhere = |value: &HeaderValue| {
        value.to_str().map_or(true, |name| !ROOT.contains(&name.trim().trim_matches('/')))
    };
    if request.headers().get_all(NAMESPACE).iter().any(elsewhere) {
        let text = "X-Vault-Namespace: there are no namespaces here but the root's. hint: leave out VAULT_NAMESPACE \
                    (-namespace), and put what it separates below paths of its own: secret/NAMESPACE/...";
        return Refused::bad(text).into_response();
    }
    let method = request.method();
    let changes = !matches!(*method, Method::GET | Method::HEAD) && method.as_str() != LIST;
    if changes && hub.is_read_only() && request.uri().path().starts_with("/secret/") {
        let text = "the credential store is read-only now. Try again later";
        return Refused::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    next.run(request).await
}
