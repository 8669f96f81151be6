//! Certificate profiles.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::format::duration;
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/profiles";

/// Seconds in a day.
const DAY: i64 = 86_400;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/profiles/{name}", get(one))
        .route("/console/profiles/{name}/edit", get(edit).post(save))
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

/// Formats rules for names: a string stays unchanged, a suffix with conditions is shown without them, and the rule for every name is
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
    let most = Some(of("/validity/max_seconds")).filter(|most| !most.is_empty());
    Facts::default()
        .with("Valid for", Cell::text(default.clone()))
        .with("Maximum validity", Cell::text(most.unwrap_or(default)))
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

#[derive(Template)]
#[template(path = "profile_edit.html")]
struct ProfileEditForm {
    name: String,
    csrf: String,
    revision: i64,
    description: String,
    days: String,
    max_days: String,
    /// Lists of names in the form: field, label, lines.
    lists: Vec<(&'static str, &'static str, String)>,
    followers: String,
}

/// The lists of names in the form: the field and member, its label, and whether a line can be a rule in JSON.
const LISTS: &[(&str, &str, bool)] = &[
    ("dns_allowed", "DNS names allowed", true),
    ("dns_denied", "DNS names denied", true),
    ("ip_allowed", "Addresses allowed", false),
    ("ip_denied", "Addresses denied", false),
    ("uri_allowed", "URIs allowed, by prefix", false),
    ("email_allowed", "Mailboxes allowed", false),
];

async fn edit(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let segment = api::path::segment(&name);
    let path = format!("/api/v1/profiles/{segment}");
    let profile = session.api.get(&path).await?;
    let counted = format!("/api/v1/certificates?profile={segment}&limit=1&count=true");
    let counted = session.api.get_if_allowed(&counted).await?.unwrap_or_default();
    let raw = |member: &str| {
        let lines = json::list(&profile, &format!("/names/{member}")).iter();
        let lines: Vec<String> =
            lines.map(|rule| rule.as_str().map_or_else(|| rule.to_string(), str::to_owned)).collect();
        lines.join("\n")
    };
    let body = ProfileEditForm {
        csrf: session.csrf().to_owned(),
        revision: json::number(&profile, "/revision"),
        description: json::text(&profile, "/description").to_owned(),
        days: days(json::number(&profile, "/validity/default_seconds")),
        max_days: days(json::number(&profile, "/validity/max_seconds")),
        lists: LISTS.iter().map(|(member, label, _)| (*member, *label, raw(member))).collect(),
        followers: crate::format::number(json::number(&counted, "/total/value")),
        name: segment,
    };
    Page::new(&session, format!("Edit profile {name}"))
        .command(format!("bulla profile update '{name}' --file profile.json"))
        .reads(path)
        .show(&body)
}

/// Formats seconds as days with a fraction; empty for 0.
fn days(seconds: i64) -> String {
    if seconds == 0 {
        return String::new();
    }
    if seconds % DAY == 0 {
        return (seconds / DAY).to_string();
    }
    let days = seconds as f64 / DAY as f64;
    days.to_string()
}

/// Converts days from the form to seconds; `None` if the field is empty.
fn seconds(days: Option<&str>) -> Result<Option<i64>, Failure> {
    let Some(days) = days else { return Ok(None) };
    let parsed = days.parse::<f64>().ok().filter(|days| (0.0..=36_500.0).contains(days) && *days > 0.0);
    let seconds = parsed.map(|days| (days * 86_400.0).round() as i64);
    seconds.map(Some).ok_or_else(|| bad(format!("{days:?} is not a number of days above 0 and up to 36500")))
}

fn bad(detail: String) -> Failure {
    Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, detail, "go back and correct the field")
}

async fn save(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    let segment = api::path::segment(&name);
    let path = format!("/api/v1/profiles/{segment}");
    let mut profile = session.api.get(&path).await?;
    let revision = form.field("revision").and_then(|text| text.parse().ok());
    let revision = revision.ok_or_else(|| bad("the form has no revision".to_owned()))?;
    profile["description"] = form.text("description").into();
    if let Some(seconds) = seconds(form.field("days"))? {
        profile["validity"]["default_seconds"] = seconds.into();
    }
    match (seconds(form.field("max_days"))?, profile.pointer_mut("/validity").and_then(Value::as_object_mut))
    {
        (Some(seconds), Some(validity)) => _ = validity.insert("max_seconds".to_owned(), seconds.into()),
        (None, Some(validity)) => _ = validity.remove("max_seconds"),
        (_, None) => {}
    }
    for (member, label, rules) in LISTS {
        profile["names"][*member] = names_of(form.field(member).unwrap_or_default(), label, *rules)?;
    }
    let answer =
        session.api.change_if_match(Method::PUT, &path, form.csrf(), revision, Some(&profile)).await?;
    Ok(redirect(&format!("{PAGE}/{segment}"), "saved", &answer))
}

/// Parses names, one per line. With `rules`, a line that begins with `{` is a rule in JSON.
fn names_of(text: &str, label: &str, rules: bool) -> Result<Value, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let rule = |line: &str| match line.starts_with('{') && rules {
        true => {
            serde_json::from_str(line).map_err(|error| bad(format!("{label}: {line} is not a rule: {error}")))
        }
        false => Ok(json!(line)),
    };
    lines.map(rule).collect::<Result<Vec<Value>, Failure>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_roundtrip_as_days_and_invalid_ones_are_rejected() {
        for seconds_of in [86_400, 4_060_800, 43_200, 100] {
            assert_eq!(seconds(Some(&days(seconds_of))).unwrap(), Some(seconds_of));
        }
        assert_eq!(seconds(None).unwrap(), None);
        for wrong in ["0", "-1", "x", "1e99", "NaN"] {
            assert!(seconds(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn name_rules_are_shown_without_json() {
        let profile =
            json!({ "names": [".example.net", { "suffix": "a.example", "itself": true }, { "suffix": "" }] });
        assert_eq!(rules(&profile, "/names"), [".example.net", "a.example (with conditions)", "every name"]);
    }

    #[test]
    fn name_rules_roundtrip_through_their_form_field() {
        let rules = json!([".example.net", { "suffix": "a.example", "itself": true }]);
        let lines: Vec<String> = rules
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule.as_str().map_or_else(|| rule.to_string(), str::to_owned))
            .collect();
        assert_eq!(names_of(&lines.join("\r\n"), "DNS", true).unwrap(), rules);
        assert!(names_of("{x", "DNS", true).is_err());
        assert_eq!(names_of("\n 10.0.0.0/8 \n", "IP", false).unwrap(), json!(["10.0.0.0/8"]));
    }
}
