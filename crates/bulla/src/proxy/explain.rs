//! `bulla proxy explain`: the decision of the policy about a request, from the configuration file alone.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem, print};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;
use proxy::Action as ConnectionAction;
use proxy::policy::{
    Action, DatabaseSession, Decision, Grantee, Phase, Policy, PolicyRequest, RequestFacts, SessionProtocol,
};
use serde::Serialize;
use x509::HostOrIp;

use crate::config::Configuration;

/// Arguments of `bulla proxy explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// The URL of the request; for a session with a database postgresql://HOST/DATABASE, or redis://HOST/NUMBER
    url: String,
    /// The identity of the client [default: a client without identity]
    #[arg(long = "as", value_name = "IDENTITY")]
    identity: Option<String>,
    /// The method of the request
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A header of the request, NAME: VALUE; may be repeated
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// The size of the request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    body_bytes: u64,
    /// Output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "table")]
    output: ExplainFormat,
}

/// Output formats of the explanation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum ExplainFormat {
    /// One line for each fact
    Table,
    /// One JSON document
    Json,
}

/// The explanation of one request: the policy's decision and its effects.
#[derive(Debug, Serialize)]
struct Explanation {
    decision: &'static str,
    /// Whether the request is sent without an approval.
    permitted: bool,
    /// Seconds until the deadline of a held request.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_for_s: Option<u16>,
    rule: Option<String>,
    reason: &'static str,
    detail: String,
    identity: Option<String>,
    method: String,
    host: String,
    port: u16,
    path: String,
    /// How the connection is handled: `intercepted`, `tunnel`, `session` or `rejected`.
    connection: &'static str,
    credentials: Vec<Credential>,
}

#[derive(Debug, Serialize)]
struct Credential {
    name: String,
    rule: String,
}

/// The request that the command line describes.
struct ExplainedRequest {
    host: HostOrIp,
    port: u16,
    in_tls: bool,
    /// Protocol and database of a session.
    session: Option<(SessionProtocol, String)>,
    uri: Uri,
    headers: HeaderMap,
}

/// Runs `bulla proxy explain`.
pub(super) fn run(args: &ExplainArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let configuration = Configuration::load(global.config.as_deref())?;
    let settings = &configuration.settings.proxy;
    settings.check()?;
    let (policy, rules) = (settings.policy()?, settings.request_rules()?);
    let described_request = args.described_request()?;
    let identity = args.identity(&policy)?;
    let action = settings.names()?.decide(&described_request.host, described_request.port);
    let facts = RequestFacts {
        method: &args.method,
        path: described_request.uri.path(),
        query: described_request.uri.query(),
        headers: &described_request.headers,
        body_bytes: Some(args.body_bytes),
    };
    let session = described_request
        .session
        .as_ref()
        .map(|(protocol, database)| DatabaseSession { protocol: *protocol, database });
    let is_tunnel = action == ConnectionAction::Tunnel && described_request.in_tls;
    let phase = match session {
        Some(session) => Phase::Session(session),
        None if is_tunnel => Phase::Tunnel,
        None => Phase::Request(facts),
    };
    let request = PolicyRequest {
        identity: identity.as_deref(),
        host: &described_request.host,
        port: described_request.port,
        phase,
    };
    let decision = policy.decide(&request, store::Clock::system().now_seconds());
    let grantee = Grantee { identity, needs_grant: policy.has_identities(), ended: None };
    let permitted = decision.action.permits() && action != ConnectionAction::Reject;
    let target = (&described_request.host, described_request.port, described_request.in_tls);
    let credentials = match session {
        _ if !permitted || is_tunnel => Vec::new(),
        Some(session) => rules
            .session_credential((&described_request.host, described_request.port), session, &grantee)
            .into_iter()
            .collect(),
        None => rules.credentials(target, &args.method, described_request.uri.path(), &grantee),
    };
    let explanation = Explanation {
        decision: if permitted { decision.action.name() } else { Action::Deny.name() },
        permitted: permitted && decision.action.permits_immediately(),
        hold_for_s: (permitted && decision.action == Action::Hold).then_some(decision.hold_for_s),
        detail: detail(&decision, action),
        rule: decision.rule.as_deref().map(str::to_owned),
        reason: if action == ConnectionAction::Reject { "proxy.reject" } else { decision.reason.name() },
        identity: grantee.identity.map(|identity| identity.name.to_string()),
        method: session.map_or(args.method.as_str(), |session| session.protocol.method()).to_owned(),
        host: described_request.host.to_string(),
        port: described_request.port,
        path: described_request.uri.path().to_owned(),
        connection: match action {
            ConnectionAction::Reject => "rejected",
            _ if session.is_some() => "session",
            _ if is_tunnel => "tunnel",
            _ => "intercepted",
        },
        credentials: credentials
            .into_iter()
            .map(|(rule, name)| Credential { name, rule: rule.to_string() })
            .collect(),
    };
    print(&match args.output {
        ExplainFormat::Table => explanation.table(),
        ExplainFormat::Json => serde_json::to_string_pretty(&explanation).unwrap_or_default(),
    })?;
    Ok(Exit::Ok)
}

fn detail(decision: &Decision, action: ConnectionAction) -> String {
    match action {
        ConnectionAction::Reject => {
            "the host is in proxy.reject, or in no list with proxy.others = \"reject\"".into()
        }
        _ => decision.reason.to_string(),
    }
}

impl ExplainArgs {
    fn described_request(&self) -> Outcome<ExplainedRequest> {
        let wrong = || {
            Problem::usage(format_args!("{:?} is not an http, https, postgresql or redis URL", self.url))
                .hint("for example https://api.github.com/repos/o/r, postgresql://db.example.com/shop, or redis://cache.example.com/0")
        };
        let uri: Uri = self.url.parse().map_err(|_| wrong())?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let protocol = SessionProtocol::of_scheme(scheme);
        let (in_tls, usual_port) = match (scheme, protocol) {
            ("https", _) => (true, 443),
            ("http", _) => (false, 80),
            (_, Some(protocol)) => (false, protocol.usual_port()),
            _ => return Err(wrong()),
        };
        let name = percent_decode_str(uri.path().trim_start_matches('/')).decode_utf8_lossy();
        if protocol.is_some() && name.is_empty() {
            let problem = Problem::usage(format_args!("{:?} names no database", self.url));
            return Err(problem.hint(format!("append it: {}/DATABASE", self.url.trim_end_matches('/'))));
        }
        let session = protocol.map(|protocol| (protocol, name.into_owned()));
        let host = uri.host().and_then(|host| HostOrIp::parse(host).ok()).ok_or_else(wrong)?;
        let port = uri.port_u16().unwrap_or(usual_port);
        let mut headers = HeaderMap::new();
        for header in &self.headers {
            let parsed = header.split_once(':').and_then(|(name, value)| {
                Some((name.trim().parse::<HeaderName>().ok()?, value.trim().parse::<HeaderValue>().ok()?))
            });
            let (name, value) = parsed.ok_or_else(|| {
                Problem::usage(format_args!("{header:?} is not a header"))
                    .hint("for example -H \"X-Team: web\"")
            })?;
            headers.append(name, value);
        }
        Ok(ExplainedRequest { host, port, in_tls, session, uri, headers })
    }

    fn identity(&self, policy: &Policy) -> Outcome<Option<std::sync::Arc<proxy::policy::Identity>>> {
        let Some(name) = &self.identity else { return Ok(None) };
        let found = policy.identity(name).ok_or_else(|| {
            Problem::usage(format_args!("the configuration has no identity {name:?}"))
                .hint("see [[proxy.policy.identities]]")
        })?;
        Ok(Some(std::sync::Arc::clone(found)))
    }
}

impl Explanation {
    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:<12}{value}");
        };
        row("decision", self.decision);
        if let Some(seconds) = self.hold_for_s {
            row("deadline", &format!("{seconds} s to approve it: bulla proxy approve"));
        }
        row("rule", self.rule.as_deref().unwrap_or("none"));
        row("reason", &self.detail);
        row("identity", self.identity.as_deref().unwrap_or("none"));
        row("request", &format!("{} {} on {}:{}", self.method, self.path, self.host, self.port));
        row("connection", self.connection);
        let credentials: Vec<String> =
            self.credentials.iter().map(|one| format!("{} (rule {})", one.name, one.rule)).collect();
        row(
            "credential",
            if credentials.is_empty() { "none".into() } else { credentials.join(", ") }.as_str(),
        );
        text.trim_end().to_owned()
    }
}
