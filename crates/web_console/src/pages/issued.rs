//! Certificates that the CAs issued, and revocations.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::Method;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json, revocation_reasons};

const PAGE: &str = "/console/issued";

/// Maximum other certificates with the same key that are shown.
const SAME_KEY: usize = 50;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/revocations", get(revocations))
        .route("/console/issued/{id}", get(one))
        .route("/console/issued/{id}/certificate.pem", get(pem))
        .route("/console/issued/{id}/revoke", get(confirm_revocation).post(revoke))
}

#[derive(Template)]
#[template(path = "issued.html")]
struct Issued {
    name: String,
    profile: String,
    ca: String,
    requester: String,
    source: String,
    table: Table,
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/issued", query).await?;
    let table = listing
        .table("Certificates issued", COLUMNS, |one| row(&session, one))
        .empty("No certificate matches. Remove a filter, or issue one with `bulla cert create`.")
        .exported("issued");
    let of = |name| parameter::<String>(query, name);
    let body = Issued {
        name: of("name"),
        profile: of("profile"),
        ca: of("ca"),
        requester: of("requester"),
        source: of("source"),
        table,
    };
    Page::new(&session, "Issued certificates").command("bulla cert issued").reads(listing.path()).show(&body)
}

const COLUMNS: &[&str] =
    &["Names", "Status", "Expires", "Issued", "Profile", "Requested by", "Protocol", "Key"];

pub(crate) fn table(session: &Session, listing: &Value) -> Table {
    Table::of("Certificates issued", COLUMNS, listing, |one| row(session, one))
}

fn row(session: &Session, one: &Value) -> Vec<Cell> {
    vec![
        Cell::link(item(PAGE, json::text(one, "/id")), title(one)),
        Cell::state(shown_status(one)),
        Cell::time(json::text(one, "/not_after"), session.now),
        Cell::time(json::text(one, "/issued_at"), session.now),
        profile_cell(json::text(one, "/profile")),
        Cell::text(json::text(one, "/requester")),
        Cell::text(json::text(one, "/source")),
        Cell::text(json::text(one, "/key_algorithm")),
    ]
}

/// Returns the status for display: the API's `good` is `valid`, as on all other pages.
fn shown_status(one: &Value) -> &str {
    match json::text(one, "/status") {
        "good" => "valid",
        other => other,
    }
}

/// Returns the first name, and the number of further names. For a certificate without names, returns the subject or the serial
/// number.
fn title(one: &Value) -> String {
    let names: Vec<&str> = json::list(one, "/names").iter().filter_map(Value::as_str).collect();
    match names.as_slice() {
        [] => {
            let subject = json::text(one, "/subject");
            if subject.is_empty() { json::text(one, "/serial").to_owned() } else { subject.to_owned() }
        }
        [name] => (*name).to_owned(),
        [name, others @ ..] => format!("{name} and {} more", others.len()),
    }
}

fn profile_cell(name: &str) -> Cell {
    if name.is_empty() {
        return Cell::Empty;
    }
    Cell::link(item("/console/profiles", name), name)
}

#[derive(Template)]
#[template(path = "issued_one.html")]
struct One {
    id: String,
    facts: Facts,
    names: Vec<String>,
    may_revoke: bool,
    certificate: String,
    managed: Table,
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/issued", &id);
    let one = session.api.get(&path).await?;
    let fingerprint = json::text(&one, "/fingerprint");
    let managed = format!("/api/v1/certificates?fingerprint={}&limit=10", api::path::segment(fingerprint));
    let found = session.api.get_if_allowed(&managed).await?.unwrap_or_default();
    let names = json::list(&one, "/names").iter().filter_map(Value::as_str).map(str::to_owned);
    let body = One {
        id: json::text(&one, "/id").to_owned(),
        facts: facts(&session, &one, &ca_name(&session, &one).await?),
        names: names.collect(),
        may_revoke: session.may("certificate.revoke") && may_be_revoked(&one),
        certificate: json::text(&one, "/certificate").to_owned(),
        managed: managed_table(&session, &found),
    };
    Page::new(&session, title(&one))
        .command(format!("bulla api {path}"))
        .reads(path)
        .reads(managed)
        .show(&body)
}

fn may_be_revoked(one: &Value) -> bool {
    json::text(one, "/status") == "good" || json::text(one, "/revocation_reason") == "certificateHold"
}

fn managed_table(session: &Session, found: &Value) -> Table {
    let row = |certificate: &Value| {
        let id = json::text(certificate, "/id");
        vec![
            Cell::link(item("/console/certificates", id), json::text(certificate, "/name")),
            Cell::state(json::text(certificate, "/status")),
            Cell::text(json::text(certificate, "/owner")),
            Cell::state(json::text(certificate, "/served_status")),
            Cell::time(json::text(certificate, "/renew_at"), session.now),
        ]
    };
    Table::of(
        "Certificates under management that use it",
        &["Name", "State", "Owner", "Served", "Renewal"],
        found,
        row,
    )
    .empty("It is not a version of a certificate under management: nothing renews or deploys it.")
}

/// Returns the name of the CA, or its ID if the user may not read CAs.
async fn ca_name(session: &Session, one: &Value) -> Result<String, Failure> {
    let id = json::text(one, "/ca");
    let ca = session.api.get_if_allowed(&item("/api/v1/authorities", id)).await?;
    let name = ca.as_ref().map_or("", |ca| json::text(ca, "/name"));
    Ok(if name.is_empty() { id } else { name }.to_owned())
}

fn facts(session: &Session, one: &Value, ca_name: &str) -> Facts {
    let text = |pointer| json::text(one, pointer);
    let ca = text("/ca");
    let key = text("/spki_sha256");
    Facts::default()
        .with("Status", Cell::state(shown_status(one)))
        .with("Revoked", Cell::time(text("/revoked_at"), session.now))
        .with("Reason", Cell::text(text("/revocation_reason")))
        .with("Subject", Cell::text(text("/subject")))
        .with("Valid from", Cell::time(text("/not_before"), session.now))
        .with("Expires", Cell::time(text("/not_after"), session.now))
        .with("Issued", Cell::time(text("/issued_at"), session.now))
        .with("CA", Cell::link(item("/console/authorities", ca), ca_name))
        .with("Profile", profile_cell(text("/profile")))
        .with("Requested by", Cell::text(text("/requester")))
        .with("Protocol", Cell::text(text("/source")))
        .with("Key", Cell::text(text("/key_algorithm")))
        .with("Serial number", Cell::code(text("/serial")))
        .with("SHA-256 fingerprint", Cell::code(text("/fingerprint")))
        .with("SHA-256 of the public key", Cell::link(format!("{PAGE}?key={}", api::path::segment(key)), key))
}

async fn pem(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = session.api.get(&item("/api/v1/issued", &id)).await?;
    download(json::text(&one, "/serial"), json::text(&one, "/certificate"))
}

/// Returns a certificate as a file download.
pub(crate) fn download(name: &str, pem: &str) -> Result<Response, Failure> {
    let is_allowed = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = name.chars().filter(is_allowed).collect();
    let disposition = format!("attachment; filename=\"{name}.pem\"");
    let head = [(CONTENT_TYPE, "application/x-pem-file".to_owned()), (CONTENT_DISPOSITION, disposition)];
    Ok((head, pem.to_owned()).into_response())
}

async fn confirm_revocation(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = session.api.get(&item("/api/v1/issued", &id)).await?;
    let fingerprint = api::path::segment(json::text(&one, "/fingerprint"));
    let managed = format!("/api/v1/certificates?fingerprint={fingerprint}&limit=10");
    let managed = session.api.get_if_allowed(&managed).await?.unwrap_or_default();
    let key = api::path::segment(json::text(&one, "/spki_sha256"));
    let same = session.api.get_if_allowed(&format!("/api/v1/issued?key={key}&limit={SAME_KEY}")).await?;
    let same = same.unwrap_or_default();
    let page = item(PAGE, json::text(&one, "/id"));
    let mut confirmation = Confirmation::new(&session, format!("{page}/revoke"), &page, "Revoke").danger()
        .says("Clients that check revocation reject it within seconds by OCSP, and with the next CRL they load. This cannot be undone, except for a hold.")
        .facts(facts(&session, &one, &ca_name(&session, &one).await?))
        .field(Field::required_choice("reason", "Reason", revocation_reasons::options_with_hold()));
    for certificate in json::items(&managed) {
        confirmation = confirmation.says(in_use(certificate));
    }
    if json::items(&managed).is_empty() {
        confirmation = confirmation
            .says("It is not a version of a certificate under management: nothing here replaces it.");
    }
    let others = json::items(&same).len().saturating_sub(1);
    if others > 0 {
        let others = format::counted(others, !json::text(&same, "/next").is_empty(), "other certificate");
        confirmation = confirmation.says(format!(
            "{others} here with the same key stay valid. If the key is compromised, block it under Blocked keys: that revokes all of them."
        ));
    }
    Page::new(&session, format!("Revoke {}", title(&one)))
        .command(format!("bulla ca revoke {} --reason superseded", json::text(&one, "/id")))
        .show(&confirmation)
}

/// Describes the managed certificate to which an issued certificate belongs, and whether endpoints serve the managed certificate.
fn in_use(certificate: &Value) -> String {
    let name = json::text(certificate, "/name");
    let owner = json::text(certificate, "/owner");
    let owner = if owner.is_empty() { "without an owner".to_owned() } else { format!("owned by {owner}") };
    let served = match json::text(certificate, "/served_status") {
        "newest" | "older" => "It is served now: renew and deploy it first, or connections fail.",
        _ => "Renew it first if it is in use.",
    };
    let targets = format::counted(json::list(certificate, "/targets").len(), false, "target");
    format!("It is a version of {name}, {owner}, deployed to {targets}. {served}")
}

async fn revoke(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "certificate": id, "reason": form.field("reason").unwrap_or("unspecified") });
    let answer = session.api.change(Method::POST, "/api/v1/revocations", form.csrf(), Some(&body)).await?;
    Ok(redirect(&item(PAGE, &id), "revoked", &answer))
}

#[derive(Template)]
#[template(path = "revocations.html")]
struct Revocations {
    ca: String,
    cas: Vec<(String, String)>,
    table: Table,
}

async fn revocations(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, "/console/revocations", "/api/v1/revocations", query).await?;
    let table = listing
        .table("Revoked certificates", REVOKED, |one| revoked_row(&session, one))
        .empty("No certificate is revoked. To revoke one, open its page under Issued certificates.")
        .exported("revocations");
    let authorities = session.api.get_if_allowed("/api/v1/authorities").await?.unwrap_or_default();
    let name = |ca: &Value| (json::text(ca, "/id").to_owned(), json::text(ca, "/name").to_owned());
    let cas = json::items(&authorities).iter().map(name).collect();
    let body = Revocations { ca: parameter(query, "ca"), cas, table };
    Page::new(&session, "Revocations").command("bulla cert revocations").reads(listing.path()).show(&body)
}

const REVOKED: &[&str] = &["Serial number", "Reason", "Revoked", "Actor", "Profile", "Expires"];

pub(crate) fn revoked(session: &Session, listing: &Value) -> Table {
    Table::of("Revoked certificates", REVOKED, listing, |one| revoked_row(session, one))
}

fn revoked_row(session: &Session, one: &Value) -> Vec<Cell> {
    vec![
        Cell::link(item(PAGE, json::text(one, "/certificate")), json::text(one, "/serial")),
        Cell::text(json::text(one, "/reason")),
        Cell::time(json::text(one, "/revoked_at"), session.now),
        Cell::text(json::text(one, "/actor")),
        profile_cell(json::text(one, "/profile")),
        Cell::time(json::text(one, "/not_after"), session.now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_certificate_title_is_its_names_subject_or_serial() {
        assert_eq!(title(&json!({ "names": ["a.example"] })), "a.example");
        assert_eq!(
            title(&json!({ "names": ["a.example", "b.example", "c.example"] })),
            "a.example and 2 more"
        );
        assert_eq!(title(&json!({ "names": [], "subject": "CN=x", "serial": "1f" })), "CN=x");
        assert_eq!(title(&json!({ "names": [], "subject": "", "serial": "1f" })), "1f");
    }

    #[test]
    fn revocation_page_warns_if_the_certificate_is_in_use() {
        let served = json!({ "name": "shop", "owner": "ada", "served_status": "newest", "targets": [1, 2] });
        assert_eq!(
            in_use(&served),
            "It is a version of shop, owned by ada, deployed to 2 targets. It is served now: renew and deploy it first, or connections fail."
        );
        let other = json!({ "name": "shop", "served_status": "not verified" });
        assert!(in_use(&other).contains("without an owner, deployed to 0 targets. Renew it first"));
    }
}
