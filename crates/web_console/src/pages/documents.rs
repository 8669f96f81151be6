//! Profiles, external issuers and policies as JSON documents: create, edit and delete.

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
    /// Name of the path parameter.
    parameter: &'static str,
    /// The member that an edit replaces; empty for the whole object.
    member: &'static str,
    method: Method,
    example: &'static str,
    /// Texts about the consequences of an edit and of a deletion.
    edited: &'static str,
    deleted: &'static str,
    help: &'static str,
}

const PROFILE: Kind = Kind {
    path: "profiles",
    noun: "profile",
    parameter: "name",
    member: "",
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
    parameter: "id",
    member: "config",
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
    parameter: "name",
    member: "policy",
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

impl Kind {
    fn page(&self) -> String {
        format!("/console/{}", self.path)
    }

    fn collection(&self) -> String {
        format!("/api/v1/{}", self.path)
    }
}

pub(crate) fn routes() -> Router<Api> {
    [&PROFILE, &ISSUER, &POLICY].into_iter().fold(Router::new(), |router, kind| {
        let page = kind.page();
        let one = format!("{page}/{{{}}}", kind.parameter);
        let new = async move |session: Session| show_new(&session, kind, None, kind.example);
        let create = async move |session: Session, form: FormData| create(&session, kind, &form).await;
        let edit = async move |session: Session, Path(id): Path<String>| edit(&session, kind, &id).await;
        let save = async move |session: Session, Path(id): Path<String>, form: FormData| {
            save(&session, kind, &id, &form).await
        };
        let confirm =
            async move |session: Session, Path(id): Path<String>| confirm_delete(&session, kind, &id).await;
        let delete = async move |session: Session, Path(id): Path<String>, form: FormData| {
            delete(&session, kind, &id, &form).await
        };
        router
            .route(&format!("{page}/new"), get(new).post(create))
            .route(&format!("{one}/document"), get(edit).post(save))
            .route(&format!("{one}/delete"), get(confirm).post(delete))
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
        .command(format!("bulla {0} create --file {0}.json", kind.noun))
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
    if !kind.member.is_empty() {
        return object.get(kind.member).cloned().unwrap_or_default();
    }
    let mut document = object.clone();
    if let Some(members) = document.as_object_mut() {
        members.retain(|name, value| {
            !matches!(name.as_str(), "id" | "revision" | "created_at" | "updated_at") && !value.is_null()
        });
    }
    document
}

async fn edit(session: &Session, kind: &Kind, id: &str) -> Result<Response, Failure> {
    let object = session.api.get(&item(&kind.collection(), id)).await?;
    let document = serde_json::to_string_pretty(&editable(kind, &object)).map_err(Failure::unreadable)?;
    let revision = object.get("revision").and_then(Value::as_i64).map(|revision| revision.to_string());
    let revision = revision.unwrap_or_default();
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
        .command(format!("bulla {0} update {id} --file {0}.json", kind.noun))
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
    let body = if kind.member.is_empty() { document } else { json!({ kind.member: document }) };
    let (path, method) = (item(&kind.collection(), id), kind.method.clone());
    match form.text("revision").parse::<i64>() {
        Ok(revision) => session.api.change_at(method, &path, form.csrf(), revision, Some(&body)).await,
        Err(_) => session.api.change(method, &path, form.csrf(), Some(&body)).await,
    }
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
        .command(format!("bulla {} delete {name}", kind.noun))
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
    fn examples_are_documents_and_edits_leave_out_what_the_server_computes() {
        for kind in [&PROFILE, &ISSUER, &POLICY] {
            assert!(parsed(kind.example).is_ok(), "{}", kind.noun);
        }
        let object = json!({ "name": "web", "config": { "type": "acme" }, "revision": 3, "ca": null });
        assert_eq!(editable(&ISSUER, &object), json!({ "type": "acme" }));
        assert_eq!(editable(&PROFILE, &object), json!({ "name": "web", "config": { "type": "acme" } }));
        assert!(parsed("{").is_err());
    }
}
