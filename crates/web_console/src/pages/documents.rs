//! Objects as JSON documents: create, edit and delete.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;

/// A kind of object that is created and edited as a JSON document.
struct Kind {
    /// The last part of its path, in the API and in the console.
    path: &'static str,
    noun: &'static str,
    /// The words of the CLI command for this kind after `bulla`; empty if no command can replace an object.
    command: &'static str,
    /// Name of the path parameter that identifies an object.
    parameter: &'static str,
    /// The part of the object that an edit replaces.
    part: Part,
    method: Method,
    example: &'static str,
    /// Texts about the consequences of an edit and of a deletion.
    edited: &'static str,
    deleted: &'static str,
    help: &'static str,
}

/// The part of an object that an edit replaces.
enum Part {
    /// The whole object, without members that the server computes.
    Whole,
    /// One member of the object. The other members stay unchanged.
    Member(&'static str),
    /// Some members of the object. The API accepts no others.
    Members(&'static [&'static str]),
}

const PROFILE: Kind = Kind {
    path: "profiles",
    noun: "profile",
    command: "profile",
    parameter: "name",
    part: Part::Whole,
    method: Method::PUT,
    example: r#"{
  "name": "web",
  "description": "Web servers",
  "names": { "dns_allowed": [".example.net"] },
  "validity": { "default_seconds": 2592000 },
  "extended_key_usage": ["serverAuth"]
}"#,
    edited: "The next renewal of each certificate with this profile follows the new rules. Issued certificates stay as they are.",
    deleted: "The server rejects the deletion while certificates use the profile.",
    help: "All members: ProfileDocument in /openapi.json.",
};

const ISSUER: Kind = Kind {
    path: "issuers",
    noun: "issuer",
    command: "issuer",
    parameter: "id",
    part: Part::Member("config"),
    method: Method::PATCH,
    example: r#"{
  "name": "letsencrypt",
  "config": {
    "type": "acme",
    "directory": "https://acme-v02.api.letsencrypt.org/directory",
    "terms_agreed": true,
    "contact": ["mailto:pki@example.com"]
  }
}"#,
    edited: "The next order uses the new settings. Secrets that are left out stay, unless their destination changes: then give them again.",
    deleted: "The server rejects the deletion while certificates use the issuer. Issued certificates stay valid.",
    help: "Types: acme, vault, step_ca, exec, webhook. All members: docs/issuers.md.",
};

const POLICY: Kind = Kind {
    path: "policies",
    noun: "policy",
    command: "policy",
    parameter: "name",
    part: Part::Member("policy"),
    method: Method::PUT,
    example: r#"{
  "name": "production",
  "policy": {
    "description": "Rules for production",
    "applies_to": { "environments": ["prod"] },
    "enforcement": "advisory",
    "renewal": { "renew_before": { "days": 14 } },
    "rules": [{ "rule": "max_lifetime", "seconds": 4060800, "severity": "error" }]
  }
}"#,
    edited: "Renewal times and violations of the certificates it applies to are computed again.",
    deleted: "Certificates that it applied to renew by their profile, and its violations are removed.",
    help: "All members: docs/lifecycle.md.",
};

const ALERT_RULE: Kind = Kind {
    path: "alert-rules",
    noun: "alert rule",
    command: "alert rule",
    parameter: "id",
    part: Part::Members(&["name", "rule"]),
    method: Method::PUT,
    example: r#"{
  "name": "web team",
  "rule": {
    "when": { "kinds": ["certificate"], "teams": ["web"], "min_severity": "medium" },
    "channels": ["on-call"],
    "escalate": { "after_seconds": 3600, "channels": ["managers"] },
    "digest": false
  }
}"#,
    edited: "Alerts from now on follow the new rule. Notifications that wait are still sent.",
    deleted: "Alerts that only this rule matches send no notification any more.",
    help: "Conditions in \"when\", all of which must hold: kinds, subjects, owners, teams, environments, issuers, profiles, tags, min_severity. All members: docs/alerts.md.",
};

const ALERT_CHANNEL: Kind = Kind {
    path: "alert-channels",
    noun: "alert channel",
    command: "alert channel",
    parameter: "id",
    part: Part::Members(&["name", "config", "enabled"]),
    method: Method::PUT,
    example: r#"{
  "name": "on-call",
  "config": { "type": "webhook", "url": "https://hooks.example.net/bulla", "secret": "at least 16 characters" },
  "enabled": true
}"#,
    edited: "The next notification uses the new settings. Secrets are never shown: give them again, or the server rejects the change.",
    deleted: "Notifications that wait for it fail. Rules that name it notify their other channels only.",
    help: "Types: webhook, slack, teams, pagerduty, opsgenie, smtp. All members: docs/alerts.md.",
};

const OWNERSHIP_RULE: Kind = Kind {
    path: "ownership-rules",
    noun: "ownership rule",
    command: "",
    parameter: "id",
    part: Part::Members(&["name", "position", "when", "assign", "from_tags"]),
    method: Method::PUT,
    example: r#"{
  "name": "payments",
  "when": { "host": "*.pay.example.net" },
  "assign": { "team": "payments", "environment": "prod" }
}"#,
    edited: "Endpoints that the rule matches get their team and owner anew. Certificates under management keep theirs.",
    deleted: "Endpoints that it matched get the owner of the next matching rule, or none.",
    help: "All members: docs/ownership.md.",
};

const TARGET: Kind = Kind {
    path: "targets",
    noun: "target",
    command: "target",
    parameter: "id",
    part: Part::Members(&["name", "agent", "target"]),
    method: Method::PUT,
    example: r#"{
  "name": "web-1 nginx",
  "agent": "00000000-0000-7000-8000-000000000000",
  "target": { "type": "nginx", "fullchain": "/etc/nginx/tls/a.pem", "key": "/etc/nginx/tls/a.key" }
}"#,
    edited: "The next deployment uses the new settings. The deployed certificate stays in place until then, and files at the old paths stay. A policy may require another person's approval first.",
    deleted: "No further certificates are deployed there.",
    help: "A password in its replaced form keeps its value. All members: docs/agent.md.",
};

/// Objects that are created, edited and deleted as documents.
const MANAGED: [&Kind; 5] = [&PROFILE, &ISSUER, &POLICY, &ALERT_RULE, &ALERT_CHANNEL];

/// Objects that are edited as documents; other pages create and delete them.
const EDITED: [&Kind; 2] = [&OWNERSHIP_RULE, &TARGET];

impl Kind {
    fn page(&self) -> String {
        format!("/console/{}", self.path)
    }

    fn collection(&self) -> String {
        format!("/api/v1/{}", self.path)
    }
}

pub(crate) fn routes() -> Router<Api> {
    let managed = MANAGED.into_iter().fold(Router::new(), |router, kind| {
        let page = kind.page();
        let new = async move |session: Session| show_new(&session, kind, None, kind.example);
        let create = async move |session: Session, form: FormData| create(&session, kind, &form).await;
        let confirm =
            async move |session: Session, Path(id): Path<String>| confirm_delete(&session, kind, &id).await;
        let delete = async move |session: Session, Path(id): Path<String>, form: FormData| {
            delete(&session, kind, &id, &form).await
        };
        router
            .route(&format!("{page}/new"), get(new).post(create))
            .route(&format!("{page}/{{{}}}/delete", kind.parameter), get(confirm).post(delete))
    });
    MANAGED.into_iter().chain(EDITED).fold(managed, |router, kind| {
        let edit = async move |session: Session, Path(id): Path<String>| edit(&session, kind, &id).await;
        let save = async move |session: Session, Path(id): Path<String>, form: FormData| {
            save(&session, kind, &id, &form).await
        };
        router.route(&format!("{}/{{{}}}/document", kind.page(), kind.parameter), get(edit).post(save))
    })
}

fn show_new(
    session: &Session,
    kind: &Kind,
    problem: Option<String>,
    document: &str,
) -> Result<Response, Failure> {
    let body = Confirmation::new(session, format!("{}/new", kind.page()), kind.page(), "Create")
        .problem(problem)
        .field(Field::document("document", "Document (JSON)").value(document).hint(kind.help).required());
    Page::new(session, format!("New {}", kind.noun))
        .command(format!("bulla {} create --file document.json", kind.command))
        .reads(kind.collection())
        .show(&body)
}

async fn create(session: &Session, kind: &Kind, form: &FormData) -> Result<Response, Failure> {
    let text = form.text("document");
    let path = kind.collection();
    let created = match parsed(text) {
        Ok(document) => session.api.change(Method::POST, &path, form.csrf(), Some(&document)).await,
        Err(failure) => Err(failure),
    };
    match created {
        Ok(answer) => Ok(redirect(&kind.page(), "created", &answer)),
        Err(failure) => show_new(session, kind, Some(failure.form_problem()?), text),
    }
}

fn parsed(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let hint = "correct the document; nothing was changed";
        Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, format!("This is not valid JSON: {error}"), hint)
    })
}

/// Returns the part of an object that an edit replaces, without members that the server computes.
fn editable(kind: &Kind, object: &Value) -> Value {
    let members_of_body = match kind.part {
        Part::Whole => None,
        Part::Member(member) => return object.get(member).cloned().unwrap_or_default(),
        Part::Members(members) => Some(members),
    };
    let mut document = object.clone();
    if let Some(members) = document.as_object_mut() {
        members.retain(|name, value| {
            let computed = matches!(name.as_str(), "id" | "revision" | "created_at" | "updated_at");
            !computed && !value.is_null() && members_of_body.is_none_or(|all| all.contains(&name.as_str()))
        });
    }
    document
}

async fn edit(session: &Session, kind: &Kind, id: &str) -> Result<Response, Failure> {
    let (object, revision) = session.api.get_with_revision(&item(&kind.collection(), id)).await?;
    let document = serde_json::to_string_pretty(&editable(kind, &object)).map_err(Failure::unreadable)?;
    let revision = revision.map(|revision| revision.to_string()).unwrap_or_default();
    show_edit(session, kind, id, None, &document, &revision)
}

fn show_edit(
    session: &Session,
    kind: &Kind,
    id: &str,
    problem: Option<String>,
    document: &str,
    revision: &str,
) -> Result<Response, Failure> {
    let page = item(&kind.page(), id);
    let body = Confirmation::new(session, format!("{page}/document"), &page, "Save")
        .problem(problem)
        .says(kind.edited)
        .hidden("revision", revision)
        .field(Field::document("document", "Document (JSON)").value(document).hint(kind.help).required());
    Page::new(session, format!("Edit the {}", kind.noun))
        .command(match kind.command {
            "" => {
                format!("bulla api -X {} {} --file document.json", kind.method, item(&kind.collection(), id))
            }
            command => format!("bulla {command} update {id} --file document.json"),
        })
        .reads(item(&kind.collection(), id))
        .show(&body)
}

async fn save(session: &Session, kind: &Kind, id: &str, form: &FormData) -> Result<Response, Failure> {
    let (text, revision) = (form.text("document"), form.text("revision"));
    match put(session, kind, id, form).await {
        Ok(answer) => Ok(redirect(&item(&kind.page(), id), "saved", &answer)),
        Err(failure) => show_edit(session, kind, id, Some(failure.form_problem()?), text, revision),
    }
}

/// Sends the edited document, with a condition on the revision if the object has one.
async fn put(session: &Session, kind: &Kind, id: &str, form: &FormData) -> Result<Value, Failure> {
    let document = parsed(form.text("document"))?;
    let body = match kind.part {
        Part::Member(member) => json!({ member: document }),
        Part::Whole | Part::Members(_) => document,
    };
    let (path, method) = (item(&kind.collection(), id), kind.method.clone());
    let revision = form.text("revision").parse::<i64>().ok();
    session.api.change_with_revision(method, &path, form.csrf(), revision, Some(&body)).await
}

async fn confirm_delete(session: &Session, kind: &Kind, id: &str) -> Result<Response, Failure> {
    let object = session.api.get(&item(&kind.collection(), id)).await?;
    let page = item(&kind.page(), id);
    let body = Confirmation::new(session, format!("{page}/delete"), &page, "Delete")
        .danger()
        .says(kind.deleted)
        .says("This cannot be undone.");
    let name = json::text(&object, "/name");
    Page::new(session, format!("Delete the {} {name}?", kind.noun))
        .command(format!("bulla {} delete {name}", kind.command))
        .show(&body)
}

async fn delete(session: &Session, kind: &Kind, id: &str, form: &FormData) -> Result<Response, Failure> {
    let path = item(&kind.collection(), id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(&kind.page(), "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_examples_parse_and_edits_omit_computed_fields() {
        for kind in MANAGED.into_iter().chain(EDITED) {
            assert!(parsed(kind.example).is_ok(), "{}", kind.noun);
        }
        let object = json!({ "name": "web", "config": { "type": "acme" }, "revision": 3, "ca": null });
        assert_eq!(editable(&ISSUER, &object), json!({ "type": "acme" }));
        assert_eq!(editable(&PROFILE, &object), json!({ "name": "web", "config": { "type": "acme" } }));
        let channel =
            json!({ "name": "a", "config": {}, "enabled": true, "kind": "slack", "last_error": "x" });
        assert_eq!(editable(&ALERT_CHANNEL, &channel), json!({ "name": "a", "config": {}, "enabled": true }));
        assert!(parsed("{").is_err());
    }
}
