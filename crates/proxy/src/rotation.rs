//! Requests during the rotation of a credential: if a server rejects the old value, the request is retried with the new one.

use http_relay::access_log::Entry;
use http_relay::fields::address;
use http_relay::request_body::RequestBody;
use http_relay::upstream::{NoAnswer, Relayed};
use hyper::{Request, Response, StatusCode, Version};

use super::audited::Audited;
use super::proxy::Proxy;
use super::requests::{Destination, Injected, MatchedRules, Secrets, was_taken};

/// A request that is ready to be sent, except for its credentials.
pub(super) struct Sending<'a> {
    pub(super) place: &'a Destination,
    pub(super) judged: Option<&'a MatchedRules>,
    pub(super) secrets: Option<&'a dyn Secrets>,
    pub(super) audited: Option<&'a Audited>,
    /// Whether the request upgrades the protocol; such a request is sent only once.
    pub(super) is_upgrade: bool,
}

impl Proxy {
    /// Sends a request with the credentials `injected`. Retries once with new credentials if the server responds with 401, the
    /// request has no body, and the credentials have changed meanwhile. `injected` then contains all sent credentials.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
        injected: &mut Vec<Injected>,
        entry: &mut Option<Box<Entry>>,
        sending: &Sending<'_>,
    ) -> Result<Response<Relayed>, NoAnswer> {
        let may_repeat = !injected.is_empty() && !sending.is_upgrade;
        let again = if may_repeat { copy_of(&request) } else { None };
        let response = self.send_once(request, sending.place).await?;
        was_taken(response.status(), injected, sending.secrets);
        let (Some(again), StatusCode::UNAUTHORIZED) = (again, response.status()) else { return Ok(response) };
        Ok(self.send_again(again, injected, entry, sending).await.unwrap_or(response))
    }

    async fn send_again(
        &self,
        mut request: Request<RequestBody>,
        injected: &mut Vec<Injected>,
        entry: &mut Option<Box<Entry>>,
        sending: &Sending<'_>,
    ) -> Option<Response<Relayed>> {
        let judged = sending.judged?;
        let verified = self.upstreams.verifies(&sending.place.origin);
        let fresh =
            judged.inject(&mut request, verified, sending.secrets, self.requests.metrics()).await.ok()?;
        if fresh.iter().all(|one| injected.iter().any(|old| one.is_same(old))) {
            return None;
        }
        if let Some(audited) = sending.audited {
            self.requests.audit(|| audited.sent(&fresh)).await.ok()?;
        }
        entry
            .iter_mut()
            .for_each(|entry| fresh.iter().for_each(|one| entry.hide(one.header(), one.needles())));
        tracing::debug!("a credential was rotated: retrying its request once");
        injected.extend(fresh);
        self.send_once(request, sending.place).await.ok()
    }

    async fn send_once(
        &self,
        request: Request<RequestBody>,
        Destination { origin, authority }: &Destination,
    ) -> Result<Response<Relayed>, NoAnswer> {
        let prepare = |request: &mut Request<RequestBody>, version: Version| {
            address(request, origin, authority, version)
        };
        self.upstreams.send(origin, request, prepare).await
    }
}

/// Copies the request; `None` if it has a body.
fn copy_of(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().empty_copy()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
