//! The ACME server: directories, accounts, orders, external account keys, limit overrides.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::cell::Cell;
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;
use crate::{format, json};

const PAGE: &str = "/console/acme";
const ACCOUNTS: &str = "/console/acme/accounts";
const ORDERS: &str = "/console/acme/orders";
const KEYS: &str = "/console/acme/external-keys";
const OVERRIDES: &str = "/console/acme/limit-overrides";

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(overview))
        .route(ACCOUNTS, get(accounts))
        .route("/console/acme/accounts/{id}", get(account))
        .route("/console/acme/accounts/{id}/revoke", get(confirm_revoke).post(revoke))
        .route(ORDERS, get(orders))
        .route("/console/acme/orders/{id}", get(order))
        .route(KEYS, get(keys).post(create_key))
        .route("/console/acme/external-keys/{id}", get(key))
        .route("/console/acme/external-keys/{id}/disable", get(confirm_disable).post(disable))
        .route(OVERRIDES, get(overrides).post(set_override))
        .route("/console/acme/limit-overrides/{id}/remove", post(remove_override))
}

/// An ACME directory, with the commands for clients.
struct Directory {
    profile: String,
    url: String,
    commands: Vec<(&'static str, String)>,
}

#[derive(Template)]
#[template(path = "acme.html")]
struct Acme {
    directories: Vec<Directory>,
    binding: bool,
    accounts: Table,
    orders: Table,
}

async fn overview(session: Session) -> Result<Response, Failure> {
    let directory = session.api.get_if_allowed("/acme/directory").await?;
    let accounts = session.api.get("/api/v1/acme/accounts?limit=10").await;
    let accounts = accounts.map_err(|failure| if directory.is_none() { absent(failure) } else { failure })?;
    let directory = directory.unwrap_or_default();
    let orders = session.api.get("/api/v1/acme/orders?limit=10").await?;
    let body = Acme {
        directories: directories(&directory),
        binding: needs_binding(&directory),
        accounts: Table::of("ACME accounts, newest first", ACCOUNT, &accounts, |one| {
            account_row(&session, one)
        })
        .empty("No client has created an account yet. Run one of the commands above on a host."),
        orders: Table::of("ACME orders, newest first", ORDER, &orders, |one| order_row(&session, one))
            .empty("No order yet."),
    };
    Page::new(&session, "ACME")
        .command("bulla acme account list")
        .command("bulla acme order list")
        .reads("/api/v1/acme/accounts?limit=10")
        .reads("/api/v1/acme/orders?limit=10")
        .show(&body)
}

/// Returns the failure to show for an API failure. On a server without ACME, its text says that the server does not run ACME.
fn absent(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => Failure::refused(
            StatusCode::NOT_FOUND,
            "This server does not run ACME.",
            "open the console of a server that issues certificates",
        ),
        other => other,
    }
}

fn needs_binding(directory: &Value) -> bool {
    json::flag(directory, "/meta/externalAccountRequired")
}

/// Returns the default directory, and the directories of the profiles that it lists.
fn directories(directory: &Value) -> Vec<Directory> {
    let Some(server) = json::text(directory, "/newNonce").strip_suffix("/acme/new-nonce") else {
        return Vec::new();
    };
    let binding = needs_binding(directory);
    let profiles = directory.pointer("/meta/profiles").and_then(Value::as_object);
    let named = profiles.into_iter().flatten();
    let named = named.map(|(name, _)| (name.as_str(), format!("{server}/acme/{name}/directory")));
    let default = std::iter::once(("", format!("{server}/acme/directory")));
    default.chain(named).map(|(profile, url)| directory_with_commands(profile, url, binding)).collect()
}

fn directory_with_commands(profile: &str, url: String, binding: bool) -> Directory {
    let eab = |text: &'static str| if binding { text } else { "" };
    let certbot = eab(" --eab-kid KID --eab-hmac-key HMAC_KEY");
    let lego = eab(" --eab --kid KID --hmac HMAC_KEY");
    let caddy = eab("\n\tacme_eab {\n\t\tkey_id KID\n\t\tmac_key HMAC_KEY\n\t}");
    let commands = vec![
        (
            "certbot",
            format!(
                "REQUESTS_CA_BUNDLE=ca.pem certbot certonly --server {url} --standalone -d www.example.com -m ops@example.com --agree-tos{certbot}"
            ),
        ),
        (
            "lego",
            format!(
                "LEGO_CA_CERTIFICATES=ca.pem lego --server {url} --email ops@example.com --domains www.example.com --http --accept-tos{lego} run"
            ),
        ),
        (
            "Caddy (global options of the Caddyfile)",
            format!("{{\n\tacme_ca {url}\n\tacme_ca_root ca.pem{caddy}\n}}"),
        ),
    ];
    Directory { profile: profile.to_owned(), url, commands }
}

const ACCOUNT: &[&str] = &["Account", "Status", "Contacts", "Profile", "From", "External key", "Created"];

fn account_row(session: &Session, one: &Value) -> Vec<Cell> {
    let id = json::text(one, "/id");
    vec![
        Cell::link(item(ACCOUNTS, id), id),
        Cell::state(json::text(one, "/status")),
        Cell::text(json::joined(one, "/contacts")),
        Cell::text(json::text(one, "/profile")),
        Cell::text(json::text(one, "/address")),
        key_link(json::text(one, "/external_key")),
        Cell::time(json::text(one, "/created_at"), session.now),
    ]
}

fn key_link(id: &str) -> Cell {
    if id.is_empty() { Cell::Empty } else { Cell::link(item(KEYS, id), id) }
}

const ORDER: &[&str] = &["Order", "Status", "Names", "Problem", "Profile", "Created", "Expires"];

fn order_row(session: &Session, one: &Value) -> Vec<Cell> {
    let id = json::text(one, "/id");
    vec![
        Cell::link(item(ORDERS, id), id),
        order_status(one),
        Cell::text(json::joined(one, "/names")),
        Cell::text(json::text(one, "/error/detail")),
        Cell::text(json::text(one, "/profile")),
        Cell::time(json::text(one, "/created_at"), session.now),
        Cell::time(json::text(one, "/expires_at"), session.now),
    ]
}

fn order_status(one: &Value) -> Cell {
    match json::text(one, "/status") {
        "invalid" => Cell::badge(crate::cell::Tone::Bad, "invalid"),
        other => Cell::state(other),
    }
}

async fn accounts(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, ACCOUNTS, "/api/v1/acme/accounts", query.as_deref()).await?;
    let table = listing
        .table("ACME accounts", ACCOUNT, |one| account_row(&session, one))
        .empty("No client has created an account yet. The ACME page shows the commands.")
        .exported("accounts");
    Page::new(&session, "ACME accounts").command("bulla acme account list").reads(listing.path()).show(&table)
}

async fn orders(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let query = query.as_deref();
    let listing = Listing::read(&session, ORDERS, "/api/v1/acme/orders", query).await?;
    let table = listing
        .table("ACME orders", ORDER, |one| order_row(&session, one))
        .empty("No order yet. The ACME page shows the commands.")
        .exported("orders");
    let body = Orders { account: parameter(query, "account"), table };
    Page::new(&session, "ACME orders").command("bulla acme order list").reads(listing.path()).show(&body)
}

#[derive(Template)]
#[template(path = "acme_orders.html")]
struct Orders {
    account: String,
    table: Table,
}

#[derive(Template)]
#[template(path = "acme_account.html")]
struct Account {
    id: String,
    may_revoke: bool,
    facts: Facts,
    orders: Table,
}

async fn account(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let path = format!("/api/v1/acme/accounts/{id}");
    let one = session.api.get(&path).await?;
    let ordered = format!("/api/v1/acme/orders?account={id}&limit=20");
    let orders = session.api.get_if_allowed(&ordered).await?.unwrap_or_default();
    let body = Account {
        may_revoke: session.may("protocol.manage") && json::text(&one, "/status") == "valid",
        facts: account_facts(&session, &one),
        orders: Table::of("Orders", ORDER, &orders, |one| order_row(&session, one))
            .empty("This account has no order."),
        id: id.clone(),
    };
    Page::new(&session, "ACME account")
        .command(format!("bulla acme account show {id}"))
        .reads(path)
        .reads(ordered)
        .show(&body)
}

fn account_facts(session: &Session, one: &Value) -> Facts {
    Facts::default()
        .with("Account", Cell::code(json::text(one, "/id")))
        .with("Status", Cell::state(json::text(one, "/status")))
        .with("Contacts", Cell::text(json::joined(one, "/contacts")))
        .with("Profile", Cell::text(json::text(one, "/profile")))
        .with("Address", Cell::text(json::text(one, "/address")))
        .with("External key", key_link(json::text(one, "/external_key")))
        .with("Created", Cell::time(json::text(one, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(one, "/updated_at"), session.now))
}

async fn confirm_revoke(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let one = session.api.get(&format!("/api/v1/acme/accounts/{id}")).await?;
    let orders = session.api.get(&format!("/api/v1/acme/orders?account={id}&limit=50")).await?;
    let count =
        format::counted(json::items(&orders).len(), !json::text(&orders, "/next").is_empty(), "order");
    let page = format!("{ACCOUNTS}/{id}");
    let confirmation = Confirmation::new(&session, format!("{page}/revoke"), &page, "Revoke the account").danger()
        .says(format!("The account has {count}. It can no longer order, renew or revoke, and cannot be restored."))
        .says("Its certificates stay valid, but it cannot renew them: its client must create another account before they expire.")
        .facts(account_facts(&session, &one));
    Page::new(&session, "Revoke an ACME account")
        .command(format!("bulla acme account revoke {id}"))
        .show(&confirmation)
}

async fn revoke(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let path = format!("/api/v1/acme/accounts/{id}/revoke");
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&format!("{ACCOUNTS}/{id}"), "revoked", &answer))
}

#[derive(Template)]
#[template(path = "acme_order.html")]
struct Order {
    facts: Facts,
    error: Option<(String, String)>,
    problem: String,
}

async fn order(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let path = format!("/api/v1/acme/orders/{id}");
    let one = session.api.get(&path).await?;
    let issued = |pointer| match json::text(&one, pointer) {
        "" => Cell::Empty,
        id => Cell::link(item("/console/issued", id), id),
    };
    let account = json::text(&one, "/account");
    let facts = Facts::default()
        .with("Status", order_status(&one))
        .with("Names", Cell::text(json::joined(&one, "/names")))
        .with("Account", Cell::link(item(ACCOUNTS, account), account))
        .with("Profile", Cell::text(json::text(&one, "/profile")))
        .with("Certificate", issued("/certificate"))
        .with("Replaces", issued("/replaces"))
        .with("Created", Cell::time(json::text(&one, "/created_at"), session.now))
        .with("Expires", Cell::time(json::text(&one, "/expires_at"), session.now));
    let error = one.get("error").filter(|error| error.is_object());
    let body = Order {
        facts,
        error: error
            .map(|error| (json::text(error, "/type").to_owned(), json::text(error, "/detail").to_owned())),
        problem: error
            .map(serde_json::to_string_pretty)
            .transpose()
            .map_err(Failure::unreadable)?
            .unwrap_or_default(),
    };
    Page::new(&session, "ACME order").command(format!("bulla acme order show {id}")).reads(path).show(&body)
}

#[derive(Template)]
#[template(path = "acme_keys.html")]
struct Keys {
    csrf: String,
    may_create: bool,
    table: Table,
}

async fn keys(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, KEYS, "/api/v1/acme/external-keys", query.as_deref()).await?;
    let columns =
        &["Key ID", "For", "State", "Accounts bound", "Reusable", "Profiles", "Names", "Team", "Created"];
    let row = |one: &Value| {
        vec![
            Cell::link(item(KEYS, json::text(one, "/id")), json::text(one, "/kid")),
            Cell::text(json::text(one, "/label")),
            key_state(&session, one),
            Cell::number(json::number(one, "/uses")),
            Cell::text(if json::flag(one, "/reusable") { "yes" } else { "no" }),
            Cell::text(or_any(json::joined(one, "/profiles"))),
            Cell::text(or_any(json::joined(one, "/names"))),
            Cell::text(json::text(one, "/team")),
            Cell::time(json::text(one, "/created_at"), session.now),
        ]
    };
    let table = listing
        .table("External account keys", columns, row)
        .empty("No key yet. Create one below if ACME clients must use external account binding (EAB).")
        .exported("external-keys");
    let body = Keys { csrf: session.csrf().to_owned(), may_create: session.may("protocol.manage"), table };
    Page::new(&session, "External account keys")
        .command("bulla acme key list")
        .reads(listing.path())
        .show(&body)
}

fn or_any(list: String) -> String {
    if list.is_empty() { "any".to_owned() } else { list }
}

/// Returns whether a key can still bind accounts.
fn key_state(session: &Session, one: &Value) -> Cell {
    let ended = |pointer| {
        let time = json::text(one, pointer).parse::<jiff::Timestamp>();
        time.is_ok_and(|time| time <= session.now)
    };
    if ended("/disabled_at") {
        return Cell::state("disabled");
    }
    if ended("/expires_at") {
        return Cell::state("expired");
    }
    if !json::flag(one, "/reusable") && json::number(one, "/uses") > 0 {
        return Cell::badge(crate::cell::Tone::Calm, "used");
    }
    Cell::state("active")
}

#[derive(Template)]
#[template(path = "acme_key_created.html")]
struct CreatedKey {
    id: String,
    kid: String,
    hmac_key: String,
}

/// Creates a key. Only this response shows its secret.
async fn create_key(session: Session, form: FormData) -> Result<Response, Failure> {
    let mut body = json!({
        "label": form.text("label"),
        "reusable": form.is_checked("reusable"),
        "profiles": form.words("profiles"),
        "names": form.words("names"),
    });
    if let Some(team) = form.field("team") {
        body["team"] = team.into();
    }
    if let Some(days) = form.field("days") {
        body["expires_at"] = expiry_in_days(&session, days)?.into();
    }
    let created =
        session.api.change(Method::POST, "/api/v1/acme/external-keys", form.csrf(), Some(&body)).await?;
    let body = CreatedKey {
        id: json::text(&created, "/id").to_owned(),
        kid: json::text(&created, "/kid").to_owned(),
        hmac_key: json::text(&created, "/hmac_key").to_owned(),
    };
    Page::new(&session, "External account key created")
        .command("bulla acme key create --label LABEL")
        .show(&body)
}

fn expiry_in_days(session: &Session, days: &str) -> Result<String, Failure> {
    let days = days.parse::<i64>().ok().filter(|days| (1..=36_500).contains(days));
    let ends = days.and_then(|days| session.now.checked_add(jiff::Span::new().hours(days * 24)).ok());
    ends.map(|ends| ends.strftime("%FT%TZ").to_string())
        .ok_or_else(|| bad("the days must be a whole number from 1 to 36500"))
}

fn bad(detail: &str) -> Failure {
    Failure::refused(StatusCode::UNPROCESSABLE_ENTITY, detail, "go back and correct the field")
}

#[derive(Template)]
#[template(path = "acme_key.html")]
struct Key {
    id: String,
    may_disable: bool,
    facts: Facts,
}

async fn key(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let path = format!("/api/v1/acme/external-keys/{id}");
    let one = session.api.get(&path).await?;
    let body = Key {
        id: id.clone(),
        may_disable: session.may("protocol.manage") && json::text(&one, "/disabled_at").is_empty(),
        facts: key_facts(&session, &one),
    };
    Page::new(&session, "External account key").command("bulla acme key list").reads(path).show(&body)
}

fn key_facts(session: &Session, one: &Value) -> Facts {
    Facts::default()
        .with("Key ID", Cell::code(json::text(one, "/kid")))
        .with("For", Cell::text(json::text(one, "/label")))
        .with("State", key_state(session, one))
        .with("Accounts bound", Cell::number(json::number(one, "/uses")))
        .with("Last bound", Cell::time(json::text(one, "/used_at"), session.now))
        .with("Accounts allowed", Cell::text(if json::flag(one, "/reusable") { "any number" } else { "one" }))
        .with("Profiles", Cell::text(or_any(json::joined(one, "/profiles"))))
        .with("Names", Cell::text(or_any(json::joined(one, "/names"))))
        .with("Team", Cell::text(json::text(one, "/team")))
        .with("Created", Cell::time(json::text(one, "/created_at"), session.now))
        .with("Actor", Cell::text(json::text(one, "/created_by")))
        .with("Expires", Cell::time(json::text(one, "/expires_at"), session.now))
        .with("Disabled", Cell::time(json::text(one, "/disabled_at"), session.now))
}

async fn confirm_disable(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let one = session.api.get(&format!("/api/v1/acme/external-keys/{id}")).await?;
    let page = format!("{KEYS}/{id}");
    let uses = usize::try_from(json::number(&one, "/uses")).unwrap_or_default();
    let confirmation = Confirmation::new(&session, format!("{page}/disable"), &page, "Disable the key")
        .danger()
        .says(format!(
            "{} bound to this key can no longer order or renew certificates. This cannot be undone.",
            format::counted(uses, false, "account")
        ))
        .says("Certificates issued to them stay valid until they expire.")
        .facts(key_facts(&session, &one));
    Page::new(&session, "Disable an external account key")
        .command(format!("bulla acme key disable {id}"))
        .show(&confirmation)
}

async fn disable(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let id = api::path::segment(&id);
    let path = format!("/api/v1/acme/external-keys/{id}/disable");
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&format!("{KEYS}/{id}"), "saved", &answer))
}

/// A limit override with its description.
struct Override {
    id: String,
    kind: String,
    subject: String,
    allowed: String,
    note: String,
    by: String,
}

#[derive(Template)]
#[template(path = "acme_overrides.html")]
struct Overrides {
    csrf: String,
    may_manage: bool,
    overrides: Vec<Override>,
}

async fn overrides(session: Session) -> Result<Response, Failure> {
    let path = "/api/v1/acme/limit-overrides";
    let listing = session.api.get(path).await?;
    let one = |one: &Value| Override {
        id: json::text(one, "/id").to_owned(),
        kind: json::text(one, "/kind").replace('_', " "),
        subject: json::text(one, "/subject").to_owned(),
        allowed: allowed(one),
        note: json::text(one, "/note").to_owned(),
        by: json::text(one, "/created_by").to_owned(),
    };
    let body = Overrides {
        csrf: session.csrf().to_owned(),
        may_manage: session.may("protocol.manage"),
        overrides: json::items(&listing).iter().map(one).collect(),
    };
    Page::new(&session, "Exceptions from ACME limits")
        .command("bulla acme limit list")
        .reads(path)
        .show(&body)
}

fn allowed(one: &Value) -> String {
    let span = crate::format::duration(json::number(one, "/seconds"));
    match one.pointer("/allowed").and_then(Value::as_i64) {
        Some(count) => format!("{} in {span}", crate::format::number(count)),
        None => "any number".to_owned(),
    }
}

async fn set_override(session: Session, form: FormData) -> Result<Response, Failure> {
    let number = |name: &str| form.field(name).map(str::parse::<i64>).transpose();
    let (Ok(allowed), Ok(Some(seconds))) = (number("allowed"), number("seconds")) else {
        return Err(bad("the number allowed and the seconds must be whole numbers"));
    };
    let mut body = json!({
        "kind": form.text("kind"),
        "subject": form.text("subject"),
        "seconds": seconds,
        "note": form.text("note"),
    });
    if let Some(allowed) = allowed {
        body["allowed"] = allowed.into();
    }
    let answer =
        session.api.change(Method::POST, "/api/v1/acme/limit-overrides", form.csrf(), Some(&body)).await?;
    Ok(redirect(OVERRIDES, "saved", &answer))
}

async fn remove_override(
    session: Session,
    Path(id): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    let path = item("/api/v1/acme/limit-overrides", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(OVERRIDES, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acme_directory_urls_are_derived_from_the_default_directory() {
        let directory = json!({
            "newNonce": "https://pki.example:8443/acme/new-nonce",
            "newOrder": "https://pki.example:8443/acme/new-order",
            "meta": { "externalAccountRequired": true, "profiles": { "default": "", "web": "" } },
        });
        let found = directories(&directory);
        let urls: Vec<&str> = found.iter().map(|one| one.url.as_str()).collect();
        assert_eq!(
            urls,
            [
                "https://pki.example:8443/acme/directory",
                "https://pki.example:8443/acme/default/directory",
                "https://pki.example:8443/acme/web/directory",
            ]
        );
        assert!(found[0].commands.iter().all(|(_, command)| command.contains("HMAC_KEY")));
        assert!(directories(&Value::Null).is_empty());
    }

    #[test]
    fn acme_limits_are_formatted_as_text() {
        assert_eq!(allowed(&json!({ "allowed": 1000, "seconds": 3600 })), "1,000 in 1 hour");
        assert_eq!(allowed(&json!({ "allowed": null, "seconds": 3600 })), "any number");
    }
}
