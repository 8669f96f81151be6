//! Notification rules and channels, notifications, and alert settings.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::alerts::{Alerts, DELIVERIES, deliveries, when};
use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const CHANNELS: &str = "/console/alert-channels";
const RULES: &str = "/console/alert-rules";
const SETTINGS: &str = "/console/alert-settings";

const MESSAGE_STATES: &[&str] = &["waiting", "sent", "dead", "held"];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(CHANNELS, get(channels))
        .route("/console/alert-channels/{id}", get(channel))
        .route("/console/alert-channels/{id}/test", post(test_channel))
        .route(RULES, get(rules))
        .route("/console/alert-rules/{id}", get(rule))
        .route(SETTINGS, get(settings).post(save_settings))
        .route(DELIVERIES, get(messages))
        .route("/console/alert-deliveries/{id}/requeue", get(confirm_requeue).post(requeue))
}

fn list_page(here: &'static str, create: Option<(&'static str, &'static str)>, table: Table) -> Alerts {
    Alerts { here, states: &[], state: String::new(), create, table }
}

async fn channels(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/alert-channels";
    let listing = session.api.get(path).await?;
    let columns = &["Name", "Kind", "State", "Last success", "Last error"];
    let table = Table::of("Channels", columns, &listing, |one| {
        vec![
            Cell::link(item(CHANNELS, json::text(one, "/id")), json::text(one, "/name")),
            Cell::text(json::text(one, "/kind")),
            channel_state(one),
            Cell::time(json::text(one, "/last_success_at"), session.now),
            Cell::text(json::text(one, "/last_error")),
        ]
    })
    .empty("There is no channel, so no notification is sent. Create one, and a rule that names it.")
    .exported("channels");
    let create = Some(("/console/alert-channels/new", "New channel")).filter(|_| session.may("alert.manage"));
    Page::new(&session, "Alert channels")
        .command("bulla alert channel list")
        .reads(path)
        .show(&list_page(CHANNELS, create, table))
}

fn channel_state(channel: &Value) -> Cell {
    match (json::flag(channel, "/enabled"), json::text(channel, "/last_error")) {
        (false, _) => Cell::badge(Tone::Calm, "off"),
        (true, "") => Cell::badge(Tone::Good, "on"),
        (true, _) => Cell::badge(Tone::Bad, "on, failing"),
    }
}

async fn channel(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/alert-channels", &id);
    let one = session.api.get(&path).await?;
    let rules = session.api.get_if_allowed("/api/v1/alert-rules").await?.unwrap_or_default();
    let (page, name) = (item(CHANNELS, &id), json::text(&one, "/name"));
    let actions = Actions::default()
        .button(format!("{page}/test"), session.csrf(), "Send a test notification")
        .link(format!("{page}/edit"), "Edit")
        .danger(format!("{page}/delete"), "Delete")
        .only_if(session.may("alert.manage"));
    let facts = Facts::default()
        .with("State", channel_state(&one))
        .with("Kind", Cell::text(json::text(&one, "/kind")))
        .with("Last success", Cell::time(json::text(&one, "/last_success_at"), session.now))
        .with("Last error", Cell::text(json::text(&one, "/last_error")))
        .with("Time", Cell::time(json::text(&one, "/last_error_at"), session.now));
    let config = one.get("config").and_then(Value::as_object).into_iter().flatten();
    let config = config.map(|(name, value)| {
        vec![Cell::text(name.replace('_', " ")), Cell::code(crate::history::plain(value))]
    });
    let config = Table::new("Settings without secrets", &["Member", "Value"], config)
        .empty("The settings cannot be decrypted. Give them again.");
    let names_it = |rule: &&Value| {
        ["/rule/channels", "/rule/escalate/channels"]
            .iter()
            .any(|at| json::list(rule, at).iter().any(|channel| channel.as_str() == Some(name)))
    };
    let used =
        json::items(&rules).iter().filter(names_it).map(|rule| vec![rule_link(rule), Cell::text(when(rule))]);
    let used = Table::new("Rules that notify it", &["Rule", "Alerts"], used)
        .empty("No rule names this channel, so it gets no notification.");
    let parts = Sections::default()
        .plain(&actions)?
        .plain(&facts)?
        .section("config", "Settings", &config)?
        .section("rules", "Rules", &used)?;
    Page::new(&session, format!("Channel {name}"))
        .command(format!("bulla alert channel show {name}"))
        .reads(path)
        .show(&parts)
}

fn rule_link(rule: &Value) -> Cell {
    Cell::link(item(RULES, json::text(rule, "/id")), json::text(rule, "/name"))
}

async fn test_channel(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/test", item("/api/v1/alert-channels", &id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&item(CHANNELS, &id), "tested", &answer))
}

async fn rules(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/alert-rules";
    let listing = session.api.get(path).await?;
    let columns = &["Name", "Alerts", "Channels", "Escalation", "Sent", "Changed by"];
    let table = Table::of("Rules", columns, &listing, |one| {
        vec![
            rule_link(one),
            Cell::text(when(one)),
            Cell::text(json::joined(one, "/rule/channels")),
            Cell::text(escalation(one)),
            Cell::text(sent(one)),
            Cell::text(json::text(one, "/updated_by")),
        ]
    })
    .empty("There is no rule, so no notification is sent. Create one that names a channel.")
    .exported("rules");
    let create = Some(("/console/alert-rules/new", "New rule")).filter(|_| session.may("alert.manage"));
    Page::new(&session, "Alert rules")
        .command("bulla alert rule list")
        .reads(path)
        .show(&list_page(RULES, create, table))
}

fn escalation(rule: &Value) -> String {
    match json::number(rule, "/rule/escalate/after_seconds") / 60 {
        0 => String::new(),
        minutes => format!("after {minutes} minutes: {}", json::joined(rule, "/rule/escalate/channels")),
    }
}

fn sent(rule: &Value) -> &'static str {
    if json::flag(rule, "/rule/digest") { "once a day" } else { "immediately" }
}

async fn rule(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/alert-rules", &id);
    let one = session.api.get(&path).await?;
    let (page, name) = (item(RULES, &id), json::text(&one, "/name"));
    let actions = Actions::default()
        .link(format!("{page}/edit"), "Edit")
        .danger(format!("{page}/delete"), "Delete")
        .only_if(session.may("alert.manage"));
    let facts = Facts::default()
        .with("Alerts", Cell::text(when(&one)))
        .with("Channels", Cell::text(json::joined(&one, "/rule/channels")))
        .with("Escalation", Cell::text(escalation(&one)))
        .with("Sent", Cell::text(sent(&one)))
        .with("Changed by", Cell::text(json::text(&one, "/updated_by")))
        .with("Changed", Cell::time(json::text(&one, "/updated_at"), session.now));
    let parts = Sections::default().plain(&actions)?.plain(&facts)?;
    Page::new(&session, format!("Alert rule {name}"))
        .command(format!("bulla alert rule show {name}"))
        .reads(path)
        .show(&parts)
}

async fn settings(session: Session) -> Result<Response, Failure> {
    let settings = session.api.get("/api/v1/alert-settings").await?;
    let text = serde_json::to_string_pretty(&settings).map_err(Failure::unreadable)?;
    show_settings(&session, &text, None)
}

fn show_settings(session: &Session, text: &str, problem: Option<String>) -> Result<Response, Failure> {
    let body = Confirmation::new(session, SETTINGS, "/console/alerts", "Save")
        .problem(problem)
        .says("Thresholds say how long before its expiry a certificate raises an alert: days, or a fraction of its lifetime. Alerts that are open stay.")
        .says("Digests are sent at the hour \"digest_hour\" (UTC). Resolved alerts are deleted after \"keep_days\".")
        .field(Field::document("document", "Settings (JSON)").value(text).hint("All members: docs/alerts.md.").required());
    Page::new(session, "Alert settings")
        .command("bulla api -X PUT /api/v1/alert-settings --file settings.json")
        .reads("/api/v1/alert-settings")
        .show(&body)
}

async fn save_settings(session: Session, form: FormData) -> Result<Response, Failure> {
    let text = form.text("document");
    let settings = serde_json::from_str::<Value>(text).map_err(|error| {
        let hint = "correct the document; nothing was changed";
        Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, format!("This is not valid JSON: {error}"), hint)
    });
    let saved = match settings {
        Ok(settings) => {
            session.api.change(Method::PUT, "/api/v1/alert-settings", form.csrf(), Some(&settings)).await
        }
        Err(failure) => Err(failure),
    };
    match saved {
        Ok(answer) => Ok(redirect(SETTINGS, "saved", &answer)),
        Err(failure) => show_settings(&session, text, Some(failure.form_problem()?)),
    }
}

async fn messages(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, DELIVERIES, "/api/v1/alert-deliveries", query).await?;
    let channels = session.api.get_if_allowed("/api/v1/alert-channels").await?.unwrap_or_default();
    let table = listing
        .paged(deliveries(&session, listing.answer(), &channels))
        .empty("No notification is in this state.")
        .exported("messages");
    let state = Some(parameter::<String>(query, "state")).filter(|state| !state.is_empty());
    let body = Alerts {
        here: DELIVERIES,
        states: MESSAGE_STATES,
        state: state.unwrap_or_else(|| "waiting".to_owned()),
        create: None,
        table,
    };
    Page::new(&session, "Notifications").command("bulla alert messages").reads(listing.path()).show(&body)
}

async fn confirm_requeue(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let dead = session.api.get("/api/v1/alert-deliveries?state=dead&limit=500").await?;
    let channels = session.api.get_if_allowed("/api/v1/alert-channels").await?.unwrap_or_default();
    let found: Vec<Value> =
        json::items(&dead).iter().filter(|one| json::text(one, "/id") == id).cloned().collect();
    if found.is_empty() {
        return Err(Failure::refused(
            StatusCode::NOT_FOUND,
            format!("notification {id} is not among the newest failed ones"),
            "it was sent meanwhile, or deleted with its alert",
        ));
    }
    let list = format!("{DELIVERIES}?state=dead");
    let table = deliveries(&session, &json!({ "items": found }), &channels);
    let body = Confirmation::new(&session, format!("{}/requeue", item(DELIVERIES, &id)), list, "Send again")
        .says("The notification is sent immediately, and attempted as often as a new one. Its receiver gets it with the same identifier.")
        .table("Notification", table);
    Page::new(&session, "Send the notification again?")
        .command(format!("bulla alert requeue {id}"))
        .show(&body)
}

async fn requeue(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/requeue", item("/api/v1/alert-deliveries", &id));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(DELIVERIES, "requeued", &answer))
}
