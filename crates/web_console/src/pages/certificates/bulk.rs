//! Bulk actions on certificates: a confirmation page with the selected certificates, then the results.

use askama::Template;
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::actions::people;
use super::facets;
use super::shared::{COLUMNS, LIST, PAGE, row};
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::FormData;
use crate::query::{filters, item};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json, revocation_reasons};

/// Maximum certificates that the form lists one by one. The action then applies exactly to the listed certificates, even if others
/// match later.
const NAMED_MAX: i64 = 500;

/// Returns the page title and the button label of a bulk action. `action` is its name in the API.
fn words(action: &str) -> Result<(&'static str, &'static str), Failure> {
    match action {
        "renew" => Ok(("Renew several certificates", "Renew these")),
        "revoke" => Ok(("Revoke several certificates", "Revoke these")),
        "reassign" => Ok(("Change the owner of several certificates", "Change these")),
        other => Err(Failure::refused(
            StatusCode::NOT_FOUND,
            format!("unknown bulk action {other}"),
            "the actions: renew, revoke, reassign",
        )),
    }
}

/// Shows the certificates that match the filter of the list, and the form.
pub(super) async fn confirm(
    session: &Session,
    action: &str,
    query: Option<&str>,
) -> Result<Response, Failure> {
    let (title, button) = words(action)?;
    let filters = filters(query);
    let path = format!("{LIST}?count=true&limit={NAMED_MAX}&{filters}");
    let listing = session.api.get(&path).await?;
    let whole = json::text(&listing, "/next").is_empty();
    let shown = json::items(&listing).len();
    let table = Table::of("Selected certificates", COLUMNS, &listing, |one| row(session, one))
        .empty("No certificate matches this filter. Go back and remove a part of the filter.");
    let back = if filters.is_empty() { PAGE.to_owned() } else { format!("{PAGE}?{filters}") };
    let mut body =
        Confirmation::new(session, format!("{PAGE}/{action}"), back, button).says(filter_words(&filters));
    if whole {
        body = body.says(format!(
            "{} affected, exactly as in the table, even if more certificates match the filter later.",
            count_with_verb(shown)
        ));
        for one in json::items(&listing) {
            body = body.hidden("id", json::text(one, "/id"));
        }
    } else {
        let total = format::number(json::number(&listing, "/total/value"));
        let least = if json::flag(&listing, "/total/exact") { "" } else { "at least " };
        body = body.hidden("filter", filters.clone()).hidden("all", "yes").says(format!(
            "{least}{total} certificates match, too many for a form. The action affects all that match when it runs; the \
             table shows the first {shown}."
        ));
    }
    let body = fields(session, body, action).await?.table("Certificates", table);
    Page::new(session, title).command(command(action, &filters)).reads(path).show(&body)
}

fn count_with_verb(count: usize) -> String {
    if count == 1 { "1 certificate is".to_owned() } else { format!("{count} certificates are") }
}

fn filter_words(filters: &str) -> String {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filters).unwrap_or_default();
    let words: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{} is {value}", name.replace('_', " "))).collect();
    if words.is_empty() {
        "Filter: none, so every certificate.".to_owned()
    } else {
        format!("Filter: {}.", words.join(", "))
    }
}

/// Returns the equivalent command, with the filters that it supports.
fn command(action: &str, filters: &str) -> String {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filters).unwrap_or_default();
    let option = |name: &str| match name {
        "status" => Some("--status"),
        "profile" => Some("--by-profile"),
        "issuer" => Some("--from-issuer"),
        "ca" => Some("--from-ca"),
        "owner" => Some("--of-owner"),
        "team" => Some("--of-team"),
        "environment" => Some("--in-environment"),
        "tag" => Some("--with-tag"),
        "contains" => Some("--contains"),
        _ => None,
    };
    let options: Vec<String> =
        pairs.iter().filter_map(|(name, value)| Some(format!(" {} {value:?}", option(name)?))).collect();
    match action {
        "reassign" => "bulla cert update NAME --file owner.json".to_owned(),
        _ => format!("bulla cert {action} --all{}", options.concat()),
    }
}

async fn fields(session: &Session, body: Confirmation, action: &str) -> Result<Confirmation, Failure> {
    Ok(match action {
        "revoke" => body
            .danger()
            .says("Each current version is added to the CRL, and OCSP reports it as revoked. Clients that check revocation reject it.")
            .says("A revocation cannot be undone, and its reason cannot be corrected.")
            .field(Field::required_choice("reason", "Reason", revocation_reasons::options()))
            .field(Field::checkbox("replace", "Request new versions with new keys immediately").checked(true))
            .field(Field::checkbox("sure", "I understand that this cannot be undone").required()),
        "reassign" => {
            let (owners, teams) = people(session).await?;
            body.says("An empty field changes nothing.")
                .field(Field::line("owner", "New owner").suggestions(owners))
                .field(Field::line("team", "New team").suggestions(teams))
                .field(Field::line("environment", "New environment"))
        }
        _ => body
            .says("Each issuer issues a new version as fast as its rate limits allow. Versions in use stay valid until they expire.")
            .field(Field::line("why", "Reason").hint("Written to the audit log.")),
    })
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Outcome {
    counts: Vec<(&'static str, String)>,
    refused: Table,
    back: String,
}

/// Performs the action, and shows the result for each certificate.
pub(super) async fn perform(session: &Session, action: &str, form: &FormData) -> Result<Response, Failure> {
    let (title, _) = words(action)?;
    let mut body = Map::new();
    body.insert("select".to_owned(), selection(form));
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value.into());
        }
    };
    match action {
        "revoke" => {
            put("reason", form.field("reason"));
            body.insert("replace".to_owned(), form.is_checked("replace").into());
        }
        "reassign" => ["owner", "team", "environment"].iter().for_each(|name| put(name, form.field(name))),
        _ => put("reason", form.field("why")),
    }
    let path = format!("{LIST}/{action}");
    let answer = session.api.change(Method::POST, &path, form.csrf(), Some(&body.into())).await?;
    let outcome = Outcome { counts: counts(&answer), refused: refused(&answer), back: PAGE.to_owned() };
    Page::new(session, format!("{title}: done")).reads(LIST).show(&outcome)
}

/// Returns the certificates that the form lists, or its filter if the form selects all matches.
fn selection(form: &FormData) -> Value {
    if !form.is_checked("all") {
        let ids: Vec<&str> = form.all("id").collect();
        return json!({ "ids": ids });
    }
    let filter = form.text("filter");
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(filter).unwrap_or_default();
    let members = pairs.into_iter().filter(|(name, _)| facets::FILTERS.contains(&name.as_str()));
    let members: Map<String, Value> = members.map(|(name, value)| (name, value.into())).collect();
    json!({ "filter": members })
}

fn counts(answer: &Value) -> Vec<(&'static str, String)> {
    let all = [
        ("matched", "/matched"),
        ("done or in progress", "/done"),
        ("already so", "/already"),
        ("refused", "/refused"),
        ("no longer there", "/missing"),
    ];
    all.into_iter().map(|(words, member)| (words, format::number(json::number(answer, member)))).collect()
}

fn refused(answer: &Value) -> Table {
    let rows = json::list(answer, "/reasons").iter().map(|one| {
        let id = json::text(one, "/id");
        vec![Cell::link(item(PAGE, id), id), Cell::text(json::text(one, "/reason"))]
    });
    Table::new("Refused, with the reason of each", &["Certificate", "Reason"], rows)
        .empty("No certificate was refused.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_filter_is_shown_as_text_and_as_a_command() {
        assert_eq!(filter_words("owner=ada&status=failed"), "Filter: owner is ada, status is failed.");
        assert_eq!(filter_words(""), "Filter: none, so every certificate.");
        assert_eq!(command("renew", "owner=a%20b&sort=name"), "bulla cert renew --all --of-owner \"a b\"");
        assert_eq!(command("renew", "ca=issuing"), "bulla cert renew --all --from-ca \"issuing\"");
    }
}
