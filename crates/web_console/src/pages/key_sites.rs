//! Sites of the key service: the list, one site, and its attributes.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use super::key_nodes;
use crate::api::Api;
use crate::attributes;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::listing::Listing;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

pub(crate) const PAGE: &str = "/console/key-sites";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/key-sites/{site}", get(one).post(change))
        .route("/console/key-sites/{site}/delete", get(confirm_delete))
        .route("/console/key-sites/{site}/deletion", post(delete))
}

#[derive(Template)]
#[template(path = "key_sites.html")]
struct Sites {
    table: Table,
    csrf: String,
    may_manage: bool,
}

#[derive(Template)]
#[template(path = "key_site.html")]
struct SitePage {
    facts: Facts,
    nodes: Table,
    path: String,
    name: String,
    attributes: String,
    csrf: String,
    may_manage: bool,
    may_enroll: bool,
}

/// Returns the URL of a site's page.
pub(crate) fn href(site: &str) -> String {
    item(PAGE, site)
}

fn path_of(site: &str) -> String {
    item("/api/v1/key-sites", site)
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/key-sites", query.as_deref()).await?;
    let row = |site: &Value| {
        let name = json::text(site, "/name");
        vec![
            Cell::link(href(name), name),
            Cell::text(attributes::shown(site, "/attributes")),
            Cell::time(json::text(site, "/updated_at"), session.now),
        ]
    };
    let table = listing
        .table("Sites of the key service", &["Name", "Attributes", "Changed"], row)
        .empty("No site yet. A site is a place with nodes; its attributes, such as the country, decide which policies its nodes satisfy.")
        .exported("sites");
    let body = Sites { table, csrf: session.csrf().to_owned(), may_manage: session.may("node.manage") };
    Page::new(&session, "Sites").command("bulla key site list").reads(listing.path()).show(&body)
}

async fn one(session: Session, Path(site): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&site)).await?;
    let name = json::text(&found, "/name").to_owned();
    let nodes = format!("/api/v1/key-nodes?limit=500&site={}", api::path::segment(&name));
    let listed = session.api.get(&nodes).await?;
    let facts = Facts::default()
        .with("Attributes", Cell::code(attributes::shown(&found, "/attributes")))
        .with("Created", Cell::time(json::text(&found, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(&found, "/updated_at"), session.now))
        .with("Identity", Cell::code(json::text(&found, "/id")));
    let body = SitePage {
        facts,
        nodes: key_nodes::table(&session, &listed),
        path: href(&name),
        attributes: attributes::shown(&found, "/attributes"),
        csrf: session.csrf().to_owned(),
        may_manage: session.may("node.manage"),
        may_enroll: session.may("node.enroll"),
        name: name.clone(),
    };
    Page::new(&session, format!("Site {name}"))
        .command(format!("bulla key site show {name}"))
        .reads(path_of(&name))
        .reads(nodes)
        .show(&body)
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let name = form.text("name");
    let attributes = attributes::read(form.text("attributes"))?;
    let body = json!({ "name": name, "attributes": attributes });
    let answer = session.api.change(Method::POST, "/api/v1/key-sites", form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "created", &answer))
}

async fn change(session: Session, Path(site): Path<String>, form: FormData) -> Result<Response, Failure> {
    let name = form.field("name").unwrap_or(&site);
    let attributes = attributes::read(form.text("attributes"))?;
    let body = json!({ "name": name, "attributes": attributes });
    let answer = session.api.change(Method::PUT, &path_of(&site), form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "saved", &answer))
}

async fn confirm_delete(session: Session, Path(site): Path<String>) -> Result<Response, Failure> {
    let nodes = format!("/api/v1/key-nodes?limit=500&site={}", api::path::segment(&site));
    let listed = session.api.get(&nodes).await?;
    let count = json::items(&listed).len();
    let nodes = format::counted(count, false, "node");
    let says = match count {
        0 => "The site and the node tokens for it are removed. No node is there.".to_owned(),
        _ => format!("The site has {nodes}. It can be deleted only after they are retired."),
    };
    let page = href(&site);
    let body = Confirmation::new(&session, format!("{page}/deletion"), page.as_str(), "Delete the site")
        .danger()
        .says(says);
    Page::new(&session, format!("Delete site {site}"))
        .command(format!("bulla key site delete {site}"))
        .reads(path_of(&site))
        .show(&body)
}

async fn delete(session: Session, Path(site): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &path_of(&site), form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}
