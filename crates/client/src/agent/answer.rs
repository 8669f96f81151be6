//! Responses of an agent: current values of names from the cache, everything else from the store.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::credhub::{
    Bindings, Data, DataQuery, ErrorView, FoundCredentials, FoundView, LookupOutcome, LookupRequest,
    LookupView, NameList, NameQuery, StatusView,
};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use events::CredentialName;
use events::feed::{CREDENTIAL_CHANGED, LAGGED, READY, Ready};
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Method, StatusCode, Uri};
use reqwest::Url;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::interpolate;
use crate::events::Change;
use crate::transport::{StoreRequest, is_transient, wiped};
use crate::{Client, Credential, Error, Name};

/// Maximum bytes of a request body, as in the store.
const BODY_MAX: usize = 1 << 20;
/// Maximum concurrent requests. With their bodies they use up to a quarter of a gigabyte.
const REQUESTS_MAX: usize = 256;
/// Timeout for a request that waits for a free slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum names of one lookup, as in the store.
const NAMES_MAX: usize = 1_000;

/// CredHub's message for a credential that does not exist or may not be read.
const NOT_FOUND: &str = "The request could not be completed because the credential does not exist or you do not have \
                         sufficient authorization.";
const BAD_REQUEST: &str = "The request could not be fulfilled because the request path or body did not meet \
                           expectation. Please check the documentation for required formatting and retry your request.";

/// Headers that are forwarded to the store and back.
const FORWARDED_HEADERS: [HeaderName; 4] = [CONTENT_TYPE, ACCEPT, IF_MATCH, IF_NONE_MATCH];

#[derive(Clone)]
struct AgentState {
    client: Client,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
    searches: Searches,
}

/// The meaning of a search (`name-like`) for a text that begins with a slash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Searches {
    /// Every name that contains the text. The request is forwarded to the store.
    Parts,
    /// Only the name that equals the text, from the cache.
    WholeNames,
}

pub(super) fn router(client: Client, searches: Searches, stop: CancellationToken) -> Router {
    let agent = AgentState { client, slots: Arc::new(Semaphore::new(REQUESTS_MAX)), stop, searches };
    let bounded = Router::new()
        .route("/api/v1/data", any(data))
        .route("/api/v1/lookup", post(lookup))
        .route("/api/v1/interpolate", post(interpolate_services))
        .route("/health", get(health))
        .route("/agent/stats", get(stats))
        .fallback(forward)
        .layer(from_fn_with_state(agent.clone(), limit_concurrency));
    // Each subscriber uses a connection or a stream of a connection. The numbers of both are limited.
    Router::new()
        .route("/api/v1/events", get(events))
        .merge(bounded)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(agent)
}

/// Returns an error response in the format of CredHub.
fn refusal(status: StatusCode, text: impl Into<String>) -> Response {
    (status, Json(ErrorView { error: text.into(), error_description: None })).into_response()
}

fn refused(error: &Error) -> Response {
    match error {
        Error::NotFound(_) => refusal(StatusCode::NOT_FOUND, NOT_FOUND),
        Error::Invalid(_) => refusal(StatusCode::BAD_REQUEST, BAD_REQUEST),
        Error::Refused { status, text } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            refusal(status, text.as_str())
        }
        Error::Denied(_) => refusal(StatusCode::FORBIDDEN, error.to_string()),
        Error::Unavailable(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

async fn limit_concurrency(State(agent): State<AgentState>, request: Request, next: Next) -> Response {
    let slot = tokio::time::timeout(SLOT_TIMEOUT, agent.slots.acquire()).await;
    match slot {
        Ok(Ok(_slot)) => next.run(request).await,
        _ => refusal(StatusCode::SERVICE_UNAVAILABLE, "The agent has too many requests. Please try again."),
    }
}

async fn health() -> Response {
    Json(StatusView { status: "UP".to_owned() }).into_response()
}

async fn stats(State(agent): State<AgentState>) -> Response {
    Json(agent.client.stats()).into_response()
}

fn credential_response(credential: &Credential) -> Response {
    Json(Data { data: vec![credential.view()] }).into_response()
}

/// Serves current values by name from the cache. Forwards searches, versions and changes.
async fn data(
    State(agent): State<AgentState>,
    query: Result<Query<DataQuery>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Response {
    let client = agent.client.clone();
    let reads = request.method() == Method::GET;
    let name = match query {
        Ok(Query(DataQuery {
            name: None,
            path: None,
            name_like: Some(text),
            expires_within_days: None,
            ..
        })) if reads && agent.searches == Searches::WholeNames && text.len() > 1 && text.starts_with('/') => {
            return found(&client, &text).await;
        }
        Ok(Query(DataQuery { name: Some(name), current: Some(current), versions: None, .. }))
            if reads && current.eq_ignore_ascii_case("true") && !name.is_empty() =>
        {
            name
        }
        _ => return forward(State(agent), request).await,
    };
    match client.get(&name).await {
        // A second, transitional version may exist, which only the store knows.
        Ok(credential) if credential.kind() == "certificate" => {
            let answer = forward(State(agent), request).await;
            if is_transient(answer.status()) { credential_response(&credential) } else { answer }
        }
        Ok(credential) => credential_response(&credential),
        Err(error) => refused(&error),
    }
}

/// Responds to a search for exactly one name.
async fn found(client: &Client, name: &str) -> Response {
    let credentials = match client.get(name).await {
        Ok(credential) => {
            let version = &credential.view().version;
            let found = FoundView {
                name: version.name.clone(),
                version_created_at: version.version_created_at.clone(),
                expiry_date: None,
            };
            vec![found]
        }
        Err(Error::NotFound(_) | Error::Invalid(_)) => Vec::new(),
        Err(error) => return refused(&error),
    };
    Json(FoundCredentials { credentials }).into_response()
}

async fn lookup(State(agent): State<AgentState>, body: Bytes) -> Response {
    let Some(lists) = parse_name_lists(&body) else { return refusal(StatusCode::BAD_REQUEST, BAD_REQUEST) };
    if lists.iter().map(Vec::len).sum::<usize>() > NAMES_MAX {
        return refusal(StatusCode::BAD_REQUEST, format!("A request has at most {NAMES_MAX} names."));
    }
    let found = agent.client.lookup_many(&lists).await;
    let mut results = Vec::with_capacity(found.len());
    for one in &found {
        results.push(match one {
            Ok(Some(credential)) => Some(LookupOutcome::Found(credential.view())),
            Ok(None) => None,
            Err(Error::Refused { text, .. }) => Some(LookupOutcome::Failed { error: text.clone() }),
            Err(error) => return refused(error),
        });
    }
    Json(LookupView { results }).into_response()
}

/// Parses lists of names. A single name may be given without a list.
fn parse_name_lists(body: &Bytes) -> Option<Vec<Vec<String>>> {
    let request: LookupRequest = serde_json::from_slice(body).ok()?;
    let lists = request.lookups.into_iter().map(NameList::names);
    lists.map(|names| (!names.is_empty()).then_some(names)).collect()
}

async fn interpolate_services(State(agent): State<AgentState>, body: Bytes) -> Response {
    let services = std::str::from_utf8(&body).ok().and_then(Bindings::parse);
    let Some(services) = services else { return refusal(StatusCode::BAD_REQUEST, BAD_REQUEST) };
    match interpolate::interpolate(&agent.client, &services).await {
        Ok(mut text) => {
            let bytes = Zeroizing::new(std::mem::take(&mut *text).into_bytes());
            ([(CONTENT_TYPE, "application/json")], Body::from(wiped(bytes))).into_response()
        }
        Err(error) => refused(&error),
    }
}

/// Forwards a request to the store with the agent's login. Routes for login, and routes that the store offers only to its own
/// machine, are not forwarded.
async fn forward(State(agent): State<AgentState>, request: Request) -> Response {
    let client = &agent.client;
    let Some(path) = forwardable_path(request.uri()) else {
        return refusal(
            StatusCode::NOT_FOUND,
            "The agent does not forward this request: it logs in by itself.",
        );
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "Value exceeds the maximum size.");
    };
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let store_request = StoreRequest {
        path,
        headers: forwarded(&parts.headers),
        body: (!body.is_empty()).then(|| body.clone()),
        single_attempt: !reads,
        forwarded: true,
        method: parts.method,
    };
    let outcome = client.transport().request(&store_request).await;
    let changed = || changed_name(&body, parts.uri.query());
    match &outcome {
        Ok(answer) if !reads && answer.status.is_success() => client.changed(changed()),
        // The store may have made the change although its response is missing. While the store is unavailable, readers get the
        // previous value.
        Err(error) if !reads && error.is_unavailable() => client.record_change(changed()),
        _ => {}
    }
    let answer = match outcome {
        Ok(answer) => answer,
        Err(error) => return refused(&error),
    };
    let mut response = (answer.status, Body::from(wiped(answer.body))).into_response();
    *response.headers_mut() = forwarded(&answer.headers);
    response
}

/// Returns the path and query to forward, if allowed. The check applies to the exact text that is sent. Paths with `..`, `%2e%2e` and `\`
/// are rejected, because they could lead to another route.
fn forwardable_path(uri: &Uri) -> Option<String> {
    let url = Url::parse(&format!("http://agent{}", uri.path_and_query()?)).ok()?;
    let path = url.path();
    let may = path.starts_with("/api/") || ["/info", "/version"].contains(&path.trim_end_matches('/'));
    may.then(|| url.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")))
}

fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let retained = FORWARDED_HEADERS
        .into_iter()
        .filter_map(|name| headers.get(&name).map(|value| (name, value.clone())));
    retained.collect()
}

/// Returns the name that a request changes, if it changes exactly one.
fn changed_name(body: &Bytes, query: Option<&str>) -> Option<Name> {
    let in_body = serde_json::from_slice::<NameQuery>(body).ok().and_then(|body| body.name);
    let in_query = || {
        let uri = format!("/?{}", query?).parse().ok()?;
        Query::<NameQuery>::try_from_uri(&uri).ok()?.0.name
    };
    Name::parse(&in_body.or_else(in_query)?).ok()
}

/// Returns the agent's own stream of changes. The cache is updated first, so that readers get the new value.
async fn events(State(agent): State<AgentState>) -> Response {
    let ready = Event::default().event(READY).data(json!(Ready { resumed: false }).to_string());
    let changes = agent.client.changes();
    let event_stream = stream::unfold(changes, |mut changes| async move {
        let event = match changes.next().await {
            Change::Name(name) => {
                let name = CredentialName { name: name.as_str().to_owned() };
                Event::default().event(CREDENTIAL_CHANGED).data(json!(name).to_string())
            }
            Change::Any => Event::default().event(LAGGED).data("{}"),
        };
        Some((Ok::<_, Infallible>(event), changes))
    });
    let all = stream::iter([Ok(ready)]).chain(event_stream).take_until(agent.stop.cancelled_owned());
    Sse::new(all).keep_alive(KeepAlive::default()).into_response()
}
