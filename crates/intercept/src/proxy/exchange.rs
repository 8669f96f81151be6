//! One request and its answer: what a proxy takes out of both (RFC 9110 section 7.6.1), and what it must not.

use std::sync::Arc;
use std::time::Instant;

use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use outbound::dial::DialError;
use outbound::resolve::ResolveError;
use tokio_util::task::TaskTracker;

use super::Action;
use super::asked::Asked;
use super::connection::{Proxy, rejected_page};
use super::mirror::misdirected_page;
use super::page::{self, Body};
use super::requests::{Counted, Injected, Judged, Place, RequestBody, RuleSet, Sight, redact, was_taken};
use super::stall::Upload;
use super::streams::Spoken;
use super::target::{Origin, Way};
use super::upstream::{Kept, NoAnswer, NoConnection, NoParent, Relayed};
use super::websocket::Websocket;
use crate::mint::LeafName;

/// Those of a connection alone, beside what `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("http2-settings"),
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TRANSFER_ENCODING,
    UPGRADE,
];

impl Proxy {
    /// As [`Self::exchange`], for services that own what they use.
    pub(super) async fn exchanged(self: Arc<Self>, request: Request<Incoming>, way: Way) -> Response<Body> {
        let request = self.asked(request);
        self.exchange(request, &way).await
    }

    /// What is not wanted of its body is read away, as a request's head may take.
    pub(super) fn asked(&self, request: Request<Incoming>) -> Request<Asked> {
        Asked::of(request, &self.doors, self.options.head_timeout)
    }

    /// Asks the origin, and gives its answer or says why there is none.
    pub(super) async fn exchange(self: &Arc<Self>, mut request: Request<Asked>, way: &Way) -> Response<Body> {
        let websocket = Websocket::of(&mut request);
        if request.method() == Method::CONNECT {
            let detail = "CONNECT is for the proxy itself, not for what is behind it";
            return page::problem(StatusCode::METHOD_NOT_ALLOWED, "http_request_error", detail);
        }
        let began = Instant::now();
        let rules = self.rules.now();
        let mut sight = self.requests.sight(&request, &way.client, &rules.requests);
        let is_rejected = |name: &LeafName| rules.names.decide(name) == Action::Reject;
        let is_target_rejected = way.origin.target.action(&rules.names) == Some(Action::Reject);
        let server = way.origin.server.as_ref();
        let mut judged = None;
        let response = match authority_of(&request) {
            // Whatever name the connection was made under, and whatever it names.
            _ if is_target_rejected || server.is_some_and(is_rejected) => self.rejected(way),
            // In the clear nobody shows that it is the name that was asked for: what the rules say of its address counts too.
            Ok(_) if way.origin.is_unproven() && is_rejected(&way.origin.target.name) => self.rejected(way),
            Ok((_, host)) if is_rejected(&host) => self.rejected(way),
            Ok((_, host)) if self.is_misdirected(way, &host, &rules) => misdirected_page(&host),
            Ok((_, host)) if !self.permits_beside(way, &host).await => misdirected_page(&host),
            Ok((authority, host)) => {
                let upgrade = take_upgrade(request.headers());
                // Before the request is judged and sent: what belongs to the client's connection stays with us.
                clean(request.headers_mut());
                match rules.requests.judge(&mut request, way, &host) {
                    Ok(met) => {
                        let judged = judged.insert(met).as_ref();
                        let place = Place { origin: origin_of(way, websocket.as_ref()), authority };
                        let (tunnels, websocket) = (&way.tunnels, websocket.as_ref());
                        let asking =
                            Asking { rules: &rules, judged, sight: &mut sight, upgrade, websocket, tunnels };
                        self.ask(request, place, asking).await
                    }
                    Err(error) => page::problem(StatusCode::BAD_REQUEST, "http_request_error", error),
                }
            }
            Err(error) => page::problem(StatusCode::BAD_REQUEST, "http_request_error", error),
        };
        let response = match &websocket {
            Some(websocket) => websocket.answered(response),
            None => response,
        };
        if let Some(mut sight) = sight {
            if let Some(judged) = judged.flatten() {
                sight.decide(judged.records_answer(response.headers()));
            }
            sight.answered(response.status(), response.headers());
            sight.down().count(response.body().size_hint().exact().unwrap_or(0) as usize);
        }
        self.metrics.request(response.status(), began.elapsed());
        response
    }

    fn rejected(&self, way: &Way) -> Response<Body> {
        self.metrics.rejected();
        rejected_page(&way.origin.target)
    }

    async fn ask(
        self: &Arc<Self>,
        mut request: Request<Asked>,
        mut place: Place,
        asking: Asking<'_>,
    ) -> Response<Body> {
        let Asking { rules, judged, sight, upgrade, websocket, tunnels } = asking;
        if let Some(judged) = judged {
            if let Some(delay) = judged.delay() {
                tokio::time::sleep(delay).await;
            }
            if let Some(sight) = sight {
                sight.rules(judged.names());
                if judged.records() {
                    sight.record(&request, url_of(&request, &place));
                }
            }
            if let Some(answer) = judged.own_answer() {
                self.requests.metrics().answered();
                return answer;
            }
        }
        let client = upgrade.is_some().then(|| Upgrading {
            client: hyper::upgrade::on(&mut request),
            websocket,
            tunnels,
            version: request.version(),
        });
        if let Some(protocol) = &upgrade {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, protocol.clone());
        }
        let tee = sight.as_ref().map(|sight| sight.up());
        let version = request.version();
        let (upload, uploading) = Upload::within(self.options.idle);
        let mut request = request.map(|body| RequestBody::new(body, tee, upload));
        let secrets = rules.secrets.as_deref();
        let mut injected = Vec::new();
        if let Some(judged) = judged {
            judged.change(&mut request, &mut place);
            if place.origin.target.action(&rules.names) == Some(Action::Reject) {
                self.metrics.rejected();
                return rejected_page(&place.origin.target);
            }
            let verified = self.upstreams.verifies(&place.origin);
            injected = match judged.inject(&mut request, verified, secrets, self.requests.metrics()).await {
                Ok(injected) => injected,
                Err(answer) => return answer,
            };
            if let Some(sight) = sight {
                injected.iter().for_each(|one| sight.hide(one));
            }
        }
        let Place { origin, authority } = &place;
        let prepare =
            |request: &mut Request<RequestBody>, http2: bool| address(request, origin, authority, http2);
        match self.upstreams.send(origin, request, prepare).await {
            Ok(response) => {
                let mut response = response.map(|body| body.beside(&uploading));
                was_taken(response.status(), &injected, secrets);
                redact(&mut response, &injected);
                self.passed_on(response, client, judged, sight, injected)
            }
            Err(_) if uploading.has_stalled() => stalled(version),
            Err(error) => {
                tracing::debug!(target = %origin.target, %error, "no answer of an upstream");
                unanswered(&error)
            }
        }
    }

    fn passed_on(
        self: &Arc<Self>,
        mut response: Response<Relayed>,
        client: Option<Upgrading<'_>>,
        judged: Option<&Judged>,
        sight: &mut Option<Box<Sight>>,
        injected: Vec<Injected>,
    ) -> Response<Body> {
        if let (Some(sight), Some(Kept(kept))) = (sight.as_mut(), response.extensions().get()) {
            sight.upstream(*kept);
        }
        let websocket = client.as_ref().and_then(|client| client.websocket);
        if let Some(refusal) = websocket.and_then(|websocket| websocket.refusal(&response)) {
            return refusal;
        }
        if let (Some(sight), Some(judged)) = (sight.as_mut(), judged) {
            sight.more_rules(judged.names_of_answer(response.headers()));
            sight.decide(judged.records_answer(response.headers()));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(Upgrading { client, tunnels, version, .. }) = client else {
                return page::problem(
                    StatusCode::BAD_GATEWAY,
                    "http_protocol_error",
                    "the upstream changed protocols unasked",
                );
            };
            let upstream = hyper::upgrade::on(&mut response);
            let proxy = Arc::clone(self);
            let mut sight = sight.take();
            let told = if websocket.is_some() { StatusCode::OK } else { response.status() };
            sight.iter_mut().for_each(|sight| sight.answered(told, response.headers()));
            // By HTTP/2 a stream that is reset cannot be told from one that its client has ended: no server is kept for it.
            let half = if version == Version::HTTP_2 { self.options.head_timeout } else { self.options.idle };
            let (tunnel, stream) = (tunnels.token(), Spoken::on());
            self.doors.spawn_bounded(async move {
                let _live = telemetry::tasks::guard("proxy-upgraded");
                let _tunnel = tunnel;
                let _stream = stream;
                if let Ok((client, upstream)) = futures_util::future::try_join(client, upstream).await {
                    let client = Counted::new(TokioIo::new(client), sight.as_deref());
                    proxy.relay_upgraded(client, TokioIo::new(upstream), half).await;
                }
            });
            return response.map(Either::Left);
        }
        clean(response.headers_mut());
        if let Some(answer) = judged.and_then(|judged| judged.answered(&mut response)) {
            self.requests.metrics().answered();
            return answer;
        }
        let mut sight = sight.take();
        sight.iter_mut().for_each(|sight| sight.answered(response.status(), response.headers()));
        response.map(|body| Either::Left(body.seen(sight, injected)))
    }
}

/// What goes with a request on its way.
struct Asking<'a> {
    rules: &'a RuleSet,
    judged: Option<&'a Judged>,
    sight: &'a mut Option<Box<Sight>>,
    /// The protocol that the client wants to change to.
    upgrade: Option<HeaderValue>,
    /// What was asked for by HTTP/2.
    websocket: Option<&'a Websocket>,
    /// What goes on when the client's connection has ended.
    tunnels: &'a TaskTracker,
}

/// A client that waits for another protocol.
struct Upgrading<'a> {
    client: hyper::upgrade::OnUpgrade,
    websocket: Option<&'a Websocket>,
    tunnels: &'a TaskTracker,
    version: Version,
}

/// Where requests of `way` go: by HTTP/1.1 for what only that changes to.
fn origin_of(way: &Way, websocket: Option<&Websocket>) -> Arc<Origin> {
    match websocket {
        Some(_) if way.origin.http2 => Arc::new(Origin { http2: false, ..(*way.origin).clone() }),
        _ => Arc::clone(&way.origin),
    }
}

/// As the client would write it.
fn url_of(request: &Request<Asked>, place: &Place) -> String {
    let scheme = if place.origin.server.is_some() { "https" } else { "http" };
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    format!("{scheme}://{}{path}", place.authority.to_str().unwrap_or_default())
}

/// The host a request names: HTTP/2's `:authority`, or `Host`. One of the two, and one only (RFC 9112 section 3.2); one that
/// cannot be read is none, as nobody could say whether it is refused.
fn authority_of(request: &Request<Asked>) -> Result<(HeaderValue, LeafName), &'static str> {
    const UNREADABLE: &str = "the host is no name or address";
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return Err("a request names one host");
    }
    let authority = match request.uri().authority() {
        // Host is what a request in full says, whatever else it carries.
        Some(authority) => authority.clone(),
        None => {
            let host = host.ok_or("the request names no host")?;
            Authority::try_from(host.as_bytes()).map_err(|_| UNREADABLE)?
        }
    };
    if authority.as_str().contains('@') {
        return Err("a host is named without a user");
    }
    let name = LeafName::parse(authority.host()).map_err(|_| UNREADABLE)?;
    let value = HeaderValue::try_from(authority.as_str()).map_err(|_| UNREADABLE)?;
    Ok((value, name))
}

/// Puts the request into the form that the origin's protocol has.
fn address(request: &mut Request<RequestBody>, origin: &Origin, authority: &HeaderValue, http2: bool) {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut parts = Parts::default();
    parts.path_and_query = Some(path);
    if http2 {
        parts.scheme = Some(if origin.server.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = authority.to_str().ok().and_then(|authority| authority.parse().ok());
        request.headers_mut().remove(HOST);
        *request.version_mut() = Version::HTTP_2;
    } else {
        request.headers_mut().insert(HOST, authority.clone());
        join_cookies(request.headers_mut());
        // Else a body of unknown length would be none, with methods that seldom have one.
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        *request.version_mut() = Version::HTTP_11;
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// One line of cookies, as HTTP/1.1 has it (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// The protocol a client wants to change to (RFC 9110 section 7.8); not HTTP/2, whose requests would not be seen.
fn take_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = headers.get(UPGRADE).filter(|wanted| !wanted.as_bytes().eq_ignore_ascii_case(b"h2c"))?;
    named_by_connection(headers).any(|name| name.eq_ignore_ascii_case("upgrade")).then(|| wanted.clone())
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',').map(str::trim))
}

/// Takes out what is of one connection alone. `TE: trailers` stays, as both sides pass trailers on.
fn clean(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> =
            named_by_connection(headers).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            headers.remove(name);
        }
    }
    // Where both are, the chunks count (RFC 9112 section 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if let Some(te) = headers.get(TE) {
        let trailers =
            te.to_str().is_ok_and(|te| te.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")));
        headers.remove(TE);
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// Of a client that began a request and did not go on.
fn stalled(version: Version) -> Response<Body> {
    let detail = "nothing more came of the request's body";
    let mut response = page::problem(StatusCode::REQUEST_TIMEOUT, "http_request_error", detail);
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// RFC 9209's name for what went wrong, and a status.
fn unanswered(error: &NoAnswer) -> Response<Body> {
    let (status, reason) = match error {
        NoAnswer::Late => (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout"),
        NoAnswer::Broken(_) => (StatusCode::BAD_GATEWAY, "http_response_incomplete"),
        NoAnswer::Connection(error) => unconnected(error),
    };
    page::problem(status, reason, &error.to_string())
}

fn unconnected(error: &NoConnection) -> (StatusCode, &'static str) {
    use NoConnection as C;
    match error {
        C::Name(ResolveError::TimedOut) => (StatusCode::GATEWAY_TIMEOUT, "dns_timeout"),
        C::Name(_) => (StatusCode::BAD_GATEWAY, "dns_error"),
        C::Dial(DialError::TimedOut) | C::Late => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        C::Dial(DialError::Refused) => (StatusCode::BAD_GATEWAY, "connection_refused"),
        C::Dial(_) => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
        C::NotAllowed => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
        C::Loop => (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
        C::Tls(error) if is_of_certificate(error) => (StatusCode::BAD_GATEWAY, "tls_certificate_error"),
        C::Tls(_) => (StatusCode::BAD_GATEWAY, "tls_protocol_error"),
        C::Full => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        C::ClosedAtOnce => (StatusCode::BAD_GATEWAY, "connection_terminated"),
        C::Http(_) => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
        C::NoWebsockets => (StatusCode::BAD_GATEWAY, "http_upgrade_failed"),
        C::Parent { why: NoParent::Connection(error), .. } => unconnected(error),
        C::Parent { why: NoParent::Late, .. } => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        C::Parent { why: NoParent::Refused(StatusCode::GATEWAY_TIMEOUT), .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "destination_unavailable")
        }
        C::Parent { .. } => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
    }
}

fn is_of_certificate(error: &std::io::Error) -> bool {
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(of_tls, Some(rustls::Error::InvalidCertificate(_)))
}
