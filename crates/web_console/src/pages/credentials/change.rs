//! Changes of credentials: set, generate, regenerate, delete, undelete, and permissions.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::{get, post};
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::one::{PAGE, href};
use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::query::parameter;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

const DATA: &str = "/api/v1/data";

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/credentials/set", get(set_form).post(set))
        .route("/console/credentials/generate", get(generate_form).post(generate))
        .route("/console/credentials/regenerate", get(regenerate_form))
        .route("/console/credentials/regeneration", post(regenerate))
        .route("/console/credentials/delete", get(confirm_delete))
        .route("/console/credentials/deletion", post(delete))
        .route("/console/credentials/deleted", get(deleted))
        .route("/console/credentials/undelete", get(confirm_undelete).post(undelete))
        .route("/console/credentials/permissions", post(grant_permission))
        .route("/console/credentials/permission/remove", get(confirm_revoke_permission))
        .route("/console/credentials/permission/removal", post(revoke_permission))
}

/// A form field of a credential type.
struct Field {
    name: &'static str,
    label: &'static str,
    kind: FieldKind,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum FieldKind {
    Line,
    Secret,
    Long,
    Number,
    Flag,
    List,
}

impl FieldKind {
    /// Returns the HTML type of the input; empty for a field of several lines.
    fn input(self) -> &'static str {
        match self {
            Self::Line | Self::List => "text",
            Self::Secret => "password",
            Self::Number => "number",
            Self::Flag => "checkbox",
            Self::Long => "",
        }
    }
}

const fn field(name: &'static str, label: &'static str, kind: FieldKind) -> Field {
    Field { name, label, kind }
}

use FieldKind::{Flag, Line, List, Long, Number, Secret};

const PAIR: &[Field] = &[field("public_key", "Public key", Long), field("private_key", "Private key", Long)];

/// The fields of each type whose value can be set. The value of a type with the field `value` is a string; the value of any other
/// type is an object.
const SET: &[(&str, &[Field])] = &[
    ("password", &[field("value", "Password", Secret)]),
    ("value", &[field("value", "Value", Long)]),
    ("json", &[field("value", "JSON document", Long)]),
    ("user", &[field("username", "User name", Line), field("password", "Password", Secret)]),
    (
        "certificate",
        &[
            field("certificate", "Certificate (PEM)", Long),
            field("private_key", "Private key (PEM)", Long),
            field("ca", "CA certificate (PEM)", Long),
        ],
    ),
    ("ssh", PAIR),
    ("rsa", PAIR),
];

/// The parameters of each type that can be generated.
const GENERATE: &[(&str, &[Field])] = &[
    (
        "password",
        &[field("length", "Length", Number), field("include_special", "With special characters", Flag)],
    ),
    ("user", &[field("username", "User name", Line), field("length", "Length of the password", Number)]),
    (
        "certificate",
        &[
            field("common_name", "Common name", Line),
            field("alternative_names", "Alternative names, separated by commas", List),
            field("ca", "Name of the CA credential that signs it", Line),
            field("duration", "Days", Number),
            field("is_ca", "The certificate is a CA", Flag),
            field("self_sign", "Self-signed", Flag),
        ],
    ),
    ("ssh", &[field("key_length", "Bits", Number), field("ssh_comment", "Comment", Line)]),
    ("rsa", &[field("key_length", "Bits", Number)]),
];

#[derive(Template)]
#[template(path = "credential_form.html")]
struct CredentialForm {
    action: &'static str,
    button: &'static str,
    kinds: Vec<&'static str>,
    kind: String,
    name: String,
    is_known: bool,
    fields: &'static [Field],
    csrf: String,
}

fn fields_of(all: &'static [(&'static str, &'static [Field])], kind: &str) -> &'static [Field] {
    all.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, fields)| *fields)
}

fn form_page(
    session: &Session,
    query: Option<&str>,
    (action, button): (&'static str, &'static str),
    all: &'static [(&'static str, &'static [Field])],
) -> CredentialForm {
    let of = |name| parameter::<String>(query, name);
    let (kind, known) = (of("type"), of("name"));
    CredentialForm {
        action,
        button,
        kinds: all.iter().map(|(kind, _)| *kind).collect(),
        fields: fields_of(all, &kind),
        kind,
        is_known: !known.is_empty(),
        name: if known.is_empty() { of("path") } else { known },
        csrf: session.csrf().to_owned(),
    }
}

async fn set_form(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let body = form_page(&session, query.as_deref(), ("/console/credentials/set", "Set"), SET);
    Page::new(&session, "Set a credential").command(format!("bulla credential set {}", body.name)).show(&body)
}

async fn generate_form(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let action = ("/console/credentials/generate", "Generate");
    let body = form_page(&session, query.as_deref(), action, GENERATE);
    Page::new(&session, "Generate a credential")
        .command(format!("bulla credential generate {}", body.name))
        .show(&body)
}

/// Returns a field's value from the form; `None` if it is empty.
fn value_of(form: &FormData, field: &Field) -> Option<Value> {
    let text = form.exact(field.name)?.replace("\r\n", "\n");
    match field.kind {
        Number => text.trim().parse::<u32>().ok().map(Value::from),
        Flag => Some(Value::Bool(true)),
        List => Some(text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()),
        Line => Some(text.trim().into()),
        Secret | Long => Some(text.into()),
    }
}

fn object(form: &FormData, fields: &[Field]) -> Map<String, Value> {
    let all = fields.iter().filter_map(|field| Some((field.name.to_owned(), value_of(form, field)?)));
    all.collect()
}

/// Returns the credential value from the form.
fn value(form: &FormData, kind: &str) -> Result<Value, Failure> {
    let mut object = object(form, fields_of(SET, kind));
    let Some(text) = object.remove("value") else { return Ok(Value::Object(object)) };
    if kind != "json" {
        return Ok(text);
    }
    serde_json::from_str(text.as_str().unwrap_or_default()).map_err(|error| {
        let hint = "go back and correct the document; nothing was stored";
        Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, format!("This is not valid JSON: {error}"), hint)
    })
}

async fn set(session: Session, form: FormData) -> Result<Response, Failure> {
    let (name, kind) = (form.text("name"), form.text("type"));
    let body = json!({ "name": name, "type": kind, "value": value(&form, kind)? });
    let mut store = session.api.credential_store()?;
    if !form.is_checked("known") {
        // A new credential must not replace an existing one of the same name.
        store = store.with_header(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    store.change(Method::PUT, DATA, form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "saved", &Value::Null))
}

async fn generate(session: Session, form: FormData) -> Result<Response, Failure> {
    let (name, kind) = (form.text("name"), form.text("type"));
    let mut parameters = object(&form, fields_of(GENERATE, kind));
    let username = parameters.remove("username");
    let mut body = json!({ "name": name, "type": kind, "mode": "no-overwrite", "parameters": parameters });
    if let Some(username) = username {
        body["value"] = json!({ "username": username });
    }
    session.api.credential_store()?.change(Method::POST, DATA, form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "created", &Value::Null))
}

async fn versions_of(session: &Session, name: &str) -> Result<Value, Failure> {
    let path = format!("/api/v1/versions?name={}", api::path::segment(name));
    session.api.credential_store()?.get(&path).await
}

async fn regenerate_form(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let known = versions_of(&session, &parameter::<String>(query.as_deref(), "name")).await?;
    let name = json::text(&known, "/name");
    let body = Confirmation::new(&session, format!("{PAGE}/regeneration"), href(name), "Regenerate").danger()
        .says(format!("A new {} is generated with the same parameters, and becomes the current version.", json::text(&known, "/type")))
        .says("Programs get the new value at their next read. Programs that still use the older value may fail.")
        .says("A credential that was set by hand cannot be regenerated.")
        .hidden("name", name);
    Page::new(&session, format!("Regenerate {name}"))
        .command(format!("bulla credential regenerate {name}"))
        .show(&body)
}

async fn regenerate(session: Session, form: FormData) -> Result<Response, Failure> {
    let name = form.text("name");
    let body = json!({ "name": name });
    let store = session.api.credential_store()?;
    store.change(Method::POST, "/api/v1/regenerate", form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "rotated", &Value::Null))
}

async fn confirm_delete(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let known = versions_of(&session, &parameter::<String>(query.as_deref(), "name")).await?;
    let name = json::text(&known, "/name");
    let path = format!("/api/v1/access?limit=200&name={}", api::path::segment(name));
    let readers = session.api.credential_store()?.get_if_allowed(&path).await?;
    let versions = format::counted(json::list(&known, "/versions").len(), false, "version");
    let mut body = Confirmation::new(&session, format!("{PAGE}/deletion"), href(name), "Delete")
        .danger()
        .says(format!("The credential and its {versions} cannot be read any more."))
        .says("It can be undeleted for a time, from the list of deleted credentials.")
        .hidden("name", name);
    if let Some(readers) = readers {
        let more = !json::text(&readers, "/next").is_empty();
        let count = format::counted(json::items(&readers).len(), more, "actor");
        body = body.says(format!("{count} can read it now and will lose access."));
    }
    Page::new(&session, format!("Delete {name}"))
        .command(format!("bulla credential delete {name}"))
        .show(&body)
}

async fn delete(session: Session, form: FormData) -> Result<Response, Failure> {
    let path = format!("{DATA}?name={}", api::path::segment(form.text("name")));
    session.api.credential_store()?.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &Value::Null))
}

#[derive(Template)]
#[template(path = "credentials_deleted.html")]
struct DeletedPage {
    table: Table,
}

async fn deleted(session: Session) -> Result<Response, Failure> {
    let answer = session.api.credential_store()?.get("/api/v1/deleted").await?;
    let rows = json::list(&answer, "/credentials").iter().map(|one| {
        let name = json::text(one, "/name");
        vec![
            Cell::code(name),
            Cell::text(json::text(one, "/type")),
            Cell::time(json::text(one, "/deleted_at"), session.now),
            Cell::time(json::text(one, "/kept_until"), session.now),
            Cell::link(format!("{PAGE}/undelete?name={}", api::path::segment(name)), "Undelete"),
        ]
    });
    let table = Table::new("Deleted credentials", &["Name", "Type", "Deleted", "Kept until", "Action"], rows)
        .empty("There is no deleted credential that you may undelete.");
    Page::new(&session, "Deleted credentials")
        .command("bulla credential deleted")
        .show(&DeletedPage { table })
}

async fn confirm_undelete(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let name: String = parameter(query.as_deref(), "name");
    let body = Confirmation::new(&session, format!("{PAGE}/undelete"), format!("{PAGE}/deleted"), "Undelete")
        .danger()
        .says("The credential is restored with all its versions. Actors with read permission for its path can read it again.")
        .hidden("name", name.as_str());
    Page::new(&session, format!("Undelete {name}"))
        .command(format!("bulla credential undelete {name}"))
        .show(&body)
}

async fn undelete(session: Session, form: FormData) -> Result<Response, Failure> {
    let name = form.text("name");
    let body = json!({ "name": name });
    let store = session.api.credential_store()?;
    store.change(Method::POST, "/api/v1/undelete", form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "saved", &Value::Null))
}

async fn grant_permission(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "path": form.text("path"),
        "actor": form.text("actor"),
        "operations": form.all("operation").collect::<Vec<_>>(),
    });
    let store = session.api.credential_store()?;
    store.change(Method::POST, "/api/v2/permissions", form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(form.text("name")), "saved", &Value::Null))
}

async fn confirm_revoke_permission(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let of = |name| parameter::<String>(query.as_deref(), name);
    let (path, actor) = (of("path"), of("actor"));
    let body = Confirmation::new(
        &session,
        format!("{PAGE}/permission/removal"),
        PAGE,
        "Revoke the permission",
    )
    .danger()
    .says(format!("{actor} loses every operation that its permission for {path} grants."))
    .says("Permissions for other paths, and roles, stay: check afterwards which actors may still read it.")
    .hidden("path", path.as_str())
    .hidden("actor", actor.as_str());
    Page::new(&session, "Revoke a permission")
        .command(format!("bulla credential permission revoke {actor} {path}"))
        .show(&body)
}

async fn revoke_permission(session: Session, form: FormData) -> Result<Response, Failure> {
    let (path, actor) = (form.text("path"), form.text("actor"));
    let permission_path = format!(
        "/api/v1/permissions?credential_name={}&actor={}",
        api::path::segment(path),
        api::path::segment(actor)
    );
    session.api.credential_store()?.change(Method::DELETE, &permission_path, form.csrf(), None).await?;
    let page = if path.ends_with('*') { PAGE.to_owned() } else { href(path) };
    Ok(redirect(&page, "removed", &Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> FormData {
        FormData::of(fields)
    }

    #[test]
    fn credential_form_values_keep_spaces_and_json_is_validated() {
        let text = form(&[("value", " two\r\nlines ")]);
        assert_eq!(value(&text, "value").unwrap(), json!(" two\nlines "));
        assert_eq!(value(&form(&[("value", "{\"a\": [1]}")]), "json").unwrap(), json!({ "a": [1] }));
        assert!(value(&form(&[("value", "{a}")]), "json").is_err());
        let user = form(&[("username", " ada "), ("password", " p ")]);
        assert_eq!(value(&user, "user").unwrap(), json!({ "username": "ada", "password": " p " }));
    }

    #[test]
    fn empty_generation_parameters_are_omitted() {
        let of = |fields: &[(&str, &str)]| object(&form(fields), fields_of(GENERATE, "certificate"));
        let given =
            of(&[("common_name", "a"), ("alternative_names", "b, c,"), ("is_ca", "true"), ("duration", "")]);
        let wanted = json!({ "common_name": "a", "alternative_names": ["b", "c"], "is_ca": true });
        assert_eq!(Value::Object(given), wanted);
    }
}
