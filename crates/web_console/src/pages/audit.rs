//! The audit log: search, one event, verification, sealed segments, export.

use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::FormData;
use crate::json;
use crate::listing::Listing;
use crate::query::{parameter, with_query};
use crate::sections::{Note, Sections};
use crate::session::Session;
use crate::shell::{Page, quoted};
use crate::table::Table;

const PAGE: &str = "/console/audit";

/// The command that verifies the log, on this or another machine.
const VERIFY: &str = "bulla audit verify";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/audit/event", get(event))
        .route("/console/audit/integrity", get(integrity))
        .route("/console/audit/verify", post(verify))
        .route("/console/audit/heads", post(sign))
}

/// The filters of the form, the API and the command.
const FILTERS: [&str; 5] = ["actor", "action", "resource", "from", "before"];

/// Returns the command that lists the same events.
fn list_command(query: Option<&str>) -> String {
    let flags = FILTERS.into_iter().filter_map(|name| {
        let value: String = parameter(query, name);
        let value = value.trim();
        (!value.is_empty()).then(|| format!(" --{name} {}", quoted(value)))
    });
    format!("bulla audit list{}", flags.collect::<String>())
}

/// Converts the filters of the form for the API: days become times.
fn api_filters(query: Option<&str>) -> String {
    let pairs = FILTERS.into_iter().filter_map(|name| {
        let value: String = parameter(query, name);
        let value = value.trim();
        let day = matches!(name, "from" | "before") && value.len() == "2026-11-29".len();
        let value = if day { format!("{value}T00:00:00Z") } else { value.to_owned() };
        (!value.is_empty()).then(|| format!("{name}={}", api::path::segment(&value)))
    });
    pairs.collect::<Vec<_>>().join("&")
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::filtered(&session, PAGE, "/api/v1/audit", api_filters(query), query).await?;
    let columns = &["Time", "Actor", "Action", "Resource", "Event"];
    let table = listing
        .table("Events of the audit log, newest first", columns, |event| row(&session, event))
        .empty("No event matches. Remove a filter.")
        .exported("audit");
    let actions = Actions::default()
        .link(format!("{PAGE}/integrity"), "Verify, sealed segments, heads")
        .link(with_query("/api/v1/audit/export", listing.filters()), "Export as JSON lines");
    let parts =
        Sections::default().plain(&filter_form(query))?.plain(&actions)?.section("list", "Events", &table)?;
    Page::new(&session, "Audit")
        .command(list_command(query))
        .command("bulla audit export")
        .reads(listing.path())
        .show(&parts)
}

fn filter_form(query: Option<&str>) -> Form {
    let of = |name| parameter::<String>(query, name);
    let day = |name| of(name).get(..10).unwrap_or_default().to_owned();
    Form::filters(
        PAGE,
        vec![
            Field::line("actor", "Actor").value(of("actor")),
            Field::line("action", "Action").value(of("action")),
            Field::line("resource", "Resource").value(of("resource")),
            Field::date("from", "From (UTC)").value(day("from")),
            Field::date("before", "Before (UTC)").value(day("before")),
        ],
    )
}

fn row(session: &Session, event: &Value) -> Vec<Cell> {
    let (at, actor) = (json::text(event, "/at"), json::text(event, "/actor"));
    let (action, resource) = (json::text(event, "/action"), json::text(event, "/resource"));
    let with = |name: &str, value: &str| format!("{PAGE}?{name}={}", api::path::segment(value));
    vec![
        Cell::time(at, session.now),
        Cell::link(with("actor", actor), actor),
        Cell::link(with("action", action), action),
        Cell::link(with("resource", resource), resource),
        Cell::link(
            format!(
                "{PAGE}/event?at={}&shard={}&sequence={}",
                api::path::segment(at),
                json::number(event, "/shard"),
                json::number(event, "/sequence")
            ),
            format!("{}:{}", json::number(event, "/shard"), json::number(event, "/sequence")),
        ),
    ]
}

async fn event(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let of = |name| parameter::<String>(query, name);
    let (at, shard, sequence) = (of("at"), of("shard"), of("sequence"));
    let path = match next_microsecond(&at) {
        Some(before) => {
            format!(
                "/api/v1/audit?limit=500&from={}&before={}",
                api::path::segment(&at),
                api::path::segment(&before)
            )
        }
        None => return Err(unknown()),
    };
    let listing = session.api.get(&path).await?;
    let found = json::items(&listing).iter().find(|event| {
        json::number(event, "/shard").to_string() == shard
            && json::number(event, "/sequence").to_string() == sequence
    });
    let event = found.ok_or_else(unknown)?;
    let facts = Facts::default()
        .with("Time", Cell::time(json::text(event, "/at"), session.now))
        .with("Exact time", Cell::code(json::text(event, "/at")))
        .with("Actor", Cell::text(json::text(event, "/actor")))
        .with("Action", Cell::text(json::text(event, "/action")))
        .with("Resource", subject(json::text(event, "/resource")))
        .with("Position in the chain", Cell::text(format!("{shard}:{sequence}")))
        .with("Hash", Cell::code(json::text(event, "/hash")));
    let details = details(event.get("details").unwrap_or(&Value::Null));
    let parts = Sections::default().plain(&facts)?.section("details", "Details", &details)?;
    Page::new(&session, format!("Event {shard}:{sequence}"))
        .command(format!(
            "bulla audit list --from {at} --before {}",
            next_microsecond(&at).unwrap_or_default()
        ))
        .reads(path)
        .show(&parts)
}

fn unknown() -> Failure {
    Failure::refused(
        StatusCode::NOT_FOUND,
        "this event is not in the audit log",
        "it may be in a sealed segment: bulla audit segments",
    )
}

/// Returns the time one microsecond later, because the log has microsecond precision.
fn next_microsecond(at: &str) -> Option<String> {
    let at: jiff::Timestamp = at.parse().ok()?;
    Some(at.checked_add(jiff::Span::new().microseconds(1)).ok()?.to_string())
}

/// Returns the resource of an event, with a link if the console has a page for it.
fn subject(resource: &str) -> Cell {
    let page = resource.split_once('/').and_then(|(noun, id)| {
        let noun = match noun {
            "certificate" => "certificates",
            "agent" => "agents",
            "target" => "targets",
            "watch" => "watches",
            "token" => "tokens",
            "user" => "users",
            "role" => "roles",
            "team" => "teams",
            "owner" => "owners",
            _ => return None,
        };
        Some(format!("/console/{noun}/{}", api::path::segment(id)))
    });
    page.map_or_else(|| Cell::text(resource), |page| Cell::link(page, resource))
}

fn details(details: &Value) -> Table {
    let rows = details.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![Cell::text(name.replace('_', " ")), Cell::code(value)]
    });
    Table::new("Details of the event", &["Member", "Value"], rows).empty("This event has no details.")
}

async fn integrity(session: Session) -> Result<Response, Failure> {
    let parts = integrity_parts(&session, Sections::default()).await?;
    Page::new(&session, "Integrity of the audit log")
        .command(VERIFY)
        .command("bulla audit segments")
        .command("bulla audit key")
        .reads("/api/v1/audit/segments")
        .reads("/api/v1/audit/key")
        .reads("/api/v1/audit/heads")
        .show(&parts)
}

/// Appends the parts about integrity to the page: the buttons that verify and sign the chains, the audit log's public key, and
/// the list of segments.
async fn integrity_parts(session: &Session, parts: Sections) -> Result<Sections, Failure> {
    let key = session.api.get_if_allowed("/api/v1/audit/key").await?.unwrap_or_default();
    let segments = session.api.get_if_allowed("/api/v1/audit/segments?limit=500").await?.unwrap_or_default();
    let actions = Actions::default()
        .button(format!("{PAGE}/verify"), session.csrf(), "Verify all chains now")
        .button(format!("{PAGE}/heads"), session.csrf(), "Sign the heads now")
        .link("/api/v1/audit/heads", "Signed heads as JSON lines")
        .only_if(session.may("audit.verify"));
    let facts = Facts::default()
        .with("Log", Cell::code(json::text(&key, "/server")))
        .with("SHA-256 of the public key", Cell::code(json::text(&key, "/sha256")))
        .with("Public key", Cell::code(json::text(&key, "/public_key_pem")));
    parts
        .plain(&actions)?
        .plain(&Note::faint(
            "Each event carries the hash of the event before it. The server signs the heads of all chains, and old events are sealed into signed segments. `bulla audit verify` recomputes every hash.",
        ))?
        .section("key", "Key that signs heads and segments", &facts)?
        .section("segments", "Sealed segments", &segments_table(session, &segments))
}

fn segments_table(session: &Session, segments: &Value) -> Table {
    let columns = ["Segment", "Chain", "Events", "From", "To", "Bytes", "State", "File"];
    Table::of("Sealed segments, oldest first", &columns, segments, |segment| {
        let number = json::number(segment, "/head/segment");
        let events = json::number(segment, "/head/last") - json::number(segment, "/head/first") + 1;
        let pruned = !json::text(segment, "/pruned_at").is_empty();
        let (state, file) = if pruned {
            (Cell::badge(Tone::Calm, "pruned"), Cell::Empty)
        } else {
            let file = Cell::link(format!("/api/v1/audit/segments/{number}"), "JSON lines");
            (Cell::badge(Tone::Good, "sealed"), file)
        };
        vec![
            Cell::number(number),
            Cell::number(json::number(segment, "/head/shard")),
            Cell::number(events),
            Cell::time(json::text(segment, "/head/from"), session.now),
            Cell::time(json::text(segment, "/head/to"), session.now),
            Cell::number(json::number(segment, "/bytes")),
            state,
            file,
        ]
    })
    .empty("No segment is sealed yet: events are sealed when they are older than the configured retention.")
}

async fn verify(session: Session, form: FormData) -> Result<Response, Failure> {
    let result = session.api.change(Method::POST, "/api/v1/audit/verify", form.csrf(), None).await?;
    let outcome = if json::flag(&result, "/good") {
        Cell::badge(Tone::Good, "all chains are intact")
    } else {
        Cell::badge(Tone::Bad, "altered, or incomplete")
    };
    let facts = Facts::default()
        .with("Result", outcome)
        .with("Events", Cell::number(json::number(&result, "/events")))
        .with("Chains", Cell::number(json::number(&result, "/chains")))
        .with("Signed heads", Cell::number(json::number(&result, "/signed_heads")))
        .with("Sealed segments", Cell::number(json::number(&result, "/segments")))
        .with("Faults", Cell::text(json::joined(&result, "/faults")))
        .with("Notes", Cell::text(json::joined(&result, "/notes")))
        .with("Heads of the chains", Cell::code(json::joined(&result, "/heads")));
    let parts = Sections::default().section("result", "Result", &facts)?;
    let parts = integrity_parts(&session, parts).await?;
    Page::new(&session, "Integrity of the audit log").command(VERIFY).show(&parts)
}

async fn sign(session: Session, form: FormData) -> Result<Response, Failure> {
    let head = session.api.change(Method::POST, "/api/v1/audit/heads", form.csrf(), None).await?;
    let facts = Facts::default()
        .with("Number", Cell::number(json::number(&head, "/sequence")))
        .with("Signed", Cell::time(json::text(&head, "/at"), session.now))
        .with("Heads of the chains", Cell::code(json::joined(&head, "/heads")))
        .with("Newest sealed segment", Cell::number(json::number(&head, "/segments")))
        .with("Signature", Cell::code(json::text(&head, "/signature")))
        .with("Signed head as JSON", Cell::code(head.to_string()));
    let parts = Sections::default().section("result", "Signed head", &facts)?;
    let parts = integrity_parts(&session, parts).await?;
    Page::new(&session, "Integrity of the audit log").command("bulla audit head").show(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_has_the_filters_of_the_page() {
        assert_eq!(list_command(None), "bulla audit list");
        assert_eq!(
            list_command(Some("actor=user%3A%24%28id%29&from=2026-11-29&before=&cursor=x")),
            "bulla audit list --actor 'user:$(id)' --from '2026-11-29'"
        );
    }

    #[test]
    fn audit_filter_dates_become_timestamps() {
        assert_eq!(
            api_filters(Some("actor=token%3Aa&from=2026-11-29&before=&cursor=x")),
            "actor=token%3Aa&from=2026-11-29T00%3A00%3A00Z"
        );
        assert_eq!(api_filters(Some("before=2026-11-29T01:02:03Z")), "before=2026-11-29T01%3A02%3A03Z");
        assert_eq!(
            next_microsecond("2026-11-29T01:34:17.688166Z").as_deref(),
            Some("2026-11-29T01:34:17.688167Z")
        );
        assert_eq!(next_microsecond("yesterday"), None);
    }
}
