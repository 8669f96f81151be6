//! A credential without its value: versions, rotation, and read access.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use crate::api::{Api, Client};
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::json;
use crate::query::parameter;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

pub(super) const PAGE: &str = "/console/credentials";

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/console/credentials/one", get(page))
}

#[derive(Template)]
#[template(path = "credential.html")]
struct Credential {
    name: String,
    kind: String,
    csrf: String,
    crumb: String,
    /// Name of the credential as a resource in the audit log.
    history: String,
    facts: Facts,
    versions: Table,
    readers: Option<Table>,
    operations: &'static [&'static str],
}

/// The operations that a permission on a credential can allow.
const OPERATIONS: &[&str] = &["read", "write", "delete", "read_acl", "write_acl"];

/// Returns the URL of a credential's page. The name is in the query, because it contains slashes.
pub(super) fn href(name: &str) -> String {
    format!("{PAGE}/one?name={}", api::path::segment(name))
}

/// The data of a credential without its value.
pub(super) struct Known {
    pub(super) versions: Value,
    rotations: Value,
    readers: Option<Value>,
}

impl Known {
    async fn of(store: &Client, name: &str) -> Result<Self, Failure> {
        let name = api::path::segment(name);
        Ok(Self {
            versions: store.get(&format!("/api/v1/versions?name={name}")).await?,
            rotations: store
                .get_if_allowed(&format!("/api/v1/rotations?path={name}"))
                .await?
                .unwrap_or_default(),
            readers: store.get_if_allowed(&format!("/api/v1/access?limit=200&name={name}")).await?,
        })
    }
}

async fn page(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let name: String = parameter(query.as_deref(), "name");
    let known = Known::of(&session.api.credential_store()?, &name).await?;
    let name = json::text(&known.versions, "/name").to_owned();
    let folder = name.rsplit_once('/').map_or("/", |(folder, _)| folder);
    let body = Credential {
        kind: json::text(&known.versions, "/type").to_owned(),
        csrf: session.csrf().to_owned(),
        crumb: folder.to_owned(),
        history: format!("credential{name}"),
        facts: facts(&session, &known),
        versions: versions(&session, &known.versions),
        readers: known.readers.as_ref().map(|readers| readers_of(&session, readers)),
        operations: OPERATIONS,
        name: name.clone(),
    };
    Page::new(&session, name.as_str())
        .command(format!("bulla credential versions {name}"))
        .command(format!("bulla credential permission who {name}"))
        .show(&body)
}

fn facts(session: &Session, known: &Known) -> Facts {
    let rotation = json::items(&known.rotations).first();
    let of = |pointer| rotation.map_or("", |rotation| json::text(rotation, pointer));
    let newest = json::list(&known.versions, "/versions").iter().find(|version| !is_deleted(version));
    let of_newest = |pointer| newest.map_or("", |version| json::text(version, pointer));
    let rotated = match rotation {
        Some(_) => Cell::time(of("/due_at"), session.now),
        None => Cell::text("no policy"),
    };
    Facts::default()
        .with("Type", Cell::text(json::text(&known.versions, "/type")))
        .with("Newest version", Cell::time(of_newest("/version_created_at"), session.now))
        .with("Expires", Cell::time(of_newest("/expires_at"), session.now))
        .with("Next rotation", rotated)
        .with("Rotation policy", Cell::code(of("/policy")))
        .with("Last rotation failed with", Cell::text(of("/error")))
}

fn is_deleted(version: &Value) -> bool {
    !json::text(version, "/deleted_at").is_empty()
}

fn versions(session: &Session, known: &Value) -> Table {
    let rows = json::list(known, "/versions").iter().enumerate().map(|(index, version)| {
        let state = match (is_deleted(version), index) {
            (true, _) => Cell::badge(Tone::Warn, "deleted"),
            (false, 0) => Cell::badge(Tone::Good, "current"),
            (false, _) => Cell::badge(Tone::Calm, "older"),
        };
        vec![
            Cell::number(json::number(version, "/number")),
            state,
            Cell::time(json::text(version, "/version_created_at"), session.now),
            Cell::time(json::text(version, "/expires_at"), session.now),
            Cell::time(json::text(version, "/kept_until"), session.now),
            Cell::code(json::text(version, "/id")),
        ]
    });
    Table::new(
        "Versions, newest first",
        &["Version", "State", "Stored", "Expires", "Can be undeleted until", "Identity"],
        rows,
    )
}

fn readers_of(session: &Session, readers: &Value) -> Table {
    let row = |reader: &Value| {
        let (actor, path) = (json::text(reader, "/actor"), json::text(reader, "/path"));
        let by = match path.is_empty() {
            true => format!("role {}", json::text(reader, "/role")),
            false => format!("permission for {path}"),
        };
        let take = format!(
            "{PAGE}/permission/remove?path={}&actor={}",
            api::path::segment(path),
            api::path::segment(actor)
        );
        let action = if path.is_empty() { Cell::Empty } else { Cell::link(take, "Revoke") };
        vec![
            Cell::text(actor),
            Cell::text(by),
            Cell::time(json::text(reader, "/since"), session.now),
            Cell::text(json::text(reader, "/given_by")),
            action,
        ]
    };
    Table::of("Readers", &["Actor", "Access by", "Since", "Granted by", "Action"], readers, row)
        .empty("Only people and programs with the permission credential.manage may read it.")
}
