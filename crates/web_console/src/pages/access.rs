//! Users, API tokens and roles.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::ask::{Actions, Ask, Field};
use crate::cell::{Cell, Tone};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form::{Form, back};
use crate::json;
use crate::listed::Listed;
use crate::pages::account;
use crate::parts::{Note, Once, Parts};
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

/// Users or tokens: both are identities with grants.
#[derive(Clone, Copy)]
struct Noun {
    one: &'static str,
    many: &'static str,
    heading: &'static str,
    empty: &'static str,
}

const USERS: Noun = Noun {
    one: "user",
    many: "users",
    heading: "Users",
    empty: "No user yet. People whose groups give them a role need none: add one here to give more.",
};

const TOKENS: Noun = Noun { one: "token", many: "tokens", heading: "API tokens", empty: "No token yet." };

impl Noun {
    fn page(self) -> String {
        format!("/console/{}", self.many)
    }

    fn page_of(self, id: &str) -> String {
        format!("/console/{}/{}", self.many, api::path::segment(id))
    }

    fn at(self, id: &str) -> String {
        format!("/api/v1/{}/{}", self.many, api::path::segment(id))
    }
}

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/users", get(users).post(make_user))
        .route("/console/users/{id}", get(user))
        .route("/console/users/{id}/enabled", get(ask_disable_user).post(enable_user))
        .route("/console/users/{id}/grants", post(grant_user))
        .route("/console/users/{id}/sign-out", post(sign_out_user))
        .route("/console/users/{id}/remove", get(ask_remove_user).post(remove_user))
        .route("/console/tokens", get(tokens).post(make_token))
        .route("/console/tokens/{id}", get(token))
        .route("/console/tokens/{id}/enabled", get(ask_disable_token).post(enable_token))
        .route("/console/tokens/{id}/grants", post(grant_token))
        .route("/console/tokens/{id}/rotate", get(ask_rotate).post(rotate))
        .route("/console/tokens/{id}/remove", get(ask_remove_token).post(remove_token))
        .route("/console/roles", get(roles).post(make_role))
        .route("/console/roles/{name}", get(role))
        .route("/console/roles/{name}/remove", get(ask_remove_role).post(remove_role))
}

/// `operator in team:web`, one a grant.
fn grants(identity: &Value) -> String {
    let grants = json::list(identity, "/grants").iter();
    let words = grants.map(|grant| {
        let (role, scope) = (json::text(grant, "/role"), json::text(grant, "/scope"));
        if scope.is_empty() { format!("{role} in any") } else { format!("{role} in {scope}") }
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Grants of a field, as [`grants`] writes them.
fn grants_of(text: &str) -> Value {
    let words = text.split([';', '\n']).map(str::trim).filter(|word| !word.is_empty());
    let grants = words.map(|word| match word.split_once(" in ") {
        Some((role, scope)) => json!({ "role": role.trim(), "scope": scope.trim() }),
        None => json!({ "role": word, "scope": "any" }),
    });
    grants.collect()
}

fn grants_field(value: String) -> Field {
    Field::area("grants", "Roles, one a line", value.replace("; ", "\n")).hint(
        "operator, or with a scope: operator in team:web, auditor in any, operator in name:*.a.example.",
    )
}

fn state(identity: &Value) -> Cell {
    if json::flag(identity, "/enabled") {
        Cell::badge(Tone::Good, "enabled")
    } else {
        Cell::badge(Tone::Calm, "disabled")
    }
}

fn table(visit: &Visit, noun: Noun, listing: &Value) -> Table {
    let columns = ["Name", "State", "Known by", "Roles", "Made", "Expires", "Last used"];
    Table::of(&format!("{}, by name", noun.heading), &columns, listing, |one| {
        vec![
            Cell::link(noun.page_of(json::text(one, "/id")), json::text(one, "/name")),
            state(one),
            Cell::code(json::text(one, "/label")),
            Cell::text(grants(one)),
            Cell::time(json::text(one, "/created_at"), visit.now),
            Cell::time(json::text(one, "/expires_at"), visit.now),
            Cell::time(json::text(one, "/last_used_at"), visit.now),
        ]
    })
    .empty(noun.empty)
}

async fn users(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let fields = vec![
        Field::line("name", "Name", "").required(),
        Field::line("subject", "Subject", "")
            .hint("The claim \"sub\" of the OpenID Connect issuer.")
            .required(),
        Field::line("issuer", "Issuer", "").hint("Empty: the configured one."),
        Field::line("email", "Email", ""),
        grants_field(String::new()),
    ];
    identities(&visit, USERS, query.as_deref(), "Add the user", fields).await
}

async fn tokens(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let fields = vec![
        Field::line("name", "Name", "").required(),
        grants_field(String::new()),
        Field::date("expires", "Expires", "").hint("Empty: never."),
    ];
    identities(&visit, TOKENS, query.as_deref(), "Make the token", fields).await
}

async fn identities(
    visit: &Visit,
    noun: Noun,
    query: Option<&str>,
    button: &'static str,
    fields: Vec<Field>,
) -> Result<Response, Failure> {
    let listed = Listed::read(visit, &format!("/api/v1/{}", noun.many), query).await?;
    let table = listed.exported(table(visit, noun, &listed.answer), &noun.page(), noun.many);
    let mut parts = Parts::default().section("list", &format!("All {}", noun.many), &table)?;
    if visit.may("access.manage") {
        let form = Ask::post(noun.page(), visit.csrf(), button, fields);
        parts = parts.section("new", &format!("New {}", noun.one), &form)?;
    }
    Page::new(visit, noun.heading).command(format!("bulla {} list", noun.one)).reads(listed.path).show(&parts)
}

async fn make_user(visit: Visit, form: Form) -> Result<Response, Failure> {
    let body = json!({
        "name": form.field("name").unwrap_or_default(),
        "subject": form.field("subject").unwrap_or_default(),
        "issuer": form.field("issuer"),
        "email": form.field("email"),
        "grants": grants_of(form.field("grants").unwrap_or_default()),
    });
    let made = visit.api.change(Method::POST, "/api/v1/users", form.csrf(), Some(&body)).await?;
    Ok(back(&USERS.page_of(json::text(&made, "/id")), "created", &made))
}

async fn make_token(visit: Visit, form: Form) -> Result<Response, Failure> {
    let body = json!({
        "name": form.field("name").unwrap_or_default(),
        "grants": grants_of(form.field("grants").unwrap_or_default()),
        "expires_at": form.field("expires").map(|day| format!("{day}T00:00:00Z")),
    });
    let made = visit.api.change(Method::POST, "/api/v1/tokens", form.csrf(), Some(&body)).await?;
    shown_once(&visit, &made)
}

fn shown_once(visit: &Visit, made: &Value) -> Result<Response, Failure> {
    let name = json::text(made, "/name");
    let once = Once {
        what: "The token",
        secret: json::text(made, "/token").to_owned(),
        usage:
            "curl --cacert ca.pem -H \"Authorization: Bearer $BULLA_TOKEN\" \"$BULLA_SERVER/api/v1/auth/me\""
                .to_owned(),
        href: TOKENS.page(),
    };
    Page::new(visit, format!("Token {name}")).command(format!("bulla token create {name}")).show(&once)
}

async fn user(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let sessions = visit.api.get_if_allowed(&format!("{}/sessions", USERS.at(&id))).await?;
    let mut parts = identity_parts(&visit, USERS, &id).await?;
    if let Some(sessions) = &sessions {
        let sign_out = Actions::default()
            .press(format!("{}/sign-out", USERS.page_of(&id)), visit.csrf(), "End all sessions")
            .only_if(visit.may("access.manage"));
        parts.1 = parts
            .1
            .section("sessions", "Sessions", &account::sessions_table(&visit, sessions))?
            .plain(&sign_out)?;
    }
    show(&visit, USERS, &id, &parts.0, &parts.1)
}

async fn token(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let (name, parts) = identity_parts(&visit, TOKENS, &id).await?;
    show(&visit, TOKENS, &id, &name, &parts)
}

fn show(visit: &Visit, noun: Noun, id: &str, name: &str, parts: &Parts) -> Result<Response, Failure> {
    Page::new(visit, name).command(format!("bulla {} show {name}", noun.one)).reads(noun.at(id)).show(parts)
}

async fn identity_parts(visit: &Visit, noun: Noun, id: &str) -> Result<(String, Parts), Failure> {
    let one = visit.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let facts = Facts::default()
        .with("State", state(&one))
        .with("Known by", Cell::code(json::text(&one, "/label")))
        .with("Email", Cell::text(json::text(&one, "/email")))
        .with("Roles", Cell::text(grants(&one)))
        .with("Made", Cell::time(json::text(&one, "/created_at"), visit.now))
        .with("Made by", Cell::text(json::text(&one, "/created_by")))
        .with("Expires", Cell::time(json::text(&one, "/expires_at"), visit.now))
        .with("Last used", Cell::time(json::text(&one, "/last_used_at"), visit.now));
    let name = api::path::segment(json::text(&one, "/name"));
    let audit = format!("/console/audit?actor={}%3A{name}", noun.one);
    let mut actions = Actions::default().link(audit, "In the audit log");
    if visit.may("access.manage") {
        if noun.one == "token" {
            actions = actions.link(format!("{page}/rotate"), "Rotate");
        }
        if json::flag(&one, "/enabled") {
            actions = actions.danger(format!("{page}/enabled"), "Disable");
        }
        actions = actions.danger(format!("{page}/remove"), "Delete");
    }
    let mut parts = Parts::default().plain(&actions)?.plain(&facts)?;
    if visit.may("access.manage") {
        if !json::flag(&one, "/enabled") {
            let to = Field::hidden("enabled", "true");
            let switch = Ask::post(format!("{page}/enabled"), visit.csrf(), "Enable", vec![to]);
            parts = parts.section("switch", "Enable it", &switch)?;
        }
        let fields = vec![grants_field(grants(&one))];
        let change = Ask::post(format!("{page}/grants"), visit.csrf(), "Save", fields);
        parts = parts.section("roles", "Change the roles", &change)?;
    }
    Ok((json::text(&one, "/name").to_owned(), parts))
}

async fn ask_disable_user(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    ask_disable(&visit, USERS, &id).await
}

async fn ask_disable_token(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    ask_disable(&visit, TOKENS, &id).await
}

/// Asks first: disabling takes effect at once, while enabling again may wait for another person.
async fn ask_disable(visit: &Visit, noun: Noun, id: &str) -> Result<Response, Failure> {
    let one = visit.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let to = Field::hidden("enabled", "false");
    let form = Ask::post(format!("{page}/enabled"), visit.csrf(), "Disable", vec![to]).danger(page);
    let mut parts = Parts::default();
    if json::text(visit.me(), "/id") == json::text(&one, "/id") {
        parts = parts.plain(&Note::hint(
            "You use this identity now. You are locked out at once, and cannot enable it again yourself.",
        ))?;
    }
    let note = Note::hint(format!(
        "Its requests are refused at once. Enabling it again may need another person's approval. It was last used {}.",
        last_used(visit, &one)
    ));
    let parts = parts.plain(&note)?.plain(&form)?;
    let name = json::text(&one, "/name");
    Page::new(visit, format!("Disable {name}?")).reads(noun.at(id)).show(&parts)
}

async fn patch(visit: &Visit, noun: Noun, id: &str, form: &Form, body: &Value) -> Result<Response, Failure> {
    let answer = visit.api.change(Method::PATCH, &noun.at(id), form.csrf(), Some(body)).await?;
    Ok(back(&noun.page_of(id), "saved", &answer))
}

fn enabled_body(form: &Form) -> Value {
    json!({ "enabled": form.field("enabled") == Some("true") })
}

fn grants_body(form: &Form) -> Value {
    json!({ "grants": grants_of(form.field("grants").unwrap_or_default()) })
}

async fn enable_user(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    patch(&visit, USERS, &id, &form, &enabled_body(&form)).await
}

async fn enable_token(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    patch(&visit, TOKENS, &id, &form, &enabled_body(&form)).await
}

async fn grant_user(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    patch(&visit, USERS, &id, &form, &grants_body(&form)).await
}

async fn grant_token(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    patch(&visit, TOKENS, &id, &form, &grants_body(&form)).await
}

async fn sign_out_user(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("{}/sessions", USERS.at(&id));
    let answer = visit.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(back(&USERS.page_of(&id), "saved", &answer))
}

async fn ask_rotate(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = visit.api.get(&TOKENS.at(&id)).await?;
    let page = TOKENS.page_of(&id);
    let form = Ask::post(format!("{page}/rotate"), visit.csrf(), "Rotate the token", vec![]).danger(page);
    let note = Note::hint(format!(
        "The present secret is refused from now on; programs that use it fail until they have the new one. It was last used {}.",
        last_used(&visit, &one)
    ));
    let parts = Parts::default().plain(&note)?.plain(&form)?;
    let name = json::text(&one, "/name");
    Page::new(&visit, format!("Rotate {name}?")).command(format!("bulla token rotate {name}")).show(&parts)
}

fn last_used(visit: &Visit, one: &Value) -> String {
    match json::text(one, "/last_used_at") {
        "" => "never".to_owned(),
        at => crate::format::distance(at, visit.now),
    }
}

async fn rotate(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("{}/rotate", TOKENS.at(&id));
    let made = visit.api.change(Method::POST, &path, form.csrf(), None).await?;
    shown_once(&visit, &made)
}

async fn ask_remove_user(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    ask_remove(&visit, USERS, &id).await
}

async fn ask_remove_token(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    ask_remove(&visit, TOKENS, &id).await
}

async fn ask_remove(visit: &Visit, noun: Noun, id: &str) -> Result<Response, Failure> {
    let one = visit.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let form = Ask::post(format!("{page}/remove"), visit.csrf(), "Delete", vec![]).danger(page);
    let note = Note::hint(format!(
        "This cannot be undone. Its roles are lost: {}. It was last used {}. What it did stays in the audit log. To keep it out for a time, disable it instead.",
        grants(&one),
        last_used(visit, &one)
    ));
    let parts = Parts::default().plain(&note)?.plain(&form)?;
    let name = json::text(&one, "/name");
    Page::new(visit, format!("Delete {name}?"))
        .command(format!("bulla {} delete {name}", noun.one))
        .show(&parts)
}

async fn remove_user(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    remove(&visit, USERS, &id, &form).await
}

async fn remove_token(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    remove(&visit, TOKENS, &id, &form).await
}

async fn remove(visit: &Visit, noun: Noun, id: &str, form: &Form) -> Result<Response, Failure> {
    let answer = visit.api.change(Method::DELETE, &noun.at(id), form.csrf(), None).await?;
    Ok(back(&noun.page(), "removed", &answer))
}

async fn roles(visit: Visit) -> Result<Response, Failure> {
    let listing = visit.api.get("/api/v1/roles").await?;
    let columns = ["Name", "Kind", "Description", "Permissions", "Changed"];
    let table = Table::of("Roles, by name", &columns, &listing, |role| {
        let name = json::text(role, "/name");
        let kind = if json::flag(role, "/built_in") { "built in" } else { "own" };
        let count = json::list(role, "/permissions").len();
        vec![
            Cell::link(format!("/console/roles/{}", api::path::segment(name)), name),
            Cell::badge(Tone::Calm, kind),
            Cell::text(json::text(role, "/description")),
            Cell::number(i64::try_from(count).unwrap_or_default()),
            Cell::time(json::text(role, "/updated_at"), visit.now),
        ]
    });
    let mut parts = Parts::default().section("list", "All roles", &table)?;
    if visit.may("access.manage") {
        let fields = vec![
            Field::line("name", "Name", "").required(),
            Field::line("description", "Description", ""),
            Field::area("permissions", "Permissions, one a line", "")
                .hint("As the built-in roles have them: certificate.read.")
                .required(),
        ];
        let form = Ask::post("/console/roles", visit.csrf(), "Save the role", fields);
        parts = parts.section("new", "New role", &form)?;
    }
    Page::new(&visit, "Roles").command("bulla user roles").reads("/api/v1/roles").show(&parts)
}

async fn make_role(visit: Visit, form: Form) -> Result<Response, Failure> {
    let permissions = form.field("permissions").unwrap_or_default();
    let permissions: Vec<&str> =
        permissions.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).collect();
    let body = json!({
        "description": form.field("description").unwrap_or_default(), "permissions": permissions
    });
    let name = api::path::segment(form.field("name").unwrap_or_default());
    let path = format!("/api/v1/roles/{name}");
    let answer = visit.api.change(Method::PUT, &path, form.csrf(), Some(&body)).await?;
    Ok(back("/console/roles", "saved", &answer))
}

async fn role(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    let path = format!("/api/v1/roles/{}", api::path::segment(&name));
    let role = visit.api.get(&path).await?;
    let own = !json::flag(&role, "/built_in");
    let page = format!("/console/roles/{}", api::path::segment(&name));
    let actions = Actions::default()
        .danger(format!("{page}/remove"), "Delete")
        .only_if(own && visit.may("access.manage"));
    let facts = Facts::default()
        .with("Kind", Cell::text(if own { "own" } else { "built in; cannot be changed" }))
        .with("Description", Cell::text(json::text(&role, "/description")))
        .with("Changed", Cell::time(json::text(&role, "/updated_at"), visit.now));
    let rows = json::list(&role, "/permissions").iter().filter_map(Value::as_str);
    let permissions = Table {
        caption: "Permissions of the role".to_owned(),
        columns: vec!["Permission"],
        rows: rows.map(|permission| vec![Cell::code(permission)]).collect(),
        ..Table::default()
    };
    let parts = Parts::default().plain(&actions)?.plain(&facts)?.section(
        "permissions",
        "Permissions",
        &permissions,
    )?;
    Page::new(&visit, name.as_str()).command("bulla user roles").reads(path).show(&parts)
}

async fn ask_remove_role(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    let page = format!("/console/roles/{}", api::path::segment(&name));
    let form = Ask::post(format!("{page}/remove"), visit.csrf(), "Delete the role", vec![]).danger(page);
    let note = Note::hint(
        "Whoever has the role loses its permissions at once. The server refuses while grants use it.",
    );
    let parts = Parts::default().plain(&note)?.plain(&form)?;
    Page::new(&visit, format!("Delete the role {name}?")).show(&parts)
}

async fn remove_role(visit: Visit, Path(name): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("/api/v1/roles/{}", api::path::segment(&name));
    let answer = visit.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(back("/console/roles", "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_survive_their_field() {
        let identity = json!({"grants": [
            {"role": "operator", "scope": "team:web"}, {"role": "auditor", "scope": "any"}
        ]});
        let text = grants(&identity);
        assert_eq!(text, "operator in team:web; auditor in any");
        assert_eq!(grants_of(&text.replace("; ", "\n")), identity["grants"]);
        assert_eq!(grants_of("admin"), json!([{"role": "admin", "scope": "any"}]));
    }
}
