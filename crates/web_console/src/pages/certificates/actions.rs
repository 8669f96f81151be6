//! Actions on one certificate. Each has a confirmation page that describes its consequences.

use axum::extract::Path;
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::shared::{PAGE, api_path};
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, names};
use crate::form_data::{FormData, redirect};
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::{format, json, revocation_reasons};

fn unknown(action: &str) -> Failure {
    Failure::refused(
        StatusCode::NOT_FOUND,
        format!("unknown action {action}"),
        "the actions: renew, deploy, owner, revoke, archive, restore",
    )
}

/// Shows the confirmation page of an action.
pub(super) async fn confirm(
    session: Session,
    Path((id, action)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let path = api_path(&id);
    let certificate = session.api.get(&path).await?;
    let name = json::text(&certificate, "/name").to_owned();
    let (title, confirmation, command) = match action.as_str() {
        "renew" => (format!("Renew {name}"), renew(&session, &id, &certificate), "bulla cert renew"),
        "deploy" => {
            (format!("Deploy {name} again"), deploy(&session, &id, &certificate), "bulla cert deploy")
        }
        "owner" => (
            format!("Change the owner of {name}"),
            owner(&session, &id, &certificate).await?,
            "bulla cert update",
        ),
        "revoke" => {
            (format!("Revoke {name}"), revoke(&session, &id, &certificate).await?, "bulla cert revoke")
        }
        "archive" => {
            (format!("Archive {name}"), archive(&session, &id, &certificate).await?, "bulla cert archive")
        }
        "restore" => (format!("Restore {name}"), restore(&session, &id, &certificate), "bulla cert restore"),
        other => return Err(unknown(other)),
    };
    Page::new(&session, title).command(format!("{command} {id}")).reads(path).show(&confirmation)
}

/// Returns the form of an action.
fn form(
    session: &Session,
    id: &str,
    action: &str,
    certificate: &Value,
    button: &'static str,
) -> Confirmation {
    let page = page_of(id);
    Confirmation::new(session, format!("{page}/{action}"), page, button).facts(summary(session, certificate))
}

fn page_of(id: &str) -> String {
    item(PAGE, id)
}

fn summary(session: &Session, certificate: &Value) -> Facts {
    Facts::default()
        .with("State", Cell::state(json::text(certificate, "/status")))
        .with("Names", Cell::text(json::joined(certificate, "/names")))
        .with("Expires", Cell::time(json::text(certificate, "/ends_at"), session.now))
        .with("Owner", Cell::text(json::text(certificate, "/owner")))
        .with("Current version", Cell::code(json::text(certificate, "/current/fingerprint")))
}

/// Describes how many endpoints presented a version of the certificate in their last scan.
async fn serving(session: &Session, id: &str) -> Result<String, Failure> {
    let listing = session.api.get_if_allowed(&format!("{}/endpoints?limit=100", api_path(id))).await?;
    let Some(listing) = listing else { return Ok("You may not see which endpoints serve it.".to_owned()) };
    let endpoints = json::items(&listing);
    let current = endpoints.iter().filter(|one| json::flag(one, "/current")).count();
    let more = if json::text(&listing, "/next").is_empty() { "" } else { "at least " };
    Ok(match (endpoints.len(), current) {
        (0, _) => {
            "No scan has found an endpoint that serves it. Endpoints that no watch covers may still serve it."
                .to_owned()
        }
        (all, current) => format!(
            "Scans last saw it at {more}{}, {current} of them with the current version.",
            format::counted(all, false, "endpoint")
        ),
    })
}

fn targets(certificate: &Value) -> String {
    match json::list(certificate, "/targets").len() {
        0 => "It has no targets: nothing is deployed. Servers must fetch the new version.".to_owned(),
        count => format!("The new version is deployed to its {}.", format::counted(count, false, "target")),
    }
}

fn renew(session: &Session, id: &str, certificate: &Value) -> Confirmation {
    form(session, id, "renew", certificate, "Renew now")
        .says(format!("The issuer {} issues a new version immediately.", json::text(certificate, "/issuer")))
        .says(targets(certificate))
        .says("The version in use stays valid until it expires.")
}

fn deploy(session: &Session, id: &str, certificate: &Value) -> Confirmation {
    let count = json::list(certificate, "/targets").len();
    form(session, id, "deploy", certificate, "Deploy again")
        .says(format!(
            "The current version is deployed to its {} once more; agents reload the services there.",
            format::counted(count, false, "target")
        ))
        .says("No new version is issued.")
}

async fn revoke(session: &Session, id: &str, certificate: &Value) -> Result<Confirmation, Failure> {
    Ok(form(session, id, "revoke", certificate, "Revoke the current version")
        .danger()
        .says("The current version is added to the CRL, and OCSP reports it as revoked. Clients that check revocation reject it.")
        .says(serving(session, id).await?)
        .says("A revocation cannot be undone, and its reason cannot be corrected.")
        .says("Without a replacement, services that use it fail for clients that check revocation.")
        .field(Field::required_choice("reason", "Reason", revocation_reasons::options()).hint("Choose key compromise if \
         the key may be known to others, and request a replacement too."))
        .field(Field::checkbox("replace", "Request a new version with a new key immediately").checked(true))
        .field(Field::checkbox("sure", "I understand that this cannot be undone").required()))
}

async fn archive(session: &Session, id: &str, certificate: &Value) -> Result<Confirmation, Failure> {
    Ok(form(session, id, "archive", certificate, "Archive")
        .danger()
        .says("It is not renewed any more, and its expiry raises no alert.")
        .says("Versions in use stay in place and stay valid: archiving revokes nothing.")
        .says(serving(session, id).await?)
        .says("It can be restored later."))
}

fn restore(session: &Session, id: &str, certificate: &Value) -> Confirmation {
    form(session, id, "restore", certificate, "Restore")
        .says("It is managed again, and renewed when it is due.")
}

async fn owner(session: &Session, id: &str, certificate: &Value) -> Result<Confirmation, Failure> {
    let (owners, teams) = people(session).await?;
    Ok(form(session, id, "owner", certificate, "Save")
        .says("Alerts about it go to the new owner. Permissions by owner or team apply immediately.")
        .field(
            Field::line("owner", "Owner")
                .suggestions(owners)
                .value(json::text(certificate, "/owner"))
                .hint("Empty: no owner."),
        )
        .field(Field::line("team", "Team").suggestions(teams).value(json::text(certificate, "/team"))))
}

/// Returns the names of owners and teams, as suggestions.
pub(super) async fn people(session: &Session) -> Result<(Vec<String>, Vec<String>), Failure> {
    Ok((
        names(session.api.get_if_allowed("/api/v1/owners?limit=500&fields=name").await?.as_ref()),
        names(session.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?.as_ref()),
    ))
}

/// Performs an action, and redirects to the certificate.
pub(super) async fn perform(
    session: Session,
    Path((id, action)): Path<(String, String)>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = api_path(&id);
    let (method, path, body, done) = match action.as_str() {
        "renew" => (Method::POST, format!("{path}/renew"), None, "renewed"),
        "deploy" => (Method::POST, format!("{path}/deploy"), None, "deployed"),
        "restore" => (Method::POST, format!("{path}/restore"), None, "saved"),
        "archive" => (Method::DELETE, path, None, "saved"),
        "owner" => (
            Method::PATCH,
            path,
            Some(json!({"owner": form.field("owner"), "team": form.field("team")})),
            "saved",
        ),
        "revoke" => {
            let body = json!({"reason": form.field("reason"), "replace": form.is_checked("replace")});
            (Method::POST, format!("{path}/revoke"), Some(body), "revoked")
        }
        other => return Err(unknown(other)),
    };
    let answer = session.api.change(method, &path, form.csrf(), body.as_ref()).await?;
    Ok(redirect(&page_of(&id), done, &answer))
}
