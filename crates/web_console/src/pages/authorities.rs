//! Certification authorities: the hierarchy, one CA, and a new intermediate.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

/// Path of the page with the hierarchy of CAs.
pub(super) const PAGE: &str = "/console/authorities";

/// API path of the profiles, at most 500. The page of a CA shows the profiles that use the CA.
const PROFILES: &str = "/api/v1/profiles?limit=500";

/// Default lifetime of an intermediate CA in days: five years.
const LIFETIME_DAYS: i64 = 1826;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(tree).post(create))
        .route("/console/authorities/new", get(new))
        .route("/console/authorities/{ca}", get(one))
        .route("/console/authorities/{ca}/default", get(confirm_default).post(make_default))
        .route("/console/authorities/{ca}/retire", get(confirm_retire).post(retire))
        .route("/console/publications", get(publications))
        .route("/console/authorities/{ca}/certificate.pem", get(pem))
        .route("/console/authorities/{ca}/request", post(cancel_request))
}

/// A CA in the hierarchy, with the CAs that it signed.
#[derive(Template)]
#[template(path = "branch.html")]
struct Branch {
    href: String,
    name: String,
    badges: Vec<Cell>,
    facts: Facts,
    profiles: Vec<(String, String)>,
    below: Vec<Branch>,
}

#[derive(Template)]
#[template(path = "authorities.html")]
struct Authorities {
    roots: Vec<Branch>,
    may_create: bool,
}

async fn tree(session: Session) -> Result<Response, Failure> {
    let authorities = session.api.get("/api/v1/authorities").await?;
    let publications = session.api.get_if_allowed("/api/v1/publications").await?.unwrap_or_default();
    let profiles = session.api.get_if_allowed(PROFILES).await?.unwrap_or_default();
    let all = json::items(&authorities);
    let is_top = |ca: &&Value| {
        let parent = json::text(ca, "/parent");
        !all.iter().any(|other| json::text(other, "/id") == parent)
    };
    let parts = Parts { session: &session, all, publications: &publications, profiles: &profiles };
    let roots = all.iter().filter(is_top).map(|ca| parts.branch(ca)).collect();
    Page::new(&session, "Authorities")
        .command("bulla ca list")
        .command("bulla ca publications")
        .reads("/api/v1/authorities")
        .reads("/api/v1/publications")
        .show(&Authorities { roots, may_create: session.may("ca.manage") })
}

/// The data for rendering the hierarchy.
struct Parts<'a> {
    session: &'a Session,
    all: &'a [Value],
    publications: &'a Value,
    profiles: &'a Value,
}

impl Parts<'_> {
    fn branch(&self, ca: &Value) -> Branch {
        let id = json::text(ca, "/id");
        let below = self
            .all
            .iter()
            .filter(|other| json::text(other, "/parent") == id && json::text(other, "/id") != id);
        Branch {
            href: item(PAGE, id),
            name: json::text(ca, "/name").to_owned(),
            badges: badges(ca),
            facts: published(
                Facts::default()
                    .with("Subject", Cell::text(json::text(ca, "/subject")))
                    .with("Expires", Cell::time(json::text(ca, "/not_after"), self.session.now))
                    .with("Key", Cell::text(format::key_type(json::text(ca, "/key_type")))),
                self.session,
                self.publication(id),
            ),
            profiles: used_by(ca, self.profiles),
            below: below.map(|ca| self.branch(ca)).collect(),
        }
    }

    fn publication(&self, id: &str) -> &Value {
        publication_of(self.publications, id)
    }
}

fn publication_of<'a>(publications: &'a Value, id: &str) -> &'a Value {
    json::items(publications).iter().find(|one| json::text(one, "/ca") == id).unwrap_or(&Value::Null)
}

fn badges(ca: &Value) -> Vec<Cell> {
    let mut badges = vec![Cell::state(json::text(ca, "/state"))];
    if json::flag(ca, "/root") {
        badges.push(Cell::badge(Tone::Calm, "root"));
    }
    if json::flag(ca, "/default") {
        badges.push(Cell::badge(Tone::Calm, "default"));
    }
    badges
}

/// Adds the state of the full CRL and of the OCSP responder.
fn published(facts: Facts, session: &Session, publication: &Value) -> Facts {
    let full = json::list(publication, "/crls").iter().find(|crl| json::text(crl, "/part") == "full");
    let full = full.unwrap_or(&Value::Null);
    facts
        .with("CRL", Cell::state(json::text(full, "/state")))
        .with("CRL expires", Cell::time(json::text(full, "/next_update"), session.now))
        .with("OCSP responder", Cell::state(json::text(publication, "/ocsp/state")))
}

/// Returns the profiles that issue from a CA, each with its page.
fn used_by(ca: &Value, profiles: &Value) -> Vec<(String, String)> {
    let (name, is_default) = (json::text(ca, "/name"), json::flag(ca, "/default"));
    let of = |profile: &&Value| {
        let wanted = json::text(profile, "/ca");
        if wanted.is_empty() { is_default } else { wanted == name }
    };
    let names = json::items(profiles).iter().filter(of).map(|profile| json::text(profile, "/name"));
    names.map(|name| (item("/console/profiles", name), name.to_owned())).collect()
}

#[derive(Template)]
#[template(path = "authority.html")]
struct Authority {
    id: String,
    csrf: String,
    facts: Facts,
    actions: Vec<(String, &'static str)>,
    /// The chain from this CA to its root: name, page, subject, expiry.
    chain: Vec<(String, String, String, Cell)>,
    below: Vec<(String, String)>,
    profiles: Vec<(String, String)>,
    crls: Table,
    ocsp: Facts,
    issued: Option<Table>,
    /// URL of the list of managed certificates whose current version this CA issued.
    managed: String,
    revoked: Option<Table>,
    certificate: String,
    request: String,
    may_manage: bool,
}

async fn one(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/authorities", &ca);
    let ca = session.api.get(&path).await?;
    let id = api::path::segment(json::text(&ca, "/id"));
    let all = session.api.get("/api/v1/authorities").await?;
    let publications = session.api.get_if_allowed("/api/v1/publications").await?.unwrap_or_default();
    let profiles = session.api.get_if_allowed(PROFILES).await?.unwrap_or_default();
    let issued = format!("/api/v1/issued?ca={id}&limit=10");
    let revoked = format!("/api/v1/revocations?ca={id}&limit=10");
    let certificates = session.api.get_if_allowed(&issued).await?;
    let revocations = session.api.get_if_allowed(&revoked).await?;
    let publication = publication_of(&publications, json::text(&ca, "/id"));
    let name = json::text(&ca, "/name");
    let body = Authority {
        facts: facts(&session, &ca),
        actions: actions(&session, &ca),
        chain: chain(&session, &ca, json::items(&all)),
        below: below(json::text(&ca, "/id"), json::items(&all)),
        profiles: used_by(&ca, &profiles),
        crls: crls(&session, json::list(publication, "/crls")),
        ocsp: responder(&session, publication),
        issued: certificates
            .map(|listing| super::issued::table(&session, &listing).empty("No certificate was issued yet.")),
        revoked: revocations
            .map(|listing| super::issued::revoked(&session, &listing).empty("No certificate is revoked.")),
        managed: format!("/console/certificates?ca={}", api::path::segment(name)),
        certificate: json::text(&ca, "/certificate").to_owned(),
        request: json::text(&ca, "/request").to_owned(),
        may_manage: session.may("ca.manage"),
        csrf: session.csrf().to_owned(),
        id,
    };
    Page::new(&session, name)
        .command(format!("bulla ca show '{name}'"))
        .reads(&path)
        .reads(issued)
        .reads(revoked)
        .show(&body)
}

/// Returns the properties of a CA.
pub(super) fn facts(session: &Session, ca: &Value) -> Facts {
    let text = |pointer| json::text(ca, pointer);
    let facts = Facts::default()
        .with("State", Cell::state(text("/state")))
        .with("Subject", Cell::text(text("/subject")))
        .with("Valid from", Cell::time(text("/not_before"), session.now))
        .with("Expires", Cell::time(text("/not_after"), session.now))
        .with("Key", Cell::text(format::key_type(text("/key_type"))))
        .with("Serial number", Cell::code(text("/serial")))
        .with("SHA-256 fingerprint", Cell::code(text("/fingerprint")))
        .with("Kind", Cell::text(if json::flag(ca, "/root") { "Root" } else { "Intermediate" }))
        .with(
            "Default",
            Cell::text(if json::flag(ca, "/default") { "Used by profiles that name no CA" } else { "" }),
        )
        .with("Credential", Cell::code(text("/credential")))
        .with("Created", Cell::time(text("/created_at"), session.now))
        .with("Retiring since", Cell::time(text("/retiring_at"), session.now))
        .with("Retired since", Cell::time(text("/retired_at"), session.now));
    facts
        .with("Certificate", Cell::code(text("/urls/certificate")))
        .with("CRL", Cell::code(text("/urls/crl")))
        .with("Delta CRL", Cell::code(text("/urls/delta_crl")))
        .with("OCSP", Cell::code(text("/urls/ocsp")))
}

fn actions(session: &Session, ca: &Value) -> Vec<(String, &'static str)> {
    let id = api::path::segment(json::text(ca, "/id"));
    let mut actions = Vec::new();
    if !session.may("ca.manage") {
        return actions;
    }
    let state = json::text(ca, "/state");
    if state == "pending" {
        actions.push((format!("{PAGE}/{id}/install"), "Install its certificate"));
    }
    if state == "active" {
        actions.push((format!("{PAGE}/new?parent={id}"), "Create an intermediate below it"));
        actions.push((format!("{PAGE}/{id}/renew"), "Renew"));
        actions.push((format!("{PAGE}/{id}/cross-sign"), "Cross-sign"));
        if !json::flag(ca, "/default") {
            actions.push((format!("{PAGE}/{id}/default"), "Make default"));
        }
    }
    if matches!(state, "active" | "retiring") {
        actions.push((format!("{PAGE}/{id}/retire"), "Retire"));
    }
    actions
}

/// Returns the chain from a CA to its root.
fn chain(session: &Session, ca: &Value, all: &[Value]) -> Vec<(String, String, String, Cell)> {
    let mut chain: Vec<(String, String, String, Cell)> = Vec::new();
    let mut next = Some(ca);
    while let Some(ca) = next {
        let id = json::text(ca, "/id");
        let href = item(PAGE, id);
        if chain.iter().any(|(_, known, ..)| *known == href) {
            break;
        }
        let end = Cell::time(json::text(ca, "/not_after"), session.now);
        chain.push((json::text(ca, "/name").to_owned(), href, json::text(ca, "/subject").to_owned(), end));
        let parent = json::text(ca, "/parent");
        next = all.iter().find(|other| !parent.is_empty() && json::text(other, "/id") == parent);
    }
    chain
}

fn below(id: &str, all: &[Value]) -> Vec<(String, String)> {
    let below = all.iter().filter(|other| json::text(other, "/parent") == id);
    below.map(|ca| (item(PAGE, json::text(ca, "/id")), json::text(ca, "/name").to_owned())).collect()
}

fn crls(session: &Session, crls: &[Value]) -> Table {
    let row = |crl: &Value| {
        vec![
            Cell::text(json::text(crl, "/part")),
            Cell::state(json::text(crl, "/state")),
            Cell::number(json::number(crl, "/number")),
            Cell::number(json::number(crl, "/entries")),
            Cell::time(json::text(crl, "/this_update"), session.now),
            Cell::time(json::text(crl, "/next_update"), session.now),
            Cell::text(json::text(crl, "/last_error")),
        ]
    };
    Table::new(
        "CRLs",
        &["Part", "State", "Number", "Entries", "Created", "Expires", "Last error"],
        crls.iter().map(row),
    )
    .empty("No CRL yet.")
}

fn responder(session: &Session, publication: &Value) -> Facts {
    Facts::default()
        .with("OCSP responder", Cell::state(json::text(publication, "/ocsp/state")))
        .with(
            "Responder certificate valid from",
            Cell::time(json::text(publication, "/ocsp/not_before"), session.now),
        )
        .with(
            "Responder certificate expires",
            Cell::time(json::text(publication, "/ocsp/not_after"), session.now),
        )
}

/// Shows the publications of every CA in one table.
async fn publications(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/publications";
    let listing = session.api.get(path).await?;
    let row = |one: &Value| {
        let full = json::list(one, "/crls").iter().find(|crl| json::text(crl, "/part") == "full");
        let full = full.unwrap_or(&Value::Null);
        vec![
            Cell::link(item(PAGE, json::text(one, "/ca")), json::text(one, "/name")),
            Cell::state(json::text(full, "/state")),
            Cell::number(json::number(full, "/entries")),
            Cell::time(json::text(full, "/next_update"), session.now),
            Cell::number(json::list(one, "/crls").iter().map(|crl| json::number(crl, "/failures")).sum()),
            Cell::text(json::text(full, "/last_error")),
            Cell::state(json::text(one, "/ocsp/state")),
            Cell::time(json::text(one, "/ocsp/not_after"), session.now),
        ]
    };
    let columns = &[
        "CA",
        "CRL",
        "Entries",
        "CRL expires",
        "Failed attempts",
        "Last error",
        "OCSP",
        "Responder expires",
    ];
    let table = Table::of("CRLs and OCSP responders by CA", columns, &listing, row)
        .empty("No CA publishes CRLs or OCSP responses yet. Create one with `bulla ca create`.")
        .exported("publications");
    Page::new(&session, "Publications").command("bulla ca publications").reads(path).show(&table)
}

async fn pem(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    let ca = session.api.get(&item("/api/v1/authorities", &ca)).await?;
    super::issued::download(json::text(&ca, "/name"), json::text(&ca, "/certificate"))
}

#[derive(Template)]
#[template(path = "authority_new.html")]
struct NewAuthority {
    csrf: String,
    parents: Vec<(String, String, bool)>,
    days: i64,
}

async fn new(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let wanted: String = parameter(query.as_deref(), "parent");
    let all = session.api.get("/api/v1/authorities").await?;
    let active = json::items(&all).iter().filter(|ca| json::text(ca, "/state") == "active");
    let parents = active.map(|ca| {
        let id = json::text(ca, "/id").to_owned();
        let chosen = id == wanted;
        let name = format!("{} ({})", json::text(ca, "/name"), json::text(ca, "/subject"));
        (id, name, chosen)
    });
    let body =
        NewAuthority { csrf: session.csrf().to_owned(), parents: parents.collect(), days: LIFETIME_DAYS };
    Page::new(&session, "Create an intermediate CA")
        .command("bulla ca create web-tls --subject 'CN=Web TLS' --parent root")
        .show(&body)
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let whole = |name: &str| form.field(name).map(str::parse::<i64>).transpose();
    let (Ok(days), Ok(path_length)) = (whole("days"), whole("path_length")) else {
        return Err(Failure::refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the days and the number of CAs below must be whole numbers",
            "go back and correct the fields",
        ));
    };
    let mut body = json!({
        "name": form.text("name"),
        "subject": form.text("subject"),
        "parent": form.text("parent"),
    });
    if let Some(key_type) = form.field("key_type") {
        body["key_type"] = key_type.into();
    }
    if let Some(days) = days {
        body["lifetime_seconds"] = days.saturating_mul(86_400).into();
    }
    if let Some(length) = path_length {
        body["path_length"] = length.into();
    }
    let permitted: Vec<&str> = form.text("permitted").split_whitespace().collect();
    if !permitted.is_empty() {
        body["name_limits"] = json!({ "permitted": permitted });
    }
    let created = session.api.change(Method::POST, "/api/v1/authorities", form.csrf(), Some(&body)).await?;
    let id = json::text(&created, "/id");
    let page = if id.is_empty() { PAGE.to_owned() } else { item(PAGE, id) };
    Ok(redirect(&page, "created", &created))
}

async fn confirm_default(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    let page = item(PAGE, &ca);
    let ca = session.api.get(&item("/api/v1/authorities", &ca)).await?;
    let profiles = session.api.get_if_allowed(PROFILES).await?.unwrap_or_default();
    let moved = json::items(&profiles).iter().filter(|profile| json::text(profile, "/ca").is_empty()).count();
    let name = json::text(&ca, "/name");
    let confirmation = Confirmation::new(&session, format!("{page}/default"), &page, "Make default").danger()
        .says(format!("{} that name no CA issue from {name} from now on.", format::counted(moved, false, "profile")))
        .says("Existing certificates stay valid. Their next renewal has another chain: clients that trust only the current \
         root must also trust this CA's root.")
        .facts(facts(&session, &ca));
    Page::new(&session, format!("Make {name} the default"))
        .command(format!("bulla ca default '{name}'"))
        .show(&confirmation)
}

async fn make_default(session: Session, Path(ca): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &ca, &form, "default", None, "saved").await
}

async fn confirm_retire(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    let page = item(PAGE, &ca);
    let ca = session.api.get(&item("/api/v1/authorities", &ca)).await?;
    let profiles = session.api.get_if_allowed(PROFILES).await?.unwrap_or_default();
    let users = used_by(&ca, &profiles);
    let names: Vec<&str> = users.iter().map(|(_, name)| name.as_str()).collect();
    let name = json::text(&ca, "/name");
    let mut confirmation = Confirmation::new(&session, format!("{page}/retire"), &page, "Retire").danger();
    confirmation = match json::text(&ca, "/state") {
        "active" => confirmation
            .says(format!(
                "{name} can no longer issue certificates. It still signs CRLs and OCSP responses for the \
             certificates that it issued."
            ))
            .says("This cannot be undone."),
        _ => confirmation
            .says(format!(
                "{name} can no longer sign anything, including CRLs and OCSP responses. Clients that check \
             revocation reject the certificates that it issued."
            ))
            .says("This cannot be undone."),
    };
    if !names.is_empty() {
        confirmation = confirmation.says(format!(
            "{} issue from it ({}). The server rejects the retirement until they name another CA.",
            format::counted(names.len(), false, "profile"),
            names.join(", ")
        ));
    }
    Page::new(&session, format!("Retire {name}"))
        .command(format!("bulla ca retire '{name}'"))
        .show(&confirmation.facts(facts(&session, &ca)))
}

async fn retire(session: Session, Path(ca): Path<String>, form: FormData) -> Result<Response, Failure> {
    perform(&session, &ca, &form, "retire", Some(json!({})), "saved").await
}

async fn cancel_request(
    session: Session,
    Path(ca): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = format!("/api/v1/authorities/{}/request", api::path::segment(&ca));
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

async fn perform(
    session: &Session,
    ca: &str,
    form: &FormData,
    action: &str,
    body: Option<Value>,
    done: &str,
) -> Result<Response, Failure> {
    let ca = api::path::segment(ca);
    let path = format!("/api/v1/authorities/{ca}/{action}");
    let answer = session.api.change(Method::POST, &path, form.csrf(), body.as_ref()).await?;
    Ok(redirect(&format!("{PAGE}/{ca}"), done, &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_lists_profiles_using_it_by_name_or_as_default() {
        let profiles = json!({ "items": [{ "name": "default" }, { "name": "web", "ca": "web-tls" }, { "name": "x", "ca": null }] });
        let names = |ca: &Value| -> Vec<String> {
            used_by(ca, &profiles).into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(names(&json!({ "name": "web-tls", "default": false })), ["web"]);
        assert_eq!(names(&json!({ "name": "issuing", "default": true })), ["default", "x"]);
        assert!(names(&json!({ "name": "root", "default": false })).is_empty());
    }
}
