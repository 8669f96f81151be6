//! What the rules that a request meets do with it. All of them count, in their order: headers are changed by each, of
//! everything else the first counts.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, Response, StatusCode};

use super::super::page::{self, Body};
use super::super::target::{Origin, Way};
use super::super::upstream::Relayed;
use super::compile::{Answer, Compiled, Headers, Rewrite, Rule};
use super::inject::{Injected, NoSecret, Secrets};
use super::matcher::{is_like, is_named, plain_path};
use super::{RequestMetrics, RequestRules};
use crate::mint::LeafName;

/// The rules that a request meets; of those with a type of answer it is not known yet.
pub(in crate::proxy) struct Judged {
    compiled: Arc<Compiled>,
    met: Vec<u32>,
    host: LeafName,
    /// What the connection is for, in TLS.
    server: Option<LeafName>,
}

/// Whom a request goes to.
pub(in crate::proxy) struct Place {
    pub(in crate::proxy) origin: Arc<Origin>,
    pub(in crate::proxy) authority: HeaderValue,
}

impl RequestRules {
    /// Those that `request` meets, `host` being whom it names; none where there are none.
    pub(in crate::proxy) fn judge<B>(
        &self,
        request: &Request<B>,
        way: &Way,
        host: &LeafName,
    ) -> Option<Judged> {
        if self.is_empty() {
            return None;
        }
        let path = plain_path(request.uri().path());
        let name = host.to_string();
        let mut met = self.0.index.find(&name, &path);
        if met.is_empty() {
            return None;
        }
        let server = way.origin.server.clone();
        let server_name = server.as_ref().map(LeafName::to_string);
        let kind = kind_of(request.headers());
        let client = way.client.ip().to_canonical();
        met.retain(|at| {
            let Some(rule) = self.0.rules.get(*at as usize) else { return false };
            let any = |patterns: &[String], is: &dyn Fn(&str) -> bool| {
                patterns.is_empty() || patterns.iter().any(|pattern| is(pattern))
            };
            any(&rule.hosts, &|pattern| is_named(pattern, &name))
                && any(&rule.paths, &|pattern| is_like(pattern, &path))
                && (rule.methods.is_empty() || rule.methods.contains(request.method()))
                && (rule.clients.is_empty() || rule.clients.iter().any(|net| net.contains(&client)))
                && any(&rule.server_names, &|pattern| {
                    server_name.as_ref().is_some_and(|name| is_named(pattern, name))
                })
                && (rule.request_types.is_empty() || is_kind(&rule.request_types, kind.as_deref()))
        });
        (!met.is_empty()).then(|| Judged { compiled: Arc::clone(&self.0), met, host: host.clone(), server })
    }
}

/// A media type without its parameters, in lower case.
fn kind_of(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn is_kind(patterns: &[String], kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| patterns.iter().any(|pattern| is_like(pattern, kind)))
}

impl Judged {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.met.iter().filter_map(|at| self.compiled.rules.get(*at as usize))
    }

    /// Those that count before there is an answer.
    fn of_requests(&self) -> impl Iterator<Item = &Rule> {
        self.rules().filter(|rule| rule.response_types.is_empty())
    }

    pub(in crate::proxy) fn names(&self) -> Vec<Arc<str>> {
        self.of_requests().map(|rule| Arc::clone(&rule.name)).collect()
    }

    pub(in crate::proxy) fn delay(&self) -> Option<Duration> {
        self.of_requests().find_map(|rule| rule.delay)
    }

    /// What the proxy says itself.
    pub(in crate::proxy) fn own_answer(&self) -> Option<Response<Body>> {
        self.of_requests().find_map(|rule| rule.answer.as_ref().map(|answer| said(rule, answer)))
    }

    /// Whether it may have to be recorded.
    pub(in crate::proxy) fn records(&self) -> bool {
        self.rules().any(|rule| rule.record)
    }

    /// Whether it has to be, its answer being known.
    pub(in crate::proxy) fn records_answer(&self, headers: &HeaderMap) -> bool {
        self.of_answers(headers).any(|rule| rule.record)
    }

    fn of_answers(&self, headers: &HeaderMap) -> impl Iterator<Item = &Rule> {
        let kind = kind_of(headers);
        self.rules().filter(move |rule| {
            rule.response_types.is_empty() || is_kind(&rule.response_types, kind.as_deref())
        })
    }

    /// Headers, path and place.
    pub(in crate::proxy) fn change<B>(&self, request: &mut Request<B>, place: &mut Place) {
        self.of_requests().for_each(|rule| change(request.headers_mut(), &rule.request));
        let Some(rewrite) = self.of_requests().find_map(|rule| rule.rewrite.as_ref()) else { return };
        if let Some((from, to)) = &rewrite.path
            && let Some(uri) = rewritten(request.uri(), from, to)
        {
            *request.uri_mut() = uri;
        }
        if let Some(moved) = moved(rewrite, place) {
            *place = moved;
        }
    }

    /// Puts credentials in; says why a request cannot be sent without one that it is to have. `is_verified`: whether whom it
    /// goes to is held against roots.
    pub(in crate::proxy) async fn inject<B>(
        &self,
        request: &mut Request<B>,
        is_verified: bool,
        secrets: Option<&dyn Secrets>,
        metrics: &RequestMetrics,
    ) -> Result<Vec<Injected>, Response<Body>> {
        let mut all: Vec<Injected> = Vec::new();
        for (rule, injection) in
            self.of_requests().filter_map(|rule| rule.inject.as_ref().map(|one| (rule, one)))
        {
            if all.iter().any(|done| *done.header() == injection.header) {
                continue;
            }
            if let Err((status, why)) = self.may_have(request.method(), is_verified, injection.insecure) {
                metrics.injected("refused");
                return Err(page::problem(status, "http_request_denied", why));
            }
            match injection.put(request.headers_mut(), secrets).await {
                Ok(injected) => {
                    metrics.injected("done");
                    all.push(injected);
                }
                Err(error) => {
                    metrics.injected("failed");
                    tracing::warn!(rule = %rule.name, credential = injection.called(), %error, "a request was not sent, as its credential is not there");
                    return Err(no_credential(&error));
                }
            }
        }
        Ok(all)
    }

    /// A credential goes to whom its rule names and nobody else: the certificate that was asked for is that host's.
    fn may_have(
        &self,
        method: &Method,
        is_verified: bool,
        insecure: bool,
    ) -> Result<(), (StatusCode, &'static str)> {
        let refuse = |status, why| Err((status, why));
        if method == Method::TRACE {
            let why = "TRACE shows the client what the server is sent, a credential among it";
            return refuse(StatusCode::METHOD_NOT_ALLOWED, why);
        }
        match &self.server {
            Some(server) if *server != self.host => {
                let why = "the request names another host than its connection was made for, and its credential is that host's";
                refuse(StatusCode::MISDIRECTED_REQUEST, why)
            }
            None if !insecure => {
                let why = "its credential does not go over plain HTTP: ask by https://";
                refuse(StatusCode::FORBIDDEN, why)
            }
            Some(_) if !is_verified && !insecure => {
                let why = "its credential does not go to a server that is not verified (verify = false in proxy.upstreams)";
                refuse(StatusCode::FORBIDDEN, why)
            }
            _ => Ok(()),
        }
    }

    /// Headers of the answer; a page in its place where a rule says so.
    pub(in crate::proxy) fn answered(&self, response: &mut Response<Relayed>) -> Option<Response<Body>> {
        let as_it_came = response.headers().clone();
        for rule in self.of_answers(&as_it_came) {
            change(response.headers_mut(), &rule.response);
            if let Some(answer) = &rule.answer {
                return Some(said(rule, answer));
            }
        }
        None
    }
}

fn change(headers: &mut HeaderMap, change: &Headers) {
    for name in &change.remove {
        headers.remove(name);
    }
    for (name, value) in &change.set {
        headers.insert(name.clone(), value.clone());
    }
}

fn said(rule: &Rule, answer: &Answer) -> Response<Body> {
    match answer {
        Answer::Redirect(status, to) => {
            let mut response = page::empty(*status);
            response.headers_mut().insert(LOCATION, to.clone());
            response
        }
        Answer::Block(status, None) => {
            let detail = format!("a rule ({}) does not allow this request", rule.name);
            page::problem(*status, "http_request_denied", &detail)
        }
        Answer::Block(status, Some(text)) => {
            let mut response = page::problem(*status, "http_request_denied", "");
            let html = text.trim_start().starts_with('<');
            let kind = if html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response.map(|_| Either::Right(text.clone().into()))
        }
    }
}

/// RFC 9209's name for it, and what the client may know: not where the credential stands.
fn no_credential(error: &NoSecret) -> Response<Body> {
    let (status, detail) = match error {
        NoSecret::Away(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store of the credential for this host does not answer")
        }
        NoSecret::Unusable(_) => (StatusCode::BAD_GATEWAY, "the credential for this host cannot be had"),
    };
    page::problem(status, "proxy_internal_error", detail)
}

fn rewritten(uri: &Uri, from: &str, to: &str) -> Option<Uri> {
    let path = plain_path(uri.path());
    let rest = path.strip_prefix(from)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{to}{rest}{query}")).ok()?);
    Uri::from_parts(parts).ok()
}

fn moved(rewrite: &Rewrite, place: &Place) -> Option<Place> {
    let (name, port) = rewrite.host.as_ref()?;
    let mut origin = (*place.origin).clone();
    // It is the rule's author who names it, not the client.
    origin.may_be_here = true;
    origin.target.name = name.clone();
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
    Some(Place { origin: Arc::new(origin), authority })
}

/// What an upstream said beside its headers goes no further where a credential was sent to it.
pub(in crate::proxy) fn redact(response: &mut Response<Relayed>, injected: &[Injected]) {
    if injected.is_empty() {
        return;
    }
    response.extensions_mut().remove::<hyper::ext::ReasonPhrase>();
    injected.iter().for_each(|one| one.redact(response.headers_mut()));
}

/// Has a credential asked for anew when the server did not take it.
pub(in crate::proxy) fn was_taken(status: StatusCode, injected: &[Injected], secrets: Option<&dyn Secrets>) {
    if status == StatusCode::UNAUTHORIZED {
        injected.iter().for_each(|one| one.refused(secrets));
    }
}

/// Names of headers that were put in.
pub(in crate::proxy) fn headers_of(injected: &[Injected]) -> impl Iterator<Item = &HeaderName> {
    injected.iter().map(Injected::header)
}
