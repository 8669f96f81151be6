//! Certificate profiles.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::format::duration;
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/profiles";

pub(crate) fn routes() -> Router<Api> {
    Router::new().route(PAGE, get(list)).route("/console/profiles/{name}", get(one))
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/profiles", query.as_deref()).await?;
    let columns = &["Name", "Description", "CA", "Valid for", "Names", "Keys", "Approval"];
    let table = listing
        .table("Profiles", columns, row)
        .empty("No profile yet, so no certificate can be issued. Create one with `bulla profile create`.")
        .exported("profiles");
    let actions =
        Actions::default().link(format!("{PAGE}/new"), "New profile").only_if(session.may("profile.manage"));
    let body = Sections::default().plain(&actions)?.section("list", "All profiles", &table)?;
    Page::new(&session, "Profiles").command("bulla profile list").reads(listing.path()).show(&body)
}

fn row(profile: &Value) -> Vec<Cell> {
    let name = json::text(profile, "/name");
    vec![
        Cell::link(item(PAGE, name), name),
        Cell::text(json::text(profile, "/description")),
        Cell::text(issuing_ca(profile)),
        Cell::text(duration(json::number(profile, "/validity/default_seconds"))),
        Cell::text(rules(profile, "/names/dns_allowed").join(", ")),
        Cell::text(json::joined(profile, "/key_types")),
        approval(profile),
    ]
}

fn issuing_ca(profile: &Value) -> &str {
    match json::text(profile, "/ca") {
        "" => "the default CA",
        name => name,
    }
}

fn approval(profile: &Value) -> Cell {
    if !json::flag(profile, "/requires_approval") {
        return Cell::text("not needed");
    }
    match json::number(profile, "/approvals") {
        0 | 1 => Cell::badge(Tone::Warn, "1 person"),
        people => Cell::badge(Tone::Warn, format!("{people} people")),
    }
}

/// Formats rules for names. A string stays unchanged, a suffix is shown without its conditions, and the rule for every name is
/// `every name`.
fn rules(profile: &Value, pointer: &str) -> Vec<String> {
    let shown = |rule: &Value| match rule {
        Value::String(text) => text.clone(),
        rule => match rule.get("suffix").and_then(Value::as_str) {
            Some("") => "every name".to_owned(),
            Some(suffix) => format!("{suffix} (with conditions)"),
            None => rule.to_string(),
        },
    };
    json::list(profile, pointer).iter().map(shown).collect()
}

#[derive(Template)]
#[template(path = "profile.html")]
struct Profile {
    name: String,
    description: String,
    may_edit: bool,
    names: Facts,
    keys: Facts,
    validity: Facts,
    usages: Facts,
    ca: Facts,
    managed: Option<Table>,
    issued: Option<Table>,
}

async fn one(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let segment = api::path::segment(&name);
    let path = format!("/api/v1/profiles/{segment}");
    let profile = session.api.get(&path).await?;
    let managed = format!("/api/v1/certificates?profile={segment}&limit=10&count=true");
    let issued = format!("/api/v1/issued?profile={segment}&limit=10");
    let certificates = session.api.get_if_allowed(&managed).await?;
    let newest = session.api.get_if_allowed(&issued).await?;
    let body = Profile {
        description: json::text(&profile, "/description").to_owned(),
        may_edit: session.may("profile.manage"),
        names: names_facts(&profile),
        keys: keys_facts(&profile),
        validity: validity_facts(&profile),
        usages: usages_facts(&profile),
        ca: ca_facts(&session, &profile),
        managed: certificates.map(|listing| followers(&session, &listing)),
        issued: newest.map(|listing| {
            super::issued::table(&session, &listing).empty("No certificate was issued with it yet.")
        }),
        name: segment,
    };
    Page::new(&session, format!("Profile {name}"))
        .command(format!("bulla profile show '{name}'"))
        .reads(path)
        .reads(managed)
        .reads(issued)
        .show(&body)
}

/// Returns managed certificates as a short table.
pub(crate) fn followers(session: &Session, listing: &Value) -> Table {
    let row = |certificate: &Value| {
        let id = json::text(certificate, "/id");
        vec![
            Cell::link(item("/console/certificates", id), json::text(certificate, "/name")),
            Cell::state(json::text(certificate, "/status")),
            Cell::text(json::text(certificate, "/owner")),
            Cell::time(json::text(certificate, "/ends_at"), session.now),
            Cell::time(json::text(certificate, "/renew_at"), session.now),
        ]
    };
    Table::of(
        "Certificates under management",
        &["Name", "State", "Owner", "Expires", "Renewal"],
        listing,
        row,
    )
    .empty("No certificate under management uses it.")
}

fn lines(profile: &Value, pointer: &str) -> Cell {
    Cell::text(rules(profile, pointer).join(", "))
}

fn names_facts(profile: &Value) -> Facts {
    let required = if json::flag(profile, "/names/required") { "at least one name" } else { "none needed" };
    Facts::default()
        .with("DNS names allowed", lines(profile, "/names/dns_allowed"))
        .with("DNS names denied", lines(profile, "/names/dns_denied"))
        .with("Addresses allowed", lines(profile, "/names/ip_allowed"))
        .with("Addresses denied", lines(profile, "/names/ip_denied"))
        .with("URIs allowed", lines(profile, "/names/uri_allowed"))
        .with("Mailboxes allowed", lines(profile, "/names/email_allowed"))
        .with("Names required", Cell::text(required))
        .with("Maximum names", Cell::number(json::number(profile, "/names/max")))
        .with("Common name", Cell::text(json::text(profile, "/subject/common_name").replace('-', " ")))
        .with("Fixed subject", Cell::text(json::text(profile, "/subject/fixed")))
}

fn keys_facts(profile: &Value) -> Facts {
    let bits = json::number(profile, "/rsa_bits_min");
    let bits = if bits == 0 { Cell::Empty } else { Cell::number(bits) };
    Facts::default()
        .with("Key types", Cell::text(json::joined(profile, "/key_types")))
        .with("Minimum RSA bits", bits)
}

fn validity_facts(profile: &Value) -> Facts {
    let of = |pointer| duration(json::number(profile, pointer));
    let default = of("/validity/default_seconds");
    let maximum = Some(of("/validity/max_seconds")).filter(|maximum| !maximum.is_empty());
    Facts::default()
        .with("Valid for", Cell::text(default.clone()))
        .with("Maximum validity", Cell::text(maximum.unwrap_or(default)))
        .with("Backdated by", Cell::text(of("/validity/backdate_seconds")))
        .with("Renewed", Cell::text(renewed(profile)))
        .with("Approval", approval(profile))
}

fn renewed(profile: &Value) -> String {
    let part = profile.pointer("/renew_at").and_then(Value::as_f64);
    part.map(|part| format!("after {:.0} % of its lifetime", part * 100.0)).unwrap_or_default()
}

fn usages_facts(profile: &Value) -> Facts {
    let key_usage = Some(json::joined(profile, "/key_usage")).filter(|usage| !usage.is_empty());
    Facts::default()
        .with("Extended key usages", Cell::text(json::joined(profile, "/extended_key_usage")))
        .with("Key usages", Cell::text(key_usage.unwrap_or_else(|| "by kind of key".to_owned())))
        .with("Must staple", Cell::text(json::text(profile, "/must_staple").replace('-', " ")))
        .with("Certificate policies", Cell::text(json::joined(profile, "/policies")))
        .with("Extensions allowed in requests", Cell::text(json::joined(profile, "/requested_extensions")))
        .with("Preset", Cell::text(json::text(profile, "/preset")))
}

fn ca_facts(session: &Session, profile: &Value) -> Facts {
    let ca = json::text(profile, "/ca");
    let ca = if ca.is_empty() {
        Cell::link("/console/authorities", "the default CA")
    } else {
        Cell::link(item("/console/authorities", ca), ca)
    };
    Facts::default()
        .with("Issued by", ca)
        .with("Revision", Cell::number(json::number(profile, "/revision")))
        .with("Created", Cell::time(json::text(profile, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(profile, "/updated_at"), session.now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_rules_are_shown_without_json() {
        let profile =
            json!({ "names": [".example.net", { "suffix": "a.example", "itself": true }, { "suffix": "" }] });
        assert_eq!(rules(&profile, "/names"), [".example.net", "a.example (with conditions)", "every name"]);
    }
}
