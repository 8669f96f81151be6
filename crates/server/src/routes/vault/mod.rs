//! The credential store with the API of Vault's KV store, version 2, so that Vault clients work unchanged.
//!
//! The mount `secret` is the root of all names: `secret/team/db` is the credential `/team/db`. Missing permission is 403, whether
//! or not the object exists. A missing object is 404 with an empty error list, which clients expect.

mod answer;
mod data;
mod leases;
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
use http::{HeaderValue, Method, StatusCode};

use super::credhub::context::Context;
use crate::credhub::CredHub;
use crate::routing::{NonApiAccess, OperationTable, PathOperations};
use answer::Refused;
use mount::{DATABASES, LIST, MOUNT};

/// The header by which a client requests response wrapping. Such a request is rejected, because the response must not be sent
/// unwrapped.
const WRAP: &str = "x-vault-wrap-ttl";

/// The namespace header of Enterprise clients. This server has only the root namespace.
const NAMESPACE: &str = "x-vault-namespace";

/// Names of the root namespace in client requests.
const ROOT: [&str; 2] = ["", "root"];

/// Returns the operations of the API with their required permissions. Paths are relative to `/v1`.
pub(super) fn operation_table() -> OperationTable<Context> {
    use NonApiAccess::{AtPath, Caller, Nothing, OwnCredential};
    let on = PathOperations::new;
    let list = || Method::from_bytes(LIST.as_bytes()).unwrap_or(Method::TRACE);
    // Clients write with POST or with PUT.
    macro_rules! written {
        ($operations:expr, $need:expr, $handler:expr) => {
            $operations.post($need, $handler).put($need, $handler)
        };
    }
    let data = written!(on().get(AtPath, data::get), AtPath, data::set);
    let metadata = written!(on().get(AtPath, metadata::get), AtPath, metadata::set);
    let metadata = metadata.patch(AtPath, metadata::patch).delete(AtPath, metadata::delete);
    let roots = || on().get(AtPath, metadata::list_root).on(list(), AtPath, metadata::list_root_by_method);
    OperationTable::new()
        .route(
            "/secret/data/{*path}",
            data.patch(AtPath, data::patch).delete(AtPath, versions::delete_newest),
        )
        .route("/secret/metadata/{*path}", metadata.on(list(), AtPath, metadata::list_by_method))
        .route("/secret/metadata", roots())
        .route("/secret/metadata/", roots())
        .route("/secret/delete/{*path}", written!(on(), AtPath, versions::delete))
        .route("/secret/undelete/{*path}", written!(on(), AtPath, versions::undelete))
        .route("/secret/destroy/{*path}", written!(on(), AtPath, versions::destroy))
        .route("/secret/subkeys/{*path}", on().get(AtPath, data::subkeys))
        .route("/secret/config", on().get(Caller, system::config))
        .route("/database/creds/{*path}", on().get(AtPath, leases::create))
        .route("/sys/leases/lookup", written!(on(), AtPath, leases::lookup))
        .route("/sys/leases/renew", written!(on(), AtPath, leases::renew))
        .route("/sys/leases/renew/{*path}", written!(on(), AtPath, leases::renew))
        .route("/sys/leases/revoke", written!(on(), AtPath, leases::revoke))
        .route("/sys/leases/revoke/{*path}", written!(on(), AtPath, leases::revoke))
        .route("/sys/leases/revoke-prefix/{*path}", written!(on(), AtPath, leases::revoke_prefix))
        .route("/sys/internal/ui/mounts", on().get(Caller, system::visible_mounts))
        .route("/sys/internal/ui/mounts/{*path}", on().get(Caller, system::mount_of))
        .route("/sys/mounts", on().get(Caller, system::mounts))
        .route("/sys/health", on().get(Nothing, system::health))
        .route("/sys/seal-status", on().get(Nothing, system::seal_status))
        .route("/sys/leader", on().get(Nothing, system::leader))
        .route("/auth/token/lookup-self", written!(on().get(Caller, token::lookup), Caller, token::lookup))
        .route("/auth/token/renew-self", written!(on(), Caller, token::renew))
        .route("/auth/token/revoke-self", written!(on(), Caller, token::revoke))
        .route("/auth/approle/login", written!(on(), OwnCredential, token::login))
}

/// Returns the router for the operations of [`operation_table`].
pub(super) fn router(context: &Context) -> Router {
    operation_table()
        .router()
        .fallback(unknown)
        .method_not_allowed_fallback(unsupported)
        .with_state(context.clone())
        .layer(from_fn_with_state(context.hub().clone(), allowed))
}

async fn unknown(request: Request) -> Refused {
    let path = request.uri().path().trim_start_matches('/').chars().take(200).collect::<String>();
    Refused::new(
        StatusCode::NOT_FOUND,
        format!(
            "no handler for route {path:?}. hint: the mounts are {MOUNT}, a KV store of version 2, and {DATABASES}, of which \
             database/creds/ROLE can be read"
        ),
    )
}

async fn unsupported() -> Refused {
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation")
}

/// Rejects unsupported request headers, and changes of credentials while the store is in read-only mode.
async fn allowed(With(hub): With<CredHub>, request: Request, next: Next) -> Response {
    if request.headers().contains_key(WRAP) {
        return Refused::bad("response wrapping is not supported. hint: omit -wrap-ttl").into_response();
    }
    // If the namespace were ignored, a write for one namespace would affect the secrets of all others.
    let elsewhere = |value: &HeaderValue| {
        value.to_str().map_or(true, |name| !ROOT.contains(&name.trim().trim_matches('/')))
    };
    if request.headers().get_all(NAMESPACE).iter().any(elsewhere) {
        let text = "X-Vault-Namespace: only the root namespace exists. hint: omit VAULT_NAMESPACE (-namespace), and use \
         one path per namespace instead: secret/NAMESPACE/...";
        return Refused::bad(text).into_response();
    }
    let method = request.method();
    let changes = !matches!(*method, Method::GET | Method::HEAD) && method.as_str() != LIST;
    // Logins and revocations of tokens do not change credentials, and a stolen token must be revocable at any time.
    if changes && hub.is_read_only() && !request.uri().path().starts_with("/auth/") {
        let text = "the credential store is in read-only mode. Try again later";
        return Refused::new(StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    next.run(request).await
}
