//! Applies the rules that match a request. All matching rules apply in order. Each rule may change headers; for every other action,
//! the first rule takes precedence.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use http_relay::page::{self, Body};
use http_relay::request_body::RequestBody;
use http_relay::target::{Origin, Target};
use http_relay::upstream::UpstreamResponseBody;
use hyper::body::Body as _;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, Response, StatusCode};
use x509::{HostOrIp, star};

use super::compile::{Compiled, HeaderChanges, LocalReply, Rule};
use super::inject::{CredentialSources, Injected, Injection, NotInjected, Secrets};
use super::rewrite::Rewrite;
use super::sigv4::{Signable, needs_body};
use super::unavailable::SecretUnavailable;
use super::{RequestMetrics, RequestRules};
use crate::connection_context::ConnectionContext;
use crate::policy::Grantee;
use crate::rule_index::HostPattern;
use crate::url_path::{has_dots, hides_dots, is_ambiguous, plain_path, sent_path};

/// Maximum bytes of a body whose digest the proxy computes for a signature.
const SIGNED_BYTES_MAX: usize = 1 << 20;

/// The rules that match a request. Rules with a response type are evaluated when the response arrives.
pub(crate) struct MatchedRules {
    compiled: Arc<Compiled>,
    met: Vec<u32>,
    host: HostOrIp,
    /// The target of the connection, before rules change it.
    target: Target,
    /// Server name of the TLS connection; `None` without TLS.
    server: Option<HostOrIp>,
    /// The client of the request, with the properties that decide which credentials it may use.
    grantee: Grantee,
}

/// Destination of a request: origin, and value of `Host`. Rules may change both.
pub(crate) struct Destination {
    pub(crate) origin: Arc<Origin>,
    pub(crate) authority: HeaderValue,
}

impl RequestRules {
    /// Returns the rules that match `request` for `host`; `None` if no rule matches. Removes dot segments from the path, so that
    /// the server sees the same path as the rules.
    ///
    /// # Errors
    /// Reason why the request is ambiguous in a property that rules use.
    pub(crate) fn judge<B>(
        &self,
        request: &mut Request<B>,
        context: &ConnectionContext,
        host: &HostOrIp,
        grantee: Grantee,
    ) -> Result<Option<MatchedRules>, &'static str> {
        if self.is_empty() {
            return Ok(None);
        }
        let plain = plain_path(request.uri().path()).into_owned();
        if self.0.by_path && hides_dots(&plain) {
            return Err("the path has dot segments that servers interpret differently");
        }
        if self.0.by_path && has_dots(request.uri().path()) {
            set_checked_path(request);
        }
        if self.0.by_request_type && request.headers().get_all(CONTENT_TYPE).iter().nth(1).is_some() {
            return Err("a request must have one Content-Type header");
        }
        let mut met = self.0.met_or_blocking(host, &plain);
        if met.is_empty() {
            return Ok(None);
        }
        let server = context.origin.server.clone();
        let kind = Kind::of(request.headers());
        let client = context.client.ip().to_canonical();
        met.retain(|at| {
            let Some(rule) = self.0.rules.get(*at as usize) else { return false };
            let is_named = |pattern: &HostPattern| server.as_ref().is_some_and(|name| pattern.is_for(name));
            rule.session_protocol().is_none()
                && (rule.methods.is_empty() || rule.methods.contains(request.method()))
                && (rule.clients.is_empty() || rule.clients.iter().any(|net| net.contains(&client)))
                && (rule.server_names.is_empty() || rule.server_names.iter().any(is_named))
                && kind.is_one_of(&rule.request_types, rule)
        });
        let (compiled, target) = (Arc::clone(&self.0), context.origin.target.clone());
        Ok((!met.is_empty()).then(|| MatchedRules {
            compiled,
            met,
            host: host.clone(),
            target,
            server,
            grantee,
        }))
    }
}

impl RequestRules {
    /// Returns the credentials that a request would get, as pairs of rule and credential name. `port` and `in_tls` describe the
    /// connection of the request.
    #[must_use]
    pub fn credentials(
        &self,
        (host, port, in_tls): (&HostOrIp, u16, bool),
        method: &str,
        path: &str,
        grantee: &Grantee,
    ) -> Vec<(Arc<str>, String)> {
        let mut headers = Vec::new();
        let met = self.0.met(host, &plain_path(path)).into_iter();
        let rules = met.filter_map(|at| self.0.rules.get(at as usize)).filter(|rule| {
            rule.session_protocol().is_none()
                && (rule.methods.is_empty() || rule.methods.iter().any(|one| one == method))
                && rule.response_types.is_empty()
                && (rule.server_names.is_empty()
                    || in_tls && rule.server_names.iter().any(|name| name.is_for(host)))
        });
        let injections = rules.filter_map(|rule| rule.inject.as_ref().map(|one| (&rule.name, one)));
        let granted =
            injections.filter(|(_, one)| grantee.has(one.grants()) && one.is_for_port(port, in_tls));
        let sent = granted.filter(|(_, one)| in_tls || one.insecure);
        sent.filter(|(_, one)| {
            let is_first = !headers.contains(&one.header);
            headers.push(one.header.clone());
            is_first
        })
        .map(|(rule, one)| (Arc::clone(rule), one.log_name()))
        .collect()
    }
}

/// Media type of a message.
enum Kind {
    Missing,
    /// The type without its parameters, in lower case.
    Of(String),
    /// The header has several values, or a value that is not text. Receivers could interpret such a type differently.
    Unreadable,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        let mut all = headers.get_all(CONTENT_TYPE).iter();
        let kind = match (all.next(), all.next()) {
            (None, _) => return Self::Missing,
            (Some(kind), None) => kind.to_str().ok(),
            _ => None,
        };
        match kind.and_then(|kind| kind.split(';').next()) {
            Some(kind) if !kind.contains(',') => Self::Of(kind.trim().to_ascii_lowercase()),
            _ => Self::Unreadable,
        }
    }

    /// Returns whether the type matches the rule, or the rule has no types. An unreadable type matches rules that block.
    fn is_one_of(&self, patterns: &[String], rule: &Rule) -> bool {
        patterns.is_empty()
            || match self {
                Self::Missing => false,
                Self::Of(kind) => patterns.iter().any(|pattern| star::matches(pattern, kind)),
                Self::Unreadable => matches!(rule.answer, Some(LocalReply::Block(..))),
            }
    }
}

impl MatchedRules {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.met.iter().filter_map(|at| self.compiled.rules.get(*at as usize))
    }

    /// Returns the rules that apply before the response.
    fn request_rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules().filter(|rule| rule.response_types.is_empty())
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.request_rules().map(|rule| Arc::clone(&rule.name)).collect()
    }

    pub(crate) fn delay(&self) -> Option<Duration> {
        self.request_rules().find_map(|rule| rule.delay)
    }

    /// Returns the first response, such as a redirect or a refusal, that a matching rule sends instead of a response from the
    /// upstream.
    pub(crate) fn own_answer(&self) -> Option<Response<Body>> {
        self.request_rules().find_map(|rule| rule.answer.as_ref().map(|answer| to_response(rule, answer)))
    }

    /// Returns whether a matching rule records the exchange, before the response type is known. See [`Self::should_record`] for the
    /// final decision.
    pub(crate) fn records(&self) -> bool {
        self.rules().any(|rule| rule.record)
    }

    /// Returns whether to record the exchange. Call it when the response's header is known.
    pub(crate) fn should_record(&self, headers: &HeaderMap) -> bool {
        self.response_rules(&Kind::of(headers)).any(|rule| rule.record)
    }

    /// Returns the names of the matching rules whose condition on the response's media type this response meets. Omits rules
    /// without such a condition.
    pub(crate) fn response_rule_names(&self, headers: &HeaderMap) -> Vec<Arc<str>> {
        let kind = Kind::of(headers);
        let by_type = self.response_rules(&kind).filter(|rule| !rule.response_types.is_empty());
        by_type.map(|rule| Arc::clone(&rule.name)).collect()
    }

    fn response_rules(&self, kind: &Kind) -> impl Iterator<Item = &Rule> {
        self.rules().filter(move |rule| kind.is_one_of(&rule.response_types, rule))
    }

    /// Changes header, path and destination of the request.
    pub(crate) fn change<B>(&self, request: &mut Request<B>, destination: &mut Destination) {
        self.request_rules().for_each(|rule| change(request.headers_mut(), &rule.request));
        let Some(rewrite) = self.request_rules().find_map(|rule| rule.rewrite.as_ref()) else { return };
        if let Some((from, to)) = &rewrite.path
            && let Some(uri) = rewritten(request.uri(), from, to)
        {
            *request.uri_mut() = uri;
        }
        if let Some(moved) = moved(rewrite, destination) {
            *destination = moved;
        }
    }

    /// Injects credentials. Returns an error response if a required credential is missing. `is_verified`: whether the upstream's
    /// certificate is verified. `host`: the value of `Host` in the request that is sent. `tried`: the credentials that the server has
    /// rejected in the same request.
    pub(crate) async fn inject(
        &self,
        request: &mut Request<RequestBody>,
        (host, is_verified): (&HeaderValue, bool),
        (sources, tried): (CredentialSources<'_>, &[Injected]),
        metrics: &RequestMetrics,
    ) -> Result<Vec<Injected>, Response<Body>> {
        let mut all: Vec<Injected> = Vec::new();
        let injections = self.request_rules().filter_map(|rule| rule.inject.as_ref().map(|one| (rule, one)));
        // A credential that is not granted to the client is skipped.
        for (rule, injection) in injections.filter(|(_, one)| self.grantee.has(one.grants())) {
            let is_done = all.iter().any(|done| *done.header() == injection.header);
            if is_done || injection.omits(request.uri()) {
                continue;
            }
            if let Err((status, why)) = self.may_have(request.method(), is_verified, injection) {
                metrics.injected("refused");
                return Err(page::problem(status, "http_request_denied", why));
            }
            if self.compiled.by_path {
                if is_ambiguous(&plain_path(request.uri().path())) {
                    metrics.injected("refused");
                    let why = "the path has escapes that servers interpret differently, and the credential is limited to some paths";
                    return Err(page::problem(StatusCode::BAD_REQUEST, "http_request_error", why));
                }
                set_checked_path(request);
            }
            match put(injection, request, host, (&self.grantee, sources, tried)).await {
                Ok(injected) => {
                    injection.record_missing(false);
                    metrics.injected("done");
                    all.push(injected);
                }
                Err(NotInjected::Unsignable(why)) => {
                    metrics.injected("failed");
                    return Err(page::problem(StatusCode::BAD_REQUEST, "http_request_error", why));
                }
                Err(NotInjected::Unavailable(error)) => {
                    metrics.injected("failed");
                    let (rule, credential) = (&rule.name, injection.log_name());
                    if injection.record_missing(true) {
                        tracing::warn!(%rule, credential, %error, "rejecting requests: their credential is unavailable");
                    } else {
                        tracing::debug!(%rule, credential, %error, "rejected a request: its credential is unavailable");
                    }
                    return Err(missing_credential_response(&error));
                }
            }
        }
        Ok(all)
    }

    /// Checks whether the destination may receive the credential: host and port match its rule, and the certificate is verified for
    /// that host.
    fn may_have(
        &self,
        method: &Method,
        is_verified: bool,
        injection: &Injection,
    ) -> Result<(), (StatusCode, &'static str)> {
        let refuse = |status, why| Err((status, why));
        let in_tls = self.server.is_some();
        if method == Method::TRACE {
            let why = "TRACE is not allowed: the response would show the client its credential";
            return refuse(StatusCode::METHOD_NOT_ALLOWED, why);
        }
        // A redirected client chose the address itself, so the server must prove that it is the host.
        if self.target.redirected && !is_verified {
            let why =
                "on a redirected connection the credential is sent to verified servers only: use https://";
            return refuse(StatusCode::FORBIDDEN, why);
        }
        let is_its_address = self.target.redirected || self.target.name == self.host;
        if !is_its_address || self.server.as_ref().is_some_and(|server| *server != self.host) {
            let why =
                "the credential is for the host of the request, but the connection was made for another host";
            return refuse(StatusCode::MISDIRECTED_REQUEST, why);
        }
        if !injection.is_for_port(self.target.port, in_tls) {
            let why = "the credential is not sent to this port of its host, unless the rule lists the port: inject = { \
             port = [...] }";
            return refuse(StatusCode::MISDIRECTED_REQUEST, why);
        }
        match (in_tls, is_verified) {
            _ if injection.insecure => Ok(()),
            (true, true) => Ok(()),
            (true, false) => {
                let why = "the credential is not sent to a server that is not verified (verify = false in proxy.upstreams)";
                refuse(StatusCode::FORBIDDEN, why)
            }
            (false, _) => {
                let why = "the credential is not sent over plain HTTP: use https://";
                refuse(StatusCode::FORBIDDEN, why)
            }
        }
    }

    /// Changes header fields of the response. Returns a page instead if a rule blocks it.
    pub(crate) fn answered(&self, response: &mut Response<UpstreamResponseBody>) -> Option<Response<Body>> {
        let as_it_came = Kind::of(response.headers());
        for rule in self.response_rules(&as_it_came) {
            change(response.headers_mut(), &rule.response);
            if let Some(answer) = &rule.answer {
                return Some(to_response(rule, answer));
            }
        }
        None
    }
}

fn change(headers: &mut HeaderMap, change: &HeaderChanges) {
    for name in &change.remove {
        headers.remove(name);
    }
    for (name, value) in &change.set {
        headers.insert(name.clone(), value.clone());
    }
}

fn to_response(rule: &Rule, answer: &LocalReply) -> Response<Body> {
    match answer {
        LocalReply::Redirect(status, to) => {
            let mut response = page::empty(*status);
            response.headers_mut().insert(LOCATION, to.clone());
            response
        }
        LocalReply::Block(status, None) => {
            let detail = format!("a rule ({}) does not allow this request", rule.name);
            page::problem(*status, "http_request_denied", &detail)
        }
        LocalReply::Block(status, Some(text)) => {
            let mut response = page::problem(*status, "http_request_denied", "");
            let html = text.trim_start().starts_with('<');
            let kind = if html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response.map(|_| Either::Right(text.clone().into()))
        }
    }
}

/// Injects one credential. Reads the body first, if a signature needs its digest.
async fn put(
    injection: &Arc<Injection>,
    request: &mut Request<RequestBody>,
    host: &HeaderValue,
    (grantee, sources, tried): (&Grantee, CredentialSources<'_>, &[Injected]),
) -> Result<Injected, NotInjected> {
    let mut whole = None;
    if injection.signs() && needs_body(request.headers()) {
        let broken = |_| NotInjected::Unsignable("the request has no whole body");
        request.body_mut().keep(SIGNED_BYTES_MAX).await.map_err(broken)?;
        let is_empty = request.body().is_end_stream();
        whole = request.body().buffered().cloned().or_else(|| is_empty.then(Bytes::new));
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let body = whole.as_deref();
    let signable = Signable { method: &method, uri: &uri, host, headers: request.headers_mut(), body };
    injection.put(signable, grantee, sources, tried).await
}

fn missing_credential_response(error: &SecretUnavailable) -> Response<Body> {
    let (status, detail) = match error {
        SecretUnavailable::StoreUnavailable(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the credential store for this host does not answer")
        }
        SecretUnavailable::Unusable(_) => {
            (StatusCode::BAD_GATEWAY, "the credential for this host is unavailable")
        }
    };
    page::problem(status, "proxy_internal_error", detail)
}

fn rewritten(uri: &Uri, from: &str, to: &str) -> Option<Uri> {
    let path = plain_path(uri.path());
    let rest = path.strip_prefix(from)?;
    with_path(uri, &format!("{to}{rest}"))
}

fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{path}{query}")).ok()?);
    Uri::from_parts(parts).ok()
}

/// Replaces the path of the request by the path that the rules have checked.
fn set_checked_path<B>(request: &mut Request<B>) {
    let path = sent_path(request.uri().path());
    if path != request.uri().path()
        && let Some(uri) = with_path(request.uri(), &path)
    {
        *request.uri_mut() = uri;
    }
}

fn moved(rewrite: &Rewrite, destination: &Destination) -> Option<Destination> {
    let (name, port) = rewrite.host.as_ref()?;
    let mut origin = (*destination.origin).clone();
    // The author of the rule chose this destination, not the client, so it may be on this machine.
    origin.may_be_local = true;
    origin.target.name = name.clone();
    origin.target.redirected = false;
    origin.target.port = port.unwrap_or(origin.target.port);
    if origin.server.is_some() {
        origin.server = Some(name.clone());
    }
    let usual = if origin.server.is_some() { 443 } else { 80 };
    let whole = origin.target.to_string();
    let named = match origin.target.port == usual {
        true => whole.rsplit_once(':').map_or(whole.as_str(), |(host, _)| host),
        false => &whole,
    };
    let authority = HeaderValue::try_from(named).ok()?;
    Some(Destination { origin: Arc::new(origin), authority })
}

/// Records whether the server accepted the credentials. Credentials that the server rejected are read from their source again.
pub(crate) fn record_credential_outcome(
    status: StatusCode,
    injected: &[Injected],
    secrets: Option<&dyn Secrets>,
) {
    if status == StatusCode::UNAUTHORIZED {
        injected.iter().for_each(|one| one.refused(secrets));
    } else if !status.is_client_error() && !status.is_server_error() {
        injected.iter().for_each(Injected::accepted);
    }
}
