//! Rate limits of protocols other than the API: ACME, EST, SCEP, CRLs, OCSP, and the credential store.

use axum::Router;
use axum::extract::{Request, State as With};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{StatusCode, Uri};
use zeroize::Zeroizing;

use crate::limit::ProtocolGroup;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::state::State;

/// `Retry-After` in seconds. Each rate is at least one request a second: after this time a request is allowed.
const RETRY_SECONDS: u64 = 1;

/// Adds a layer to `router` that limits the requests of each client address. For [`ProtocolGroup::Protocols`], the layer also limits failed
/// logins with a password. `group` is the group of protocols whose limits apply.
pub(crate) fn limited(state: &State, group: ProtocolGroup, router: Router) -> Router {
    router.layer(from_fn_with_state((state.clone(), group), enforce_limit))
}

async fn enforce_limit(
    With((state, group)): With<(State, ProtocolGroup)>,
    request: Request,
    next: Next,
) -> Response {
    let address =
        request.extensions().get::<Peer>().map_or_else(|| Peer::local().address, |peer| peer.address);
    let uri = request.uri().clone();
    if let Err(problem) = state.limits().address(group, address) {
        state.metrics().refused(problem.kind());
        return too_many(group, &uri, problem);
    }
    let account = basic_account(request.headers());
    let response = next.run(request).await;
    // The credential store counts its own failed logins: only the store knows which credential was rejected.
    let is_failed_password = matches!(group, ProtocolGroup::Protocols)
        && account.is_some()
        && response.status() == StatusCode::UNAUTHORIZED;
    if is_failed_password && let Err(problem) = state.limits().failure(address, account.as_deref()) {
        state.metrics().refused(problem.kind());
        return too_many(group, &uri, problem);
    }
    response
}

/// Returns the 429 response in the format of the protocol.
fn too_many(group: ProtocolGroup, uri: &Uri, problem: Problem) -> Response {
    let retry = HeaderValue::from(RETRY_SECONDS);
    match group {
        // RFC 8555 section 6.6.
        ProtocolGroup::Protocols if uri.path().starts_with("/acme/") => {
            let document = "{\"type\":\"urn:ietf:params:acme:error:rateLimited\",\"status\":429,\
                            \"detail\":\"too many requests from this address\"}";
            let kind = HeaderValue::from_static("application/problem+json");
            (StatusCode::TOO_MANY_REQUESTS, [(CONTENT_TYPE, kind), (RETRY_AFTER, retry)], document)
                .into_response()
        }
        _ => problem.into_response(),
    }
}

/// Adds `Retry-After` to each 429 response without it.
pub(crate) fn add_retry_after(response: &mut Response) {
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().entry(RETRY_AFTER).or_insert(HeaderValue::from(RETRY_SECONDS));
    }
}

/// Returns the account name of a request's Basic credentials (RFC 7617).
fn basic_account(headers: &HeaderMap) -> Option<String> {
    let (scheme, text) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
    let name = pair.split(|byte| *byte == b':').next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}
