//! Exchange of one request and its response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Either;
use http_relay::access_log::{self, Entry, Judgement, counted};
use http_relay::client_body::ClientBody;
use http_relay::fields::{Upgrades, authority_of, clean, clean_trailers, permitted_upgrade};
use http_relay::page::{self, Body, misdirected_page};
use http_relay::request_body::RequestBody;
use http_relay::stall::UploadTimer;
use http_relay::target::{Origin, Target};
use http_relay::unanswered::{unanswered, upload_failure_response};
use http_relay::upgrade::{UpgradeRequest, add_upgrade_fields};
use http_relay::upstream::{BodyFilter, UpstreamResponseBody};
use http_relay::websocket::Websocket;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALT_SVC, HeaderValue, UPGRADE};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Version};
use telemetry::spans::{TRACEPARENT, TraceParent};
use uuid::Uuid;
use x509::HostOrIp;

use super::audited::{AuditedDecision, audit_failure_response};
use super::connection_context::ConnectionContext;
use super::gateway::{Admission, Refused};
use super::hooked::HookedRequest;
use super::hooks::RequestKind;
use super::original::original_of;
use super::page::rejected_page;
use super::proxy::Proxy;
use super::requests::{
    CredentialSources, Destination, Injected, MatchedRules, ResponseFilter, RuleSet, ScrubbedStream,
    SearchedValues, UnsearchableBody, make_searchable,
};
use super::rotation::PreparedRequest;
use super::rules::Action;

/// Maximum bytes of a request body that the proxy keeps, to send the request again after a rotation of the credential.
const REPEATED_BYTES_MAX: usize = 64 << 10;
/// Maximum wait for the end of a response body that cannot be searched for credentials. If the body turns out to be empty, the
/// response is passed on.
const EMPTY_WITHIN: Duration = Duration::from_secs(1);

impl Proxy {
    /// Like [`Self::exchange`], for callers that need a `'static` future.
    pub(super) async fn exchange_owned(
        self: Arc<Self>,
        request: Request<Incoming>,
        context: ConnectionContext,
    ) -> Response<Body> {
        let request = self.with_body(request);
        self.exchange(request, &context).await
    }

    /// Sends the request to its origin, and returns the response or an error page.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        mut request: Request<ClientBody>,
        context: &ConnectionContext,
    ) -> Response<Body> {
        let websocket = Websocket::of(&mut request);
        if request.method() == Method::CONNECT {
            let detail = "CONNECT is not allowed within an intercepted connection";
            return page::problem(StatusCode::METHOD_NOT_ALLOWED, "http_request_error", detail);
        }
        let mut began = Instant::now();
        let mut rules = self.rules.now();
        let mut entry = self.requests.entry(&request, &context.client, &rules.requests);
        let (server, target) = (context.origin.server.as_ref(), &context.origin.target);
        let destination = || access_log::Destination {
            host: server.unwrap_or(&target.name).clone(),
            port: target.port,
            is_tls: Some(server.is_some()),
        };
        entry.iter_mut().for_each(|entry| {
            entry.set_destination(destination);
            entry.set_original(|| original_of(&request, context, websocket.as_ref()));
        });
        let mut judged = None;
        let authority = authority_of(&request);
        // The policy decides first: nothing is resolved or dialled for a request that is denied or held.
        let admitted = match &authority {
            Ok((_, host)) => {
                self.admit_or_hold(&mut rules, context, &request, host, (&mut began, &mut entry)).await
            }
            Err(_) => Ok(Admission::default()),
        };
        let mut admission = match admitted {
            Ok(admission) => admission,
            Err(refused) => return self.refuse(&request, context, began, entry, &refused).await,
        };
        let audited = self
            .requests
            .has_audit_log()
            .then(|| AuditedDecision::request(&request, context, admission.judgement.as_ref()))
            .map(|audited| audited.with_hold(admission.approved.as_ref()));
        if admission.budget_use.is_some() || audited.is_some() {
            entry.get_or_insert_with(|| self.requests.counted_entry(&request, &context.client));
        }
        let judgement = admission.judgement.clone();
        entry.iter_mut().for_each(|entry| admission.note(entry));
        let grantee = admission.grantee;
        let response = match authority {
            // If the rules reject the connection, all of its requests are rejected, even if a request names another host.
            _ if self.rejects_connection(&rules, &context.origin).await => self.rejected(context),
            Ok((_, host)) if self.rejects(&rules, &context.origin.target, &host).await => {
                self.rejected(context)
            }
            Ok((_, host)) if self.is_misdirected(context, &host, &rules).await => misdirected_page(&host),
            Ok((_, host)) if !self.permits_other_host(context, &host).await => misdirected_page(&host),
            Ok((authority, host)) => {
                let upgrade = permitted_upgrade(request.headers(), Upgrades::NotHttp);
                // Hop-by-hop fields are removed before the request is judged and sent.
                clean(request.headers_mut());
                match rules.requests.judge(&mut request, context, &host, grantee) {
                    Ok(met) => {
                        let judged = judged.insert(met).as_ref();
                        let destination =
                            Destination { origin: origin_of(context, websocket.as_ref()), authority };
                        let websocket = websocket.as_ref();
                        let exchange_context = ExchangeContext {
                            rules: &rules,
                            judged,
                            entry: &mut entry,
                            upgrade,
                            websocket,
                            context,
                            host: &host,
                            judgement: judgement.as_ref(),
                            audited,
                        };
                        self.forward_request(request, destination, exchange_context).await
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
        if let Some(mut entry) = entry {
            if response.status() == StatusCode::MISDIRECTED_REQUEST && judged.is_none() {
                let verified = server.unwrap_or(&context.origin.target.name);
                entry.set_server_name(Some(verified.to_string()));
            }
            if let Some(judged) = judged.flatten() {
                entry.set_keep_recording(judged.should_record(response.headers()));
            }
            entry.answered(response.status(), response.headers());
            entry.down().count(response.body().size_hint().exact().unwrap_or(0) as usize);
            entry.complete();
        }
        self.metrics.request(response.status(), began.elapsed());
        response
    }

    /// Returns whether a request names another host than its connection, so that the wrong rules would apply. A client may use a
    /// connection for all names of the presented certificate (RFC 9113 section 9.1.1), except names that are tunneled, or that have
    /// another verification or route. For a misdirected request, the client gets status 421, and then opens another connection.
    async fn is_misdirected(&self, context: &ConnectionContext, host: &HostOrIp, rules: &RuleSet) -> bool {
        let origin = &context.origin;
        match &origin.server {
            Some(server) if server == host => false,
            Some(server) => {
                let is_shown = context.mirrored.as_ref().is_some_and(|shown| shown.is_for(host));
                !is_shown
                    || self.action_with_rules(&rules.names, &origin.target, host).await == Action::Tunnel
                    || !self.upstreams.treats_alike(server, host)
            }
            // Only the address of the connection is known: see `Origin::is_unverified`.
            None if origin.target.redirected => false,
            // Without TLS, a client that resolves names itself may connect to an address, and name the host only in the request.
            // That host name must then resolve to this address.
            None => origin.target.name != *host && !self.upstreams.leads_to(host, &origin.target.name).await,
        }
    }

    /// Returns whether the rules reject the connection, independent of the request. Without TLS, nothing proves the requested name,
    /// so the address of a redirected connection counts too.
    async fn rejects_connection(&self, rules: &RuleSet, origin: &Origin) -> bool {
        let target = &origin.target;
        let by_target = match target.redirected && !origin.is_unverified() {
            true => rules.names.of_target(target) == Some(Action::Reject),
            false => self.rejects(rules, target, &target.name).await,
        };
        match &origin.server {
            Some(server) if !by_target => self.rejects(rules, target, server).await,
            _ => by_target,
        }
    }

    async fn rejects(&self, rules: &RuleSet, target: &Target, name: &HostOrIp) -> bool {
        self.action_with_rules(&rules.names, target, name).await == Action::Reject
    }

    /// Returns the response to a request that the policy refuses.
    async fn refuse(
        &self,
        request: &Request<ClientBody>,
        context: &ConnectionContext,
        began: Instant,
        entry: Option<Box<Entry>>,
        refused: &Refused,
    ) -> Response<Body> {
        self.metrics.rejected();
        // The request is refused even if the audit event cannot be written.
        let event = || {
            AuditedDecision::request(request, context, Some(&refused.judgement))
                .with_hold(refused.held.as_ref())
                .refused(refused.page.reason)
        };
        let _ = self.requests.audit(event).await;
        let response = refused.page.page(request.headers());
        if let Some(mut entry) = entry {
            refused.note(&mut entry);
            entry.set_server_name(context.origin.server.as_ref().map(ToString::to_string));
            entry.answered(response.status(), response.headers());
        }
        self.metrics.request(response.status(), began.elapsed());
        response
    }

    fn rejected(&self, context: &ConnectionContext) -> Response<Body> {
        self.metrics.rejected();
        rejected_page(&context.origin.target)
    }

    async fn forward_request(
        self: &Arc<Self>,
        mut request: Request<ClientBody>,
        mut destination: Destination,
        exchange_context: ExchangeContext<'_>,
    ) -> Response<Body> {
        let ExchangeContext { rules, judged, entry, upgrade, websocket, context, host, judgement, audited } =
            exchange_context;
        if let Some(judged) = judged {
            if let Some(delay) = judged.delay() {
                tokio::time::sleep(delay).await;
            }
            if let Some(entry) = entry {
                entry.rules(judged.names());
                if judged.records() {
                    self.requests.record(entry, &request, url_of(&request, &destination));
                }
            }
            if let Some(answer) = judged.own_answer() {
                self.audit_unsent(audited.as_ref()).await;
                self.requests.metrics().answered();
                return answer;
            }
        }
        let client = upgrade.clone().map(|requested| UpgradeRequest {
            client: hyper::upgrade::on(&mut request),
            requested,
            websocket,
            tunnels: &context.tunnels,
            version: request.version(),
        });
        if let Some(protocol) = &upgrade {
            add_upgrade_fields(protocol, request.headers_mut());
        }
        if let Some(traceparent) = entry.as_ref().and_then(|entry| entry.traceparent()) {
            request.headers_mut().insert(TRACEPARENT, traceparent);
        }
        let tee = entry.as_ref().map(|entry| entry.up());
        let version = request.version();
        let (upload, uploading) = UploadTimer::within(self.options.idle);
        let mut request = request.map(|body| RequestBody::new(body, tee, upload, clean_trailers));
        let is_upgrade = upgrade.is_some() || websocket.is_some();
        let kind = if is_upgrade { RequestKind::Upgrade } else { RequestKind::Plain };
        let about = HookedRequest { context, host, judgement, kind, uploading: &uploading };
        // Hooks are called before credentials are injected: a hook never gets a credential.
        let (mut hooks, audited) = match self.pass_request_hooks(&mut request, about, audited, entry).await {
            Ok(passed) => passed,
            Err(answer) => return answer,
        };
        let searched = if hooks.reads_response_body() { SearchedValues::All } else { SearchedValues::ByRule };
        let sources = CredentialSources { secrets: rules.secrets.as_deref(), leases: self.leases.as_ref() };
        let mut injected = Vec::new();
        if let Some(judged) = judged {
            judged.change(&mut request, &mut destination);
            if self.rejects_connection(rules, &destination.origin).await {
                self.metrics.rejected();
                self.audit_unsent(audited.as_ref()).await;
                return rejected_page(&destination.origin.target);
            }
            let to = (&destination.authority, self.upstreams.verifies(&destination.origin));
            injected = match judged.inject(&mut request, to, (sources, &[]), self.requests.metrics()).await {
                Ok(injected) => injected,
                Err(answer) => {
                    self.audit_unsent(audited.as_ref()).await;
                    return answer;
                }
            };
            if injected.iter().any(|one| searched.includes(one)) {
                make_searchable(request.headers_mut());
            }
            if let Some(entry) = entry {
                injected.iter().for_each(|one| {
                    entry.hide(one.header(), one.needles());
                    entry.credential(one.name());
                    // The trace ID of a stored credential is its version ID. A leased credential has no trace ID.
                    let version = one.version().filter(|_| !one.is_leased());
                    let version = version.and_then(|version| version.parse::<Uuid>().ok());
                    version.iter().for_each(|id| entry.link(TraceParent::of_object(id.as_u128())));
                });
            }
        }
        if !injected.is_empty() && !is_upgrade && request.body_mut().keep(REPEATED_BYTES_MAX).await.is_err() {
            self.audit_unsent(audited.as_ref()).await;
            let detail = "the request has no whole body";
            return upload_failure_response(&uploading, version)
                .unwrap_or_else(|| page::problem(StatusCode::BAD_REQUEST, "http_request_error", detail));
        }
        // Audited first: no credential is sent without an audit event.
        if let Some(audited) = &audited
            && let Err(error) = self.requests.audit(|| audited.sent(&injected)).await
        {
            return audit_failure_response(error);
        }
        if let (Some(audited), Some(entry), Some(log)) = (&audited, &mut *entry, self.requests.audit_log()) {
            entry.keep(audited.outcome(log));
        }
        let sending = PreparedRequest {
            destination: &destination,
            judged,
            sources,
            audited: audited.as_ref(),
            is_upgrade,
        };
        match self.send(request, &mut injected, entry, &sending).await {
            Ok(response) => {
                let mut response = response.map(|body| body.with_upload(&uploading));
                match take_response_filter(&mut response, &injected, searched).await {
                    Ok(mut filter) => {
                        let (response_hooks, audited) = ((&mut hooks, &mut filter), audited.as_ref());
                        if let Err(answer) =
                            self.pass_response_hooks(response_hooks, &mut response, audited, entry).await
                        {
                            return answer;
                        }
                        self.forward_response(
                            response,
                            client,
                            judged,
                            entry,
                            (filter, context, &destination.origin),
                        )
                    }
                    Err(error) => unsearchable_response(error, entry),
                }
            }
            Err(error) => {
                if let Some(told) = upload_failure_response(&uploading, version) {
                    return told;
                }
                tracing::debug!(target = %destination.origin.target, %error, "no response from an upstream");
                unanswered(&error)
            }
        }
    }

    /// Writes the audit event of a request that is not sent. A failure to write is ignored.
    async fn audit_unsent(&self, audited: Option<&AuditedDecision>) {
        if let Some(audited) = audited {
            let _ = self.requests.audit(|| audited.unsent()).await;
        }
    }

    fn forward_response(
        self: &Arc<Self>,
        mut response: Response<UpstreamResponseBody>,
        client: Option<UpgradeRequest<'_>>,
        judged: Option<&MatchedRules>,
        entry: &mut Option<Box<Entry>>,
        (filter, context, sent_to): (Option<ResponseFilter>, &ConnectionContext, &Origin),
    ) -> Response<Body> {
        if let (Some(entry), Some(connection)) = (entry.as_mut(), response.extensions().get()) {
            entry.upstream(*connection);
        }
        if let (Some(entry), Some(key)) = (entry.as_mut(), response.extensions().get())
            && self.upstreams.verifies(sent_to)
        {
            entry.server_key(*key);
        }
        let websocket = client.as_ref().and_then(|client| client.websocket);
        if let Some(refusal) = websocket.and_then(|websocket| websocket.refusal(&response)) {
            return refusal;
        }
        if let (Some(entry), Some(judged)) = (entry.as_mut(), judged) {
            entry.add_response_rules(judged.response_rule_names(response.headers()));
            entry.set_keep_recording(judged.should_record(response.headers()));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = client.filter(|client| client.is_accepted_by(response.headers())) else {
                return page::unrequested_upgrade_page();
            };
            let upstream = hyper::upgrade::on(&mut response);
            let (proxy, context) = (Arc::clone(self), context.clone());
            let mut entry = entry.take();
            let told = if websocket.is_some() { StatusCode::OK } else { response.status() };
            entry.iter_mut().for_each(|entry| entry.answered(told, response.headers()));
            // With HTTP/2, the proxy cannot distinguish a reset stream from an ended one, so a short half-close timeout frees the
            // server's connection.
            let is_websocket = response
                .headers()
                .get(UPGRADE)
                .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
            let removed = filter.as_ref().map_or(0, BodyFilter::removed);
            let scrubber = filter.and_then(ResponseFilter::into_scrubber).map(|one| (one, is_websocket));
            let is_http2 = client.version == Version::HTTP_2;
            let half = if is_http2 { self.options.head_timeout } else { self.options.idle };
            client.spawn(upstream, &self.tasks, move |client, upstream| async move {
                let client = counted(client, entry.as_deref());
                let mut upstream = ScrubbedStream::new(upstream, scrubber);
                let is_complete = proxy.relay_upgraded(&context, client, &mut upstream, half).await;
                if let Some(entry) = &mut entry {
                    entry.removed(removed + upstream.removed());
                    match upstream.is_cut() {
                        true => entry.set_refusal_reason("response-filter"),
                        false if is_complete => entry.complete(),
                        false => {}
                    }
                }
            });
            return response.map(Either::Left);
        }
        clean(response.headers_mut());
        // A client that follows `Alt-Svc` would use HTTP/3, which bypasses the proxy.
        response.headers_mut().remove(ALT_SVC);
        if let Some(answer) = judged.and_then(|judged| judged.answered(&mut response)) {
            self.requests.metrics().answered();
            return answer;
        }
        let mut entry = entry.take();
        entry.iter_mut().for_each(|entry| entry.answered(response.status(), response.headers()));
        let filter = filter.map(|filter| Box::new(filter) as Box<dyn BodyFilter>);
        response.map(|body| Either::Left(body.logged(entry, filter)))
    }
}

struct ExchangeContext<'a> {
    rules: &'a RuleSet,
    judged: Option<&'a MatchedRules>,
    entry: &'a mut Option<Box<Entry>>,
    /// Protocols of the requested upgrade (`Upgrade`) that are permitted; `None` if there are none.
    upgrade: Option<HeaderValue>,
    /// The WebSocket that the client requested by extended CONNECT.
    websocket: Option<&'a Websocket>,
    context: &'a ConnectionContext,
    /// The host that the request names.
    host: &'a HostOrIp,
    /// The decision of the policy; `None` without a policy.
    judgement: Option<&'a Judgement>,
    /// The decision to audit, if an audit log is configured.
    audited: Option<AuditedDecision>,
}

/// Removes the reason phrase, and the `injected` values from the response header. Returns the filter that removes the values from
/// the body; `None` if nothing was injected.
async fn take_response_filter(
    response: &mut Response<UpstreamResponseBody>,
    injected: &[Injected],
    searched: SearchedValues,
) -> Result<Option<ResponseFilter>, UnsearchableBody> {
    if injected.is_empty() {
        return Ok(None);
    }
    response.extensions_mut().remove::<hyper::ext::ReasonPhrase>();
    let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let has_body = is_upgrade || !response.body().is_end_stream();
    let filter = match ResponseFilter::new(injected, searched, response.headers_mut(), has_body) {
        // If the response has no body, for example the response to HEAD, its content coding does not matter.
        Err(_) if !is_upgrade && response.body_mut().keep(0, EMPTY_WITHIN).await => {
            ResponseFilter::new(injected, searched, response.headers_mut(), false)
        }
        filter => filter,
    };
    filter.map(Some)
}

/// Returns the error response that replaces a response which cannot be searched for the injected credential.
fn unsearchable_response(error: UnsearchableBody, entry: &mut Option<Box<Entry>>) -> Response<Body> {
    entry.iter_mut().for_each(|entry| entry.set_refusal_reason("content-coding"));
    tracing::warn!(%error, "a response was not passed on");
    let detail = format!(
        "{error}. To pass on such responses without a search, set inject = {{ allow_echo = true }} in the rule"
    );
    page::problem(StatusCode::BAD_GATEWAY, "http_response_content_coding", &detail)
}

/// Returns the origin for requests of the connection `context`. For upgrades that only HTTP/1.1 supports, the origin is limited to
/// HTTP/1.1.
fn origin_of(context: &ConnectionContext, websocket: Option<&Websocket>) -> Arc<Origin> {
    match websocket {
        Some(_) if context.origin.http2 => Arc::new(Origin { http2: false, ..(*context.origin).clone() }),
        _ => Arc::clone(&context.origin),
    }
}

/// Returns the URL of a request as the client would write it.
fn url_of(request: &Request<ClientBody>, destination: &Destination) -> String {
    let scheme = if destination.origin.server.is_some() { "https" } else { "http" };
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    format!("{scheme}://{}{path}", destination.authority.to_str().unwrap_or_default())
}
