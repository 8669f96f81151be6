//! Security keys of users: registration and removal.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::security_key::{KeyForm, response};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const ACCOUNT: &str = "/console/account";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/users/{id}/security-keys", post(begin))
        .route("/console/users/{id}/security-keys/finish", post(finish))
        .route("/console/users/{id}/security-keys/{key}/remove", get(confirm_remove).post(remove))
}

/// Returns the API path of a user's security keys.
pub(crate) fn path_of(user: &str) -> String {
    format!("/api/v1/users/{}/security-keys", api::path::segment(user))
}

/// Returns the page that lists the keys of a user: the account page for the session's own user.
fn page_of(session: &Session, user: &str) -> String {
    if json::text(session.me(), "/id") == user {
        return ACCOUNT.to_owned();
    }
    format!("/console/users/{}", api::path::segment(user))
}

/// Returns a user's security keys as a table.
pub(crate) fn table(session: &Session, user: &str, keys: &Value, removes: bool) -> Table {
    let heads = &["Name", "Host name", "Kind", "Registered", "Last used", ""];
    Table::of("Security keys and passkeys", heads, keys, |key| {
        let synchronised = key.get("backup_eligible").and_then(Value::as_bool).unwrap_or_default();
        let kind = if synchronised { "synchronised passkey" } else { "security key" };
        let id = json::text(key, "/id");
        vec![
            Cell::text(json::text(key, "/name")),
            Cell::text(json::text(key, "/host")),
            Cell::badge(Tone::Calm, kind),
            Cell::time(json::text(key, "/created_at"), session.now),
            Cell::time(json::text(key, "/last_used_at"), session.now),
            if removes { Cell::link(remove_path(user, id), "Remove") } else { Cell::Empty },
        ]
    })
    .empty("No security key. With a security key, a stolen password is not enough to sign in.")
}

/// Returns the form that registers a security key of the session's own user.
pub(crate) fn form(session: &Session) -> Form {
    let user = api::path::segment(json::text(session.me(), "/id"));
    let fields = vec![Field::line("name", "Name of the new key").required()];
    Form::post(format!("/console/users/{user}/security-keys"), session.csrf(), "Add a security key", fields)
}

fn remove_path(user: &str, key: &str) -> String {
    format!("/console/users/{}/security-keys/{}/remove", api::path::segment(user), api::path::segment(key))
}

async fn begin(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "name": form.text("name") });
    let path = format!("{}/challenge", path_of(&id));
    let ceremony = session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    let finish = format!("/console/users/{}/security-keys/finish", api::path::segment(&id));
    let key = KeyForm::of(&ceremony, finish, ACCOUNT).ok_or_else(|| Failure::unreadable("no ceremony"))?;
    let says = format!(
        "Register “{}”: insert or touch the security key, or follow your browser. Your first key ends your other sessions.",
        form.text("name")
    );
    Page::new(&session, "Add a security key").show(&key.csrf(session.csrf()).says(says))
}

async fn finish(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = response(&form)?.unwrap_or_default();
    session.api.change(Method::POST, &path_of(&id), form.csrf(), Some(&body)).await?;
    Ok(redirect(ACCOUNT, "key-added", &Value::Null))
}

async fn confirm_remove(
    session: Session,
    Path((id, key)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let keys = session.api.get(&path_of(&id)).await?;
    let keys = json::list(&keys, "/items");
    let name =
        keys.iter().find(|one| json::text(one, "/id") == key).map_or("", |one| json::text(one, "/name"));
    let mut confirmation =
        Confirmation::new(&session, remove_path(&id, &key), page_of(&session, &id), "Remove the key")
            .danger()
            .says(format!("The security key “{name}” no longer signs in, confirms or signs approvals."));
    if keys.len() == 1 {
        confirmation = confirmation.says("It is the only key: without it, the password alone signs in.");
    }
    Page::new(&session, "Remove a security key")
        .command(format!("bulla user security-key delete {id} {key}"))
        .reads(path_of(&id))
        .show(&confirmation)
}

async fn remove(
    session: Session,
    Path((id, key)): Path<(String, String)>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = format!("{}/{}", path_of(&id), api::path::segment(&key));
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(&page_of(&session, &id), "removed", &answer))
}
