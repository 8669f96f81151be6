//! Teams and owners, and the rules that assign results of scans to them.

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
use crate::form::name_options;
use crate::form::{Field, Form};
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::listing::Listing;
use crate::query::item;
use crate::sections::Sections;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

const RULES: &str = "/console/ownership-rules";

/// Words for the pages of teams or of owners. The pages of both share their code.
#[derive(Clone, Copy)]
struct Noun {
    one: &'static str,
    many: &'static str,
    heading: &'static str,
    is_team: bool,
}

const TEAMS: Noun = Noun { one: "team", many: "teams", heading: "Teams", is_team: true };
const OWNERS: Noun = Noun { one: "owner", many: "owners", heading: "Owners", is_team: false };

impl Noun {
    fn page(self) -> String {
        format!("/console/{}", self.many)
    }

    fn page_of(self, name: &str) -> String {
        format!("/console/{}/{}", self.many, api::path::segment(name))
    }

    fn at(self, name: &str) -> String {
        format!("/api/v1/{}/{}", self.many, api::path::segment(name))
    }
}

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/teams", get(teams).post(make_team))
        .route("/console/teams/{name}", get(team).post(save_team))
        .route("/console/teams/{name}/remove", get(confirm_remove_team).post(remove_team))
        .route("/console/owners", get(owners).post(make_owner))
        .route("/console/owners/{name}", get(owner).post(save_owner))
        .route("/console/owners/{name}/remove", get(confirm_remove_owner).post(remove_owner))
        .route(RULES, get(rules).post(make_rule))
        .route("/console/ownership-rules/explain", post(explain))
        .route("/console/ownership-rules/{id}", get(rule))
        .route("/console/ownership-rules/{id}/remove", get(confirm_remove_rule).post(remove_rule))
}

/// Formats the contacts of a person for a form field, one per line: `email ada@example.net`.
fn contacts(person: &Value) -> Vec<String> {
    let contacts = json::list(person, "/contacts").iter();
    contacts.map(|one| format!("{} {}", json::text(one, "/kind"), json::text(one, "/address"))).collect()
}

fn contacts_of(text: &str) -> Value {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let contacts = lines.map(|line| {
        let (kind, address) = line.split_once(char::is_whitespace).unwrap_or(("email", line));
        json!({ "kind": kind, "address": address.trim() })
    });
    contacts.collect()
}

fn fields(noun: Noun, person: &Value, teams: Option<&Value>) -> Vec<Field> {
    let mut fields = Vec::new();
    if person.is_null() {
        fields.push(Field::line("name", "Name").required());
    }
    fields.push(Field::line("description", "Description").value(json::text(person, "/description")));
    fields.push(
        Field::lines("contacts", "Contacts, one per line")
            .value(contacts(person).join("\n"))
            .hint("The kind, then the address: email ada@example.net, slack #web."),
    );
    if noun.is_team {
        let owns = |pointer: &str| json::joined(person, &format!("/owns/{pointer}"));
        fields.extend([
            Field::line("names", "Domains and addresses it owns").value(owns("names")),
            Field::line("profiles", "Profiles it owns").value(owns("profiles")),
            Field::line("issuers", "Issuers it owns").value(owns("issuers")),
            Field::line("targets", "Targets it owns").value(owns("targets")),
            Field::line("paths", "Credential paths it owns")
                .value(owns("paths"))
                .hint("Separated by commas."),
        ]);
    } else {
        fields.push(
            Field::choice("team", "Team", name_options(teams, "none")).value(json::text(person, "/team")),
        );
    }
    fields
}

fn body(noun: Noun, form: &FormData, before: &Value) -> Value {
    let mut body = json!({
        "description": form.text("description"),
        "contacts": contacts_of(form.text("contacts")),
    });
    if let Some(name) = form.field("name") {
        body["name"] = Value::String(name.to_owned());
    }
    if noun.is_team {
        let of = |name| form.words(name);
        body["owns"] = json!({
            "names": of("names"), "profiles": of("profiles"), "issuers": of("issuers"),
            "targets": of("targets"), "paths": of("paths"),
        });
    } else {
        body["team"] = json!(form.field("team"));
    }
    if let Some(quota) = before.get("quota") {
        body["quota"] = quota.clone();
    }
    body
}

async fn teams(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    list(&session, TEAMS, query.as_deref(), None).await
}

async fn owners(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let teams = session.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    list(&session, OWNERS, query.as_deref(), teams.as_ref()).await
}

async fn list(
    session: &Session,
    noun: Noun,
    query: Option<&str>,
    teams: Option<&Value>,
) -> Result<Response, Failure> {
    let listing = Listing::read(session, &noun.page(), &format!("/api/v1/{}", noun.many), query).await?;
    let columns: &[&str] = if noun.is_team {
        &["Name", "Description", "Contacts", "Owns", "Changed"]
    } else {
        &["Name", "Description", "Contacts", "Team", "Changed"]
    };
    let table = Table::of(&format!("{}, by name", noun.heading), columns, listing.answer(), |one| {
        let name = json::text(one, "/name");
        vec![
            Cell::link(noun.page_of(name), name),
            Cell::text(json::text(one, "/description")),
            Cell::text(contacts(one).join(", ")),
            if noun.is_team { Cell::text(json::joined(one, "/owns/names")) } else { team_of(one) },
            Cell::time(json::text(one, "/updated_at"), session.now),
        ]
    })
    .empty("None yet. Add one below: alerts about a certificate go to its owner.");
    let table = listing.paged(table).exported(noun.many);
    let mut parts = Sections::default().section("list", &format!("All {}", noun.many), &table)?;
    if session.may("people.manage") {
        let form = Form::post(noun.page(), session.csrf(), "Add", fields(noun, &Value::Null, teams));
        parts = parts.section("new", &format!("New {}", noun.one), &form)?;
    }
    Page::new(session, noun.heading)
        .command(format!("bulla {} list", noun.one))
        .reads(listing.path())
        .show(&parts)
}

fn team_of(person: &Value) -> Cell {
    match json::text(person, "/team") {
        "" => Cell::Empty,
        team => Cell::link(TEAMS.page_of(team), team),
    }
}

async fn make(session: &Session, noun: Noun, form: &FormData) -> Result<Response, Failure> {
    let body = body(noun, form, &Value::Null);
    let path = format!("/api/v1/{}", noun.many);
    let created = session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    Ok(redirect(&noun.page(), "created", &created))
}

async fn make_team(session: Session, form: FormData) -> Result<Response, Failure> {
    make(&session, TEAMS, &form).await
}

async fn make_owner(session: Session, form: FormData) -> Result<Response, Failure> {
    make(&session, OWNERS, &form).await
}

async fn team(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    one(&session, TEAMS, &name, None).await
}

async fn owner(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    let teams = session.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    one(&session, OWNERS, &name, teams.as_ref()).await
}

async fn one(session: &Session, noun: Noun, name: &str, teams: Option<&Value>) -> Result<Response, Failure> {
    let path = noun.at(name);
    let person = session.api.get(&path).await?;
    let page = noun.page_of(name);
    let segment = api::path::segment(name);
    let quota =
        |member: &str| person.pointer(member).and_then(Value::as_i64).map_or(Cell::Empty, Cell::number);
    let facts = Facts::default()
        .with("Description", Cell::text(json::text(&person, "/description")))
        .with("Team", team_of(&person))
        .with("Contacts", Cell::text(contacts(&person).join(", ")))
        .with("Owns domains and addresses", Cell::text(json::joined(&person, "/owns/names")))
        .with("Owns profiles", Cell::text(json::joined(&person, "/owns/profiles")))
        .with("Owns issuers", Cell::text(json::joined(&person, "/owns/issuers")))
        .with("Owns targets", Cell::text(json::joined(&person, "/owns/targets")))
        .with("Owns credential paths", Cell::text(json::joined(&person, "/owns/paths")))
        .with("Requests a second at most", quota("/quota/requests_per_second"))
        .with("Certificates a day at most", quota("/quota/certificates_per_day"))
        .with("Changed", Cell::time(json::text(&person, "/updated_at"), session.now));
    let mut links = Actions::default()
        .link(format!("/console/certificates?{}={segment}", noun.one), "Certificates")
        .link(format!("/console/endpoints?{}={segment}", noun.one), "Endpoints");
    if session.may("people.manage") {
        links = links.danger(format!("{page}/remove"), "Delete");
    }
    let mut parts = Sections::default().plain(&links)?.plain(&facts)?;
    if session.may("people.manage") {
        let form = Form::post(page, session.csrf(), "Save", fields(noun, &person, teams));
        parts = parts.section("change", "Edit", &form)?;
    }
    Page::new(session, name).command(format!("bulla {} show {name}", noun.one)).reads(path).show(&parts)
}

async fn save(session: &Session, noun: Noun, name: &str, form: &FormData) -> Result<Response, Failure> {
    let before = session.api.get(&noun.at(name)).await?;
    let body = body(noun, form, &before);
    let answer = session.api.change(Method::PUT, &noun.at(name), form.csrf(), Some(&body)).await?;
    Ok(redirect(&noun.page_of(name), "saved", &answer))
}

async fn save_team(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    save(&session, TEAMS, &name, &form).await
}

async fn save_owner(session: Session, Path(name): Path<String>, form: FormData) -> Result<Response, Failure> {
    save(&session, OWNERS, &name, &form).await
}

async fn confirm_remove(session: &Session, noun: Noun, name: &str) -> Result<Response, Failure> {
    let path = format!("/api/v1/certificates?count=true&limit=1&{}={}", noun.one, api::path::segment(name));
    let owned = session.api.get_if_allowed(&path).await?.unwrap_or_default();
    let count = json::number(&owned, "/total/value");
    let page = noun.page_of(name);
    let body = Confirmation::new(session, format!("{page}/remove"), &page, "Delete").danger().says(format!(
        "{count} certificates have this {}. The server rejects the deletion while other objects use it.",
        noun.one
    ));
    Page::new(session, format!("Delete {name}?"))
        .command(format!("bulla {} delete {name}", noun.one))
        .show(&body)
}

async fn confirm_remove_team(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    confirm_remove(&session, TEAMS, &name).await
}

async fn confirm_remove_owner(session: Session, Path(name): Path<String>) -> Result<Response, Failure> {
    confirm_remove(&session, OWNERS, &name).await
}

async fn remove(session: &Session, noun: Noun, name: &str, form: &FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &noun.at(name), form.csrf(), None).await?;
    Ok(redirect(&noun.page(), "removed", &answer))
}

async fn remove_team(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    remove(&session, TEAMS, &name, &form).await
}

async fn remove_owner(
    session: Session,
    Path(name): Path<String>,
    form: FormData,
) -> Result<Response, Failure> {
    remove(&session, OWNERS, &name, &form).await
}

/// Formats the members of an object that have a value: `host: *.a.example, network: 10.0.0.0/8`.
fn members(value: &Value, pointer: &str) -> String {
    let members = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let words = members.filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}: {text}")),
        Value::Object(more) if !more.is_empty() => Some(format!("{name}: {value}")),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

async fn rules(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, RULES, "/api/v1/ownership-rules", query.as_deref()).await?;
    let teams = session.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    let owners = session.api.get_if_allowed("/api/v1/owners?limit=500&fields=name").await?;
    let columns = ["Position", "Name", "Condition", "Assigns", "From tags"];
    let table = Table::of("Ownership rules: the first match applies", &columns, listing.answer(), |rule| {
        vec![
            Cell::number(json::number(rule, "/position")),
            Cell::link(item(RULES, json::text(rule, "/id")), json::text(rule, "/name")),
            Cell::text(members(rule, "/when")),
            Cell::text(members(rule, "/assign")),
            Cell::text(members(rule, "/from_tags")),
        ]
    })
    .empty("No rule yet. A rule assigns a team and an owner to the endpoints that scans find.");
    let table = listing.paged(table).exported("ownership-rules");
    let question = vec![
        Field::line("host", "Host").required(),
        Field::line("issuer", "Issuer"),
        Field::line("group", "Group of the watch"),
    ];
    let question = Form::post(format!("{RULES}/explain"), session.csrf(), "Find the rule", question);
    let mut parts = Sections::default().section("list", "All rules", &table)?.section(
        "explain",
        "Find the owner of an endpoint",
        &question,
    )?;
    if session.may("inventory.manage") {
        let form =
            Form::post(RULES, session.csrf(), "Add the rule", rule_fields(teams.as_ref(), owners.as_ref()));
        parts = parts.section("new", "New rule", &form)?;
    }
    Page::new(&session, "Ownership rules").command("bulla owner rule list").reads(listing.path()).show(&parts)
}

fn rule_fields(teams: Option<&Value>, owners: Option<&Value>) -> Vec<Field> {
    vec![
        Field::line("name", "Name").required(),
        Field::number("position", "Position")
            .hint("The matching rule with the lowest position applies. Empty: after all others."),
        Field::line("host", "Host pattern").hint("*.shop.example.net"),
        Field::line("name_like", "Certificate name pattern"),
        Field::line("network", "Network of the address").hint("10.0.0.0/8"),
        Field::line("source", "Source pattern").hint("A protocol, a cloud, or the group of a watch."),
        Field::line("issuer", "Issuer contains"),
        Field::choice("team", "Team", name_options(teams, "none")),
        Field::choice("owner", "Owner", name_options(owners, "none")),
        Field::line("environment", "Environment"),
    ]
}

async fn make_rule(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "name": form.text("name"),
        "position": form.field("position").and_then(|position| position.parse::<i64>().ok()),
        "when": {
            "host": form.field("host"),
            "name": form.field("name_like"),
            "network": form.field("network"),
            "source": form.field("source"),
            "issuer": form.field("issuer"),
        },
        "assign": {
            "team": form.field("team"),
            "owner": form.field("owner"),
            "environment": form.field("environment"),
        },
    });
    let answer =
        session.api.change(Method::POST, "/api/v1/ownership-rules", form.csrf(), Some(&body)).await?;
    Ok(redirect(RULES, "created", &answer))
}

async fn explain(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "host": form.text("host"),
        "issuer": form.text("issuer"),
        "group": form.text("group"),
    });
    let path = "/api/v1/ownership-rules/explain";
    let answer = session.api.change(Method::POST, path, form.csrf(), Some(&body)).await?;
    let facts = Facts::default()
        .with("Rule", Cell::text(json::text(&answer, "/rule")))
        .with("Assigns", Cell::text(members(&answer, "/assign")));
    let steps = json!({ "items": answer.get("steps").cloned().unwrap_or_default() });
    let steps = Table::of("Rules", &["Position", "Rule", "Matches", "Reason"], &steps, |step| {
        let matches = json::flag(step, "/matches");
        vec![
            Cell::number(json::number(step, "/position")),
            Cell::text(json::text(step, "/rule")),
            if matches { Cell::badge(Tone::Good, "yes") } else { Cell::badge(Tone::Calm, "no") },
            Cell::text(json::text(step, "/why_not")),
        ]
    })
    .empty("No rule yet.");
    let parts = Sections::default()
        .plain(&facts)?
        .section("steps", "Rules in order", &steps)?
        .plain(&Actions::default().link(RULES, "Back to the rules"))?;
    let host = form.text("host");
    Page::new(&session, format!("Owner of {host}"))
        .command(format!("bulla owner rule explain {host}"))
        .show(&parts)
}

async fn rule(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = item("/api/v1/ownership-rules", &id);
    let rule = session.api.get(&path).await?;
    let page_path = item(RULES, &id);
    let actions = Actions::default()
        .link(format!("{page_path}/document"), "Edit")
        .danger(format!("{page_path}/remove"), "Remove")
        .only_if(session.may("inventory.manage"));
    let facts = Facts::default()
        .with("Position", Cell::number(json::number(&rule, "/position")))
        .with("Condition", Cell::text(members(&rule, "/when")))
        .with("Assigns", Cell::text(members(&rule, "/assign")))
        .with("From tags", Cell::text(members(&rule, "/from_tags")))
        .with("Created", Cell::time(json::text(&rule, "/created_at"), session.now))
        .with("Changed", Cell::time(json::text(&rule, "/updated_at"), session.now));
    let name = json::text(&rule, "/name");
    let parts = Sections::default().plain(&actions)?.plain(&facts)?;
    Page::new(&session, name).command(format!("bulla owner rule show {name}")).reads(path).show(&parts)
}

async fn confirm_remove_rule(session: Session, Path(id): Path<String>) -> Result<Response, Failure> {
    let page = item(RULES, &id);
    let body = Confirmation::new(&session, format!("{page}/remove"), &page, "Delete the rule")
        .danger()
        .says("Endpoints that it matched get the owner of the next matching rule, or none. Certificates that were claimed by it keep their owner.");
    Page::new(&session, "Delete the rule?").command("bulla owner rule remove NAME").show(&body)
}

async fn remove_rule(session: Session, Path(id): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = item("/api/v1/ownership-rules", &id);
    let answer = session.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(redirect(RULES, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_roundtrip_through_their_form_field() {
        let person = json!({"contacts": [
            {"kind": "email", "address": "ada@example.net"}, {"kind": "slack", "address": "#web"}
        ]});
        assert_eq!(contacts_of(&contacts(&person).join("\r\n")), person["contacts"]);
        assert_eq!(contacts_of("ada@example.net"), json!([{"kind": "email", "address": "ada@example.net"}]));
    }

    #[test]
    fn ownership_rule_members_without_a_value_are_omitted() {
        let rule = json!({"when": {"host": "*.a", "network": null, "tags": {}}});
        assert_eq!(members(&rule, "/when"), "host: *.a");
    }
}
