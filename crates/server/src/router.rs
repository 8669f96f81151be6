//! All routes, and their common layers: problem documents, headers, metrics, limits.

use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State as With};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use uuid::Uuid;

use crate::extract::BODY_MAX;
use crate::face_limit::{add_retry_after, limited};
use crate::limit::ProtocolGroup;
use crate::listen::Console;
use crate::metrics::RequestLabels;
use crate::openapi;
use crate::peer::Peer;
use crate::problem::{IsProblem, MEDIA_TYPE, Problem};
use crate::routes;
use crate::routes::credhub::context::Context;
use crate::routing::{Api, NonApiOperation, RouteInfo};
use crate::state::State;

/// Maximum bytes that are read from the error text of a framework response.
const REFUSAL_TEXT_MAX: usize = 4 << 10;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const VERSION: HeaderName = HeaderName::from_static("bulla-version");

/// Returns the router of the TLS listener, and the list of the API's routes.
pub fn router(state: &State) -> (Router, Vec<RouteInfo>) {
    assemble(state, routes::api())
}

fn assemble(state: &State, api: Api) -> (Router, Vec<RouteInfo>) {
    let (api, _, infos) = api.finish(state, openapi::skeleton());
    let document = document(state.clone());
    let api = api
        .route("/openapi.json", get(move || openapi_response(Bytes::clone(&document))))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state.clone())
        .layer(from_fn(convert_errors_to_problems))
        .layer(from_fn(add_security_headers))
        .merge(limited(state, ProtocolGroup::Protocols, routes::protocols().with_state(state.clone())));
    let api = with_metrics(state, with_body_limit(api).layer(from_fn(instance)));
    (api, infos)
}

/// Returns the router for public data that is served without TLS: CRLs, OCSP, http-01 responses of ACME.
pub fn public_router(state: &State) -> Router {
    let public = limited(state, ProtocolGroup::Protocols, routes::public().with_state(state.clone()));
    with_metrics(state, with_body_limit(public))
}

/// Returns the API together with the web console, which calls the API and the credential store.
pub fn with_web_console(state: &State, api: Router, console: Console) -> Router {
    let credentials = state.components().credentials.is_some();
    let credentials = credentials.then(|| prepare_for_console(credential_router_for_pages(state)));
    let pages = console(prepare_for_console(api.clone()), credentials);
    api.merge(with_metrics(state, with_body_limit(pages)))
}

/// Prepares routes for calls that console pages make within this process. Removes the request extensions of the page's own route,
/// except the peer of the connection.
fn prepare_for_console(routes: Router) -> Router {
    let of_connection = |mut request: Request| {
        let peer = request.extensions_mut().remove::<Peer>();
        request.extensions_mut().clear();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        request
    };
    Router::new().fallback_service(routes.map_request(of_connection))
}

/// Returns the router of the credential store, with the paths and errors of CredHub.
pub(crate) fn credential_router(state: &State) -> Router {
    let hub = state.components().credentials.clone();
    limited_credential_router(state, hub.map(|hub| routes::credentials(&Context::new(hub, state.clone()))))
}

/// Returns the credential store for pages of this process, such as the web console; never for a listener. A browser session
/// identifies the caller, with the permissions of its identity. An unsafe request needs the session's CSRF token, as in the API.
/// Changes, and requests that reveal a value, need a recent proof of the user's identity.
pub fn credential_router_for_pages(state: &State) -> Router {
    let hub = state.components().credentials.clone();
    let context = hub.map(|hub| Context::with_sessions(hub, state.clone()));
    limited_credential_router(state, context.map(|context| routes::console_credential_router(&context)))
}

fn limited_credential_router(state: &State, router: Option<Router>) -> Router {
    let router = router.unwrap_or_else(|| Router::new().fallback(routes::credhub::absent));
    let router = limited(state, ProtocolGroup::Credentials, router);
    with_metrics(state, with_body_limit(router).layer(from_fn(add_security_headers)))
}

/// Returns the operations of the credential store's listener (method, path and permission), from its dispatch tables.
#[must_use]
pub fn credential_operations() -> Vec<NonApiOperation> {
    routes::credential_operations()
}

// Layers are added to routers that already have their state, because the code of a layer is compiled for each type of state.

/// Limits request bodies, and responds 500 when a handler panics.
fn with_body_limit(router: Router) -> Router {
    router.layer(DefaultBodyLimit::max(BODY_MAX)).layer(CatchPanicLayer::custom(panicked))
}

fn with_metrics(state: &State, router: Router) -> Router {
    router.layer(from_fn_with_state(state.clone(), record_metrics))
}

/// Returns the OpenAPI document. Serialized at the first request, because this takes a third of the time of a server's startup.
fn document(state: State) -> Arc<LazyLock<Bytes, impl FnOnce() -> Bytes>> {
    Arc::new(LazyLock::new(move || {
        let (_, document, _) = routes::api().finish(&state, openapi::skeleton());
        Bytes::from(openapi::to_json(document))
    }))
}

async fn openapi_response(document: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

async fn unknown_path(request: Request) -> Problem {
    Problem::of_status(http::StatusCode::NOT_FOUND, Some(format!("unknown path {}", request.uri().path())))
        .hint("/openapi.json lists all paths")
}

async fn method_not_allowed(request: Request) -> Problem {
    let detail = format!("{} does not support {}", request.uri().path(), request.method());
    Problem::of_status(http::StatusCode::METHOD_NOT_ALLOWED, Some(detail))
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&'static str>().copied());
    Problem::internal(format_args!("a handler panicked: {}", text.unwrap_or("no text"))).into_response()
}

/// Converts error responses of the framework to problem documents with the same status and headers.
async fn convert_errors_to_problems(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    if !refused || response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == MEDIA_TYPE) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = http_body_util::Limited::new(body, REFUSAL_TEXT_MAX).collect().await;
    let text = text.ok().and_then(|text| String::from_utf8(text.to_bytes().to_vec()).ok());
    let mut problem = Problem::of_status(status, text.filter(|text| !text.is_empty())).into_response();
    for (name, value) in &parts.headers {
        if name != header::CONTENT_TYPE && name != header::CONTENT_LENGTH {
            problem.headers_mut().append(name.clone(), value.clone());
        }
    }
    problem
}

/// Sets the `instance` of a problem to the request ID. The same ID is in a response header and in the log.
async fn instance(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4();
    let span = tracing::info_span!("request", %id, method = %request.method(), path = request.uri().path());
    let mut response = {
        use tracing::Instrument;
        next.run(request).instrument(span).await
    };
    if let Some(IsProblem(problem)) = response.extensions_mut().remove::<IsProblem>() {
        let mut document = problem.document();
        document.instance = Some(id.urn().to_string());
        let body = serde_json::to_vec(&document).unwrap_or_default();
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Adds security headers: browsers must not sniff, frame or cache responses, or share them with another site.
async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    fixed(headers, VERSION, env!("CARGO_PKG_VERSION"));
    fixed(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    fixed(headers, header::X_FRAME_OPTIONS, "DENY");
    fixed(headers, header::REFERRER_POLICY, "no-referrer");
    fixed(headers, header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    fixed(headers, header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    fixed(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    let cache = if headers.contains_key(header::ETAG) { "private, no-cache" } else { "no-store" };
    fixed(headers, header::CACHE_CONTROL, cache);
    response
}

async fn record_metrics(With(state): With<State>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().as_str().to_owned();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let counted = state.metrics().begin_request();
    let mut response = next.run(request).await;
    add_retry_after(&mut response);
    drop(counted);
    let labels = RequestLabels { method: known_method(method), route, status: response.status().as_u16() };
    tracing::debug!(
        method = labels.method,
        route = labels.route,
        status = labels.status,
        micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        "a request was answered"
    );
    state.metrics().request(&labels, began.elapsed());
    response
}

/// Returns the name of a known HTTP method, and `other` for any other method. The name is a metric label, which clients must not
/// choose freely.
fn known_method(method: String) -> String {
    match method.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => method,
        _ => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Authenticate, Caller, CallerKind, Granted, Permission, Permissions, Scope};
    use crate::extract::Json;
    use crate::routing::{Access, routes};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use http::StatusCode;
    use std::sync::Arc;
    use store::{Clock, Store, StoreUrl};
    use tower::ServiceExt;

    /// A test authenticator: the token `team_NAME` may read the certificates of that team.
    struct Teams;

    impl Authenticate for Teams {
        fn prefix(&self) -> &'static str {
            "team_"
        }

        fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Problem>> {
            let scope = Scope::team(token.trim_start_matches("team_"));
            let granted =
                vec![Granted { permissions: Permissions::of(&[Permission::CertificateRead]), scope }];
            let caller = Caller::new(token.to_owned(), CallerKind::Agent, Uuid::from_u128(7), granted);
            async move { Ok(caller) }.boxed()
        }
    }

    #[utoipa::path(get, path = "/asks", responses((status = 200, body = bool)))]
    async fn asks(caller: Caller) -> Result<Json<bool>, Problem> {
        caller.may(Permission::CertificateRead, &[Scope::team("a")])?;
        Ok(Json(true))
    }

    #[utoipa::path(post, path = "/changes", responses((status = 200, body = Uuid)))]
    async fn changes(caller: Caller) -> Result<Json<Uuid>, Problem> {
        caller.may(Permission::CertificateRead, &[Scope::team("a")])?;
        Ok(Json(Uuid::new_v4()))
    }

    #[utoipa::path(get, path = "/forgets", responses((status = 200, body = bool)))]
    async fn forgets() -> Json<bool> {
        Json(true)
    }

    #[utoipa::path(get, path = "/panics", responses((status = 200, body = bool)))]
    async fn panics() -> Json<bool> {
        panic!("a secret in a panic")
    }

    #[utoipa::path(get, path = "/never", responses((status = 200, body = bool)))]
    async fn never() -> Json<bool> {
        std::future::pending().await
    }

    #[utoipa::path(post, path = "/small", responses((status = 200, body = usize)))]
    async fn small(body: Bytes) -> Json<usize> {
        Json(body.len())
    }

    async fn world() -> (tempfile::TempDir, Router) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("x.db"))).await.unwrap();
        let state = State::builder(store, Clock::system()).authenticator(Arc::new(Teams)).build();
        let scoped = Access::needs(Permission::CertificateRead).scoped();
        let api = Api::area("test")
            .route(scoped, routes!(asks))
            .route(scoped, routes!(changes))
            .route(scoped, routes!(forgets))
            .route(Access::open(), routes!(panics))
            .route(Access::known(), routes!(never))
            .route(Access::open().body_max(4), routes!(small));
        (folder, assemble(&state, api).0)
    }

    async fn get(router: &Router, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        send_request(router, request.body(Body::empty()).unwrap()).await
    }

    async fn send_request(router: &Router, request: Request) -> (StatusCode, String) {
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn scoped_route_without_a_permission_check_returns_500() {
        let (_folder, router) = world().await;
        assert_eq!(get(&router, "/asks", Some("team_a")).await, (StatusCode::OK, "true".to_owned()));
        assert_eq!(get(&router, "/asks", Some("team_b")).await.0, StatusCode::FORBIDDEN);
        assert_eq!(get(&router, "/asks", None).await.0, StatusCode::UNAUTHORIZED);
        let (status, text) = get(&router, "/forgets", Some("team_a")).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(text.contains("problems/internal"), "{text}");
    }

    #[tokio::test]
    async fn repeated_idempotency_key_on_a_scoped_route_returns_same_response() {
        let (_folder, router) = world().await;
        let post = |token: &str| {
            let request = Request::post("/changes")
                .header("authorization", format!("Bearer {token}"))
                .header("idempotency-key", "k");
            send_request(&router, request.body(Body::empty()).unwrap())
        };
        let first = post("team_a").await;
        assert_eq!(first.0, StatusCode::OK);
        assert_eq!(post("team_a").await, first);
    }

    #[tokio::test]
    async fn panicking_handler_returns_500_without_the_panic_message() {
        let (_folder, router) = world().await;
        let (status, text) = get(&router, "/panics", None).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(text.contains("problems/internal") && text.contains("urn:uuid:"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn handler_exceeding_the_timeout_returns_503() {
        let (_folder, router) = world().await;
        // With the clock paused, time advances only when no task can run.
        tokio::time::pause();
        let (status, text) = get(&router, "/never", Some("team_a")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("took too long"), "{text}");
    }

    #[tokio::test]
    async fn route_specific_body_limits_are_enforced() {
        let (_folder, router) = world().await;
        let post = |body: &'static str| {
            send_request(&router, Request::post("/small").body(Body::from(body)).unwrap())
        };
        assert_eq!(post("1234").await, (StatusCode::OK, "4".to_owned()));
        let (status, text) = post("12345").await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(text.contains("payload-too-large"), "{text}");
    }
}
