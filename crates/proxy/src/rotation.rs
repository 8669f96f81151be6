//! Retries of a request during the rotation of a credential: if a server rejects one version of the credential, the request is sent
//! with another version.

use std::time::Duration;

use http_relay::access_log::Entry;
use http_relay::fields::address;
use http_relay::request_body::RequestBody;
use http_relay::upstream::{NoAnswer, Unanswered, UpstreamResponseBody};
use hyper::{Request, Response, StatusCode, Version};

use super::audited::AuditedDecision;
use super::proxy::Proxy;
use super::requests::{CredentialSources, Destination, Injected, MatchedRules, record_credential_outcome};

/// Maximum retries of a request: one with the current version in the credential source, and one with the previous version. Two
/// retries are needed because the server may switch versions between two attempts.
const RETRIES_MAX: usize = 2;
/// Maximum bytes of a 401 response that are read before the request is sent again. If the request cannot be sent again, the client
/// gets this response.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Maximum wait for the end of the body of a 401 response.
const REFUSAL_WITHIN: Duration = Duration::from_secs(2);

/// A request that is ready to be sent, except for its credentials.
pub(super) struct PreparedRequest<'a> {
    pub(super) destination: &'a Destination,
    pub(super) judged: Option<&'a MatchedRules>,
    pub(super) sources: CredentialSources<'a>,
    pub(super) audited: Option<&'a AuditedDecision>,
    /// Whether the request upgrades the protocol; such a request is sent only once.
    pub(super) is_upgrade: bool,
}

impl Proxy {
    /// Sends a request with the credentials `injected`. If the server responds with 401, sends the request again with another
    /// version of the credentials, because the server may have a newer or an older version than the source. A request with a body
    /// is sent again only if the body is kept. `injected` then contains all sent credentials.
    ///
    /// # Errors
    /// [`NoAnswer`]: the server sent no response, to the first request or to a repeated one. It may have processed the request.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
        injected: &mut Vec<Injected>,
        entry: &mut Option<Box<Entry>>,
        sending: &PreparedRequest<'_>,
    ) -> Result<Response<UpstreamResponseBody>, NoAnswer> {
        let may_repeat = !injected.is_empty() && !sending.is_upgrade;
        let repeatable = if may_repeat { copy_of(&request) } else { None };
        let first = self.try_send(request, sending.destination).await;
        let mut response = first.map_err(|unanswered| unanswered.error)?;
        record_credential_outcome(response.status(), injected, sending.sources.secrets);
        for _ in 0..RETRIES_MAX {
            if response.status() != StatusCode::UNAUTHORIZED {
                break;
            }
            let Some(mut request) = repeatable.as_ref().and_then(copy_of) else { break };
            let Some(fresh) = self.other_credentials(&mut request, injected, entry, sending).await else {
                break;
            };
            // Reading the 401 to its end frees the connection for the next try. Otherwise the connection is closed.
            let is_buffered = response.body_mut().keep(REFUSAL_BYTES_MAX, REFUSAL_WITHIN).await;
            let refusal = is_buffered.then_some(response);
            response = match (self.try_send(request, sending.destination).await, refusal) {
                (Ok(other), _) => other,
                // Nothing was sent, so the client gets the server's 401.
                (Err(Unanswered { unsent: Some(_), .. }), Some(refusal)) => return Ok(refusal),
                // The server may have processed the request, so the client gets an error instead of the 401.
                (Err(unanswered), _) => return Err(unanswered.error),
            };
            record_credential_outcome(response.status(), &fresh, sending.sources.secrets);
            injected.extend(fresh);
        }
        Ok(response)
    }

    /// Injects another version of the credentials into `request`, and audits this version. Returns `None` if there is no other
    /// version.
    async fn other_credentials(
        &self,
        request: &mut Request<RequestBody>,
        injected: &[Injected],
        entry: &mut Option<Box<Entry>>,
        sending: &PreparedRequest<'_>,
    ) -> Option<Vec<Injected>> {
        let judged = sending.judged?;
        let verified = self.upstreams.verifies(&sending.destination.origin);
        let (to, with) = ((&sending.destination.authority, verified), (sending.sources, injected));
        let fresh = judged.inject(request, to, with, self.requests.metrics()).await.ok()?;
        if fresh.iter().all(|one| one.was_sent_last(injected)) {
            return None;
        }
        if let Some(audited) = sending.audited {
            self.requests.audit(|| audited.sent(&fresh)).await.ok()?;
        }
        entry
            .iter_mut()
            .for_each(|entry| fresh.iter().for_each(|one| entry.hide(one.header(), one.needles())));
        tracing::debug!("the server rejected a credential: sending the request again with another version");
        Some(fresh)
    }

    async fn try_send(
        &self,
        request: Request<RequestBody>,
        Destination { origin, authority }: &Destination,
    ) -> Result<Response<UpstreamResponseBody>, Unanswered> {
        let prepare = |request: &mut Request<RequestBody>, version: Version| {
            address(request, origin, authority, version)
        };
        self.upstreams.try_send(origin, request, prepare).await
    }
}

/// Copies the request; `None` if it has a body that is not kept.
fn copy_of(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().copy()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
