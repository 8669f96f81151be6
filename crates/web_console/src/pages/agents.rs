//! Agents, the hosts that deploy certificates: the list, one agent, groups, and enrolment tokens.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::{Redirect, Response};
use axum::routing::get;
use http::Method;
use serde_json::{Value, json};

use crate::actions::Actions;
use crate::api::Api;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::names::Names;
use crate::pages::targets;
use crate::query::{item, parameter};
use crate::sections::{OneTimeSecret, Sections};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const PAGE: &str = "/console/agents";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list))
        .route("/console/agents/tokens", get(to_list).post(make_token))
        .route("/console/agents/tokens/{id}/remove", get(confirm_remove_token).post(remove_token))
        .route("/console/agents/groups", get(to_list).post(make_group))
        .route("/console/agents/groups/{name}", get(group_form).post(change_group))
        .route("/console/agents/groups/{name}/remove", get(confirm_remove_group).post(remove_group))
        .route("/console/agents/{id}", get(one).post(change))
        .route("/console/agents/{id}/retire", get(confirm_retire).post(retire))
}

/// Redirects from the URL of a list to the page that contains this list.
async fn to_list(_: Session) -> Redirect {
    Redirect::to(PAGE)
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, PAGE, "/api/v1/agents", query).await?;
    let groups = session.api.get_if_allowed("/api/v1/agent-groups?limit=500").await?.unwrap_or_default();
    let tokens = session.api.get_if_allowed("/api/v1/agent-tokens").await?;
    let table = Table::of(
        "Agents by name",
        &["Name", "State", "Last seen", "Labels", "System", "Version", "Certificate expires"],
        listing.answer(),
        |agent| row(&session, agent),
    )
    .empty("No agent matches. Create an enrolment token below, and run `bulla agent enroll` on the host.");
    let mut parts = Sections::default()
        .plain(&filter_form(query, &groups))?
        .live("list", "All agents", "agent.", &listing.paged(table).exported("agents"))?
        .section("groups", "Groups", &groups_table(&session, &groups))?;
    if session.may("agent.manage") {
        let fields = vec![
            Field::line("name", "Name").required(),
            Field::line("selector", "Labels of its agents").hint("env=prod, site=paris").required(),
            Field::line("description", "Description"),
        ];
        let form = Form::post(format!("{PAGE}/groups"), session.csrf(), "Add the group", fields);
        parts = parts.section("new-group", "New group", &form)?;
    }
    if let Some(tokens) = &tokens {
        parts = parts.section("tokens", "Enrolment tokens", &tokens_table(&session, tokens))?;
    }
    if session.may("agent.enroll") {
        let fields = vec![
            Field::line("labels", "Labels of the agent").hint("env=prod, site=paris"),
            Field::number("minutes", "Valid for minutes").value("60"),
        ];
        let form = Form::post(format!("{PAGE}/tokens"), session.csrf(), "Create the token", fields);
        parts = parts.section("new-token", "New enrolment token", &form)?;
    }
    Page::new(&session, "Agents")
        .command("bulla agent list")
        .command("bulla agent group list")
        .command("bulla agent tokens")
        .reads(listing.path())
        .reads("/api/v1/agent-groups")
        .reads("/api/v1/agent-tokens")
        .show(&parts)
}

fn filter_form(query: Option<&str>, groups: &Value) -> Form {
    let of = |name| parameter::<String>(query, name);
    Form::filters(
        PAGE,
        vec![
            Field::line("labels", "Labels").value(of("labels")),
            Field::choice("group", "Group", crate::form::name_options(Some(groups), "any"))
                .value(of("group")),
            Field::choice("online", "State", [("", "any"), ("true", "online"), ("false", "offline")])
                .value(of("online")),
            Field::choice("retired", "Retired", [("", "left out"), ("true", "shown too")])
                .value(of("retired")),
        ],
    )
}

fn state(agent: &Value) -> Cell {
    match (json::text(agent, "/retired_at"), json::flag(agent, "/online")) {
        ("", true) => Cell::badge(Tone::Good, "online"),
        ("", false) => Cell::badge(Tone::Bad, "offline"),
        _ => Cell::badge(Tone::Calm, "retired"),
    }
}

fn row(session: &Session, agent: &Value) -> Vec<Cell> {
    let system = format!("{} {}", json::text(agent, "/os"), json::text(agent, "/arch"));
    vec![
        Cell::link(item(PAGE, json::text(agent, "/id")), json::text(agent, "/name")),
        state(agent),
        Cell::time(json::text(agent, "/last_seen_at"), session.now),
        Cell::text(labels(agent, "/labels")),
        Cell::text(system.trim()),
        Cell::text(json::text(agent, "/version")),
        Cell::time(json::text(agent, "/certificate_expires_at"), session.now),
    ]
}

/// Formats labels: `env=prod, site=paris`.
fn labels(value: &Value, pointer: &str) -> String {
    let labels = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let pairs = labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Parses the labels of a field. A label without an equals sign gets an empty value, which the API rejects with a reason.
fn labels_of(text: Option<&str>) -> Value {
    let pairs = text.unwrap_or_default().split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (name.trim().to_owned(), Value::String(value.trim().to_owned()))).collect()
}

fn groups_table(session: &Session, groups: &Value) -> Table {
    Table::of("Groups of agents", &["Name", "Labels", "Description", "Changed", "Members"], groups, |group| {
        let name = api::path::segment(json::text(group, "/name"));
        vec![
            Cell::link(format!("{PAGE}/groups/{name}"), json::text(group, "/name")),
            Cell::text(labels(group, "/selector")),
            Cell::text(json::text(group, "/description")),
            Cell::time(json::text(group, "/updated_at"), session.now),
            Cell::link(format!("{PAGE}?group={name}"), "Agents"),
        ]
    })
    .empty("No group yet. A group contains the agents that have all of its labels.")
    .exported("agent-groups")
}

fn tokens_table(session: &Session, tokens: &Value) -> Table {
    let columns = ["Created", "Actor", "Labels", "State", "Expires", "Agent", "Action"];
    Table::of("Tokens that enrol agents", &columns, tokens, |token| {
        let expired = json::text(token, "/expires_at")
            .parse::<jiff::Timestamp>()
            .is_ok_and(|expires| expires < session.now);
        let state = match (json::text(token, "/used_at"), expired) {
            ("", false) => Cell::badge(Tone::Warn, "not used yet"),
            ("", true) => Cell::badge(Tone::Calm, "expired unused"),
            _ => Cell::badge(Tone::Calm, "used"),
        };
        let agent = match json::text(token, "/agent") {
            "" => Cell::Empty,
            id => Cell::link(item(PAGE, id), "show"),
        };
        vec![
            Cell::time(json::text(token, "/created_at"), session.now),
            Cell::text(json::text(token, "/created_by")),
            Cell::text(labels(token, "/labels")),
            state,
            Cell::time(json::text(token, "/expires_at"), session.now),
            agent,
            Cell::link(format!("{PAGE}/tokens/{}/remove", json::text(token, "/id")), "Revoke"),
        ]
    })
    .empty("No enrolment token.")
    .exported("agent-tokens")
}

async fn make_token(session: Session, form: FormData) -> Result<Response, Failure> {
    let mut body = json!({ "labels": labels_of(form.field("labels")) });
    if let Some(minutes) = form.field("minutes").and_then(|minutes| minutes.parse::<i64>().ok()) {
        body["seconds"] = Value::from(minutes.saturating_mul(60));
    }
    let created = session.api.change(Method::POST, "/api/v1/agent-tokens", form.csrf(), Some(&body)).await?;
    let one_time_secret = OneTimeSecret {
        what: "The token",
        secret: json::text(&created, "/token").to_owned(),
        usage: "bulla agent enroll --server \"$BULLA_SERVER\" --token TOKEN --ca ca.pem && bulla agent run"
            .to_owned(),
        href: PAGE.to_owned(),
    };
    Page::new(&session, "New enrolment token").command("bulla agent token").show(&one_time_secret)
}

async fn confirm_remove_token(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let action = format!("{PAGE}/tokens/{}/remove", api::path::segment(&id));
    let body = Confirmation::new(&session, action, PAGE, "Revoke the token")
        .danger()
        .says("The token can enrol no further host. An agent that was enrolled with it stays enrolled.");
    Page::new(&session, "Revoke an enrolment token?")
        .command(format!("bulla agent revoke-token {id}"))
        .show(&body)
}

async fn remove_token(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item("/api/v1/agent-tokens", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

async fn make_group(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "name": form.text("name"),
        "selector": labels_of(form.field("selector")),
        "description": form.text("description"),
    });
    let answer = session.api.change(Method::POST, "/api/v1/agent-groups", form.csrf(), Some(&body)).await?;
    Ok(redirect(PAGE, "created", &answer))
}

async fn group_form(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/agent-groups", &name);
    let (group, revision) = session.api.get_with_revision(&path).await?;
    show_group(&session, &name, &group, revision, None)
}

fn show_group(
    session: &Session,
    name: &str,
    group: &Value,
    revision: Option<i64>,
    problem: Option<String>,
) -> Result<Response, Failure> {
    let page = format!("{PAGE}/groups/{}", api::path::segment(name));
    let actions = Actions::default()
        .link(format!("{PAGE}?group={}", api::path::segment(name)), "Agents of the group")
        .danger(format!("{page}/remove"), "Remove")
        .only_if(session.may("agent.manage"));
    let body = Confirmation::new(session, &page, PAGE, "Save")
        .problem(problem)
        .says("Agents that have all of the labels belong to the group from now on. What runs for the group, such as a bulk renewal, goes on.")
        .hidden("revision", revision.map(|revision| revision.to_string()).unwrap_or_default())
        .field(Field::line("selector", "Labels").value(labels(group, "/selector")).hint("env=prod, site=paris: an agent has all of them.").required())
        .field(Field::line("description", "Description").value(json::text(group, "/description")));
    let parts = Sections::default().plain(&actions)?.plain(&body)?;
    Page::new(session, format!("Group {name}"))
        .command(format!("bulla agent group show {name}"))
        .reads(item("/api/v1/agent-groups", name))
        .show(&parts)
}

async fn change_group(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let body = json!({
        "selector": labels_of(form.field("selector")),
        "description": form.text("description"),
    });
    let (path, revision) = (item("/api/v1/agent-groups", &name), form.text("revision").parse::<i64>().ok());
    match session.api.change_with_revision(Method::PUT, &path, form.csrf(), revision, Some(&body)).await {
        Ok(answer) => Ok(redirect(&format!("{PAGE}/groups/{}", api::path::segment(&name)), "saved", &answer)),
        Err(failure) => show_group(&session, &name, &body, revision, Some(failure.form_problem()?)),
    }
}

async fn confirm_remove_group(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let action = format!("{PAGE}/groups/{}/remove", api::path::segment(&name));
    let body = Confirmation::new(&session, action, PAGE, "Delete the group")
        .danger()
        .says("Its agents stay. Filters and rules that name the group match no agents from now on.");
    Page::new(&session, format!("Delete the group {name}?"))
        .command(format!("bulla agent group delete {name}"))
        .show(&body)
}

async fn remove_group(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = item("/api/v1/agent-groups", &name);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

fn at(id: &str) -> String {
    item("/api/v1/agents", id)
}

async fn one(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = at(&id);
    let agent = session.api.get(&path).await?;
    let id = api::path::segment(json::text(&agent, "/id"));
    let of_agent = session.api.get_if_allowed(&format!("/api/v1/targets?limit=500&agent={id}")).await?;
    let deployments = session.api.get_if_allowed(&format!("/api/v1/deployments?agent={id}")).await?;
    let facts = Facts::default()
        .with("State", state(&agent))
        .with("Last seen", Cell::time(json::text(&agent, "/last_seen_at"), session.now))
        .with("Host", Cell::text(json::text(&agent, "/hostname")))
        .with("System", Cell::text(json::text(&agent, "/os")))
        .with("Processor", Cell::text(json::text(&agent, "/arch")))
        .with("Version", Cell::text(json::text(&agent, "/version")))
        .with("Addresses", Cell::text(json::joined(&agent, "/addresses")))
        .with("Labels", Cell::text(labels(&agent, "/labels")))
        .with("Enrolled", Cell::time(json::text(&agent, "/enrolled_at"), session.now))
        .with("Certificate expires", Cell::time(json::text(&agent, "/certificate_expires_at"), session.now))
        .with("Retired", Cell::time(json::text(&agent, "/retired_at"), session.now));
    let manages = session.may("agent.manage") && json::text(&agent, "/retired_at").is_empty();
    let actions = Actions::default().danger(format!("{PAGE}/{id}/retire"), "Retire").only_if(manages);
    let mut parts = Sections::default().plain(&actions)?.live("facts", "Host", "agent.", &facts)?;
    if let Some(of_agent) = &of_agent {
        parts = parts.section(
            "targets",
            "Targets",
            &targets::table(&session, of_agent, &Names::read(&session, "agents").await?),
        )?;
    }
    if let Some(deployments) = &deployments {
        let table = targets::deployments(&session, deployments).await?;
        parts = parts.live("work", "Deployments", "agent. certificate. job. deployment.", &table)?;
    }
    if manages {
        let fields = vec![
            Field::line("name", "Name").value(json::text(&agent, "/name")).required(),
            Field::line("labels", "Labels").value(labels(&agent, "/labels")).hint("env=prod, site=paris"),
        ];
        let form = Form::post(format!("{PAGE}/{id}"), session.csrf(), "Save", fields);
        parts = parts.section("change", "Name and labels", &form)?;
    }
    let name = json::text(&agent, "/name");
    Page::new(&session, name)
        .command(format!("bulla agent show {name}"))
        .reads(path)
        .reads(format!("/api/v1/deployments?agent={id}"))
        .show(&parts)
}

async fn change(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let body = json!({ "name": form.field("name"), "labels": labels_of(form.field("labels")) });
    let answer = session.api.change(Method::PATCH, &at(&id), form.csrf(), Some(&body)).await?;
    Ok(redirect(&item(PAGE, &id), "saved", &answer))
}

async fn confirm_retire(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let agent = session.api.get(&at(&id)).await?;
    let agent_id = api::path::segment(json::text(&agent, "/id"));
    let path = format!("/api/v1/targets?limit=500&fields=id&agent={agent_id}");
    let count = session.api.get_if_allowed(&path).await?.map_or(0, |listing| json::items(&listing).len());
    let name = json::text(&agent, "/name");
    let page_path = item(PAGE, &id);
    let body = Confirmation::new(&session, format!("{page_path}/retire"), &page_path, "Retire the agent")
        .danger()
        .says(
            "The agent gets no further work, and its client certificate is rejected. This cannot be undone.",
        )
        .says(format!(
            "No further certificates are deployed to {} on this agent. Deployed certificates stay in place.",
            crate::format::counted(count, false, "deployment target")
        ));
    Page::new(&session, format!("Retire {name}?")).command(format!("bulla agent retire {name}")).show(&body)
}

async fn retire(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::POST, &format!("{}/retire", at(&id)), form.csrf(), None).await?;
    Ok(redirect(PAGE, "saved", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_roundtrip_through_their_form_field() {
        let agent = json!({"labels": {"env": "prod", "site": "a=b"}});
        let text = labels(&agent, "/labels");
        assert_eq!(text, "env=prod, site=a=b");
        assert_eq!(labels_of(Some(&text)), agent["labels"]);
        assert_eq!(labels_of(None), json!({}));
    }
}
