//! Policies for certificates: their scope, renewal times and violations.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/policies";
const VIOLATIONS: &str = "/console/violations";

/// Severities that the filter offers.
const SEVERITIES: &[&str] = &["info", "warning", "error", "critical"];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/policies/{name}", get(one))
        .route(VIOLATIONS, get(violations))
}

#[derive(Template)]
#[template(path = "policies.html")]
struct Policies {
    may_manage: bool,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/policies", query.as_deref()).await?;
    let columns = &["Name", "Description", "Applies to", "Enforcement", "Rules", "Renewal", "Changed"];
    let row = |policy: &Value| {
        let name = json::text(policy, "/name");
        vec![
            Cell::link(item(PAGE, name), name),
            Cell::text(json::text(policy, "/policy/description")),
            Cell::text(applies_to(policy)),
            enforcement(policy),
            Cell::number(i64::try_from(json::list(policy, "/policy/rules").len()).unwrap_or_default()),
            Cell::text(renewal_time(policy)),
            Cell::time(json::text(policy, "/updated_at"), session.now),
        ]
    };
    let table = listing
        .table("Policies", columns, row)
        .empty("No policy yet: certificates renew by their profile's rule. Create one with `bulla policy create`.")
        .exported("policies");
    Page::new(&session, "Policies")
        .command("bulla policy list")
        .reads(listing.path())
        .show(&Policies { may_manage: session.may("policy.manage"), table })
}

fn enforcement(policy: &Value) -> Cell {
    match json::text(policy, "/policy/enforcement") {
        "enforced" => Cell::badge(Tone::Warn, "enforced"),
        other => Cell::badge(Tone::Calm, other),
    }
}

/// Formats the scope of a policy: `everything`, or conditions such as `environments prod, teams web`.
fn applies_to(policy: &Value) -> String {
    if json::flag(policy, "/policy/applies_to/all") {
        return "everything".to_owned();
    }
    let conditions = policy.pointer("/policy/applies_to").and_then(Value::as_object);
    let shown = |(name, value): (&String, &Value)| match value {
        Value::Array(values) if !values.is_empty() => {
            let values: Vec<String> = values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect();
            Some(format!("{name} {}", values.join(" or ")))
        }
        Value::Object(tags) if !tags.is_empty() => Some(format!("{name} {value}")),
        _ => None,
    };
    let conditions: Vec<String> = conditions.into_iter().flatten().filter_map(shown).collect();
    if conditions.is_empty() { "certificates that name it".to_owned() } else { conditions.join(", ") }
}

/// Formats the renewal time of a policy: `14 days before the end`.
fn renewal_time(policy: &Value) -> String {
    let Some(when) = policy.pointer("/policy/renewal/renew_before").and_then(Value::as_object) else {
        return "by the profile".to_owned();
    };
    let shown = |(unit, amount): (&String, &Value)| match (unit.as_str(), amount.as_f64()) {
        ("fraction" | "percent" | "part", _) => format!("{unit} {amount} of its lifetime"),
        _ => format!("{amount} {}", unit.replace('_', " ")),
    };
    let parts: Vec<String> = when.iter().map(shown).collect();
    format!("{} before the end", parts.join(", "))
}

#[derive(Template)]
#[template(path = "policy.html")]
struct Policy {
    name: String,
    may_manage: bool,
    description: String,
    facts: Facts,
    rules: Table,
    violations: Table,
    followers: Option<Table>,
    document: String,
}

async fn one(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let segment = api::path::segment(&name);
    let path = format!("/api/v1/policies/{segment}");
    let policy = session.api.get(&path).await?;
    let broken = format!("/api/v1/violations?policy={segment}&limit=20");
    let violations = session.api.get_if_allowed(&broken).await?.unwrap_or_default();
    let followed = format!("/api/v1/certificates?policy={segment}&limit=20&count=true");
    let followers = session.api.get_if_allowed(&followed).await?;
    let body = Policy {
        may_manage: session.may("policy.manage"),
        description: json::text(&policy, "/policy/description").to_owned(),
        facts: facts(&session, &policy),
        rules: rules(&policy),
        violations: Table::of("Violations of the policy", COLUMNS, &violations, |one| row(&session, one))
            .empty("No certificate violates it."),
        followers: followers.map(|listing| {
            super::profiles::followers(&session, &listing)
                .empty("No certificate names it as its policy. Assign it with `bulla cert update`.")
        }),
        document: serde_json::to_string_pretty(policy.pointer("/policy").unwrap_or(&Value::Null))
            .map_err(Failure::unreadable)?,
        name: segment,
    };
    Page::new(&session, format!("Policy {name}"))
        .command(format!("bulla policy show '{name}'"))
        .reads(path)
        .reads(broken)
        .reads(followed)
        .show(&body)
}

fn facts(session: &Session, policy: &Value) -> Facts {
    let yes = |pointer| if json::flag(policy, pointer) { "yes" } else { "no" };
    let windows = json::list(policy, "/policy/renewal/windows");
    let windows: Vec<String> = windows.iter().map(Value::to_string).collect();
    let windows = if windows.is_empty() { "at any time".to_owned() } else { windows.join(", ") };
    Facts::default()
        .with("Applies to", Cell::text(applies_to(policy)))
        .with("Enforcement", enforcement(policy))
        .with("Renewal", Cell::text(renewal_time(policy)))
        .with("Automatic renewal", Cell::text(yes("/policy/renewal/auto_renew")))
        .with("Follows the issuer's renewal window", Cell::text(yes("/policy/renewal/obey_issuer")))
        .with("Renewal windows", Cell::text(windows))
        .with("Needs approval", Cell::text(yes("/policy/requires_approval")))
        .with("Revision", Cell::number(json::number(policy, "/revision")))
        .with("Changed", Cell::time(json::text(policy, "/updated_at"), session.now))
}

fn rules(policy: &Value) -> Table {
    let row = |rule: &Value| {
        vec![
            Cell::text(json::text(rule, "/rule").replace('_', " ")),
            severity(json::text(rule, "/severity")),
            Cell::text(limits(rule)),
        ]
    };
    Table::new(
        "Rules of the policy",
        &["Rule", "Severity", "Limit"],
        json::list(policy, "/policy/rules").iter().map(row),
    )
    .empty("It has no rules: it only defines when certificates renew.")
}

/// Formats the requirements of a rule: its members except the name and the severity.
fn limits(rule: &Value) -> String {
    let members = rule.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| !matches!(name.as_str(), "rule" | "severity"));
    let shown = |(name, value): (&String, &Value)| match value {
        Value::Array(values) => {
            let values: Vec<String> = values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect();
            values.join(", ")
        }
        Value::Number(seconds) if name == "seconds" => {
            crate::format::duration(seconds.as_i64().unwrap_or_default())
        }
        other => format!("{name} {other}"),
    };
    members.map(shown).collect::<Vec<_>>().join("; ")
}

fn severity(name: &str) -> Cell {
    let tone = match name {
        "critical" | "error" => Tone::Bad,
        "warning" => Tone::Warn,
        _ => Tone::Calm,
    };
    if name.is_empty() { Cell::Empty } else { Cell::badge(tone, name) }
}

const COLUMNS: &[&str] = &["Certificate", "Severity", "Message", "Rule", "Policy", "Since"];

fn row(session: &Session, one: &Value) -> Vec<Cell> {
    let (policy, rule) = (json::text(one, "/policy"), json::text(one, "/rule"));
    let violating = format!("/console/certificates?finding={}", api::path::segment(rule));
    vec![
        Cell::link(item("/console/certificates", json::text(one, "/certificate")), json::text(one, "/name")),
        severity(json::text(one, "/severity")),
        Cell::text(json::text(one, "/message")),
        Cell::link(violating, rule.replace('_', " ")),
        Cell::link(item(PAGE, policy), policy),
        Cell::time(json::text(one, "/found_at"), session.now),
    ]
}

#[derive(Template)]
#[template(path = "violations.html")]
struct Violations {
    severities: &'static [&'static str],
    severity: String,
    policy: String,
    table: Table,
}

async fn violations(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, VIOLATIONS, "/api/v1/violations", query).await?;
    let table = listing
        .table("Violations, worst first", COLUMNS, |one| row(&session, one))
        .empty("No certificate violates a policy.")
        .exported("violations");
    let body = Violations {
        severities: SEVERITIES,
        severity: parameter(query, "severity"),
        policy: parameter(query, "policy"),
        table,
    };
    Page::new(&session, "Violations").command("bulla policy violations").reads(listing.path()).show(&body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_are_formatted_as_text() {
        let policy = json!({ "policy": {
            "applies_to": { "environments": ["prod", "stage"], "teams": [] },
            "renewal": { "renew_before": { "days": 14 } },
        } });
        assert_eq!(applies_to(&policy), "environments prod or stage");
        assert_eq!(renewal_time(&policy), "14 days before the end");
        assert_eq!(renewal_time(&json!({ "policy": {} })), "by the profile");
        assert_eq!(applies_to(&json!({ "policy": { "applies_to": { "all": true } } })), "everything");
        assert_eq!(
            limits(&json!({ "rule": "max_lifetime", "seconds": 86_400, "severity": "error" })),
            "1 day"
        );
        assert_eq!(limits(&json!({ "rule": "key_types", "key_types": ["p256", "p384"] })), "p256, p384");
    }
}
