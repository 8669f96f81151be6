//! One certificate: its facts, its endpoints, its history.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::Method;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::Value;

use super::actions::deployed_to;
use super::chain::{self, Link};
use super::shared::{PAGE, api_path, served_state};
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::history;
use crate::pages::jobs;
use crate::pages::targets::shortened as short;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{json, revocation_reasons};

#[derive(Template)]
#[template(path = "certificate.html")]
struct One {
    page: String,
    error: String,
    facts: Facts,
    actions: Vec<(&'static str, &'static str, bool)>,
    chain: Vec<Link>,
    served: Table,
    deployments: Table,
    violations: Table,
    versions: Table,
    jobs: Table,
    history: Option<Table>,
}

/// The data for rendering the page.
struct Known {
    certificate: Value,
    versions: Value,
    endpoints: Value,
    jobs: Value,
    deployments: Value,
    violations: Value,
    authorities: Value,
    targets: Value,
    history: Option<Value>,
}

async fn known(session: &Session, id: &str) -> Result<Known, Failure> {
    let path = api_path(id);
    let segment = api::path::segment(id);
    let certificate = session.api.get(&path).await?;
    let list =
        async |path: String| Ok::<_, Failure>(session.api.get_if_allowed(&path).await?.unwrap_or_default());
    Ok(Known {
        certificate,
        versions: list(format!("{path}/versions?limit=20")).await?,
        endpoints: list(format!("{path}/endpoints?limit=100")).await?,
        jobs: list(format!("{path}/jobs?limit=20")).await?,
        deployments: list(format!("{path}/deployments?limit=50")).await?,
        violations: list(format!("/api/v1/violations?certificate={segment}&limit=50")).await?,
        authorities: list("/api/v1/authorities?limit=100".to_owned()).await?,
        targets: list("/api/v1/targets?limit=500&fields=id,name".to_owned()).await?,
        history: session
            .api
            .get_if_allowed(&format!("/api/v1/audit?resource=certificate/{segment}&limit=20"))
            .await?,
    })
}

/// Shows the page of one certificate.
pub(super) async fn page(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let known = known(&session, &id).await?;
    let certificate = &known.certificate;
    let name = json::text(certificate, "/name");
    let one = One {
        page: page_of(&id),
        error: json::text(certificate, "/last_error").to_owned(),
        facts: facts(&session, certificate),
        actions: actions(&session, certificate),
        chain: chain::links(current_chain(&known), json::items(&known.authorities), session.now),
        served: served(&session, &known.endpoints),
        deployments: deployments(&session, &known),
        violations: violations(&session, &known.violations),
        versions: versions(&session, &known),
        jobs: jobs::table(&session, "Jobs of this certificate", &known.jobs),
        history: known.history.as_ref().map(|history| history::table(&session, history)),
    };
    let path = api_path(&id);
    Page::new(&session, format!("Certificate {name}"))
        .command(format!("bulla cert show {id}"))
        .command(format!("bulla cert served {id}"))
        .command(format!("bulla cert versions {id}"))
        .reads(path.clone())
        .reads(format!("{path}/endpoints"))
        .show(&one)
}

fn page_of(id: &str) -> String {
    item(PAGE, id)
}

/// Returns the actions on a certificate: the name of the page, the text, and whether the action is dangerous.
fn actions(session: &Session, certificate: &Value) -> Vec<(&'static str, &'static str, bool)> {
    let archived = json::text(certificate, "/status") == "archived";
    let has_current = certificate.pointer("/current").is_some_and(Value::is_object);
    let revoked = json::flag(certificate, "/current/revoked");
    let has_targets = !deployed_to(certificate).is_empty();
    let manages = session.may("certificate.manage");
    let all = [
        ("renew", "Renew", false, !archived && session.may("certificate.renew")),
        ("deploy", "Deploy again", false, !archived && has_current && has_targets && manages),
        ("targets", "Change targets", false, !archived && manages),
        ("owner", "Change owner", false, manages),
        ("revoke", "Revoke", true, has_current && !revoked && session.may("certificate.revoke")),
        ("archive", "Archive", true, !archived && manages),
        ("restore", "Restore", false, archived && manages),
    ];
    all.into_iter()
        .filter(|(.., shown)| *shown)
        .map(|(name, words, danger, _)| (name, words, danger))
        .collect()
}

fn facts(session: &Session, certificate: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(certificate, pointer));
    let time = |pointer| Cell::time(json::text(certificate, pointer), session.now);
    let agent = json::text(certificate, "/key_location/agent");
    let key_at = match json::text(certificate, "/key_location/at") {
        "agent" => Cell::link(item("/console/agents", agent), "at an agent"),
        "key_service" => Cell::text("in the key service"),
        "server" => Cell::text("on this server, encrypted"),
        other => Cell::text(other),
    };
    let run = json::text(certificate, "/run/job");
    let run = match run {
        "" => Cell::Empty,
        _ => Cell::link(item("/console/jobs", run), json::text(certificate, "/run/state").replace('_', " ")),
    };
    let renews = if json::flag(certificate, "/auto_renew") { "automatic" } else { "manual" };
    let tags = certificate.pointer("/tags").and_then(Value::as_object);
    let tags =
        tags.into_iter().flatten().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("")));
    Facts::default()
        .with("State", Cell::state(json::text(certificate, "/status")))
        .with("Names", Cell::text(json::joined(certificate, "/names")))
        .with("Subject", text("/subject"))
        .with("Expires", time("/ends_at"))
        .with("Valid from", time("/current/not_before"))
        .with("Served", served_state(certificate))
        .with("Not deployed since", time("/undeployed_since"))
        .with("Renewal", Cell::text(renews))
        .with("Next renewal", time("/renew_at"))
        .with("Current job", run)
        .with(
            "Consecutive failures",
            match json::number(certificate, "/failures") {
                0 => Cell::Empty,
                failures => Cell::badge(Tone::Bad, failures.to_string()),
            },
        )
        .with("Profile", link("/console/profiles", json::text(certificate, "/profile")))
        .with("Issuer", issuer(json::text(certificate, "/issuer")))
        .with("Policy", link("/console/policies", json::text(certificate, "/policy")))
        .with("Owner", text("/owner"))
        .with("Team", text("/team"))
        .with("Environment", text("/environment"))
        .with("Tags", Cell::text(tags.collect::<Vec<_>>().join(", ")))
        .with("Key type", text("/key_type"))
        .with("Private key", key_at)
        .with("SHA-256 fingerprint", Cell::code(json::text(certificate, "/current/fingerprint")))
        .with("Notes", text("/notes"))
        .with("Managed since", time("/created_at"))
}

/// Returns a link to the page of an issuer, by its name.
fn issuer(name: &str) -> Cell {
    match name {
        "" => Cell::Empty,
        "internal" => Cell::link("/console/authorities", "internal"),
        name => Cell::link(item("/console/issuers", name), name),
    }
}

fn link(list: &str, name: &str) -> Cell {
    if name.is_empty() {
        Cell::Empty
    } else {
        Cell::link(format!("{list}/{}", api::path::segment(name)), name)
    }
}

/// Returns the chain of the current version, or of the newest version if none is current.
fn current_chain(known: &Known) -> &str {
    let current = json::text(&known.certificate, "/current/fingerprint");
    let versions = json::items(&known.versions);
    let found = versions.iter().find(|one| json::text(one, "/fingerprint") == current).or(versions.first());
    found.map_or("", |one| json::text(one, "/chain"))
}

fn served(session: &Session, endpoints: &Value) -> Table {
    Table::of(
        "Endpoints that serve this certificate",
        &["Endpoint", "Version", "Expires", "Last verified", "Answering", "Fingerprint"],
        endpoints,
        |one| {
            let endpoint = format!("{}:{}", json::text(one, "/endpoint/host"), json::number(one, "/endpoint/port"));
            let protocol = json::text(one, "/endpoint/protocol");
            let address = json::text(one, "/endpoint/address");
            let shown = [endpoint.as_str(), protocol, address].join(" ");
            let current = json::flag(one, "/current");
            let answers = json::flag(one, "/answering");
            vec![
                Cell::text(shown.trim()),
                Cell::badge(if current { Tone::Good } else { Tone::Bad }, if current { "current" } else { "older" }),
                Cell::time(json::text(one, "/not_after"), session.now),
                Cell::time(json::text(one, "/last_seen_at"), session.now),
                Cell::badge(if answers { Tone::Good } else { Tone::Warn }, if answers { "yes" } else { "no" }),
                Cell::code(short(json::text(one, "/fingerprint"))),
            ]
        },
    )
    .empty("No scan has found a version of it. Add its endpoints to a watch (`bulla watch add`). After the next scan, this \
     list shows which endpoint serves which version.")
}

fn deployments(session: &Session, known: &Known) -> Table {
    let name_of = |id: &str| {
        let targets = json::items(&known.targets).iter();
        let found = targets.into_iter().find(|one| json::text(one, "/id") == id);
        found.map_or(id, |one| json::text(one, "/name")).to_owned()
    };
    Table::of(
        "Deployments of this certificate",
        &["Target", "State", "Version", "Served", "Changed", "Attempts", "Error"],
        &known.deployments,
        |one| {
            let target = json::text(one, "/target");
            vec![
                Cell::link(item("/console/targets", target), name_of(target)),
                Cell::state(json::text(one, "/state")),
                Cell::code(short(json::text(one, "/fingerprint"))),
                Cell::code(short(json::text(one, "/served"))),
                Cell::time(json::text(one, "/updated_at"), session.now),
                Cell::number(json::number(one, "/attempts")),
                Cell::text(json::text(one, "/error")),
            ]
        },
    )
    .empty("Nothing was deployed. Change the targets; the agents there deploy each version.")
}

fn violations(session: &Session, violations: &Value) -> Table {
    Table::of(
        "Policy rules that this certificate violates",
        &["Severity", "Rule", "Message", "Policy", "Found"],
        violations,
        |one| {
            vec![
                Cell::state(json::text(one, "/severity")),
                Cell::text(json::text(one, "/rule")),
                Cell::text(json::text(one, "/message")),
                link("/console/policies", json::text(one, "/policy")),
                Cell::time(json::text(one, "/found_at"), session.now),
            ]
        },
    )
    .empty("This certificate violates no policy rule.")
}

fn versions(session: &Session, known: &Known) -> Table {
    let current = json::text(&known.certificate, "/current/fingerprint");
    Table::of(
        "Versions of this certificate, newest first",
        &["Issued", "State", "Expires", "Serial number", "Fingerprint", "Issuer", "Key on this server"],
        &known.versions,
        |one| {
            let revoked = json::text(one, "/revoked_at");
            let state = match (revoked.is_empty(), json::text(one, "/fingerprint") == current) {
                (false, _) => Cell::badge(
                    Tone::Bad,
                    format!("revoked: {}", revocation_reasons::label(json::number(one, "/revoked_reason"))),
                ),
                (true, true) => Cell::badge(Tone::Good, "current"),
                (true, false) => Cell::badge(Tone::Calm, "replaced"),
            };
            vec![
                Cell::time(json::text(one, "/issued_at"), session.now),
                state,
                Cell::time(json::text(one, "/not_after"), session.now),
                Cell::code(json::text(one, "/serial")),
                Cell::code(short(json::text(one, "/fingerprint"))),
                Cell::text(json::text(one, "/issuer")),
                Cell::text(if json::flag(one, "/key_here") { "yes" } else { "no" }),
            ]
        },
    )
    .empty("No version was issued yet. The jobs below show the reason.")
}

/// Downloads the chain. Private keys never pass through a browser.
pub(super) async fn chain_file(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let answer = session.api.send(Method::GET, &format!("{}/chain", api_path(&id)), None, None).await?;
    let headers = [
        (CONTENT_TYPE, "application/pem-certificate-chain"),
        (CONTENT_DISPOSITION, "attachment; filename=\"chain.pem\""),
    ];
    Ok((headers, answer.into_body()).into_response())
}
