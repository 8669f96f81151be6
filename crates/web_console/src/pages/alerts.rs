//! Alerts with their notifications, and silences.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::history::{details, plain};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/alerts";
/// Path of the page of notifications.
pub(super) const DELIVERIES: &str = "/console/alert-deliveries";
/// Path of the page of silences.
const SILENCES: &str = "/console/alert-silences";

const STATES: &[&str] = &["open", "acknowledged", "resolved"];

/// Possible durations of a silence: hours, and the text of the option.
const HOURS: &[(&str, &str)] =
    &[("1", "1 hour"), ("4", "4 hours"), ("24", "1 day"), ("168", "7 days"), ("720", "30 days")];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/alerts/{id}", get(one))
        .route("/console/alerts/{id}/acknowledge", post(acknowledge))
        .route("/console/alerts/{id}/resolve", post(resolve))
        .route("/console/alerts/{id}/silence", get(silence_form).post(silence))
        .route(SILENCES, get(silences))
        .route("/console/alert-silences/{id}", get(confirm_end_silence).post(end))
}

#[derive(Template)]
#[template(path = "alerts.html")]
pub(super) struct Alerts {
    pub(super) here: &'static str,
    pub(super) states: &'static [&'static str],
    pub(super) state: String,
    pub(super) create: Option<(&'static str, &'static str)>,
    pub(super) table: Table,
}

impl Alerts {
    /// Returns the links to all lists of alerts. The flag marks the current list.
    fn places(&self) -> [(&'static str, &'static str, bool); 6] {
        let all = [
            (PAGE, "Alerts"),
            (SILENCES, "Silences"),
            ("/console/alert-channels", "Channels"),
            ("/console/alert-rules", "Rules"),
            ("/console/alert-deliveries", "Notifications"),
            ("/console/alert-settings", "Settings"),
        ];
        all.map(|(href, words)| (href, words, href == self.here))
    }
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/alerts", query).await?;
    let table = listing
        .table("Alerts, latest first", &["Alert", "Severity", "State", "Last", "Count", "Kind"], |alert| {
            vec![
                Cell::link(item(PAGE, json::text(alert, "/id")), json::text(alert, "/title")),
                Cell::state(json::text(alert, "/severity")),
                state(alert),
                Cell::time(json::text(alert, "/last_at"), session.now),
                Cell::number(json::number(alert, "/count")),
                Cell::text(json::text(alert, "/kind")),
            ]
        })
        .empty("No alert is in this state. Rules and channels define the recipients of the next one.")
        .exported("alerts");
    let state = Some(parameter::<String>(query, "state")).filter(|state| !state.is_empty());
    let body = Alerts {
        here: PAGE,
        states: STATES,
        state: state.unwrap_or_else(|| "open".to_owned()),
        create: None,
        table,
    };
    Page::new(&session, "Alerts").command("bulla alert list").reads(listing.path()).show(&body)
}

fn state(alert: &Value) -> Cell {
    if json::text(alert, "/silenced_by").is_empty() {
        return Cell::state(json::text(alert, "/state"));
    }
    Cell::badge(Tone::Calm, format!("{}, silenced", json::text(alert, "/state")))
}

#[derive(Template)]
#[template(path = "alert.html")]
struct One {
    page: String,
    csrf: String,
    open: bool,
    acknowledged: bool,
    facts: Facts,
    deliveries: Table,
}

fn api_path(id: &str) -> String {
    item("/api/v1/alerts", id)
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = api_path(&id);
    let alert = session.api.get(&path).await?;
    let channels = session.api.get_if_allowed("/api/v1/alert-channels").await?.unwrap_or_default();
    let state = json::text(&alert, "/state");
    let may = session.may("alert.manage");
    let notifications = json!({"items": alert.pointer("/deliveries").cloned().unwrap_or_default()});
    let body = One {
        page: item(PAGE, &id),
        csrf: session.csrf().to_owned(),
        open: may && state != "resolved",
        acknowledged: may && state == "open",
        facts: facts(&session, &alert),
        deliveries: deliveries(&session, &notifications, &channels)
            .empty("No notification was sent: no rule matched, or a silence matched. Create a rule with `bulla alert rule create`."),
    };
    Page::new(&session, json::text(&alert, "/title"))
        .command(format!("bulla alert show {id}"))
        .reads(path)
        .show(&body)
}

fn facts(session: &Session, alert: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(alert, pointer));
    let time = |pointer| Cell::time(json::text(alert, pointer), session.now);
    let silenced = match json::text(alert, "/silenced_by") {
        "" => Cell::Empty,
        id => Cell::link(item(SILENCES, id), "a silence"),
    };
    Facts::default()
        .with("State", Cell::state(json::text(alert, "/state")))
        .with("Severity", Cell::state(json::text(alert, "/severity")))
        .with("Kind", text("/kind"))
        .with("Subject", subject(json::text(alert, "/subject")))
        .with("Silenced by", silenced)
        .with("First", time("/first_at"))
        .with("Last", time("/last_at"))
        .with("Count", Cell::number(json::number(alert, "/count")))
        .with("Acknowledged by", text("/acknowledged_by"))
        .with("Acknowledged", time("/acknowledged_at"))
        .with("Resolved", time("/resolved_at"))
        .with("Details", Cell::text(details(alert.pointer("/attributes").unwrap_or(&Value::Null))))
}

/// Returns a link to the subject of an alert, if it has a page.
fn subject(subject: &str) -> Cell {
    match subject.split_once('/') {
        Some(("certificate", id)) => Cell::link(item("/console/certificates", id), "the certificate"),
        Some(("agent", id)) => Cell::link(item("/console/agents", id), "the agent"),
        Some(("found", fingerprint)) => Cell::link(
            format!("/console/search?q={}", api::path::segment(fingerprint)),
            "a certificate that a scan found",
        ),
        Some(("endpoint", endpoint)) => {
            let host = api::path::segment(host_of(endpoint)).to_string();
            Cell::link(format!("/console/endpoints?host={host}"), endpoint)
        }
        _ => Cell::text(subject),
    }
}

/// Returns the host of an endpoint as alerts write it: `smtp://mx.example.net:25`, `[2001:db8::1]:443 at 2001:db8::1`.
fn host_of(endpoint: &str) -> &str {
    let authority = endpoint.split(' ').next().unwrap_or_default();
    let authority = authority.split_once("://").map_or(authority, |(_, authority)| authority);
    match authority.strip_prefix('[').and_then(|authority| authority.split_once(']')) {
        Some((host, _)) => host,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Returns notifications as a table.
pub(super) fn deliveries(session: &Session, listing: &Value, channels: &Value) -> Table {
    let name_of = |id: &str| {
        let found = json::items(channels).iter().find(|one| json::text(one, "/id") == id);
        found.map_or(id, |one| json::text(one, "/name")).to_owned()
    };
    Table::of(
        "Notifications",
        &["Channel", "State", "Reason", "Created", "Done", "Attempts", "Last error", "Action"],
        listing,
        |one| {
            let state = match json::text(one, "/state") {
                "sent" => Cell::badge(Tone::Good, "sent"),
                "dead" => Cell::badge(Tone::Bad, "failed"),
                other => Cell::state(other),
            };
            let resend = match json::text(one, "/state") {
                "dead" if session.may("alert.manage") => {
                    Cell::link(format!("{}/requeue", item(DELIVERIES, json::text(one, "/id"))), "Send again")
                }
                _ => Cell::Empty,
            };
            let channel = json::text(one, "/channel");
            vec![
                Cell::link(item("/console/alert-channels", channel), name_of(channel)),
                state,
                Cell::text(json::text(one, "/reason")),
                Cell::time(json::text(one, "/created_at"), session.now),
                Cell::time(json::text(one, "/done_at"), session.now),
                Cell::number(json::number(one, "/attempts")),
                Cell::text(json::text(one, "/last_error")),
                resend,
            ]
        },
    )
}

async fn acknowledge(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/acknowledge", api_path(&id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&item(PAGE, &id), "acknowledged", &answer))
}

async fn resolve(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/resolve", api_path(&id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&item(PAGE, &id), "saved", &answer))
}

async fn silence_form(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = api_path(&id);
    let alert = session.api.get(&path).await?;
    let (kind, about) = (json::text(&alert, "/kind"), json::text(&alert, "/subject"));
    let page = item(PAGE, &id);
    let which = [
        ("this", format!("{kind} for this object only")),
        ("subject", "every alert for this object".to_owned()),
        ("kind", format!("{kind} for any object")),
    ];
    let which = which.map(|(name, words)| (name.to_owned(), words));
    let hours = HOURS.iter().map(|(hours, words)| ((*hours).to_owned(), (*words).to_owned()));
    let body = Confirmation::new(&session, format!("{page}/silence"), page, "Silence")
        .says("Alerts that match are still raised and listed. No notification is sent for them, even after the silence expires.")
        .says("Notifications that were sent before stay sent.")
        .hidden("kind", kind)
        .hidden("subject", about)
        .field(Field::choice("which", "Alerts", which))
        .field(Field::choice("hours", "For how long", hours).value("24"))
        .field(Field::line("reason", "Reason").required().hint("Shown in the list of silences."));
    Page::new(&session, format!("Silence: {}", json::text(&alert, "/title")))
        .command("bulla alert silence create --file silence.json")
        .reads(path)
        .show(&body)
}

async fn silence(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = silence_of(&form, session.now).ok_or_else(|| {
        Failure::refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a silence needs alerts, hours and a reason",
            "go back and fill in the form",
        )
    })?;
    let answer = session.api.change(Method::POST, "/api/v1/alert-silences", form.csrf(), Some(&body)).await?;
    Ok(redirect(&item(PAGE, &id), "silenced", &answer))
}

fn silence_of(form: &FormData, now: Timestamp) -> Option<Value> {
    let hours: i64 = form.field("hours")?.parse().ok().filter(|hours| (1..=8_760).contains(hours))?;
    let until = now.checked_add(hours.hours()).ok()?;
    let (kind, subject) = (form.field("kind")?, form.field("subject")?);
    let when = match form.field("which")? {
        "this" => json!({"kinds": [kind], "subjects": [subject]}),
        "subject" => json!({"subjects": [subject]}),
        "kind" => json!({"kinds": [kind]}),
        _ => return None,
    };
    let until = until.strftime("%FT%TZ").to_string();
    Some(json!({"when": when, "until": until, "reason": form.field("reason")?}))
}

/// Formats the conditions of a rule.
fn conditions(when: &Value) -> String {
    let members = when.as_object().into_iter().flatten();
    let words = members
        .map(|(name, value)| (name, plain(value)))
        .filter(|(_, value)| !value.is_empty() && value != "{}")
        .map(|(name, value)| format!("{}: {value}", name.replace('_', " ")));
    let words = words.collect::<Vec<_>>().join("; ");
    if words.is_empty() { "every alert".to_owned() } else { words }
}

/// Formats the conditions of a rule or a silence.
pub(super) fn when(one: &Value) -> String {
    conditions(one.pointer("/rule/when").unwrap_or(&Value::Null))
}

/// Formats a time of a silence, which is in microseconds.
fn silence_time(one: &Value, pointer: &str, now: Timestamp) -> Cell {
    let text = json::text(one, pointer);
    if !text.is_empty() {
        return Cell::time(text, now);
    }
    let micros = one.pointer(&format!("{pointer}_us")).and_then(Value::as_i64).filter(|micros| *micros > 0);
    let time = micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    time.map_or(Cell::Empty, |time| Cell::time(&time.to_string(), now))
}

async fn silences(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/alert-silences";
    let listing = session.api.get(path).await?;
    let table =
        Table::of("Silences", &["Alerts", "Until", "Reason", "Created by", "Created"], &listing, |one| {
            vec![
                Cell::link(item(SILENCES, json::text(one, "/id")), when(one)),
                silence_time(one, "/rule/until", session.now),
                Cell::text(json::text(one, "/rule/reason")),
                Cell::text(json::text(one, "/updated_by")),
                Cell::time(json::text(one, "/updated_at"), session.now),
            ]
        })
        .empty("No silence. Create one on the page of an alert.")
        .exported("silences");
    let body = Alerts { here: SILENCES, states: &[], state: String::new(), create: None, table };
    Page::new(&session, "Silences").command("bulla alert silence list").reads(path).show(&body)
}

async fn confirm_end_silence(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = "/api/v1/alert-silences";
    let listing = session.api.get(path).await?;
    let found = json::items(&listing).iter().find(|one| json::text(one, "/id") == id).ok_or_else(|| {
        Failure::refused(StatusCode::NOT_FOUND, format!("unknown silence {id}"), "it expired or was deleted")
    })?;
    let facts = Facts::default()
        .with("Alerts", Cell::text(when(found)))
        .with("Until", silence_time(found, "/rule/until", session.now))
        .with("Reason", Cell::text(json::text(found, "/rule/reason")))
        .with("Created by", Cell::text(json::text(found, "/updated_by")));
    let action = item(SILENCES, &id);
    let body = Confirmation::new(&session, action, SILENCES, "Delete the silence")
        .facts(facts)
        .says("Matching alerts send notifications again from now on. Alerts raised meanwhile send none: check the open alerts.");
    Page::new(&session, "Silence").command(format!("bulla alert silence delete {id}")).reads(path).show(&body)
}

async fn end(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item("/api/v1/alert-silences", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(SILENCES, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_an_alert_subject_is_its_host_without_protocol_and_port() {
        for (subject, host) in [
            ("127.0.0.1:33705", "127.0.0.1"),
            ("smtp://mx.example.net:25", "mx.example.net"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("shop.example:443 at 192.0.2.1", "shop.example"),
            ("shop.example", "shop.example"),
        ] {
            assert_eq!(host_of(subject), host);
        }
        let link = format!("{:?}", subject("endpoint/127.0.0.1:33705"));
        assert!(link.contains("/console/endpoints?host=127.0.0.1\""), "{link}");
    }

    #[test]
    fn alert_conditions_are_formatted_as_text() {
        let when = json!({"kinds": ["certificate"], "subjects": [], "tags": {}, "min_severity": "warning"});
        assert_eq!(conditions(&when), "kinds: certificate; min severity: warning");
        assert_eq!(conditions(&Value::Null), "every alert");
    }
}
