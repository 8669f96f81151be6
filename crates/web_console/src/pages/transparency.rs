//! Certificate Transparency: watched domains, certificates issued for them, and the logs.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/transparency";
const LOGS: &str = "/console/transparency/logs";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/transparency/issuances", get(to_list))
        .route("/console/transparency/logs", get(to_list))
        .route("/console/transparency/issuances/{id}", get(issuance))
        .route("/console/transparency/issuances/{id}/expect", post(expect))
        .route("/console/transparency/issuances/{id}/acknowledge", post(acknowledge))
        .route("/console/transparency/logs/{id}/reset", get(confirm_reset_log).post(reset_log))
        .route("/console/transparency/domains", get(to_list).post(watch))
        .route("/console/transparency/domains/{name}", get(domain).post(change_domain))
        .route("/console/transparency/domains/{name}/pause", post(pause))
        .route("/console/transparency/domains/{name}/resume", post(resume))
        .route("/console/transparency/domains/{name}/run", post(run))
        .route("/console/transparency/domains/{name}/remove", get(confirm_remove).post(remove))
}

/// Redirects from the URL of a list to the page that contains this list.
async fn to_list(_: Session) -> Redirect {
    Redirect::to(PAGE)
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/ct/issuances", query).await?;
    let domains = session.api.get("/api/v1/ct/domains?limit=500").await?;
    let logs = session.api.get_if_allowed("/api/v1/ct/logs").await?.unwrap_or_default();
    let issuances = Table::of(
        "Certificates issued for watched domains",
        &["Names", "Verdict", "Issuer", "Valid from", "Found", "Source"],
        listing.answer(),
        |one| issuance_row(&session, one),
    )
    .empty("No certificate was found. Watch a domain below: certificates that public CAs issue for it appear here.");
    let mut parts = Sections::default()
        .plain(&filter_form(query))?
        .live("issuances", "Issued", "ct.", &listing.paged(issuances).exported("issuances"))?
        .section("domains", "Watched domains", &domains_table(&session, &domains))?;
    if session.may("inventory.manage") {
        let fields = vec![
            Field::line("name", "Domain").hint("A registered domain: example.net. Search services learn its name.").required(),
            Field::line("issuers", "Allowed issuers").hint("Words that the issuer's name must contain, separated by commas. Empty: the issuers of known certificates."),
        ];
        let form = Form::post(format!("{PAGE}/domains"), session.csrf(), "Watch the domain", fields);
        parts = parts.section("watch", "Watch a domain", &form)?;
    }
    parts = parts.live("logs", "Logs", "ct.", &logs_table(&session, &logs))?;
    Page::new(&session, "Transparency")
        .command("bulla ct issuances")
        .command("bulla ct list")
        .command("bulla ct logs")
        .reads(listing.path())
        .reads("/api/v1/ct/domains")
        .reads("/api/v1/ct/logs")
        .show(&parts)
}

fn filter_form(query: Option<&str>) -> Form {
    let of = |name| parameter::<String>(query, name);
    let verdicts = [
        ("", "any"),
        ("unexpected", "unexpected"),
        ("pending", "pending"),
        ("expected", "expected"),
        ("acknowledged", "acknowledged"),
    ];
    Form::filters(
        PAGE,
        vec![
            Field::line("domain", "Domain").value(of("domain")),
            Field::choice("verdict", "Verdict", verdicts).value(of("verdict")),
        ],
    )
}

fn verdict(one: &Value) -> Cell {
    match json::text(one, "/verdict") {
        "unexpected" => Cell::badge(Tone::Bad, "unexpected"),
        "expected" => Cell::badge(Tone::Good, "expected"),
        other => Cell::state(other),
    }
}

fn issuance_row(session: &Session, one: &Value) -> Vec<Cell> {
    vec![
        Cell::link(format!("{PAGE}/issuances/{}", json::text(one, "/id")), names(one)),
        verdict(one),
        Cell::text(json::text(one, "/issuer")),
        Cell::time(json::text(one, "/not_before"), session.now),
        Cell::time(json::text(one, "/found_at"), session.now),
        Cell::text(json::text(one, "/source")),
    ]
}

/// Returns the first names, or a placeholder, because a link needs a text.
fn names(one: &Value) -> String {
    let names = json::list(one, "/names");
    let first: Vec<&str> = names.iter().take(3).filter_map(Value::as_str).collect();
    match names.len() {
        0 => "no names".to_owned(),
        count if count > first.len() => format!("{} and {} more", first.join(", "), count - first.len()),
        _ => first.join(", "),
    }
}

fn domains_table(session: &Session, domains: &Value) -> Table {
    Table::of(
        "Watched domains",
        &["Domain", "State", "Services", "Allowed issuers", "Since"],
        domains,
        |one| {
            let name = json::text(one, "/name");
            let services = json::joined(one, "/services");
            vec![
                Cell::link(format!("{PAGE}/domains/{}", api::path::segment(name)), name),
                enabled(one),
                Cell::text(if services.is_empty() { "all".to_owned() } else { services }),
                Cell::text(json::joined(one, "/issuers")),
                Cell::time(json::text(one, "/created_at"), session.now),
            ]
        },
    )
    .empty("No domain is watched. Add one below.")
    .exported("domains")
}

fn enabled(one: &Value) -> Cell {
    if json::flag(one, "/enabled") {
        Cell::badge(Tone::Good, "watched")
    } else {
        Cell::badge(Tone::Warn, "paused")
    }
}

fn logs_table(session: &Session, logs: &Value) -> Table {
    Table::of("Logs", &["Log", "State", "Entries", "Entries behind", "Last read", "Error"], logs, |log| {
        let state = match json::text(log, "/state") {
            state @ ("inconsistent" | "failing") => Cell::badge(Tone::Bad, state),
            "followed" => Cell::badge(Tone::Good, "followed"),
            other => Cell::state(other),
        };
        let error = [json::text(log, "/alarm"), json::text(log, "/last_error")];
        let name = json::text(log, "/name");
        vec![
            match session.may("inventory.manage") {
                true => Cell::link(format!("{}/reset", item(LOGS, json::text(log, "/id"))), name),
                false => Cell::text(name),
            },
            state,
            log.get("tree_size").and_then(Value::as_i64).map_or(Cell::Empty, Cell::number),
            Cell::number(json::number(log, "/behind")),
            Cell::time(json::text(log, "/stepped_at"), session.now),
            Cell::text(error.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")),
        ]
    })
    .empty("No log is followed. Name a log list in the configuration (ct) to read the logs themselves.")
    .exported("logs")
}

async fn issuance(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/ct/issuances", &id);
    let one = session.api.get(&path).await?;
    let facts = Facts::default()
        .with("Verdict", verdict(&one))
        .with("Reason", Cell::text(reason_text(one.get("reason").unwrap_or(&Value::Null))))
        .with("Names", Cell::text(json::joined(&one, "/names")))
        .with("Issuer", Cell::text(json::text(&one, "/issuer")))
        .with("Serial number", Cell::code(json::text(&one, "/serial")))
        .with("Valid from", Cell::time(json::text(&one, "/not_before"), session.now))
        .with("Expires", Cell::time(json::text(&one, "/not_after"), session.now))
        .with("Found by", Cell::text(json::text(&one, "/source")))
        .with("Logged", Cell::time(json::text(&one, "/logged_at"), session.now))
        .with("Found", Cell::time(json::text(&one, "/found_at"), session.now))
        .with("Watched domains", Cell::text(json::joined(&one, "/domains")))
        .with("SHA-256 fingerprint", Cell::code(json::text(&one, "/sha256")))
        .with("SHA-256 of the public key", Cell::code(json::text(&one, "/spki_sha256")));
    let mut parts = Sections::default().live("facts", "Certificate", "ct.", &facts)?;
    if session.may("inventory.manage") && !matches!(json::text(&one, "/verdict"), "expected") {
        let reason_form = |what: &str, button, hint| {
            let reason = Field::line("reason", "Reason").hint(hint).required();
            Form::post(
                format!("{PAGE}/issuances/{}/{what}", json::text(&one, "/id")),
                session.csrf(),
                button,
                vec![reason],
            )
        };
        parts = parts
            .section(
                "expect",
                "Expected",
                &reason_form(
                    "expect",
                    "Mark as expected",
                    "The certificate and its renewals are expected from now on. Its alert is resolved.",
                ),
            )?
            .section(
                "acknowledge",
                "Unexpected, and handled",
                &reason_form(
                    "acknowledge",
                    "Dismiss",
                    "The certificate was revoked or reported. Its alert is resolved; a renewal raises another.",
                ),
            )?;
    }
    Page::new(&session, names(&one)).command(format!("bulla ct issuance {id}")).reads(path).show(&parts)
}

/// Formats the reason of a verdict: `{"known": "managed"}` as `known: managed`.
fn reason_text(reason: &Value) -> String {
    match reason {
        Value::String(text) => text.replace('_', " "),
        Value::Object(members) => {
            let parts = members
                .iter()
                .map(|(name, value)| format!("{}: {}", name.replace('_', " "), reason_text(value)));
            parts.collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) => values.iter().map(reason_text).collect::<Vec<_>>().join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

async fn expect(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    judge(&session, &id, "expect", "saved", &form).await
}

async fn acknowledge(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    judge(&session, &id, "acknowledge", "acknowledged", &form).await
}

async fn judge(
    session: &Session,
    id: &str,
    what: &str,
    done: &str,
    form: &FormData,
) -> Result<Response, Failure> {
    let id = api::path::segment(id);
    let body = json!({ "reason": form.text("reason") });
    let path = format!("/api/v1/ct/issuances/{id}/{what}");
    let answer = session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    Ok(redirect(&format!("{PAGE}/issuances/{id}"), done, &answer))
}

async fn watch(session: Session, form: FormData) -> Result<Response, Failure> {
    let issuers = form.text("issuers").split(',').map(str::trim);
    let issuers: Vec<&str> = issuers.filter(|word| !word.is_empty()).collect();
    let body = json!({ "name": form.text("name"), "issuers": issuers, "enabled": true });
    let answer = session.api.change(Method::POST, "/api/v1/ct/domains", form.csrf(), Some(&body)).await?;
    Ok(redirect(PAGE, "created", &answer))
}

fn at(name: &str) -> String {
    item("/api/v1/ct/domains", name)
}

fn page(name: &str) -> String {
    format!("{PAGE}/domains/{}", api::path::segment(name))
}

async fn domain(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let path = at(&name);
    let (one, revision) = session.api.get_with_revision(&path).await?;
    let page = page(&name);
    let mut actions = Actions::default();
    actions = if json::flag(&one, "/enabled") {
        actions.button(format!("{page}/run"), session.csrf(), "Query the search services now").button(
            format!("{page}/pause"),
            session.csrf(),
            "Pause",
        )
    } else {
        actions.button(format!("{page}/resume"), session.csrf(), "Resume")
    };
    let actions =
        actions.danger(format!("{page}/remove"), "Stop watching").only_if(session.may("inventory.manage"));
    let facts = Facts::default()
        .with("State", enabled(&one))
        .with("Services", Cell::text(json::joined(&one, "/services")))
        .with("Allowed issuers", Cell::text(json::joined(&one, "/issuers")))
        .with("Watched since", Cell::time(json::text(&one, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(&one, "/updated_at"), session.now));
    let searches = json!({ "items": one.get("searches").cloned().unwrap_or_default() });
    let searches = Table::of(
        "Search services",
        &["Service", "State", "Answering", "Next", "Failures", "Error"],
        &searches,
        |one| {
            let state = match json::text(one, "/state") {
                "failing" => Cell::badge(Tone::Bad, "failing"),
                other => Cell::state(other),
            };
            vec![
                Cell::text(json::text(one, "/service")),
                state,
                Cell::time(json::text(one, "/answered_at"), session.now),
                Cell::time(json::text(one, "/next_at"), session.now),
                Cell::number(json::number(one, "/failures")),
                Cell::text(json::text(one, "/last_error")),
            ]
        },
    )
    .empty("No search service is queried for this domain.");
    let found = format!("{PAGE}?domain={}", api::path::segment(&name));
    let mut parts = Sections::default()
        .plain(&actions)?
        .plain(&facts)?
        .live("searches", "Search services", "ct.", &searches)?
        .plain(&Actions::default().link(found, "Certificates issued for it"))?;
    if session.may("inventory.manage") {
        let form = Form::post(&page, session.csrf(), "Save", domain_fields(&one, revision));
        parts = parts.section("change", "Change the settings", &form)?;
    }
    Page::new(&session, name.as_str()).command(format!("bulla ct show {name}")).reads(path).show(&parts)
}

fn domain_fields(domain: &Value, revision: Option<i64>) -> Vec<Field> {
    vec![
        Field::hidden("revision", revision.map(|revision| revision.to_string()).unwrap_or_default()),
        Field::line("issuers", "Allowed issuers")
            .value(json::joined(domain, "/issuers"))
            .hint("Words that the issuer's name must contain, separated by commas. Empty: the issuers of known certificates."),
        Field::checkbox("trust_issuers", "Expect every certificate of these issuers, for any name below the domain")
            .checked(json::flag(domain, "/trust_issuers")),
        Field::line("services", "Services")
            .value(json::joined(domain, "/services"))
            .hint("Names of search services, and logs, separated by commas. Empty: all."),
        Field::checkbox("enabled", "Watch the domain").checked(json::flag(domain, "/enabled")),
    ]
}

async fn confirm_reset_log(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let action = format!("{}/reset", item(LOGS, &id));
    let logs = session.api.get("/api/v1/ct/logs").await?;
    let log = json::items(&logs).iter().find(|log| json::text(log, "/id") == id).unwrap_or(&Value::Null);
    let facts = Facts::default()
        .with("Log", Cell::text(json::text(log, "/name")))
        .with("Identifier", Cell::code(&id))
        .with("State", Cell::state(json::text(log, "/state")))
        .with("Alarm", Cell::text(json::text(log, "/alarm")))
        .with("Last error", Cell::text(json::text(log, "/last_error")));
    let body = Confirmation::new(&session, action, PAGE, "Reset the position")
        .danger()
        .facts(facts)
        .says("Reading continues at the current end of the log. Entries between the last position and that end are never read: a certificate among them is not found in this log.")
        .says("The last tree head is forgotten too, so that the log can no longer be proved inconsistent with it. Reset an inconsistent log only after its operator explained the alarm.");
    Page::new(&session, "Reset the position in a log?")
        .command(format!("bulla ct forget-log {id}"))
        .reads("/api/v1/ct/logs")
        .show(&body)
}

async fn reset_log(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item("/api/v1/ct/logs", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "saved", &answer))
}

/// Returns the texts of a field that are separated by commas. A text may contain spaces.
fn texts(form: &FormData, name: &str) -> Vec<String> {
    let texts = form.text(name).split(',').map(str::trim).filter(|text| !text.is_empty());
    texts.map(str::to_owned).collect()
}

async fn change_domain(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let body = json!({
        "issuers": texts(&form, "issuers"),
        "services": texts(&form, "services"),
        "trust_issuers": form.is_checked("trust_issuers"),
        "enabled": form.is_checked("enabled"),
    });
    let revision = form.text("revision").parse::<i64>().ok();
    let answer =
        session.api.change_with_revision(Method::PUT, &at(&name), form.csrf(), revision, Some(&body)).await?;
    Ok(redirect(&page(&name), "saved", &answer))
}

async fn pause(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &name, "pause", &form).await
}

async fn resume(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &name, "resume", &form).await
}

async fn run(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &name, "run", &form).await
}

async fn perform(session: &Session, name: &str, what: &str, form: &FormData) -> Result<Response, Failure> {
    let path = format!("{}/{what}", at(name));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&page(name), "saved", &answer))
}

async fn confirm_remove(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let body = Confirmation::new(&session, format!("{}/remove", page(&name)), page(&name), "Stop watching")
        .danger()
        .says("New certificates for this domain are no longer found, and raise no alert. Recorded issuances stay.");
    Page::new(&session, format!("Stop watching {name}?"))
        .command(format!("bulla ct remove {name}"))
        .show(&body)
}

async fn remove(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &at(&name), form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ct_reasons_and_names_are_formatted_as_text() {
        assert_eq!(reason_text(&json!("allowed_issuer")), "allowed issuer");
        assert_eq!(reason_text(&json!({"known": "managed"})), "known: managed");
        assert_eq!(names(&json!({"names": ["a", "b", "c", "d"]})), "a, b, c and 1 more");
        assert_eq!(names(&json!({})), "no names");
    }
}
