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

/// API path of the deployment targets.
const TARGETS: &str = "/api/v1/targets?limit=500&fields=id,name,agent";

fn unknown(action: &str) -> Failure {
    Failure::refused(
        StatusCode::NOT_FOUND,
        format!("unknown action {action}"),
        "the actions: renew, deploy, targets, owner, revoke, archive, restore",
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
        "targets" => (
            format!("Change the targets of {name}"),
            change_targets(&session, &id, &certificate).await?,
            "bulla cert update --file targets.json",
        ),
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
    match deployed_to(certificate).len() {
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
    let count = deployed_to(certificate).len();
    form(session, id, "deploy", certificate, "Deploy again")
        .says(format!(
            "The current version is deployed to its {} once more; agents reload the services there.",
            format::counted(count, false, "target")
        ))
        .says("No new version is issued.")
}

/// Returns the IDs of the targets that agents deploy the certificate to.
pub(super) fn deployed_to(certificate: &Value) -> Vec<&str> {
    json::list(certificate, "/targets")
        .iter()
        .map(|one| json::text(one, "/target"))
        .filter(|id| !id.is_empty())
        .collect()
}

async fn change_targets(session: &Session, id: &str, certificate: &Value) -> Result<Confirmation, Failure> {
    let all = session.api.get_if_allowed(TARGETS).await?.unwrap_or_default();
    let deployed = deployed_to(certificate);
    let options = |wanted: bool, none: &str| {
        let of = json::items(&all).iter().filter(|one| deployed.contains(&json::text(one, "/id")) == wanted);
        let of = of.map(|one| (json::text(one, "/id").to_owned(), json::text(one, "/name").to_owned()));
        std::iter::once((String::new(), none.to_owned())).chain(of).collect::<Vec<_>>()
    };
    Ok(form(session, id, "targets", certificate, "Save")
        .says("The agent of an added target deploys each version from the next one on. Deploy again deploys the current version.")
        .says("At a removed target the deployed version stays, and later versions are not deployed.")
        .field(Field::choice("add", "Add a target", options(false, "none")).hint("New targets: Targets, in the menu."))
        .field(Field::choice("remove", "Remove a target", options(true, "none"))))
}

/// Returns the targets of a certificate after a change. `all` is the list of deployment targets, each with its agent.
fn changed_targets(
    certificate: &Value,
    all: &Value,
    add: Option<&str>,
    remove: Option<&str>,
) -> Result<Value, Failure> {
    let remaining = json::list(certificate, "/targets").iter();
    let mut targets: Vec<Value> =
        remaining.filter(|one| remove.is_none_or(|id| json::text(one, "/target") != id)).cloned().collect();
    if let Some(add) = add {
        let found = json::items(all).iter().find(|one| json::text(one, "/id") == add).ok_or_else(|| {
            Failure::refused(StatusCode::NOT_FOUND, format!("no target {add}"), "choose a target of the list")
        })?;
        targets.push(json!({ "kind": "deploy", "target": add, "agent": json::text(found, "/agent") }));
    }
    Ok(targets.into())
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
    if action == "targets" {
        return save_targets(&session, &id, &form).await;
    }
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

/// Saves the targets. Fails if the certificate changes at the same time, so that no target is lost.
async fn save_targets(session: &Session, id: &str, form: &FormData) -> Result<Response, Failure> {
    let path = api_path(id);
    let (certificate, revision) = session.api.get_with_revision(&path).await?;
    let all = session.api.get(TARGETS).await?;
    let targets = changed_targets(&certificate, &all, form.field("add"), form.field("remove"))?;
    let body = json!({ "targets": targets });
    let answer =
        session.api.change_with_revision(Method::PATCH, &path, form.csrf(), revision, Some(&body)).await?;
    Ok(redirect(&page_of(id), "saved", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_added_with_its_agent_and_others_are_kept() {
        let endpoint = json!({ "kind": "endpoint", "host": "a.example", "port": 443 });
        let old = json!({ "kind": "deploy", "target": "t1", "agent": "a1" });
        let certificate = json!({ "targets": [endpoint, old] });
        let all = json!({ "items": [{ "id": "t1", "agent": "a1" }, { "id": "t2", "agent": "a2" }] });
        let changed = |add, remove| changed_targets(&certificate, &all, add, remove);
        let new = json!({ "kind": "deploy", "target": "t2", "agent": "a2" });
        assert_eq!(changed(Some("t2"), None).unwrap(), json!([endpoint, old, new]));
        assert_eq!(changed(None, Some("t1")).unwrap(), json!([endpoint]));
        assert_eq!(changed(None, None).unwrap(), certificate["targets"]);
        assert!(changed(Some("t3"), None).is_err());
        assert_eq!(deployed_to(&certificate), ["t1"]);
        assert_eq!(targets(&certificate), "The new version is deployed to its 1 target.");
    }
}
