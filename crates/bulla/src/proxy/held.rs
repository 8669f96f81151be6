//! `bulla proxy held`, `approve` and `reject`: the requests of a running proxy that wait for an approval.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cli::connection::{Columns, ShortListing, document_of};
use cli::exit::{Exit, Outcome, Problem, print};
use cli::terminal::clean;
use cli::units::{self, now_us, relative_time};
use cli::{GlobalArgs, columns};
use proxy::holds::HeldRequest;
use proxy::policy::PolicyRuleText;
use serde::Serialize;
use serde_json::Value;

use super::control::{self, ControlRequest, ControlResponse, REASON_BYTES_MAX};
use crate::config::Configuration;

/// Arguments of `bulla proxy held`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HeldArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    listing: ShortListing,
}

/// Arguments of `bulla proxy approve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ApproveArgs {
    /// The id that `bulla proxy held` shows
    id: String,
    /// Approve equal requests for this time as well: of the same client and user, with the same rule, method, host, port and path; at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = units::duration, conflicts_with = "once")]
    remember: Option<Duration>,
    /// Approve only this request (default)
    #[arg(long)]
    once: bool,
    /// Print a rule for the configuration file that allows such requests
    #[arg(long)]
    print_rule: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Arguments of `bulla proxy reject`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RejectArgs {
    /// The id that `bulla proxy held` shows
    id: String,
    /// The reason, which the client gets
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Clone, Debug)]
struct SocketArgs {
    /// The control socket of the proxy [default: proxy.control_socket]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// A policy rule, serialized with the tables of the configuration file.
#[derive(Serialize)]
struct RuleFile {
    proxy: ProxyTable,
}

#[derive(Serialize)]
struct ProxyTable {
    policy: PolicyTable,
}

#[derive(Serialize)]
struct PolicyTable {
    rules: [PolicyRuleText; 1],
}

impl SocketArgs {
    fn send(&self, global: &GlobalArgs, request: &ControlRequest) -> Outcome<ControlResponse> {
        let path = match &self.socket {
            Some(path) => path.clone(),
            None => {
                Configuration::load(global.config.as_deref())?.settings.proxy.control_socket()?.ok_or_else(
                    || {
                        Problem::usage("the proxy has no control socket: proxy.control_socket is \"none\"")
                            .hint("leave proxy.control_socket out, or set a path, and restart the proxy")
                    },
                )?
            }
        };
        control::send(&path, request).map_err(|error| {
            let (what, hint) = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => (
                    "no proxy with a policy listens there",
                    "start `bulla proxy`; if it has another proxy.control_socket, give --socket PATH",
                ),
                ErrorKind::PermissionDenied | ErrorKind::UnexpectedEof => (
                    "no access",
                    "only the user of the proxy, and root, may approve requests: run this as that user",
                ),
                _ => ("the proxy does not respond", "see the log of the proxy"),
            };
            Problem::new(Exit::Server, format_args!("{}: {what} ({error})", path.display())).hint(hint)
        })
    }
}

/// Runs `bulla proxy held`.
pub(super) async fn list(args: &HeldArgs, global: &GlobalArgs) -> Outcome<Exit> {
    const HELD: Columns = columns!(
        HeldRequest:
        ("Id", id),
        ("Client", client),
        ("Method", method),
        ("URL", url),
        ("Rule", rule),
        ("Since", since),
        ("Deadline", deadline),
    );
    let document: fn(&HeldRequest) -> Outcome<Value> =
        if args.listing.is_table() { for_people } else { |request| document_of(request) };
    let fetch = async || match args.socket.send(global, &ControlRequest::Held)? {
        ControlResponse::Held(rows) => rows.iter().map(document).collect(),
        other => Err(refused(other)),
    };
    args.listing.print(HELD, fetch).await?;
    Ok(Exit::Ok)
}

/// Runs `bulla proxy approve`.
pub(super) fn approve(args: &ApproveArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let for_s = args.remember.filter(|_| !args.once).map(|time| time.as_secs());
    let request = ControlRequest::Approve { id: args.id.clone(), for_s };
    let (request, sent) = match args.socket.send(global, &request)? {
        ControlResponse::Approved { request, sent } => (request, sent),
        other => return Err(refused(other)),
    };
    eprintln!("approved: {}", described(&request));
    if sent > 1 {
        eprintln!("equal requests that were held as well: {}", sent - 1);
    }
    if args.print_rule {
        print(&rule_text(&request)?)?;
    }
    Ok(Exit::Ok)
}

/// Runs `bulla proxy reject`.
pub(super) fn reject(args: &RejectArgs, global: &GlobalArgs) -> Outcome<Exit> {
    if args.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(Problem::usage(format_args!("--reason is longer than {REASON_BYTES_MAX} bytes"))
            .hint("give a shorter reason"));
    }
    let request = ControlRequest::Reject { id: args.id.clone(), reason: args.reason.clone() };
    match args.socket.send(global, &request)? {
        ControlResponse::Rejected { request } => eprintln!("rejected: {}", described(&request)),
        other => return Err(refused(other)),
    }
    Ok(Exit::Ok)
}

fn refused(response: ControlResponse) -> Problem {
    let why = match response {
        ControlResponse::Failed(why) => why,
        _ => "the proxy sent an unexpected response".into(),
    };
    Problem::new(Exit::Refused, why).hint("`bulla proxy held` lists the requests that are held now")
}

fn described(request: &HeldRequest) -> String {
    clean(&format!("{} {} of {} (rule {})", request.method, request.url, request.client, request.rule))
        .into_owned()
}

/// Returns a request for display: without control characters, which a client may send, and with times relative to now.
fn for_people(request: &HeldRequest) -> Outcome<Value> {
    let now_s = now_us().div_euclid(1_000_000);
    let mut document = document_of(request)?;
    for member in document.as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
        if let Value::String(text) = member {
            *text = clean(text).into_owned();
        }
    }
    document["since"] = relative_time(request.since.as_second() - now_s).into();
    document["deadline"] = relative_time(request.deadline.as_second() - now_s).into();
    Ok(document)
}

/// Returns a rule that allows the request, as text for the configuration file.
pub(super) fn rule_text(request: &HeldRequest) -> Outcome<String> {
    let rule = request.allowing_rule().map_err(|error| {
        Problem::new(Exit::Refused, format_args!("the request is approved, but {error}"))
            .hint("write the rule by hand: see docs/agent-gateway.md")
    })?;
    rule_file(rule, Some(&request.rule), request.identity.as_deref())
}

/// Formats a rule as text for the configuration file. A comment says that the rule must precede the rule `before`.
pub(super) fn rule_file(
    rule: PolicyRuleText,
    before: Option<&str>,
    identity: Option<&str>,
) -> Outcome<String> {
    let position = match before {
        Some(before) => {
            format!("# Put this rule before the rule {before:?}: the first rule that matches decides.\n")
        }
        None => String::new(),
    };
    let who = match identity {
        Some(_) => "",
        None => "# The client has no identity: the rule applies to all clients.\n",
    };
    let file = RuleFile { proxy: ProxyTable { policy: PolicyTable { rules: [rule] } } };
    let rule = toml::to_string(&file).map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(format!("{position}{who}{}", rule.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProxySettings;

    #[test]
    fn printed_rule_is_a_rule_of_the_configuration() {
        let request: HeldRequest = serde_json::from_value(serde_json::json!({
            "id": "0a1b2c3d4e", "client": "identity:ci", "identity": "ci", "method": "POST",
            "url": "https://a.example:8443/x", "host": "a.example", "port": 8443, "path": "/x", "rule": "deploy",
            "since": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T00:02:00Z",
        }))
        .unwrap();
        let text = rule_text(&request).unwrap();
        assert!(text.starts_with("# Put this rule before the rule \"deploy\""), "{text}");
        #[derive(serde::Deserialize)]
        struct File {
            proxy: ProxySettings,
        }
        let file: File = toml::from_str(&text).unwrap();
        assert_eq!(file.proxy.policy.rules, [request.allowing_rule().unwrap()]);
        let anyone = HeldRequest { identity: None, ..request };
        assert!(rule_text(&anyone).unwrap().contains("applies to all clients"));
    }
}
