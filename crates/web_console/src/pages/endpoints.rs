//! Endpoints that scans have found: the list, one endpoint, and claiming its certificate into management.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::name_options;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::sections::{Note, Sections};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/endpoints";

/// Maximum endpoints in one claim: the rows of a page.
const CLAIMS_MAX: usize = 50;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/inventory", get(redirect_to_list))
        .route("/console/endpoints/one", get(one))
        .route("/console/endpoints/claim", get(claim_form).post(claim))
        .route("/console/endpoints/dismiss", post(dismiss))
        .route("/console/endpoints/undismiss", post(undismiss))
}

/// Redirects the API path of the endpoint list to the page of the list. Search results link to the API path.
async fn redirect_to_list(RawQuery(query): RawQuery) -> Redirect {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Redirect::to(&format!("{PAGE}{query}"))
}

#[derive(Template)]
#[template(path = "endpoints.html")]
struct Endpoints {
    filters: Form,
    may_claim: bool,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/inventory", query).await?;
    let may_claim = session.may("certificate.manage");
    let columns: &[&str] = if may_claim {
        &["Choose", "Endpoint", "Worst finding", "Last scan", "Certificate", "Expires", "State", "Owner"]
    } else {
        &["Endpoint", "Worst finding", "Last scan", "Certificate", "Expires", "State", "Owner"]
    };
    let table = Table::of("Endpoints", columns, listing.answer(), |found| {
        let tick = may_claim.then(|| choice(found));
        tick.into_iter().chain(row(&session, found)).collect()
    })
    .empty("No endpoint matches. Remove a filter, or add a watch: the server scans its targets.");
    let body = Endpoints {
        filters: filter_form(query),
        may_claim,
        table: listing.paged(table).exported("endpoints"),
    };
    Page::new(&session, "Endpoints").command("bulla inventory list").reads(listing.path()).show(&body)
}

fn filter_form(query: Option<&str>) -> Form {
    let of = |name| parameter::<String>(query, name);
    Form::filters(
        PAGE,
        vec![
            Field::search("host", "Host contains").value(of("host")),
            Field::search("issuer", "Issuer contains").value(of("issuer")),
            Field::choice(
                "answering",
                "Answering",
                [("", "any"), ("true", "with a certificate"), ("false", "without a certificate")],
            )
            .value(of("answering")),
            Field::line("team", "Team").value(of("team")),
            Field::line("owner", "Owner").value(of("owner")),
            Field::choice("nobody", "Ownership", [("", "any"), ("true", "without team and owner")])
                .value(of("nobody")),
            Field::choice("sort", "Sort by", [("", "expiry, soonest first"), ("host", "host")])
                .value(of("sort")),
        ],
    )
}

/// Returns a checkbox for an endpoint whose certificate can be claimed; otherwise an empty cell.
fn choice(found: &Value) -> Cell {
    let claimable =
        found.get("leaf").is_some_and(|leaf| !leaf.is_null()) && json::text(found, "/state") != "managed";
    if !claimable {
        return Cell::Empty;
    }
    let endpoint = found.get("endpoint").unwrap_or(&Value::Null);
    Cell::tick("endpoint", address(endpoint), format!("Choose {}", title(endpoint)))
}

fn row(session: &Session, found: &Value) -> Vec<Cell> {
    let endpoint = found.get("endpoint").unwrap_or(&Value::Null);
    vec![
        link(endpoint),
        severity(found),
        outcome(found),
        Cell::text(json::text(found, "/leaf/subject")),
        Cell::time(json::text(found, "/leaf/not_after"), session.now),
        state(found),
        owner(found),
    ]
}

/// Returns team and owner, by the ownership rules.
fn owner(found: &Value) -> Cell {
    let both = [json::text(found, "/owner"), json::text(found, "/team")];
    Cell::text(both.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", "))
}

fn outcome(found: &Value) -> Cell {
    let tone = if json::flag(found, "/answering") { Tone::Good } else { Tone::Warn };
    Cell::badge(tone, json::text(found, "/outcome"))
}

fn severity(found: &Value) -> Cell {
    match found.get("severity").and_then(Value::as_i64) {
        Some(4) => Cell::badge(Tone::Bad, "critical"),
        Some(3) => Cell::badge(Tone::Bad, "high"),
        Some(2) => Cell::badge(Tone::Warn, "medium"),
        Some(1) => Cell::badge(Tone::Calm, "low"),
        Some(0) => Cell::badge(Tone::Calm, "info"),
        _ => Cell::Empty,
    }
}

/// Returns the management state of an endpoint, with a link to the managed certificate if there is one.
fn state(found: &Value) -> Cell {
    match json::text(found, "/certificate") {
        "" => match json::text(found, "/state") {
            "unmanaged" => Cell::badge(Tone::Warn, "unmanaged"),
            other => Cell::state(other),
        },
        id => Cell::link(item("/console/certificates", id), "managed"),
    }
}

/// Returns a link to the page of an endpoint.
pub(super) fn link(endpoint: &Value) -> Cell {
    Cell::link(format!("{PAGE}/one?{}", address(endpoint)), title(endpoint))
}

/// Formats an endpoint as query parameters: its five members.
fn address(endpoint: &Value) -> String {
    let port = json::number(endpoint, "/port").to_string();
    let of = |name: &str| api::path::segment(json::text(endpoint, name)).to_string();
    format!(
        "host={}&port={port}&protocol={}&server_name={}&address={}",
        of("/host"),
        of("/protocol"),
        of("/server_name"),
        of("/address")
    )
}

/// Parses an endpoint from a query, in the format of the API.
fn endpoint_of(address: Option<&str>) -> Value {
    let of = |name| parameter::<String>(address, name);
    json!({
        "host": of("host"),
        "port": of("port").parse::<u16>().unwrap_or_default(),
        "protocol": of("protocol"),
        "server_name": of("server_name"),
        "address": of("address"),
    })
}

/// Formats an endpoint for display: `smtp://mx.example.net:25 (mail.example.net)`.
fn title(endpoint: &Value) -> String {
    let (host, protocol) = (json::text(endpoint, "/host"), json::text(endpoint, "/protocol"));
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut title = match (json::number(endpoint, "/port"), protocol) {
        (0, _) => host,
        (port, "tls" | "") => format!("{host}:{port}"),
        (port, other) => format!("{other}://{host}:{port}"),
    };
    for more in [json::text(endpoint, "/server_name"), json::text(endpoint, "/address")] {
        if !more.is_empty() {
            title = format!("{title} ({more})");
        }
    }
    title
}

/// Returns the row of one endpoint, with the path of the API request.
async fn find(session: &Session, endpoint: &Value) -> Result<(Value, String), Failure> {
    let host = json::text(endpoint, "/host");
    let path = format!("/api/v1/inventory?sort=host&limit=500&host={}", api::path::segment(host));
    let listing = session.api.get(&path).await?;
    let row = json::items(&listing).iter().find(|found| found.get("endpoint") == Some(endpoint));
    let row = row.cloned().ok_or_else(|| {
        Failure::refused(
            StatusCode::NOT_FOUND,
            format!("the inventory has no endpoint {}", title(endpoint)),
            "search for its host in the list of endpoints",
        )
    })?;
    Ok((row, path))
}

async fn one(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let endpoint = endpoint_of(query.as_deref());
    let (found, path) = find(&session, &endpoint).await?;
    let title = title(&endpoint);
    let host = json::text(&endpoint, "/host");
    let mut parts = Sections::default().plain(&actions(&session, &found))?.plain(&facts(&session, &found))?;
    if found.get("leaf").is_some_and(|leaf| !leaf.is_null()) {
        parts = parts.section("leaf", "Certificate that it serves", &leaf(&session, &found))?;
    }
    parts = parts.section(
        "findings",
        "Findings and history",
        &Note::faint(
            "The server keeps the worst finding of each endpoint. The commands below list all findings with advice, the \
             chain, and every scan of this endpoint.",
        ),
    )?;
    if session.may("inventory.manage") && found.get("leaf").is_some_and(|leaf| !leaf.is_null()) {
        parts = parts.section("dismissal", "Dismiss", &dismissal(&session, &found))?;
    }
    Page::new(&session, title.as_str())
        .command(format!("bulla scan {title}"))
        .command(format!("bulla inventory show {host}"))
        .command(format!("bulla inventory history {host}"))
        .reads(path)
        .show(&parts)
}

fn actions(session: &Session, found: &Value) -> Actions {
    let endpoint = found.get("endpoint").unwrap_or(&Value::Null);
    let chosen = api::path::segment(&address(endpoint)).to_string();
    let claimable = matches!(json::text(found, "/state"), "unmanaged" | "ignored" | "dismissed");
    Actions::default()
        .link(format!("{PAGE}/claim?endpoint={chosen}"), "Bring under management")
        .only_if(claimable && session.may("certificate.manage"))
}

fn facts(session: &Session, found: &Value) -> Facts {
    Facts::default()
        .with("Last scan", outcome(found))
        .with("Worst finding", severity(found))
        .with("State", state(found))
        .with("Team", Cell::text(json::text(found, "/team")))
        .with("Owner", Cell::text(json::text(found, "/owner")))
        .with("Environment", Cell::text(json::text(found, "/environment")))
        .with("First seen", Cell::time(json::text(found, "/first_seen_at"), session.now))
        .with("Last seen", Cell::time(json::text(found, "/last_seen_at"), session.now))
        .with("Note", Cell::text(json::text(found, "/note")))
        .with("Ignored until", Cell::time(json::text(found, "/ignored_until"), session.now))
}

fn leaf(session: &Session, found: &Value) -> Facts {
    Facts::default()
        .with("Subject", Cell::text(json::text(found, "/leaf/subject")))
        .with("Issuer", Cell::text(json::text(found, "/leaf/issuer")))
        .with("Valid from", Cell::time(json::text(found, "/leaf/not_before"), session.now))
        .with("Expires", Cell::time(json::text(found, "/leaf/not_after"), session.now))
        .with(
            "Key",
            Cell::text(key(json::text(found, "/leaf/key_algorithm"), json::number(found, "/leaf/key_bits"))),
        )
        .with("Serial number", Cell::code(json::text(found, "/leaf/serial")))
        .with("SHA-256 fingerprint", Cell::code(json::text(found, "/leaf/fingerprint")))
}

/// Formats a key. The names of curves, such as P-256, contain the size.
fn key(algorithm: &str, bits: i64) -> String {
    if algorithm.contains(|letter: char| letter.is_ascii_digit()) {
        return algorithm.to_owned();
    }
    format!("{algorithm}, {bits} bits")
}

/// Returns the form that dismisses a certificate, or cancels the dismissal.
fn dismissal(session: &Session, found: &Value) -> Form {
    let shared = || {
        vec![
            Field::hidden("fingerprint", json::text(found, "/leaf/fingerprint")),
            Field::hidden("at", address(found.get("endpoint").unwrap_or(&Value::Null))),
        ]
    };
    if matches!(json::text(found, "/state"), "ignored" | "dismissed") {
        return Form::post(format!("{PAGE}/undismiss"), session.csrf(), "Undo the dismissal", shared());
    }
    let mut fields = shared();
    fields.push(Field::line("note", "Reason").required());
    fields.push(Field::date("until", "Until").hint(
        "Without a date the dismissal is permanent. It applies to every endpoint that serves this certificate.",
    ));
    Form::post(format!("{PAGE}/dismiss"), session.csrf(), "Dismiss", fields)
}

async fn dismiss(session: Session, form: FormData) -> Result<Response, Failure> {
    let until = form.field("until").map(|day| format!("{day}T00:00:00Z"));
    let mut body = json!({ "fingerprint": form.field("fingerprint"), "note": form.field("note") });
    if let Some(until) = until {
        body["until"] = Value::String(until);
    }
    change_dismissal(&session, &form, "dismiss", &body).await
}

async fn undismiss(session: Session, form: FormData) -> Result<Response, Failure> {
    change_dismissal(&session, &form, "undismiss", &json!({ "fingerprint": form.field("fingerprint") })).await
}

async fn change_dismissal(
    session: &Session,
    form: &FormData,
    what: &str,
    body: &Value,
) -> Result<Response, Failure> {
    let path = format!("/api/v1/inventory/{what}");
    let answer = session.api.change(Method::POST, &path, form.csrf(), Some(body)).await?;
    // Formatted again from the parsed members, so that nothing else gets into the URL.
    let at = address(&endpoint_of(form.field("at")));
    Ok(redirect(&format!("{PAGE}/one?{at}"), "saved", &answer))
}

/// Shows the form for the selected endpoints.
async fn claim_form(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let chosen = chosen(query.as_deref())?;
    let (profiles, issuers, owners, teams) = (
        session.api.get_if_allowed("/api/v1/profiles?limit=500").await?,
        session.api.get_if_allowed("/api/v1/issuers?limit=500").await?,
        session.api.get_if_allowed("/api/v1/owners?limit=500").await?,
        session.api.get_if_allowed("/api/v1/teams?limit=500").await?,
    );
    let mut profile = name_options(profiles.as_ref(), "choose one");
    profile.remove(0);
    let mut fields: Vec<Field> = chosen.iter().map(|one| Field::hidden("endpoint", address(one))).collect();
    fields.extend([
        Field::choice("profile", "Profile of the next version", profile).value("default"),
        Field::choice(
            "issuer",
            "Issuer of the next version",
            name_options(issuers.as_ref(), "the internal CA"),
        )
        .hint("It signs the renewal. The current certificate stays in place until then."),
        Field::choice("owner", "Owner", name_options(owners.as_ref(), "by the ownership rules")),
        Field::choice("team", "Team", name_options(teams.as_ref(), "by the ownership rules")),
        Field::checkbox("auto_renew", "Renew before it expires").checked(true),
    ]);
    let rows = chosen.iter().map(|one| vec![Cell::text(title(one))]);
    let table = Table::new("Chosen endpoints", &["Endpoint"], rows);
    let form = Form::post(format!("{PAGE}/claim"), session.csrf(), "Bring under management", fields);
    let parts = Sections::default().section("chosen", &format!("{} chosen", chosen.len()), &table)?.section(
        "how",
        "Management",
        &form,
    )?;
    Page::new(&session, "Bring under management")
        .command("bulla cert found")
        .command("bulla cert claim FINGERPRINT --profile default")
        .reads("/api/v1/inventory")
        .show(&parts)
}

/// Returns the endpoints of a query, without duplicates.
fn chosen(query: Option<&str>) -> Result<Vec<Value>, Failure> {
    let pairs: Vec<(String, String)> =
        query.and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default();
    let of = pairs.iter().filter(|(name, _)| name == "endpoint").map(|(_, value)| value.as_str());
    bounded(of)
}

fn bounded<'a>(addresses: impl Iterator<Item = &'a str>) -> Result<Vec<Value>, Failure> {
    let chosen: Vec<Value> = addresses.map(|one| endpoint_of(Some(one))).collect();
    if chosen.is_empty() || chosen.len() > CLAIMS_MAX {
        return Err(Failure::refused(
            StatusCode::BAD_REQUEST,
            format!(
                "{} endpoints are selected; 1 to {CLAIMS_MAX} can be claimed in one request",
                chosen.len()
            ),
            "go back and select endpoints",
        ));
    }
    Ok(chosen)
}

/// Claims each of the selected endpoints. The API claims one at a time: some claims may fail while others succeed.
async fn claim(session: Session, form: FormData) -> Result<Response, Failure> {
    let chosen = bounded(form.all("endpoint"))?;
    let mut rows = Vec::new();
    let mut refused = 0_usize;
    for endpoint in &chosen {
        let body = claim_body(&form, endpoint);
        let answer =
            session.api.change(Method::POST, "/api/v1/inventory/claim", form.csrf(), Some(&body)).await;
        let result = match answer {
            Ok(answer) => Cell::link(
                item("/console/certificates", json::text(&answer, "/id")),
                json::text(&answer, "/name"),
            ),
            Err(Failure::Refused(problem)) => {
                refused += 1;
                Cell::text(problem.detail.unwrap_or(problem.title))
            }
            Err(other) => return Err(other),
        };
        rows.push(vec![Cell::text(title(endpoint)), result]);
    }
    if refused == 0 {
        return Ok(redirect("/console/certificates", "claimed", &Value::Null).into_response());
    }
    let table = Table::new("Results by endpoint", &["Endpoint", "Certificate or error"], rows);
    let parts = Sections::default()
        .plain(&Note::hint(format!("{refused} of {} were rejected.", chosen.len())))?
        .section("results", "Results", &table)?
        .plain(&Actions::default().link(PAGE, "Back to the endpoints"))?;
    Page::new(&session, "Bring under management").show(&parts)
}

fn claim_body(form: &FormData, endpoint: &Value) -> Value {
    let mut body = json!({
        "endpoint": endpoint,
        "profile": form.field("profile"),
        "auto_renew": form.is_checked("auto_renew"),
    });
    for name in ["issuer", "owner", "team"] {
        if let Some(value) = form.field(name) {
            body[name] = Value::String(value.to_owned());
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_roundtrip_through_their_page_address() {
        let endpoint = json!({
            "host": "2001:db8::1", "port": 25, "protocol": "smtp", "server_name": "a&b=c", "address": ""
        });
        assert_eq!(endpoint_of(Some(&address(&endpoint))), endpoint);
        assert_eq!(title(&endpoint), "smtp://[2001:db8::1]:25 (a&b=c)");
        let twice = format!("endpoint={0}&x=1&endpoint={0}", api::path::segment(&address(&endpoint)));
        assert_eq!(chosen(Some(&twice)).unwrap(), [endpoint.clone(), endpoint]);
        assert!(chosen(Some("x=1")).is_err());
        assert_eq!((key("P-256", 256).as_str(), key("RSA", 2048).as_str()), ("P-256", "RSA, 2048 bits"));
    }
}
