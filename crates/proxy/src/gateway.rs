//! The agent gateway: one policy decision for every request, CONNECT and tunnel.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_relay::access_log::{Entry, Judgement};
use http_relay::client::{Client, Credential};
use http_relay::client_body::ClientBody;
use http_relay::clock::now;
use http_relay::target::Target;
use hyper::body::Body as _;
use hyper::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use x509::HostOrIp;

use super::audited::{AuditedDecision, Outcome, PATH_BYTES_MAX, actor_of, cut};
use super::budgets::BudgetUse;
use super::connection_context::ConnectionContext;
use super::holds::{Approval, HeldRequest, HoldKey, HoldRecord};
use super::hooks::HookDecision;
use super::policy::{
    Action, DatabaseSession, Decision, Evidence, Grantee, Identity, Phase, Policy, PolicyRequest, Presented,
    Reason, RequestFacts, SessionProtocol,
};
use super::policy_page::{PolicyRefusal, shown};
use super::proxy::Proxy;
use super::requests::RuleSet;

/// The result of admitting a request or tunnel: grantee, policy decision and budget use.
#[derive(Default)]
pub(super) struct Admission {
    pub(super) grantee: Grantee,
    pub(super) judgement: Option<Judgement>,
    pub(super) budget_use: Option<BudgetUse>,
    /// Audit event of a tunnel, to be written when the tunnel ends.
    pub(super) outcome: Option<Box<Outcome>>,
    /// The approval, if a rule holds the request and a person has approved it.
    pub(super) approved: Option<HoldRecord>,
}

impl Admission {
    /// Returns whether the end of the request or tunnel must be recorded, for a budget or for the audit log.
    pub(super) fn is_counted(&self) -> bool {
        self.budget_use.is_some() || self.outcome.is_some()
    }

    /// Moves the decision, the budget use and the outcome to the access log entry `entry`, which ends with the request.
    pub(super) fn note(&mut self, entry: &mut Entry) {
        if let Some(judgement) = self.judgement.take() {
            entry.set_judgement(judgement);
        }
        if let Some(budget_use) = self.budget_use.take() {
            entry.keep(Box::new(budget_use));
        }
        if let Some(outcome) = self.outcome.take() {
            entry.keep(outcome);
        }
    }
}

/// A refused request or connection, with the data for its line in the access log.
pub(super) struct Refused {
    pub(super) page: PolicyRefusal,
    pub(super) judgement: Judgement,
    /// The hold that ended in this refusal; `None` if the request was not held.
    pub(super) held: Option<HoldRecord>,
    /// Decisions of hooks; empty if no hook was called.
    pub(super) hooks: Vec<HookDecision>,
}

/// Reason why a request is not admitted now.
pub(super) enum NotAdmitted {
    Refused(Box<Refused>),
    /// A policy rule holds the request until a person approves or rejects the request.
    Held(Box<HoldOrder>),
}

impl From<Box<Refused>> for NotAdmitted {
    fn from(refused: Box<Refused>) -> Self {
        Self::Refused(refused)
    }
}

/// Order to hold a request: the key of equal requests, the description for approvers, and the maximum duration.
pub(super) struct HoldOrder {
    pub(super) key: HoldKey,
    pub(super) request: HeldRequest,
    pub(super) hold_for: Duration,
    /// The rule that holds the request.
    pub(super) rule: Option<Arc<str>>,
    /// The refusal that the client gets without an approval; its status and texts are set when the hold ends.
    pub(super) refusal: Box<Refused>,
}

impl HoldOrder {
    /// Returns the decision to hold the request, for the access log and the audit log.
    pub(super) fn judgement(&self) -> Judgement {
        Judgement { decision: Action::Hold.name(), ..self.refusal.judgement.clone() }
    }
}

impl Refused {
    pub(super) fn note(&self, entry: &mut Entry) {
        entry.set_judgement(self.judgement.clone());
        entry.set_refusal_reason(self.page.reason);
    }
}

/// Expected decision about a request that has not been sent.
pub(super) struct Foreseen {
    pub(super) identity: Option<Arc<str>>,
    /// Decision of the policy; `None` without a policy.
    pub(super) decision: Option<Decision>,
    /// Names of the credentials that the request would get.
    pub(super) credentials: Vec<String>,
}

/// Client and destination of a request or connection, for policy decisions, error pages and logs.
#[derive(Clone, Copy)]
struct Subject<'a> {
    client: &'a Client,
    identity: Option<&'a Arc<Identity>>,
    host: &'a HostOrIp,
    port: u16,
    method: &'a str,
    path: &'a str,
    /// Scheme of a request; `None` for a connection.
    scheme: Option<&'static str>,
}

impl Proxy {
    /// Decides about a request, before anything is resolved or dialled. `approval`: the approval of this request; `None` if the
    /// request was not held.
    pub(super) fn admit(
        &self,
        rules: &RuleSet,
        context: &ConnectionContext,
        request: &Request<ClientBody>,
        host: &HostOrIp,
        approval: Option<&Approval>,
    ) -> Result<Admission, NotAdmitted> {
        let policy = &rules.policy;
        if !policy.is_active() {
            return Ok(Admission::default());
        }
        let identity = identify(policy, &context.client);
        let subject = of_request(identity, context, request, host);
        let verified = verified_host(context, host).map_err(|mismatch| subject.host_mismatch(&mismatch))?;
        let subject = Subject { host: verified, ..subject };
        let decision = subject.decide(policy, Phase::Request(facts_of(request)));
        self.begin(policy, &subject, &decision, approval).map_err(|refusal| match refusal {
            NotAdmitted::Held(mut order) => {
                order.request.credentials = subject.credentials(rules);
                NotAdmitted::Held(order)
            }
            refused => refused,
        })
    }

    /// Returns the decision of the current rules about a request, and the credentials that the request would get. Does not audit or
    /// count the request.
    pub(super) fn foresee(
        &self,
        context: &ConnectionContext,
        request: &Request<ClientBody>,
        host: &HostOrIp,
    ) -> Foreseen {
        let rules = self.rules.now();
        let policy = &rules.policy;
        let identity = identify(policy, &context.client);
        let subject = of_request(identity, context, request, host);
        Foreseen {
            identity: identity.map(|identity| Arc::clone(&identity.name)),
            decision: policy.is_active().then(|| subject.decide(policy, Phase::Request(facts_of(request)))),
            credentials: subject.credentials(&rules),
        }
    }

    /// Decides about a tunnel to `target` for the host `name`. `approval`: the approval of this tunnel; `None` if the tunnel was
    /// not held.
    pub(super) fn judge_tunnel(
        &self,
        client: &Client,
        target: &Target,
        name: &HostOrIp,
        approval: Option<&Approval>,
    ) -> Result<Admission, NotAdmitted> {
        let rules = self.rules.now();
        let policy = &rules.policy;
        if !policy.is_active() {
            return Ok(Admission::default());
        }
        let subject = connection(policy, client, target, name);
        match target.redirected || target.name == *name {
            true => self.begin(policy, &subject, &subject.decide(policy, Phase::Tunnel), approval),
            false => {
                let mismatch = Mismatch::Connect { connect: target.name.clone(), server: name.clone() };
                Err(subject.host_mismatch(&mismatch).into())
            }
        }
    }

    /// Audits the decision about a tunnel, and logs a refusal. Returns `None` if the tunnel must not be opened.
    pub(super) async fn note_tunnel(
        &self,
        client: &Client,
        target: &Target,
        name: &HostOrIp,
        admitted: Result<Admission, Box<Refused>>,
    ) -> Option<Admission> {
        match admitted {
            Ok(mut admission) => {
                let judgement = admission.judgement.as_ref();
                let hooks = match self.pass_tunnel_hooks(client, (target, name), judgement).await {
                    Ok(hooks) => hooks,
                    Err(refused) => {
                        self.log_refused(client, target, name, &refused).await;
                        return None;
                    }
                };
                if let Some(log) = self.requests.audit_log() {
                    let audited = AuditedDecision::connection("tunnel", client, (target, name), judgement)
                        .with_hold(admission.approved.as_ref())
                        .with_hooks(&hooks);
                    log.record(audited.sent(&[])).await.ok()?;
                    admission.outcome = Some(audited.outcome(log));
                }
                Some(admission)
            }
            Err(refused) => {
                self.log_refused(client, target, name, &refused).await;
                None
            }
        }
    }

    /// Decides whether a client may open a session with a database of `target`, and asks the hooks. Audits and logs a refusal.
    pub(super) async fn admit_session(
        &self,
        client: &Client,
        target: &Target,
        session: DatabaseSession<'_>,
    ) -> Result<(Admission, AuditedDecision), Box<Refused>> {
        let name = &target.name;
        let passed = match self.judge_session(client, target, session) {
            Ok(admission) => {
                let hooks =
                    self.pass_tunnel_hooks(client, (target, name), admission.judgement.as_ref()).await;
                hooks.map(|hooks| (admission, hooks))
            }
            Err(refused) => Err(refused),
        };
        match passed {
            Ok((admission, hooks)) => {
                let judgement = admission.judgement.as_ref();
                let audited = audited_session(client, target, session, judgement).with_hooks(&hooks);
                Ok((admission, audited))
            }
            Err(refused) => {
                self.log_refused_session(client, target, session, &refused).await;
                Err(refused)
            }
        }
    }

    /// Decides whether the client of an open session may use another database of the same server. Audits and logs a refusal. Does
    /// not count the session again.
    pub(super) async fn admit_database(
        &self,
        client: &Client,
        target: &Target,
        session: DatabaseSession<'_>,
    ) -> Result<AuditedDecision, Box<Refused>> {
        let rules = self.rules.now();
        let policy = &rules.policy;
        if !policy.is_active() {
            return Ok(audited_session(client, target, session, None));
        }
        let path = session_path(session);
        let subject = of_session(policy, client, target, (session, &path));
        let decision = subject.decide(policy, Phase::Session(session));
        if decision.action.permits() {
            let judgement = subject.judgement(decision.action, decision.rule);
            return Ok(audited_session(client, target, session, Some(&judgement)));
        }
        let refused = subject.denied(&decision);
        self.log_refused_session(client, target, session, &refused).await;
        Err(refused)
    }

    async fn log_refused_session(
        &self,
        client: &Client,
        target: &Target,
        session: DatabaseSession<'_>,
        refused: &Refused,
    ) {
        let audited = audited_session(client, target, session, Some(&refused.judgement));
        let entry = self.requests.session(client, target, session.protocol.method(), &session_path(session));
        self.log_refusal(audited, Some(entry), refused).await;
    }

    fn judge_session(
        &self,
        client: &Client,
        target: &Target,
        session: DatabaseSession<'_>,
    ) -> Result<Admission, Box<Refused>> {
        let rules = self.rules.now();
        let policy = &rules.policy;
        if !policy.is_active() {
            return Ok(Admission::default());
        }
        let path = session_path(session);
        let subject = of_session(policy, client, target, (session, &path));
        let decision = subject.decide(policy, Phase::Session(session));
        self.begin(policy, &subject, &decision, None).map_err(|refused| match refused {
            NotAdmitted::Refused(refused) => refused,
            NotAdmitted::Held(order) => order.refusal,
        })
    }

    /// Returns whether the proxy may connect to `target` as `name` before the client sends a request, to copy the server's
    /// certificate. The policy must be able to allow a request of the client without an approval.
    pub(super) fn may_be_probed(&self, client: &Client, target: &Target, name: &HostOrIp) -> bool {
        let rules = self.rules.now();
        let policy = &rules.policy;
        let is_same = target.redirected || target.name == *name;
        let decide = || connection(policy, client, target, name).decide(policy, Phase::Probe);
        !policy.is_active() || is_same && decide().action.permits_immediately()
    }

    /// Decides about the target of CONNECT or SOCKS5. Logs a refusal. The decision is made again when the tunnel starts.
    pub(super) async fn admit_target(
        &self,
        client: &Client,
        target: &Target,
        phase: Phase<'_>,
    ) -> Result<(), Box<Refused>> {
        let rules = self.rules.now();
        if !rules.policy.is_active() {
            return Ok(());
        }
        let subject = connection(&rules.policy, client, target, &target.name);
        let decision = subject.decide(&rules.policy, phase);
        if decision.action.permits() {
            return Ok(());
        }
        let refused = subject.denied(&decision);
        self.log_refused(client, target, &target.name, &refused).await;
        Err(refused)
    }

    /// Audits and logs a connection that the policy refuses.
    async fn log_refused(&self, client: &Client, target: &Target, name: &HostOrIp, refused: &Refused) {
        let audited =
            AuditedDecision::connection("connection", client, (target, name), Some(&refused.judgement));
        let entry = self.requests.tunnel(client, target, name);
        self.log_refusal(audited, entry, refused).await;
    }

    async fn log_refusal(&self, audited: AuditedDecision, entry: Option<Box<Entry>>, refused: &Refused) {
        self.metrics.rejected();
        let audited = audited.with_hold(refused.held.as_ref()).with_hooks(&refused.hooks);
        let _ = self.requests.audit(|| audited.refused(refused.page.reason)).await;
        if let Some(mut entry) = entry {
            refused.note(&mut entry);
            let status = StatusCode::from_u16(refused.page.status).unwrap_or(StatusCode::FORBIDDEN);
            entry.answered(status, &HeaderMap::new());
        }
    }

    fn begin(
        &self,
        policy: &Policy,
        subject: &Subject<'_>,
        decision: &Decision,
        approval: Option<&Approval>,
    ) -> Result<Admission, NotAdmitted> {
        if !decision.action.permits() {
            return Err(subject.denied(decision).into());
        }
        let approved = match decision.action {
            Action::Hold => Some(self.approved(subject, decision, approval)?),
            _ => None,
        };
        if decision.action == Action::Log {
            let Subject { client, host, port, method, path, .. } = subject;
            tracing::warn!(%client, %host, port, method, path, rule = decision.rule.as_deref(), "the policy allowed a \
             request and requires that it is logged");
        }
        let action = if approved.is_some() { Action::Allow } else { decision.action };
        let judgement = subject.judgement(action, decision.rule.clone());
        let budget_use = match subject.identity.map(|identity| self.budgets.begin(identity)) {
            Some(Err((why, wait))) => {
                let mut refused = subject.refused(StatusCode::TOO_MANY_REQUESTS, "budget", None);
                refused.page.title = "The budget is used up";
                refused.page.detail = format!("{}: {why}", subject.client_description());
                refused.page.advice =
                    "Retry after the time in Retry-After, or ask the operator of this proxy to raise the \
                 limit: budget in [[proxy.policy.identities]]."
                        .into();
                refused.page.retry_after = Some(wait);
                refused.held = approved;
                return Err(refused.into());
            }
            Some(Ok(budget_use)) => budget_use,
            None => None,
        };
        let grantee = subject.grantee(policy);
        Ok(Admission { grantee, judgement: Some(judgement), budget_use, outcome: None, approved })
    }

    /// Returns the approval of a request that a rule holds: the approval of this request, or a remembered approval of an equal
    /// request.
    fn approved(
        &self,
        subject: &Subject<'_>,
        decision: &Decision,
        approval: Option<&Approval>,
    ) -> Result<HoldRecord, NotAdmitted> {
        // After a reload, another rule may hold the request.
        if let Some(approval) = approval.filter(|approval| approval.rule == decision.rule) {
            return Ok(approval.record.clone());
        }
        let order = subject.hold_order(decision);
        let remembered = self.options.holds.as_ref().and_then(|holds| holds.remembered(&order.key));
        remembered.ok_or_else(|| NotAdmitted::Held(Box::new(order)))
    }
}

impl Subject<'_> {
    fn decide(&self, policy: &Policy, phase: Phase<'_>) -> Decision {
        let identity = self.identity.map(AsRef::as_ref);
        policy.decide(&PolicyRequest { identity, host: self.host, port: self.port, phase }, now().0)
    }

    fn grantee(&self, policy: &Policy) -> Grantee {
        let ended = match &self.client.credential {
            Credential::Secret(ended) => Some(ended.clone()),
            Credential::None | Credential::Certificate(_) | Credential::Jwt(_) => None,
        };
        Grantee { identity: self.identity.cloned(), needs_grant: policy.has_identities(), ended }
    }

    /// Returns the names of the credentials that the request would get.
    fn credentials(&self, rules: &RuleSet) -> Vec<String> {
        let grantee = self.grantee(&rules.policy);
        let server = (self.host, self.port, self.scheme == Some("https"));
        let found = rules.requests.credentials(server, self.method, self.path, &grantee);
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn client_description(&self) -> String {
        self.identity
            .map_or("a client without an identity".into(), |identity| format!("identity {}", identity.name))
    }

    fn judgement(&self, action: Action, rule: Option<Arc<str>>) -> Judgement {
        let identity = self.identity.map(|identity| Arc::clone(&identity.name));
        Judgement { identity, decision: action.name(), policy_rule: rule }
    }

    fn denied(&self, decision: &Decision) -> Box<Refused> {
        let mut refused = self.refused(StatusCode::FORBIDDEN, decision.reason.name(), decision.rule.clone());
        let protocol = SessionProtocol::of_method(self.method);
        let operation = match self.method {
            "CONNECT" => format!("a connection to {}:{}", self.host, self.port),
            _ if protocol.is_some() => {
                let database = shown(self.path.trim_start_matches('/'));
                format!("a session with the database {database} on {}:{}", self.host, self.port)
            }
            method => format!("{method} {} on {}:{}", shown(self.path), self.host, self.port),
        };
        let by = decision.rule.as_ref().map_or("the default".to_owned(), |rule| format!("rule {rule}"));
        refused.page.detail = format!(
            "{} of the policy denies {} {operation}: {}",
            by,
            self.client_description(),
            decision.reason
        );
        refused.page.advice = self.advice(decision.reason);
        refused
    }

    fn advice(&self, reason: Reason) -> String {
        let usual_port = SessionProtocol::of_method(self.method).map(SessionProtocol::usual_port);
        match (reason, usual_port) {
            (Reason::Path(_), _) => "Send the path in its normal form.".into(),
            (Reason::Expired, _) => "Ask the operator of this proxy for a new identity.".into(),
            (Reason::NotHeld, _) => {
                "Ask the operator of this proxy for a rule with `database` that allows or denies the session.".into()
            }
            (Reason::NotIntercepted, _) => "Ask the operator of this proxy to intercept the host (not in proxy.tunnel), or to \
             allow it with a rule without conditions on requests."
                .into(),
            (Reason::Rule | Reason::Default, Some(usual)) if self.port != usual => format!(
                "If the session is right, ask the operator of this proxy for a rule with `database` and with the `port` of the server: \
                 without `port`, such a rule is for port {usual}."
            ),
            (Reason::Rule | Reason::Default, _) => "If the request is right, ask the operator of this proxy for a rule that allows it; `bulla proxy explain` shows the decision.".into(),
        }
    }

    fn host_mismatch(&self, mismatch: &Mismatch) -> Box<Refused> {
        let status = match mismatch {
            Mismatch::Connect { .. } => StatusCode::FORBIDDEN,
            // A client that shared an HTTP/2 connection for another host retries on a new connection.
            Mismatch::Host { .. } => StatusCode::MISDIRECTED_REQUEST,
        };
        let mut refused = self.refused(status, "host-mismatch", None);
        refused.page.detail = mismatch.to_string();
        refused.page.advice =
            "CONNECT, the TLS server name and Host must name the same host: open a connection for each host."
                .into();
        refused
    }

    fn hold_order(&self, decision: &Decision) -> HoldOrder {
        let Self { client, host, port, method, path, .. } = *self;
        let rule = decision.rule.as_deref().unwrap_or_default();
        let identity = self.identity.map(|identity| &*identity.name);
        let actor = actor_of(identity, client);
        let server = match host {
            HostOrIp::Ip(IpAddr::V6(address)) => format!("[{address}]"),
            host => host.to_string(),
        };
        let url = |path: &str| match (self.scheme, port) {
            (Some(scheme @ "https"), 443) | (Some(scheme @ "http"), 80) => {
                format!("{scheme}://{server}{path}")
            }
            (Some(scheme), _) => format!("{scheme}://{server}:{port}{path}"),
            (None, _) => format!("{server}:{port}"),
        };
        let key = HoldKey::new((&actor, client.user.as_deref()), rule, method, &url(path));
        let path = cut(path, PATH_BYTES_MAX);
        let hold_for = Duration::from_secs(decision.hold_for_s.into());
        let since = Timestamp::now();
        let request = HeldRequest {
            id: String::new(),
            client: actor,
            identity: identity.map(str::to_owned),
            user: client.user.as_deref().map(str::to_owned),
            method: shown(method),
            url: url(path),
            host: host.to_string(),
            port,
            path: path.to_owned(),
            rule: rule.to_owned(),
            credentials: Vec::new(),
            since,
            deadline: since.saturating_add(hold_for).unwrap_or(since),
        };
        let refusal = self.unlogged_refusal(StatusCode::FORBIDDEN, "hold-deadline", decision.rule.clone());
        HoldOrder { key, request, hold_for, rule: decision.rule.clone(), refusal }
    }

    fn refused(&self, status: StatusCode, reason: &'static str, rule: Option<Arc<str>>) -> Box<Refused> {
        let Self { client, host, port, method, path, .. } = self;
        tracing::info!(%client, %host, port, method, path, reason, rule = rule.as_deref(), "the policy denied a request");
        self.unlogged_refusal(status, reason, rule)
    }

    fn unlogged_refusal(
        &self,
        status: StatusCode,
        reason: &'static str,
        rule: Option<Arc<str>>,
    ) -> Box<Refused> {
        let Self { method, path, .. } = self;
        let judgement = self.judgement(Action::Deny, rule.clone());
        let page = PolicyRefusal {
            title: "The policy of this proxy denies the request",
            status: status.as_u16(),
            detail: String::new(),
            advice: String::new(),
            reason,
            rule,
            identity: judgement.identity.clone(),
            host: self.host.to_string(),
            method: shown(method),
            path: shown(path),
            hold: None,
            retry_after: None,
        };
        Box::new(Refused { page, judgement, held: None, hooks: Vec::new() })
    }
}

/// Host names of one request that must be equal but differ (domain fronting).
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error("the CONNECT request is for {connect}, but the TLS handshake (SNI) is for {server}")]
    Connect { connect: HostOrIp, server: HostOrIp },
    #[error(
        "the connection is for {connection}, but the request is for {host}: open a new connection for {host}"
    )]
    Host { connection: HostOrIp, host: HostOrIp },
}

/// Returns the host by which a request is judged: the verified host of its connection, never an unverified claim.
fn verified_host<'a>(context: &'a ConnectionContext, host: &HostOrIp) -> Result<&'a HostOrIp, Mismatch> {
    let target = &context.origin.target;
    let of_connection = match &context.origin.server {
        Some(server) if !target.redirected && target.name != *server => {
            return Err(Mismatch::Connect { connect: target.name.clone(), server: server.clone() });
        }
        Some(server) => server,
        // In redirected plain HTTP, the client may name any host, so the address decides.
        None if target.redirected => return Ok(&target.name),
        None => &target.name,
    };
    match of_connection == host {
        true => Ok(of_connection),
        false => Err(Mismatch::Host { connection: of_connection.clone(), host: host.clone() }),
    }
}

/// Returns whether the policy admits a connection of `client` to `target` under the host name `name`.
pub(super) fn admits(
    policy: &Policy,
    client: &Client,
    target: &Target,
    name: &HostOrIp,
    phase: Phase<'_>,
) -> bool {
    let subject = connection(policy, client, target, name);
    let is_same = target.redirected || target.name == *name;
    !policy.is_active() || is_same && subject.decide(policy, phase).action.permits()
}

/// Returns client and destination of a request to `host`.
fn of_request<'a>(
    identity: Option<&'a Arc<Identity>>,
    context: &'a ConnectionContext,
    request: &'a Request<ClientBody>,
    host: &'a HostOrIp,
) -> Subject<'a> {
    Subject {
        client: &context.client,
        identity,
        host,
        port: context.origin.target.port,
        method: request.method().as_str(),
        path: request.uri().path(),
        scheme: Some(if context.origin.server.is_some() { "https" } else { "http" }),
    }
}

/// Returns the attributes of a request that policy rules can match.
fn facts_of(request: &Request<ClientBody>) -> RequestFacts<'_> {
    RequestFacts {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query(),
        headers: request.headers(),
        body_bytes: request.body().size_hint().exact(),
    }
}

/// Returns the path of a session in logs: the database.
pub(super) fn session_path(session: DatabaseSession<'_>) -> String {
    format!("/{}", session.database)
}

fn audited_session(
    client: &Client,
    target: &Target,
    session: DatabaseSession<'_>,
    judgement: Option<&Judgement>,
) -> AuditedDecision {
    AuditedDecision::connection("session", client, (target, &target.name), judgement)
        .of_object(session.protocol.method(), &session_path(session))
}

/// Returns client and destination of a session with a database of `target`.
fn of_session<'a>(
    policy: &'a Policy,
    client: &'a Client,
    target: &'a Target,
    (session, path): (DatabaseSession<'_>, &'a str),
) -> Subject<'a> {
    let connection = connection(policy, client, target, &target.name);
    Subject { method: session.protocol.method(), path, ..connection }
}

/// Returns client and destination of a connection to `target` under the host name `name`.
fn connection<'a>(
    policy: &'a Policy,
    client: &'a Client,
    target: &Target,
    name: &'a HostOrIp,
) -> Subject<'a> {
    let identity = identify(policy, client);
    Subject { client, identity, host: name, port: target.port, method: "CONNECT", path: "", scheme: None }
}

pub(super) fn identify<'a>(policy: &'a Policy, client: &Client) -> Option<&'a Arc<Identity>> {
    let evidence = match (&client.user, &client.credential) {
        (Some(subject), Credential::Certificate(uris)) => Evidence::Certificate { subject, uris },
        (Some(_), Credential::Jwt(token)) => Evidence::Jwt { issuer: &token.issuer, claims: &token.claims },
        (Some(user), Credential::Secret(_) | Credential::None) => Evidence::User(user),
        (None, _) => Evidence::Nothing,
    };
    policy.identify(&Presented { evidence, address: client.ip() })
}
