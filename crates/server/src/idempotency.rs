//! `Idempotency-Key` on POST: a repeated request gets the first response.

use aws_lc_rs::digest::{Context, SHA256};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use store::{IdempotencyState, StoredResponse};

use crate::access::Caller;
use crate::problem::Problem;
use crate::state::State;

/// The header (draft-ietf-httpapi-idempotency-key-header).
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Header that marks a replayed response.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Maximum length of a key, in bytes.
const KEY_MAX: usize = 255;

/// Time for which responses are stored, µs: a day, so that a job that failed at night can be retried in the morning.
const RETENTION_US: i64 = 24 * 3_600 * 1_000_000;

/// Time, µs, after which an unfinished request counts as lost because its server failed. A repeat then runs the handler again.
/// Longer than any request may take.
const LOST_AFTER_US: i64 = 180 * 1_000_000;

/// Maximum bytes of a stored response. A larger response is not stored, and a repeat runs the request again.
const ANSWER_MAX: usize = 1 << 20;

/// Headers that are stored with a response.
const STORED_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, ETAG, LOCATION];

/// Response extension that marks a response with a secret: its body is not stored, and a repeat gets an error.
#[derive(Clone, Copy, Debug)]
pub struct HoldsSecret;

/// Response extension that marks a replayed response: no handler ran.
#[derive(Clone, Copy)]
pub(crate) struct Replayed;

/// A request with an idempotency key: the hashes of its key and of its body.
struct IdempotentRequest {
    key_hash: [u8; 32],
    body_hash: [u8; 32],
    begun_at_us: i64,
}

/// Runs the handler, unless the same request already has a stored response.
pub(crate) async fn run_idempotent(
    state: &State,
    caller: &Caller,
    request: Request,
    body_max: usize,
    next: Next,
) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(KEY) {
        return next.run(request).await;
    }
    let (idempotent_request, request) = match idempotent_request(state, caller, request, body_max).await {
        Ok(both) => both,
        Err(problem) => return problem.into_response(),
    };
    match begin(state, &idempotent_request).await {
        Ok(None) => {
            // Runs in a separate task, so that the response is stored even if the caller disconnects.
            let state = state.clone();
            let work = tokio::spawn(async move {
                let _task = telemetry::tasks::guard("idempotent-request");
                store_response(&state, idempotent_request, next.run(request).await).await
            });
            work.await.unwrap_or_else(|error| Problem::internal(error).into_response())
        }
        Ok(Some(answer)) => answer,
        Err(problem) => problem.into_response(),
    }
}

async fn idempotent_request(
    state: &State,
    caller: &Caller,
    request: Request,
    body_max: usize,
) -> Result<(IdempotentRequest, Request), Problem> {
    let (parts, body) = request.into_parts();
    let key = key_of(parts.headers.get(&KEY))?;
    let body = Limited::new(body, body_max).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            return Problem::of_status(StatusCode::PAYLOAD_TOO_LARGE, None);
        }
        Problem::bad_request("the connection ended before the body was complete")
    })?;
    let body = body.to_bytes();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let id = caller.id().to_string();
    let idempotent_request = IdempotentRequest {
        key_hash: hash(&[id.as_bytes(), target.as_bytes(), key.as_bytes()]),
        body_hash: hash(&[&body]),
        begun_at_us: state.clock().now_us(),
    };
    Ok((idempotent_request, Request::from_parts(parts, Body::from(body))))
}

fn key_of(value: Option<&HeaderValue>) -> Result<String, Problem> {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    // The draft requires quotes, but most clients send the key without quotes.
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if text.is_empty() || text.len() > KEY_MAX {
        return Err(Problem::bad_request(format_args!(
            "an Idempotency-Key must have 1 to {KEY_MAX} characters"
        )));
    }
    Ok(text.to_owned())
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Begins a request. Returns `None` for the first request, and the stored response for a repeat.
async fn begin(state: &State, idempotent_request: &IdempotentRequest) -> Result<Option<Response>, Problem> {
    let now = idempotent_request.begun_at_us;
    let begun = store::Access::of(state.store()).begin_idempotent(
        idempotent_request.key_hash,
        idempotent_request.body_hash,
        now,
        now + RETENTION_US,
        now - LOST_AFTER_US,
    );
    match begun.await? {
        IdempotencyState::First => Ok(None),
        IdempotencyState::Repeat(stored_response) => Ok(Some(replay(stored_response)?)),
        IdempotencyState::UnderWay => {
            Err(Problem::new(StatusCode::CONFLICT, "idempotency-under-way", "Request in progress")
                .detail("the first request with this Idempotency-Key is still in progress")
                .retry_after(1))
        }
        IdempotencyState::Different => {
            let title = "Idempotency key already used";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-mismatch", title)
                .detail("this Idempotency-Key was used for a request with another body")
                .hint("use a new key for a new request"))
        }
    }
}

fn replay(stored_response: StoredResponse) -> Result<Response, Problem> {
    let Some(body) = stored_response.body else {
        let title = "Response not available again";
        return Err(Problem::new(StatusCode::CONFLICT, "idempotency-secret", title)
            .detail("the response to this request contained a secret, which is not stored")
            .hint("delete the created object and create it again"));
    };
    let status = StatusCode::from_u16(stored_response.status).map_err(Problem::internal)?;
    let mut response = (status, body).into_response();
    response.headers_mut().remove(CONTENT_TYPE);
    let headers: Vec<(String, String)> = serde_json::from_str(&stored_response.headers).unwrap_or_default();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response.extensions_mut().insert(Replayed);
    Ok(response)
}

/// Stores a response for repeats, except server errors and 429.
async fn store_response(
    state: &State,
    idempotent_request: IdempotentRequest,
    response: Response,
) -> Response {
    let status = response.status();
    let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let (mut parts, body) = response.into_parts();
    let length = HttpBody::size_hint(&body).exact();
    if passing || length.is_none_or(|length| length > ANSWER_MAX as u64) {
        forget(state, &idempotent_request).await;
        return Response::from_parts(parts, body);
    }
    let Ok(body) = body.collect().await else {
        forget(state, &idempotent_request).await;
        return Problem::internal("a response could not be read").into_response();
    };
    let body = body.to_bytes();
    let secret = parts.extensions.get::<HoldsSecret>().is_some();
    let stored_response = stored_response(status, &parts.headers, (!secret).then_some(&body));
    let finished = store::Access::of(state.store())
        .finish_idempotent(idempotent_request.key_hash, idempotent_request.begun_at_us, stored_response)
        .await;
    if let Err(error) = finished {
        // The handler has run, but its response is not stored. A repeat is rejected as still in progress until the timeout; after
        // the timeout the handler runs again.
        tracing::warn!(%error, "a response could not be stored for repeated requests");
    }
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

fn stored_response(status: StatusCode, headers: &http::HeaderMap, body: Option<&Bytes>) -> StoredResponse {
    let headers: Vec<(&str, &str)> = STORED_HEADERS
        .iter()
        .filter_map(|name| Some((name.as_str(), headers.get(name)?.to_str().ok()?)))
        .collect();
    StoredResponse {
        status: status.as_u16(),
        headers: serde_json::to_string(&headers).unwrap_or_default(),
        body: body.map(|body| body.to_vec()),
    }
}

async fn forget(state: &State, idempotent_request: &IdempotentRequest) {
    if let Err(error) = store::Access::of(state.store())
        .abandon_idempotent(idempotent_request.key_hash, idempotent_request.begun_at_us)
        .await
    {
        tracing::warn!(%error, "the Idempotency-Key of a failed request could not be released; it can be used again after a timeout");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_may_be_quoted_and_are_limited_in_length() {
        let of = |text: &str| key_of(Some(&HeaderValue::from_str(text).unwrap()));
        assert_eq!(of("abc").unwrap(), "abc");
        assert_eq!(of("\"abc\"").unwrap(), "abc");
        assert!(of("").is_err() && of("\"\"").is_err() && of(&"x".repeat(256)).is_err());
    }

    #[test]
    fn replayed_responses_keep_headers_and_omit_secrets() {
        let mut headers = http::HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(LOCATION, HeaderValue::from_static("/api/v1/x/1"));
        headers.insert("x-request-id", HeaderValue::from_static("not kept"));
        let body = Bytes::from_static(b"{}");
        let response = replay(stored_response(StatusCode::CREATED, &headers, Some(&body))).unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()[LOCATION], "/api/v1/x/1");
        assert_eq!(response.headers()[REPLAYED], "true");
        assert!(!response.headers().contains_key("x-request-id"));
        assert_eq!(
            replay(stored_response(StatusCode::CREATED, &headers, None)).unwrap_err().kind(),
            "idempotency-secret"
        );
    }
}
