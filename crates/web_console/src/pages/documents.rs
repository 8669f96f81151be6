//! Objects that are JSON documents: create, edit and delete, with a form or as JSON.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::Value;

use super::document_forms::DocumentForm;
use super::document_kinds::{EDITED, Kind, MANAGED};
use crate::api::Api;
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::member_fields::MemberField;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;

/// Value of the parameter `form` for the document as JSON.
const AS_JSON: &str = "json";
const AS_JSON_LABEL: &str = "All members: edit as JSON";

pub(crate) fn routes() -> Router<Api> {
    let managed = MANAGED.into_iter().fold(Router::new(), |router, kind| {
        let page = kind.page();
        let new =
            async move |session: Session, RawQuery(query): RawQuery| new(&session, kind, query.as_deref());
        let create = async move |session: Session, form: FormData| create(&session, kind, &form).await;
        let confirm =
            async move |session: Session, Path(id): Path<String>| confirm_delete(&session, kind, &id).await;
        let delete = async move |session: Session, Path(id): Path<String>, form: FormData| {
            delete(&session, kind, &id, &form).await
        };
        let edit = async move |session: Session, Path(id): Path<String>| edit(&session, kind, &id).await;
        let save = async move |session: Session, Path(id): Path<String>, form: FormData| {
            save(&session, kind, &id, &form).await
        };
        router
            .route(&format!("{page}/new"), get(new).post(create))
            .route(&format!("{page}/{{{}}}/edit", kind.parameter), get(edit).post(save))
            .route(&format!("{page}/{{{}}}/delete", kind.parameter), get(confirm).post(delete))
    });
    MANAGED.into_iter().chain(EDITED).fold(managed, |router, kind| {
        let edit =
            async move |session: Session, Path(id): Path<String>| edit_as_json(&session, kind, &id).await;
        let save = async move |session: Session, Path(id): Path<String>, form: FormData| {
            save_json(&session, kind, &id, &form).await
        };
        router.route(&format!("{}/{{{}}}/document", kind.page(), kind.parameter), get(edit).post(save))
    })
}

/// The types of objects, each with a link to its form.
#[derive(Template)]
#[template(path = "document_types.html")]
struct DocumentTypes {
    types: Vec<(String, &'static str, &'static str)>,
    cancel: String,
}

/// Shows the form for a new object, or the choice of a type.
fn new(session: &Session, kind: &Kind, query: Option<&str>) -> Result<Response, Failure> {
    let chosen: String = parameter(query, "form");
    if chosen == AS_JSON {
        return show_new_json(session, kind, None, kind.example);
    }
    let only = if let [only] = kind.forms { Some(only) } else { None };
    match kind.form(&chosen).or(only) {
        Some(form) => {
            let base = base(form)?;
            show_new(session, kind, form, None, form.fields.iter().map(|field| field.of_document(&base)))
        }
        None => choose_type(session, kind),
    }
}

fn choose_type(session: &Session, kind: &Kind) -> Result<Response, Failure> {
    let page = |name: &str| format!("{}/new?form={name}", kind.page());
    let mut types: Vec<(String, &str, &str)> =
        kind.forms.iter().map(|form| (page(form.name), form.label, form.hint)).collect();
    types.push((page(AS_JSON), "JSON", "All types and members"));
    Page::new(session, format!("New {}", kind.noun))
        .command(format!("bulla {} create --file document.json", kind.command))
        .reads(kind.collection())
        .show(&DocumentTypes { types, cancel: kind.page() })
}

fn base(form: &DocumentForm) -> Result<Value, Failure> {
    serde_json::from_str(form.base).map_err(Failure::unreadable)
}

fn show_new(
    session: &Session,
    kind: &Kind,
    form: &DocumentForm,
    problem: Option<String>,
    fields: impl Iterator<Item = Field>,
) -> Result<Response, Failure> {
    let body = Confirmation::new(session, format!("{}/new", kind.page()), kind.page(), "Create")
        .problem(problem)
        .hidden("form", form.name)
        .fields(fields)
        .alternative(format!("{}/new?form={AS_JSON}", kind.page()), AS_JSON_LABEL);
    let title = match kind.forms {
        [_] => format!("New {}", kind.noun),
        _ => format!("New {}: {}", kind.noun, form.label),
    };
    Page::new(session, title)
        .command(format!("bulla {} create --file document.json", kind.command))
        .reads(kind.collection())
        .show(&body)
}

fn show_new_json(
    session: &Session,
    kind: &Kind,
    problem: Option<String>,
    document: &str,
) -> Result<Response, Failure> {
    let body = Confirmation::new(session, format!("{}/new", kind.page()), kind.page(), "Create")
        .problem(problem)
        .field(document_field(kind, document))
        .alternative(format!("{}/new", kind.page()), "Use a form");
    Page::new(session, format!("New {}", kind.noun))
        .command(format!("bulla {} create --file document.json", kind.command))
        .reads(kind.collection())
        .show(&body)
}

fn document_field(kind: &Kind, document: &str) -> Field {
    Field::document("document", "Document (JSON)").value(document).hint(kind.help).required()
}

async fn create(session: &Session, kind: &Kind, sent: &FormData) -> Result<Response, Failure> {
    let form = kind.form(sent.text("form"));
    let document = match form {
        Some(form) => base(form).and_then(|base| fill_document(form.fields.iter(), sent, base)),
        None => parsed(sent.text("document")),
    };
    let created = match document {
        Ok(body) => session.api.change(Method::POST, &kind.collection(), sent.csrf(), Some(&body)).await,
        Err(failure) => Err(failure),
    };
    match (created, form) {
        (Ok(answer), _) => Ok(redirect(&kind.page(), "created", &answer)),
        (Err(failure), Some(form)) => {
            let fields = form.fields.iter().map(|field| field.of_form(sent));
            show_new(session, kind, form, Some(failure.form_problem()?), fields)
        }
        (Err(failure), None) => {
            show_new_json(session, kind, Some(failure.form_problem()?), sent.text("document"))
        }
    }
}

/// Writes the fields of a form into a document.
fn fill_document<'a>(
    mut fields: impl Iterator<Item = &'a MemberField>,
    sent: &FormData,
    mut document: Value,
) -> Result<Value, Failure> {
    fields.try_for_each(|field| field.write(sent, &mut document)).map(|()| document)
}

fn parsed(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let hint = "correct the document; nothing was changed";
        Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, format!("This is not valid JSON: {error}"), hint)
    })
}

/// Shows the form of an object, or its document if no form has fields for its type.
async fn edit(session: &Session, kind: &Kind, id: &str) -> Result<Response, Failure> {
    let (object, revision) = session.api.get_with_revision(&item(&kind.collection(), id)).await?;
    let Some(form) = kind.form_of(&object) else {
        return Ok(Redirect::to(&format!("{}/document", item(&kind.page(), id))).into_response());
    };
    let uses = used_by(session, kind, json::text(&object, "/name")).await?;
    let body = edit_form(session, kind, id)
        .says(kind.edited)
        .says_if_any(uses)
        .hidden("form", form.name)
        .hidden("document", kind.editable(&object).to_string())
        .hidden("revision", revision.map(|revision| revision.to_string()).unwrap_or_default())
        .fields(fields_of_edit(kind, form).map(|field| field.of_document(&object)));
    edit_page(session, kind, id).show(&body)
}

fn fields_of_edit<'a>(
    kind: &'a Kind,
    form: &'a DocumentForm,
) -> impl Iterator<Item = &'a MemberField> + use<'a> {
    form.fields.iter().filter(|field| kind.sends_field(field))
}

fn edit_form(session: &Session, kind: &Kind, id: &str) -> Confirmation {
    let page = item(&kind.page(), id);
    Confirmation::new(session, format!("{page}/edit"), &page, "Save")
        .alternative(format!("{page}/document"), AS_JSON_LABEL)
}

/// Returns a sentence with the number of managed certificates that use an object. `None` if the kind has no such filter, or the
/// user may not list certificates.
async fn used_by(session: &Session, kind: &Kind, name: &str) -> Result<Option<String>, Failure> {
    if kind.used_by.is_empty() {
        return Ok(None);
    }
    let counted =
        format!("/api/v1/certificates?{}={}&limit=1&count=true", kind.used_by, api::path::segment(name));
    let counted = session.api.get_if_allowed(&counted).await?;
    Ok(counted.map(|listing| {
        let count = crate::format::number(json::number(&listing, "/total/value"));
        format!("Certificates under management that use this {}: {count}.", kind.noun)
    }))
}

fn edit_page<'a>(session: &'a Session, kind: &Kind, id: &str) -> Page<'a> {
    Page::new(session, format!("Edit the {}", kind.noun))
        .command(match kind.command {
            "" => {
                format!("bulla api -X {} {} --file document.json", kind.method, item(&kind.collection(), id))
            }
            command => format!("bulla {command} update {id} --file document.json"),
        })
        .reads(item(&kind.collection(), id))
}

/// Saves the document that the form was made for, with the values of its fields.
async fn save(session: &Session, kind: &Kind, id: &str, sent: &FormData) -> Result<Response, Failure> {
    let form = kind.form(sent.text("form"));
    let fields = || form.into_iter().flat_map(|form| fields_of_edit(kind, form));
    let saved =
        match parsed(sent.text("document")).and_then(|document| fill_document(fields(), sent, document)) {
            Ok(body) => put(session, kind, id, sent, &body).await,
            Err(failure) => Err(failure),
        };
    match saved {
        Ok(answer) => Ok(redirect(&item(&kind.page(), id), "saved", &answer)),
        Err(failure) => {
            let body = edit_form(session, kind, id)
                .problem(Some(failure.form_problem()?))
                .says(kind.edited)
                .hidden("form", sent.text("form"))
                .hidden("document", sent.text("document"))
                .hidden("revision", sent.text("revision"))
                .fields(fields().map(|field| field.of_form(sent)));
            edit_page(session, kind, id).show(&body)
        }
    }
}

async fn edit_as_json(session: &Session, kind: &Kind, id: &str) -> Result<Response, Failure> {
    let (object, revision) = session.api.get_with_revision(&item(&kind.collection(), id)).await?;
    let document = serde_json::to_string_pretty(&kind.editable(&object)).map_err(Failure::unreadable)?;
    let revision = revision.map(|revision| revision.to_string()).unwrap_or_default();
    show_edit_json(session, kind, id, None, &document, &revision)
}

fn show_edit_json(
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
        .field(document_field(kind, document));
    let body = match kind.forms {
        [] => body,
        _ => body.alternative(format!("{page}/edit"), "Use a form"),
    };
    edit_page(session, kind, id).show(&body)
}

async fn save_json(session: &Session, kind: &Kind, id: &str, sent: &FormData) -> Result<Response, Failure> {
    let (text, revision) = (sent.text("document"), sent.text("revision"));
    let saved = match parsed(text) {
        Ok(body) => put(session, kind, id, sent, &body).await,
        Err(failure) => Err(failure),
    };
    match saved {
        Ok(answer) => Ok(redirect(&item(&kind.page(), id), "saved", &answer)),
        Err(failure) => show_edit_json(session, kind, id, Some(failure.form_problem()?), text, revision),
    }
}

/// Sends an edit, with a condition on the revision if the object has one.
async fn put(
    session: &Session,
    kind: &Kind,
    id: &str,
    sent: &FormData,
    body: &Value,
) -> Result<Value, Failure> {
    let (path, method) = (item(&kind.collection(), id), kind.method.clone());
    let revision = sent.text("revision").parse::<i64>().ok();
    session.api.change_with_revision(method, &path, sent.csrf(), revision, Some(body)).await
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
