//! Pending approvals: issuance, changes of issuance settings, and device enrolments.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Map, Value, json};

use super::held_requests;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::{Failure, if_allowed};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::{filters, parameter};
use crate::security_key::{KeyForm, response};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

/// States of approvals that all three kinds have.
const STATES: &[&str] = &["open", "approved", "rejected"];

/// A kind of approval, such as for an issuance.
struct Kind {
    /// The last part of the path of this kind, in the API and in the console.
    path: &'static str,
    heading: &'static str,
    caption: &'static str,
    noun: &'static str,
    command: &'static str,
    /// The JSON pointers of the subject and of the requester.
    subject: &'static str,
    requester_pointer: &'static str,
    /// The text about the consequence of an approval.
    follows: &'static str,
    empty: &'static str,
}

const APPROVALS: Kind = Kind {
    path: "approvals",
    heading: "Issuance",
    caption: "Certificates to be issued",
    noun: "Approval",
    command: "bulla approval",
    subject: "/name",
    requester_pointer: "/requested_by",
    follows: "After enough approvals, the certificate is issued exactly as planned. Rejecting it cancels the job.",
    empty: "No issuance is in this state. Issuance by a profile with `requires_approval` waits here.",
};

const CHANGES: Kind = Kind {
    path: "changes",
    heading: "Changes",
    caption: "Changes of issuance settings",
    noun: "Edit",
    command: "bulla change",
    subject: "/object",
    requester_pointer: "/requested_by",
    follows: "After enough approvals, the change is applied exactly as shown. It is discarded if the object changes in the \
     meantime.",
    empty: "No change is in this state. Changes to profiles that require approval, and to settings that affect them, appear here.",
};

const ENROLMENTS: Kind = Kind {
    path: "enrolments",
    heading: "Enrolments",
    caption: "Enrolment requests of devices",
    noun: "Enrolment",
    command: "",
    subject: "/asks",
    requester_pointer: "/requester",
    follows: "After enough approvals, the client gets its certificate with its next request. After a rejection, that request fails.",
    empty: "No enrolment is in this state. Requests over EST or SCEP wait here if their profile requires approval.",
};

pub(crate) fn routes() -> Router<Api> {
    let router = Router::new().route("/console/approvals", get(all));
    [&APPROVALS, &CHANGES, &ENROLMENTS].into_iter().fold(router, |router, kind| {
        let page = async move |session: Session, Path(id): Path<String>| one(&session, kind, &id).await;
        let approve = async move |session: Session, Path(id): Path<String>, form: FormData| {
            decide(&session, kind, &id, "approve", &form).await
        };
        let reject = async move |session: Session, Path(id): Path<String>, form: FormData| {
            decide(&session, kind, &id, "reject", &form).await
        };
        let sign = async move |session: Session, Path(id): Path<String>, form: FormData| {
            sign(&session, kind, &id, &form).await
        };
        let path = format!("/console/{}", kind.path);
        let router = router
            .route(&format!("{path}/{{id}}"), get(page))
            .route(&format!("{path}/{{id}}/approve"), post(approve))
            .route(&format!("{path}/{{id}}/sign"), post(sign))
            .route(&format!("{path}/{{id}}/reject"), post(reject));
        if kind.path == APPROVALS.path {
            return router;
        }
        let list = async move |session: Session, RawQuery(query): RawQuery| {
            list(&session, kind, query.as_deref()).await
        };
        router.route(&path, get(list))
    })
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct Approvals {
    states: &'static [&'static str],
    state: String,
    page: String,
    tables: Vec<(&'static str, &'static str, Table)>,
}

/// Shows the newest approvals of each kind.
async fn all(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let state = state_of(query);
    let mut tables = Vec::new();
    let mut page = Page::new(&session, "Approvals");
    for kind in [&APPROVALS, &CHANGES, &ENROLMENTS] {
        let query = query.filter(|_| kind.path == APPROVALS.path);
        let listing = if_allowed(fetch_approvals(&session, kind, format!("state={state}"), query).await)?;
        let Some(listing) = listing else { continue };
        page = page.command(command(kind, None)).reads(listing.path());
        let table = table(&session, kind, &listing);
        tables.push((kind.path, kind.heading, table));
    }
    let requests = session.api.get_if_allowed(held_requests::LIST).await?;
    let requests =
        requests.map(|requests| held_requests::table(&session, &requests)).filter(|table| !table.is_empty());
    tables.extend(requests.map(|table| ("held-requests", "Requests that the proxy holds", table)));
    page.show(&Approvals { states: STATES, state, page: "/console/approvals".to_owned(), tables })
}

/// Returns the requested state; `open` if it is missing or invalid.
fn state_of(query: Option<&str>) -> String {
    let requested = parameter::<String>(query, "state");
    if STATES.contains(&requested.as_str()) { requested } else { "open".to_owned() }
}

async fn fetch_approvals(
    session: &Session,
    kind: &Kind,
    filters: String,
    query: Option<&str>,
) -> Result<Listing, Failure> {
    let (page, path) = (format!("/console/{}", kind.path), format!("/api/v1/{}", kind.path));
    Listing::filtered(session, &page, &path, filters, query).await
}

async fn list(session: &Session, kind: &'static Kind, query: Option<&str>) -> Result<Response, Failure> {
    let page = format!("/console/{}", kind.path);
    let listing = fetch_approvals(session, kind, filters(query), query).await?;
    let table = table(session, kind, &listing);
    let body = Approvals {
        states: STATES,
        state: state_of(query),
        page,
        tables: vec![(kind.path, "Newest first", table)],
    };
    Page::new(session, kind.heading).command(command(kind, None)).reads(listing.path()).show(&body)
}

/// Returns the command that lists approvals or shows one. Enrolments have no such command.
fn command(kind: &Kind, id: Option<&str>) -> String {
    match (kind.command, id) {
        ("", None) => format!("bulla api /api/v1/{}", kind.path),
        ("", Some(id)) => format!("bulla api /api/v1/{}/{id}", kind.path),
        (command, None) => format!("{command} list"),
        (command, Some(id)) => format!("{command} show {id}"),
    }
}

fn table(session: &Session, kind: &Kind, listing: &Listing) -> Table {
    listing
        .table(
            kind.caption,
            &["Object", "State", "Requested by", "Requested", "Valid until", "Approved by"],
            |one| {
                let what = match json::text(one, "/action") {
                    "" => json::text(one, kind.subject).to_owned(),
                    action => format!("{action} {}", json::text(one, kind.subject)),
                };
                vec![
                    Cell::link(format!("/console/{}/{}", kind.path, json::text(one, "/id")), what),
                    state(one),
                    Cell::text(json::text(one, kind.requester_pointer)),
                    Cell::time(json::text(one, "/requested_at"), session.now),
                    Cell::time(json::text(one, "/expires_at"), session.now),
                    Cell::text(given(one)),
                ]
            },
        )
        .empty(kind.empty)
        .exported(kind.path)
}

fn state(one: &Value) -> Cell {
    match json::text(one, "/state") {
        "open" => Cell::badge(Tone::Warn, "waiting"),
        "applied" => Cell::badge(Tone::Good, "applied"),
        other => Cell::state(other),
    }
}

/// Formats the number of approvals, the required number, and the approvers.
fn given(one: &Value) -> String {
    let (given, needed) = (json::number(one, "/approvals_given"), json::number(one, "/approvals_needed"));
    let who = json::joined(one, "/approvers");
    let colon = if who.is_empty() { "" } else { ": " };
    format!("{given} of {needed}{colon}{who}")
}

/// Lists the approvers who signed this plan, and the hashes of their keys.
fn signers(one: &Value) -> String {
    let (plan, approvers) = (json::text(one, "/plan_sha256"), json::list(one, "/approvers"));
    // The signature of a person whose approval was refused does not count.
    let counts = |found: &&Value| {
        json::text(found, "/plan_sha256") == plan
            && approvers.iter().any(|approver| approver == json::text(found, "/actor"))
    };
    let signed = json::list(one, "/signatures").iter().filter(counts);
    let signed = signed.map(|found| {
        let key: String = json::text(found, "/public_key_sha256").chars().take(16).collect();
        format!("{} (key {key}…)", json::text(found, "/actor"))
    });
    signed.collect::<Vec<_>>().join(", ")
}

#[derive(Template)]
#[template(path = "approval.html")]
struct One {
    page: String,
    csrf: String,
    hash: String,
    follows: &'static str,
    decides: bool,
    /// Whether the approver can have a security key: true only for users.
    signs: bool,
    barred: String,
    facts: Facts,
    difference: Option<Table>,
    plan: Table,
}

async fn one(session: &Session, kind: &'static Kind, id: &str) -> Result<Response, Failure> {
    let segment = api::path::segment(id);
    let path = format!("/api/v1/{}/{segment}", kind.path);
    let found = session.api.get(&path).await?;
    let differs = !json::list(&found, "/changes").is_empty();
    let body = One {
        page: format!("/console/{}/{segment}", kind.path),
        csrf: session.csrf().to_owned(),
        hash: json::text(&found, "/plan_sha256").to_owned(),
        follows: kind.follows,
        decides: json::text(&found, "/state") == "open" && session.may("approval.decide"),
        signs: json::text(session.me(), "/kind") == "user",
        barred: json::joined(&found, "/barred"),
        facts: facts(session, kind, &found),
        difference: differs.then(|| difference(&found)),
        plan: plan(&found),
    };
    let title = format!("{}: {}", kind.noun, json::text(&found, kind.subject));
    Page::new(session, title).command(command(kind, Some(id))).reads(path).show(&body)
}

fn facts(session: &Session, kind: &Kind, found: &Value) -> Facts {
    let text = |pointer| Cell::text(json::text(found, pointer));
    let time = |pointer| Cell::time(json::text(found, pointer), session.now);
    let link = |list: &str, pointer, words: &str| match json::text(found, pointer) {
        "" => Cell::Empty,
        id => Cell::link(
            format!("/console/{list}/{}", api::path::segment(id)),
            if words.is_empty() { id } else { words },
        ),
    };
    Facts::default()
        .with("State", state(found))
        .with("Certificate", link("certificates", "/certificate", json::text(found, "/name")))
        .with("Action", text("/action"))
        .with("Object", text("/object"))
        .with("Protocol", text("/protocol"))
        .with("Request", text("/asks"))
        .with("Profile", link("profiles", "/profile", ""))
        .with("Affected profiles", Cell::text(json::joined(found, "/profiles")))
        .with("Job", link("jobs", "/job", "the waiting job"))
        .with("Reason", text("/reason"))
        .with("Requested by", text(kind.requester_pointer))
        .with("Requested", time("/requested_at"))
        .with("Valid until", time("/expires_at"))
        .with("Approved by", Cell::text(given(found)))
        .with("Signed by", Cell::text(signers(found)))
        .with("Decided by", text("/decided_by"))
        .with("Decided", time("/decided_at"))
        .with("Note", text("/note"))
        .with("SHA-256 of the plan", Cell::code(json::text(found, "/plan_sha256")))
}

fn difference(found: &Value) -> Table {
    let rows = json::list(found, "/changes").iter().map(|one| {
        vec![
            Cell::text(json::text(one, "/name")),
            Cell::text(json::joined(one, "/before")),
            Cell::text(json::joined(one, "/after")),
        ]
    });
    Table::new("Members before and after", &["Member", "Before", "After"], rows)
}

fn plan(found: &Value) -> Table {
    let rows = json::list(found, "/plan")
        .iter()
        .map(|one| vec![Cell::text(json::text(one, "/name")), Cell::text(json::joined(one, "/values"))]);
    Table::new("Members of the plan", &["Member", "Value"], rows)
        .empty("No plan yet: the agent has not sent the certificate request.")
}

/// Shows the page on which the approver's security key signs the plan.
async fn sign(session: &Session, kind: &Kind, id: &str, form: &FormData) -> Result<Response, Failure> {
    let (segment, hash) = (api::path::segment(id), form.text("plan_sha256"));
    let path = format!("/api/v1/{}/{segment}/challenge", kind.path);
    let body = json!({ "plan_sha256": hash });
    let ceremony = session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    let page = format!("/console/{}/{segment}", kind.path);
    let key = KeyForm::of(&ceremony, format!("{page}/approve"), page);
    let key = key.ok_or_else(|| Failure::unreadable("no ceremony"))?;
    let says = format!("Your security key signs the plan with the SHA-256 {hash}.");
    let key = key.csrf(session.csrf()).says(says).field("plan_sha256", hash).field("note", form.text("note"));
    Page::new(session, "Approve and sign").show(&key)
}

async fn decide(
    session: &Session,
    kind: &Kind,
    id: &str,
    action: &str,
    form: &FormData,
) -> Result<Response, Failure> {
    let segment = api::path::segment(id);
    let mut body = Map::new();
    if let Some(note) = form.field("note") {
        body.insert("note".to_owned(), note.into());
    }
    if let Some(hash) = form.field("plan_sha256").filter(|_| action == "approve") {
        body.insert("plan_sha256".to_owned(), hash.into());
    }
    if let Some(signed) = response(form)?.filter(|_| action == "approve") {
        body.insert("security_key".to_owned(), signed);
    }
    let path = format!("/api/v1/{}/{segment}/{action}", kind.path);
    let body = Value::Object(body);
    session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    let done = if action == "approve" { "approved" } else { "rejected" };
    // Every response has a count of approvals, and `back` would treat it as a pending change.
    Ok(redirect(&format!("/console/{}/{segment}", kind.path), done, &Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_approval_state_defaults_to_open() {
        assert_eq!(state_of(Some("state=approved")), "approved");
        assert_eq!(state_of(Some("state=%3Cb%3E")), "open");
        assert_eq!(state_of(None), "open");
    }

    #[test]
    fn approvals_are_formatted_with_count_and_approvers() {
        let one = json!({"approvals_given": 1, "approvals_needed": 2, "approvers": ["user:ada"]});
        assert_eq!(given(&one), "1 of 2: user:ada");
        assert_eq!(given(&json!({"approvals_needed": 1})), "0 of 1");
    }

    #[test]
    fn signers_are_approvers_of_this_plan() {
        let signature = |actor: &str, plan: &str| json!({ "actor": actor, "plan_sha256": plan, "public_key_sha256": "0123456789abcdef0123" });
        let signatures =
            [signature("user:ada", "new"), signature("user:bob", "new"), signature("user:cyd", "old")];
        let one = json!({
            "plan_sha256": "new", "approvers": ["user:ada", "user:cyd"], "signatures": signatures,
        });
        assert_eq!(signers(&one), "user:ada (key 0123456789abcdef…)");
        assert_eq!(signers(&json!({})), "");
    }
}
