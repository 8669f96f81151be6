//! Users, API tokens and roles.

use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
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
use crate::pages::{account, security_keys};
use crate::query::item;
use crate::sections::{OneTimeSecret, Sections};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

/// Words for the pages of users or of API tokens. The pages of both share their code.
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
    empty: "No user yet. People who get a role from their groups need no user here. Add a user to assign more roles.",
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
        .route("/console/users/{id}/enabled", get(confirm_disable_user).post(enable_user))
        .route("/console/users/{id}/grants", post(grant_user))
        .route("/console/users/{id}/sign-out", post(sign_out_user))
        .route("/console/users/{id}/password", get(password_form).post(set_password))
        .route("/console/users/{id}/remove", get(confirm_remove_user).post(remove_user))
        .route("/console/tokens", get(tokens).post(make_token))
        .route("/console/tokens/{id}", get(token))
        .route("/console/tokens/{id}/enabled", get(confirm_disable_token).post(enable_token))
        .route("/console/tokens/{id}/grants", post(grant_token))
        .route("/console/tokens/{id}/rotate", get(confirm_rotate).post(rotate))
        .route("/console/tokens/{id}/remove", get(confirm_remove_token).post(remove_token))
        .route("/console/roles", get(roles).post(make_role))
        .route("/console/roles/{name}", get(role))
        .route("/console/roles/{name}/remove", get(confirm_remove_role).post(remove_role))
}

/// Formats grants, one per line: `operator in team:web`.
fn grants(identity: &Value) -> String {
    let grants = json::list(identity, "/grants").iter();
    let words = grants.map(|grant| {
        let (role, scope) = (json::text(grant, "/role"), json::text(grant, "/scope"));
        if scope.is_empty() { format!("{role} in any") } else { format!("{role} in {scope}") }
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Parses grants in the format of [`grants`].
fn grants_of(text: &str) -> Value {
    let words = text.split([';', '\n']).map(str::trim).filter(|word| !word.is_empty());
    let grants = words.map(|word| match word.split_once(" in ") {
        Some((role, scope)) => json!({ "role": role.trim(), "scope": scope.trim() }),
        None => json!({ "role": word, "scope": "any" }),
    });
    grants.collect()
}

fn grants_field(value: String) -> Field {
    Field::lines("grants", "Roles, one per line").value(value.replace("; ", "\n")).hint(
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

fn table(session: &Session, noun: Noun, listing: &Value) -> Table {
    let columns = ["Name", "State", "Identity", "Roles", "Created", "Expires", "Last used"];
    Table::of(&format!("{}, by name", noun.heading), &columns, listing, |one| {
        vec![
            Cell::link(noun.page_of(json::text(one, "/id")), json::text(one, "/name")),
            state(one),
            Cell::code(json::text(one, "/label")),
            Cell::text(grants(one)),
            Cell::time(json::text(one, "/created_at"), session.now),
            Cell::time(json::text(one, "/expires_at"), session.now),
            Cell::time(json::text(one, "/last_used_at"), session.now),
        ]
    })
    .empty(noun.empty)
}

async fn users(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let fields = vec![
        Field::line("name", "Name").required(),
        Field::line("subject", "Subject").hint("The claim \"sub\" of the OpenID Connect issuer.").required(),
        Field::line("issuer", "Issuer").hint("Empty: the configured issuer."),
        Field::line("email", "Email"),
        grants_field(String::new()),
    ];
    identities(&session, USERS, query.as_deref(), "Add the user", fields).await
}

async fn tokens(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let fields = vec![
        Field::line("name", "Name").required(),
        grants_field(String::new()),
        Field::date("expires", "Expires").hint("Empty: never."),
    ];
    identities(&session, TOKENS, query.as_deref(), "Create the token", fields).await
}

async fn identities(
    session: &Session,
    noun: Noun,
    query: Option<&str>,
    button: &'static str,
    fields: Vec<Field>,
) -> Result<Response, Failure> {
    let listing = Listing::read(session, &noun.page(), &format!("/api/v1/{}", noun.many), query).await?;
    let table = listing.paged(table(session, noun, listing.answer())).exported(noun.many);
    let mut parts = Sections::default().section("list", &format!("All {}", noun.many), &table)?;
    if session.may("access.manage") {
        let form = Form::post(noun.page(), session.csrf(), button, fields);
        parts = parts.section("new", &format!("New {}", noun.one), &form)?;
    }
    Page::new(session, noun.heading)
        .command(format!("bulla {} list", noun.one))
        .reads(listing.path())
        .show(&parts)
}

async fn make_user(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "name": form.text("name"),
        "subject": form.text("subject"),
        "issuer": form.field("issuer"),
        "email": form.field("email"),
        "grants": grants_of(form.text("grants")),
    });
    let created = session.api.change(Method::POST, "/api/v1/users", form.csrf(), Some(&body)).await?;
    Ok(redirect(&USERS.page_of(json::text(&created, "/id")), "created", &created))
}

async fn make_token(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "name": form.text("name"),
        "grants": grants_of(form.text("grants")),
        "expires_at": form.field("expires").map(|day| format!("{day}T00:00:00Z")),
    });
    let created = session.api.change(Method::POST, "/api/v1/tokens", form.csrf(), Some(&body)).await?;
    show_token_once(&session, &created)
}

fn show_token_once(session: &Session, created: &Value) -> Result<Response, Failure> {
    let name = json::text(created, "/name");
    let one_time_secret = OneTimeSecret {
        what: "The token",
        secret: json::text(created, "/token").to_owned(),
        usage:
            "curl --cacert ca.pem -H \"Authorization: Bearer $BULLA_TOKEN\" \"$BULLA_SERVER/api/v1/auth/me\""
                .to_owned(),
        href: TOKENS.page(),
    };
    Page::new(session, format!("Token {name}"))
        .command(format!("bulla token create {name}"))
        .show(&one_time_secret)
}

async fn user(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let sessions = session.api.get_if_allowed(&format!("{}/sessions", USERS.at(&id))).await?;
    let keys = session.api.get_if_allowed(&security_keys::path_of(&id)).await?;
    let mut parts = identity_parts(&session, USERS, &id).await?;
    if let Some(keys) = &keys {
        let removes = session.may("access.manage");
        let keys = security_keys::table(&session, &id, keys, removes);
        parts.1 = parts.1.section("security-keys", "Security keys", &keys)?;
    }
    if let Some(sessions) = &sessions {
        let sign_out = Actions::default()
            .button(format!("{}/sign-out", USERS.page_of(&id)), session.csrf(), "Sign out everywhere")
            .only_if(session.may("access.manage"));
        parts.1 = parts
            .1
            .section("sessions", "Sessions", &account::sessions_table(&session, sessions))?
            .plain(&sign_out)?;
    }
    show(&session, USERS, &id, &parts.0, &parts.1)
}

async fn token(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let (name, parts) = identity_parts(&session, TOKENS, &id).await?;
    show(&session, TOKENS, &id, &name, &parts)
}

fn show(session: &Session, noun: Noun, id: &str, name: &str, parts: &Sections) -> Result<Response, Failure> {
    Page::new(session, name).command(format!("bulla {} show {name}", noun.one)).reads(noun.at(id)).show(parts)
}

async fn identity_parts(session: &Session, noun: Noun, id: &str) -> Result<(String, Sections), Failure> {
    let one = session.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let facts = Facts::default()
        .with("State", state(&one))
        .with("Identity", Cell::code(json::text(&one, "/label")))
        .with("Email", Cell::text(json::text(&one, "/email")))
        .with("Roles", Cell::text(grants(&one)))
        .with("Created", Cell::time(json::text(&one, "/created_at"), session.now))
        .with("Created by", Cell::text(json::text(&one, "/created_by")))
        .with("Expires", Cell::time(json::text(&one, "/expires_at"), session.now))
        .with("Last used", Cell::time(json::text(&one, "/last_used_at"), session.now));
    let name = api::path::segment(json::text(&one, "/name"));
    let audit = format!("/console/audit?actor={}%3A{name}", noun.one);
    let mut actions = Actions::default().link(audit, "In the audit log");
    if session.may("access.manage") {
        actions = match noun.one {
            "token" => actions.link(format!("{page}/rotate"), "Rotate"),
            _ => actions.link(format!("{page}/password"), "Set a password"),
        };
        if json::flag(&one, "/enabled") {
            actions = actions.danger(format!("{page}/enabled"), "Disable");
        }
        actions = actions.danger(format!("{page}/remove"), "Delete");
    }
    let mut parts = Sections::default().plain(&actions)?.plain(&facts)?;
    if session.may("access.manage") {
        if !json::flag(&one, "/enabled") {
            let to = Field::hidden("enabled", "true");
            let switch = Form::post(format!("{page}/enabled"), session.csrf(), "Enable", vec![to]);
            parts = parts.section("switch", "Enable", &switch)?;
        }
        let fields = vec![grants_field(grants(&one))];
        let change = Form::post(format!("{page}/grants"), session.csrf(), "Save", fields);
        parts = parts.section("roles", "Change the roles", &change)?;
    }
    Ok((json::text(&one, "/name").to_owned(), parts))
}

async fn confirm_disable_user(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    confirm_disable(&session, USERS, &id).await
}

async fn confirm_disable_token(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    confirm_disable(&session, TOKENS, &id).await
}

/// Shows a confirmation page, because disabling is effective immediately, while enabling again may require approval.
async fn confirm_disable(session: &Session, noun: Noun, id: &str) -> Result<Response, Failure> {
    let one = session.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let mut body = Confirmation::new(session, format!("{page}/enabled"), &page, "Disable")
        .danger()
        .hidden("enabled", "false")
        .says("Requests of this identity are rejected immediately.")
        .says("Enabling it again may need another person's approval.")
        .says(format!("Last used: {}.", last_used(session, &one)));
    if json::text(session.me(), "/id") == json::text(&one, "/id") {
        body = body.says("You are signed in with this identity. You lose access immediately, and cannot enable it again yourself.");
    }
    let name = json::text(&one, "/name");
    Page::new(session, format!("Disable {name}?")).reads(noun.at(id)).show(&body)
}

async fn patch(
    session: &Session,
    noun: Noun,
    id: &str,
    form: &FormData,
    body: &Value,
) -> Result<Response, Failure> {
    let answer = session.api.change(Method::PATCH, &noun.at(id), form.csrf(), Some(body)).await?;
    Ok(redirect(&noun.page_of(id), "saved", &answer))
}

fn enabled_body(form: &FormData) -> Value {
    json!({ "enabled": form.field("enabled") == Some("true") })
}

fn grants_body(form: &FormData) -> Value {
    json!({ "grants": grants_of(form.text("grants")) })
}

async fn enable_user(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    patch(&session, USERS, &id, &form, &enabled_body(&form)).await
}

async fn enable_token(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    patch(&session, TOKENS, &id, &form, &enabled_body(&form)).await
}

async fn grant_user(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    patch(&session, USERS, &id, &form, &grants_body(&form)).await
}

async fn grant_token(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    patch(&session, TOKENS, &id, &form, &grants_body(&form)).await
}

async fn password_form(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    show_password(&session, &id, None).await
}

async fn show_password(session: &Session, id: &str, problem: Option<String>) -> Result<Response, Failure> {
    let user = session.api.get(&USERS.at(id)).await?;
    let page = USERS.page_of(id);
    let name = json::text(&user, "/name");
    let own = json::text(session.me(), "/id") == json::text(&user, "/id");
    let mut body = Confirmation::new(session, format!("{page}/password"), &page, "Set the password")
        .danger()
        .problem(problem)
        .field(Field::new_password("password", "New password").required())
        .field(Field::new_password("again", "Repeat the password").required())
        .says(format!(
            "{name} signs in with this password from now on. An earlier password is no longer valid."
        ));
    body = match own {
        true => body.says("Your other sessions end."),
        false => body
            .says(format!("Every session of {name} ends."))
            .says("Another person may have to approve it first."),
    };
    Page::new(session, format!("Password of {name}"))
        .command(format!("bulla user password {name}"))
        .show(&body)
}

async fn set_password(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let password = form.exact("password").unwrap_or_default();
    if form.exact("again").unwrap_or_default() != password {
        return show_password(&session, &id, Some("The two passwords differ.".to_owned())).await;
    }
    let path = format!("{}/password", USERS.at(&id));
    let body = json!({ "password": password });
    match session.api.change(Method::PUT, &path, form.csrf(), Some(&body)).await {
        Ok(answer) => Ok(redirect(&USERS.page_of(&id), "saved", &answer)),
        Err(failure) => show_password(&session, &id, Some(failure.form_problem()?)).await,
    }
}

async fn sign_out_user(
    session: Session,
    Path(id): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = format!("{}/sessions", USERS.at(&id));
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(&USERS.page_of(&id), "saved", &answer))
}

async fn confirm_rotate(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let one = session.api.get(&TOKENS.at(&id)).await?;
    let page = TOKENS.page_of(&id);
    let body = Confirmation::new(&session, format!("{page}/rotate"), &page, "Rotate the token")
        .danger()
        .says("The current secret is rejected from now on. Programs that use it fail until they have the new one.")
        .says(format!("Last used: {}.", last_used(&session, &one)));
    let name = json::text(&one, "/name");
    Page::new(&session, format!("Rotate {name}?")).command(format!("bulla token rotate {name}")).show(&body)
}

fn last_used(session: &Session, one: &Value) -> String {
    match json::text(one, "/last_used_at") {
        "" => "never".to_owned(),
        at => crate::format::distance(at, session.now),
    }
}

async fn rotate(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/rotate", TOKENS.at(&id));
    let created = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    show_token_once(&session, &created)
}

async fn confirm_remove_user(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    confirm_remove(&session, USERS, &id).await
}

async fn confirm_remove_token(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    confirm_remove(&session, TOKENS, &id).await
}

async fn confirm_remove(session: &Session, noun: Noun, id: &str) -> Result<Response, Failure> {
    let one = session.api.get(&noun.at(id)).await?;
    let page = noun.page_of(id);
    let body = Confirmation::new(session, format!("{page}/remove"), &page, "Delete")
        .danger()
        .says(format!("The identity loses its roles: {}. This cannot be undone.", grants(&one)))
        .says(format!("Last used: {}. Its events stay in the audit log.", last_used(session, &one)))
        .says("To block it temporarily, disable it instead.");
    let name = json::text(&one, "/name");
    Page::new(session, format!("Delete {name}?"))
        .command(format!("bulla {} delete {name}", noun.one))
        .show(&body)
}

async fn remove_user(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    remove(&session, USERS, &id, &form).await
}

async fn remove_token(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    remove(&session, TOKENS, &id, &form).await
}

async fn remove(session: &Session, noun: Noun, id: &str, form: &FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &noun.at(id), form.csrf(), None).await?;
    Ok(redirect(&noun.page(), "removed", &answer))
}

async fn roles(session: Session) -> Result<Response, Failure> {
    let listing = session.api.get("/api/v1/roles").await?;
    let columns = ["Name", "Kind", "Description", "Permissions", "Changed"];
    let table = Table::of("Roles, by name", &columns, &listing, |role| {
        let name = json::text(role, "/name");
        let kind = if json::flag(role, "/built_in") { "built in" } else { "own" };
        let count = json::list(role, "/permissions").len();
        vec![
            Cell::link(item("/console/roles", name), name),
            Cell::badge(Tone::Calm, kind),
            Cell::text(json::text(role, "/description")),
            Cell::number(i64::try_from(count).unwrap_or_default()),
            Cell::time(json::text(role, "/updated_at"), session.now),
        ]
    })
    .exported("roles");
    let mut parts = Sections::default().section("list", "All roles", &table)?;
    if session.may("access.manage") {
        let fields = vec![
            Field::line("name", "Name").required(),
            Field::line("description", "Description"),
            Field::lines("permissions", "Permissions, one per line")
                .hint("Written as in the built-in roles: certificate.read.")
                .required(),
        ];
        let form = Form::post("/console/roles", session.csrf(), "Save the role", fields);
        parts = parts.section("new", "New role", &form)?;
    }
    Page::new(&session, "Roles").command("bulla user roles").reads("/api/v1/roles").show(&parts)
}

async fn make_role(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "description": form.text("description"), "permissions": form.words("permissions")
    });
    let name = api::path::segment(form.text("name"));
    let path = format!("/api/v1/roles/{name}");
    let answer = session.api.change(Method::PUT, &path, form.csrf(), Some(&body)).await?;
    Ok(redirect("/console/roles", "saved", &answer))
}

async fn role(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/roles", &name);
    let role = session.api.get(&path).await?;
    let own = !json::flag(&role, "/built_in");
    let page = item("/console/roles", &name);
    let actions = Actions::default()
        .danger(format!("{page}/remove"), "Delete")
        .only_if(own && session.may("access.manage"));
    let facts = Facts::default()
        .with("Kind", Cell::text(if own { "own" } else { "built in; cannot be changed" }))
        .with("Description", Cell::text(json::text(&role, "/description")))
        .with("Changed", Cell::time(json::text(&role, "/updated_at"), session.now));
    let rows = json::list(&role, "/permissions").iter().filter_map(Value::as_str);
    let permissions = Table::new(
        "Permissions of the role",
        &["Permission"],
        rows.map(|permission| vec![Cell::code(permission)]),
    );
    let parts = Sections::default().plain(&actions)?.plain(&facts)?.section(
        "permissions",
        "Permissions",
        &permissions,
    )?;
    Page::new(&session, name.as_str()).command("bulla user roles").reads(path).show(&parts)
}

async fn confirm_remove_role(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let page = item("/console/roles", &name);
    let body = Confirmation::new(&session, format!("{page}/remove"), &page, "Delete the role")
        .danger()
        .says("Identities with the role lose its permissions immediately. The server rejects the deletion while grants use \
         the role.");
    Page::new(&session, format!("Delete the role {name}?")).show(&body)
}

async fn remove_role(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = item("/api/v1/roles", &name);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect("/console/roles", "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_roundtrip_through_their_form_field() {
        let identity = json!({"grants": [
            {"role": "operator", "scope": "team:web"}, {"role": "auditor", "scope": "any"}
        ]});
        let text = grants(&identity);
        assert_eq!(text, "operator in team:web; auditor in any");
        assert_eq!(grants_of(&text.replace("; ", "\n")), identity["grants"]);
        assert_eq!(grants_of("admin"), json!([{"role": "admin", "scope": "any"}]));
    }
}
