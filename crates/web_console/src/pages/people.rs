//! Teams and owners, and the rules that assign them to what scans find.

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
use crate::listed::{Listed, names};
use crate::parts::{Note, Parts};
use crate::shell::Page;
use crate::table::Table;
use crate::visit::Visit;

const RULES: &str = "/console/ownership-rules";

/// Teams or owners.
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
        .route("/console/teams/{name}/remove", get(ask_remove_team).post(remove_team))
        .route("/console/owners", get(owners).post(make_owner))
        .route("/console/owners/{name}", get(owner).post(save_owner))
        .route("/console/owners/{name}/remove", get(ask_remove_owner).post(remove_owner))
        .route(RULES, get(rules).post(make_rule))
        .route("/console/ownership-rules/explain", post(explain))
        .route("/console/ownership-rules/{id}", get(rule))
        .route("/console/ownership-rules/{id}/remove", get(ask_remove_rule).post(remove_rule))
}

/// Contacts of a person as a field has them: `email ada@example.net`, one a line.
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

fn list_of(text: Option<&str>) -> Vec<&str> {
    let words = text.unwrap_or_default().split(|c: char| c.is_whitespace() || c == ',');
    words.filter(|word| !word.is_empty()).collect()
}

fn fields(noun: Noun, person: &Value, teams: Option<&Value>) -> Vec<Field> {
    let mut fields = Vec::new();
    if person.is_null() {
        fields.push(Field::line("name", "Name", "").required());
    }
    fields.push(Field::line("description", "Description", json::text(person, "/description")));
    fields.push(
        Field::area("contacts", "Contacts, one a line", contacts(person).join("\n"))
            .hint("The kind, then the address: email ada@example.net, slack #web."),
    );
    if noun.is_team {
        let owns = |pointer: &str| json::joined(person, &format!("/owns/{pointer}"));
        fields.extend([
            Field::line("names", "Domains and addresses it owns", owns("names")),
            Field::line("profiles", "Profiles it owns", owns("profiles")),
            Field::line("issuers", "Issuers it owns", owns("issuers")),
            Field::line("targets", "Targets it owns", owns("targets")),
            Field::line("paths", "Credential paths it owns", owns("paths")).hint("Separated by commas."),
        ]);
    } else {
        fields.push(Field::choice("team", "Team", json::text(person, "/team"), names(teams, "none")));
    }
    fields
}

fn body(noun: Noun, form: &Form, before: &Value) -> Value {
    let mut body = json!({
        "description": form.field("description").unwrap_or_default(),
        "contacts": contacts_of(form.field("contacts").unwrap_or_default()),
    });
    if let Some(name) = form.field("name") {
        body["name"] = Value::String(name.to_owned());
    }
    if noun.is_team {
        let of = |name| list_of(form.field(name));
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

async fn teams(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    list(&visit, TEAMS, query.as_deref(), None).await
}

async fn owners(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let teams = visit.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    list(&visit, OWNERS, query.as_deref(), teams.as_ref()).await
}

async fn list(
    visit: &Visit,
    noun: Noun,
    query: Option<&str>,
    teams: Option<&Value>,
) -> Result<Response, Failure> {
    let listed = Listed::read(visit, &format!("/api/v1/{}", noun.many), query).await?;
    let columns: &[&str] = if noun.is_team {
        &["Name", "Description", "Contacts", "Owns", "Changed"]
    } else {
        &["Name", "Description", "Contacts", "Team", "Changed"]
    };
    let table = Table::of(&format!("{}, by name", noun.heading), columns, &listed.answer, |one| {
        let name = json::text(one, "/name");
        vec![
            Cell::link(noun.page_of(name), name),
            Cell::text(json::text(one, "/description")),
            Cell::text(contacts(one).join(", ")),
            if noun.is_team { Cell::text(json::joined(one, "/owns/names")) } else { team_of(one) },
            Cell::time(json::text(one, "/updated_at"), visit.now),
        ]
    })
    .empty("Nobody yet. Add one below: alerts about a certificate go to its owner.");
    let table = listed.exported(table, &noun.page(), noun.many);
    let mut parts = Parts::default().section("list", &format!("All {}", noun.many), &table)?;
    if visit.may("people.manage") {
        let form = Ask::post(noun.page(), visit.csrf(), "Add", fields(noun, &Value::Null, teams));
        parts = parts.section("new", &format!("New {}", noun.one), &form)?;
    }
    Page::new(visit, noun.heading).command(format!("bulla {} list", noun.one)).reads(listed.path).show(&parts)
}

fn team_of(person: &Value) -> Cell {
    match json::text(person, "/team") {
        "" => Cell::Empty,
        team => Cell::link(TEAMS.page_of(team), team),
    }
}

async fn make(visit: &Visit, noun: Noun, form: &Form) -> Result<Response, Failure> {
    let body = body(noun, form, &Value::Null);
    let path = format!("/api/v1/{}", noun.many);
    let made = visit.api.change(Method::POST, &path, form.csrf(), Some(&body)).await?;
    Ok(back(&noun.page(), "created", &made))
}

async fn make_team(visit: Visit, form: Form) -> Result<Response, Failure> {
    make(&visit, TEAMS, &form).await
}

async fn make_owner(visit: Visit, form: Form) -> Result<Response, Failure> {
    make(&visit, OWNERS, &form).await
}

async fn team(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    one(&visit, TEAMS, &name, None).await
}

async fn owner(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    let teams = visit.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    one(&visit, OWNERS, &name, teams.as_ref()).await
}

async fn one(visit: &Visit, noun: Noun, name: &str, teams: Option<&Value>) -> Result<Response, Failure> {
    let path = noun.at(name);
    let person = visit.api.get(&path).await?;
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
        .with("Changed", Cell::time(json::text(&person, "/updated_at"), visit.now));
    let mut links = Actions::default()
        .link(format!("/console/certificates?{}={segment}", noun.one), "Certificates")
        .link(format!("/console/endpoints?{}={segment}", noun.one), "Endpoints");
    if visit.may("people.manage") {
        links = links.danger(format!("{page}/remove"), "Delete");
    }
    let mut parts = Parts::default().plain(&links)?.plain(&facts)?;
    if visit.may("people.manage") {
        let form = Ask::post(page, visit.csrf(), "Save", fields(noun, &person, teams));
        parts = parts.section("change", "Change", &form)?;
    }
    Page::new(visit, name).command(format!("bulla {} show {name}", noun.one)).reads(path).show(&parts)
}

async fn save(visit: &Visit, noun: Noun, name: &str, form: &Form) -> Result<Response, Failure> {
    let before = visit.api.get(&noun.at(name)).await?;
    let body = body(noun, form, &before);
    let answer = visit.api.change(Method::PUT, &noun.at(name), form.csrf(), Some(&body)).await?;
    Ok(back(&noun.page_of(name), "saved", &answer))
}

async fn save_team(visit: Visit, Path(name): Path<String>, form: Form) -> Result<Response, Failure> {
    save(&visit, TEAMS, &name, &form).await
}

async fn save_owner(visit: Visit, Path(name): Path<String>, form: Form) -> Result<Response, Failure> {
    save(&visit, OWNERS, &name, &form).await
}

async fn ask_remove(visit: &Visit, noun: Noun, name: &str) -> Result<Response, Failure> {
    let path = format!("/api/v1/certificates?count=true&limit=1&{}={}", noun.one, api::path::segment(name));
    let owned = visit.api.get_if_allowed(&path).await?.unwrap_or_default();
    let count = json::number(&owned, "/total/value");
    let page = noun.page_of(name);
    let form = Ask::post(format!("{page}/remove"), visit.csrf(), "Delete", vec![]).danger(page);
    let note = Note::hint(format!(
        "{count} certificates have this {}. The server refuses while something depends on it.",
        noun.one
    ));
    let parts = Parts::default().plain(&note)?.plain(&form)?;
    Page::new(visit, format!("Delete {name}?"))
        .command(format!("bulla {} delete {name}", noun.one))
        .show(&parts)
}

async fn ask_remove_team(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    ask_remove(&visit, TEAMS, &name).await
}

async fn ask_remove_owner(visit: Visit, Path(name): Path<String>) -> Result<Response, Failure> {
    ask_remove(&visit, OWNERS, &name).await
}

async fn remove(visit: &Visit, noun: Noun, name: &str, form: &Form) -> Result<Response, Failure> {
    let answer = visit.api.change(Method::DELETE, &noun.at(name), form.csrf(), None).await?;
    Ok(back(&noun.page(), "removed", &answer))
}

async fn remove_team(visit: Visit, Path(name): Path<String>, form: Form) -> Result<Response, Failure> {
    remove(&visit, TEAMS, &name, &form).await
}

async fn remove_owner(visit: Visit, Path(name): Path<String>, form: Form) -> Result<Response, Failure> {
    remove(&visit, OWNERS, &name, &form).await
}

/// The members of an object that have a value: `host: *.a.example, network: 10.0.0.0/8`.
fn members(value: &Value, pointer: &str) -> String {
    let members = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let words = members.filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}: {text}")),
        Value::Object(more) if !more.is_empty() => Some(format!("{name}: {value}")),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

async fn rules(visit: Visit, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listed = Listed::read(&visit, "/api/v1/ownership-rules", query.as_deref()).await?;
    let teams = visit.api.get_if_allowed("/api/v1/teams?limit=500&fields=name").await?;
    let owners = visit.api.get_if_allowed("/api/v1/owners?limit=500&fields=name").await?;
    let columns = ["Position", "Name", "Where", "Assigns", "From tags"];
    let table =
        Table::of("Ownership rules, the first that matches counts", &columns, &listed.answer, |rule| {
            vec![
                Cell::number(json::number(rule, "/position")),
                Cell::link(format!("{RULES}/{}", json::text(rule, "/id")), json::text(rule, "/name")),
                Cell::text(members(rule, "/when")),
                Cell::text(members(rule, "/assign")),
                Cell::text(members(rule, "/from_tags")),
            ]
        })
        .empty("No rule yet. A rule gives a team and an owner to what scans find.");
    let table = listed.paged(table, RULES);
    let question = vec![
        Field::line("host", "Host", "").required(),
        Field::line("issuer", "Issuer", ""),
        Field::line("group", "Group of the watch", ""),
    ];
    let question = Ask::post(format!("{RULES}/explain"), visit.csrf(), "Which rule matches?", question);
    let mut parts = Parts::default().section("list", "All rules", &table)?.section(
        "explain",
        "Find the owner of an endpoint",
        &question,
    )?;
    if visit.may("inventory.manage") {
        let form =
            Ask::post(RULES, visit.csrf(), "Add the rule", rule_fields(teams.as_ref(), owners.as_ref()));
        parts = parts.section("new", "New rule", &form)?;
    }
    Page::new(&visit, "Ownership rules").command("bulla owner rule list").reads(listed.path).show(&parts)
}

fn rule_fields(teams: Option<&Value>, owners: Option<&Value>) -> Vec<Field> {
    vec![
        Field::line("name", "Name", "").required(),
        Field::number("position", "Position", "")
            .hint("The lowest matching rule counts. Empty: after all others."),
        Field::line("host", "Host is like", "").hint("*.shop.example.net"),
        Field::line("name_like", "A name of the certificate is like", ""),
        Field::line("network", "Address is in", "").hint("10.0.0.0/8"),
        Field::line("source", "Source is like", "").hint("A protocol, a cloud, or the group of a watch."),
        Field::line("issuer", "Issuer contains", ""),
        Field::choice("team", "Team", "", names(teams, "none")),
        Field::choice("owner", "Owner", "", names(owners, "none")),
        Field::line("environment", "Environment", ""),
    ]
}

async fn make_rule(visit: Visit, form: Form) -> Result<Response, Failure> {
    let body = json!({
        "name": form.field("name").unwrap_or_default(),
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
    let answer = visit.api.change(Method::POST, "/api/v1/ownership-rules", form.csrf(), Some(&body)).await?;
    Ok(back(RULES, "created", &answer))
}

async fn explain(visit: Visit, form: Form) -> Result<Response, Failure> {
    let body = json!({
        "host": form.field("host").unwrap_or_default(),
        "issuer": form.field("issuer").unwrap_or_default(),
        "group": form.field("group").unwrap_or_default(),
    });
    let path = "/api/v1/ownership-rules/explain";
    let answer = visit.api.change(Method::POST, path, form.csrf(), Some(&body)).await?;
    let facts = Facts::default()
        .with("Rule", Cell::text(json::text(&answer, "/rule")))
        .with("Assigns", Cell::text(members(&answer, "/assign")));
    let steps = json!({ "items": answer.get("steps").cloned().unwrap_or_default() });
    let steps =
        Table::of("Rules that were tried", &["Position", "Rule", "Matches", "Why not"], &steps, |step| {
            let matches = json::flag(step, "/matches");
            vec![
                Cell::number(json::number(step, "/position")),
                Cell::text(json::text(step, "/rule")),
                if matches { Cell::badge(Tone::Good, "yes") } else { Cell::badge(Tone::Calm, "no") },
                Cell::text(json::text(step, "/why_not")),
            ]
        })
        .empty("There is no rule.");
    let parts = Parts::default()
        .plain(&facts)?
        .section("steps", "Rules in their order", &steps)?
        .plain(&Actions::default().link(RULES, "Back to the rules"))?;
    let host = form.field("host").unwrap_or_default();
    Page::new(&visit, format!("Owner of {host}"))
        .command(format!("bulla owner rule explain {host}"))
        .show(&parts)
}

async fn rule(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let path = format!("/api/v1/ownership-rules/{}", api::path::segment(&id));
    let rule = visit.api.get(&path).await?;
    let actions = Actions::default()
        .danger(format!("{RULES}/{}/remove", api::path::segment(&id)), "Remove")
        .only_if(visit.may("inventory.manage"));
    let facts = Facts::default()
        .with("Position", Cell::number(json::number(&rule, "/position")))
        .with("Where", Cell::text(members(&rule, "/when")))
        .with("Assigns", Cell::text(members(&rule, "/assign")))
        .with("From tags", Cell::text(members(&rule, "/from_tags")))
        .with("Made", Cell::time(json::text(&rule, "/created_at"), visit.now))
        .with("Changed", Cell::time(json::text(&rule, "/updated_at"), visit.now));
    let name = json::text(&rule, "/name");
    let parts = Parts::default().plain(&actions)?.plain(&facts)?;
    Page::new(&visit, name).command(format!("bulla owner rule show {name}")).reads(path).show(&parts)
}

async fn ask_remove_rule(visit: Visit, Path(id): Path<String>) -> Result<Response, Failure> {
    let page = format!("{RULES}/{}", api::path::segment(&id));
    let form = Ask::post(format!("{page}/remove"), visit.csrf(), "Remove the rule", vec![]).danger(page);
    let note = Note::hint(
        "Endpoints that it matched go to the next rule that matches, or to nobody. Certificates that were claimed by it keep their owner.",
    );
    let parts = Parts::default().plain(&note)?.plain(&form)?;
    Page::new(&visit, "Remove the rule?").command("bulla owner rule remove NAME").show(&parts)
}

async fn remove_rule(visit: Visit, Path(id): Path<String>, form: Form) -> Result<Response, Failure> {
    let path = format!("/api/v1/ownership-rules/{}", api::path::segment(&id));
    let answer = visit.api.change(Method::DELETE, &path, form.csrf(), None).await?;
    Ok(back(RULES, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_survive_their_field() {
        let person = json!({"contacts": [
            {"kind": "email", "address": "ada@example.net"}, {"kind": "slack", "address": "#web"}
        ]});
        assert_eq!(contacts_of(&contacts(&person).join("\r\n")), person["contacts"]);
        assert_eq!(contacts_of("ada@example.net"), json!([{"kind": "email", "address": "ada@example.net"}]));
    }

    #[test]
    fn members_without_a_value_are_left_out() {
        let rule = json!({"when": {"host": "*.a", "network": null, "tags": {}}});
        assert_eq!(members(&rule, "/when"), "host: *.a");
    }
}
