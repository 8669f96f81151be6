//! Key policies: the list, one policy with the sites and nodes that satisfy it, and a preview of formulas.

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::attributes;
use crate::cell::{Cell, Tone};
use crate::confirmation::Confirmation;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::form_data::{FormData, redirect};
use crate::listing::Listing;
use crate::query::{item, parameter};
use crate::session::Session;
use crate::shell::{Page, quoted};
use crate::table::Table;
use crate::{format, json};

pub(crate) const PAGE: &str = "/console/key-policies";

const CHECK: &str = "/api/v1/key-policies/check";

const COLUMNS: &[&str] = &["Name", "Formula", "Key pair", "Created by", "Changed"];

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(PAGE, get(list).post(create))
        .route("/console/key-policies/check", get(check))
        .route("/console/key-policies/{policy}", get(one))
        .route("/console/key-policies/{policy}/rotate", get(confirm_rotate))
        .route("/console/key-policies/{policy}/rotation", post(rotate))
        .route("/console/key-policies/{policy}/delete", get(confirm_delete))
        .route("/console/key-policies/{policy}/deletion", post(delete))
}

#[derive(Template)]
#[template(path = "key_policies.html")]
struct Policies {
    table: Table,
    may_manage: bool,
}

#[derive(Template)]
#[template(path = "key_policy.html")]
struct PolicyPage {
    facts: Facts,
    path: String,
    satisfied: FormulaMatches,
    generations: Table,
    may_manage: bool,
}

#[derive(Template)]
#[template(path = "key_policy_check.html")]
struct Check {
    formula: String,
    satisfied: Option<FormulaMatches>,
    csrf: String,
    may_manage: bool,
}

/// The sites and nodes that satisfy a formula.
struct FormulaMatches {
    sentence: String,
    canonical: String,
    attributes: String,
    sites: Table,
    nodes: Table,
}

fn path_of(policy: &str) -> String {
    item("/api/v1/key-policies", policy)
}

fn href(policy: &str) -> String {
    item(PAGE, policy)
}

fn row(session: &Session, policy: &Value) -> Vec<Cell> {
    let name = json::text(policy, "/name");
    vec![
        Cell::link(href(name), name),
        Cell::code(json::text(policy, "/formula")),
        Cell::number(json::number(policy, "/generation")),
        Cell::text(json::text(policy, "/created_by")),
        Cell::time(json::text(policy, "/updated_at"), session.now),
    ]
}

pub(crate) fn table(session: &Session, listing: &Value) -> Table {
    Table::of("Key policies", COLUMNS, listing, |policy| row(session, policy))
        .empty("No policy yet. A policy defines which nodes may open the keys that are sealed to it, such as `region: EU`.")
}

async fn list(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let listing = Listing::read(&session, PAGE, "/api/v1/key-policies", query.as_deref()).await?;
    let table = listing
        .table("Key policies", COLUMNS, |policy| row(&session, policy))
        .empty("No policy yet. Try a formula, such as `region: EU`, and create a policy with it.")
        .exported("key-policies");
    let body = Policies { table, may_manage: session.may("key_policy.manage") };
    Page::new(&session, "Key policies").command("bulla key policy list").reads(listing.path()).show(&body)
}

/// Requests the nodes that satisfy a formula. Changes nothing, but needs the CSRF token, because the API uses POST.
async fn resolve(session: &Session, formula: &str) -> Result<FormulaMatches, Failure> {
    let body = json!({ "formula": formula });
    let answer = session.api.change(Method::POST, CHECK, session.csrf(), Some(&body)).await?;
    Ok(FormulaMatches::of(&answer))
}

impl FormulaMatches {
    fn of(answer: &Value) -> Self {
        let (count, enrolled) = (json::list(answer, "/nodes").len(), json::number(answer, "/enrolled"));
        let sites = json::list(answer, "/sites");
        Self {
            sentence: match count {
                0 => format!("None of the {enrolled} enrolled nodes satisfies it: no node could open a key."),
                _ => format!(
                    "{count} of {enrolled} enrolled nodes satisfy it, at {}.",
                    format::counted(sites.len(), false, "site")
                ),
            },
            canonical: json::text(answer, "/canonical").to_owned(),
            attributes: known_values(answer),
            sites: listed(
                "Sites with satisfying nodes",
                &["Site", "State", "Satisfying", "Nodes"],
                sites,
                site_row,
            ),
            nodes: listed(
                "Satisfying nodes",
                &["Node", "Site", "Attributes"],
                json::list(answer, "/nodes"),
                node_row,
            ),
        }
    }
}

fn listed(caption: &str, columns: &[&'static str], rows: &[Value], row: fn(&Value) -> Vec<Cell>) -> Table {
    Table::new(caption, columns, rows.iter().map(row))
        .empty("None. Keys sealed to such a policy could not be opened anywhere.")
}

fn site_row(site: &Value) -> Vec<Cell> {
    let name = json::text(site, "/name");
    let (satisfying, nodes) = (json::number(site, "/satisfying"), json::number(site, "/nodes"));
    let state = match satisfying {
        0 => Cell::badge(Tone::Calm, "none"),
        _ if satisfying < nodes => Cell::badge(Tone::Warn, "some nodes"),
        _ => Cell::badge(Tone::Good, "all nodes"),
    };
    let link = Cell::link(item("/console/key-sites", name), name);
    vec![link, state, Cell::number(satisfying), Cell::number(nodes)]
}

fn node_row(node: &Value) -> Vec<Cell> {
    let name = json::text(node, "/name");
    let link = Cell::link(item("/console/key-nodes", name), name);
    vec![link, Cell::text(json::text(node, "/site")), Cell::text(attributes::shown(node, "/attributes"))]
}

/// Formats the attributes that a formula can use: `country: DE, FR; region: EU`.
fn known_values(answer: &Value) -> String {
    let attributes = answer.pointer("/attributes").and_then(Value::as_object);
    let all = attributes.into_iter().flatten();
    let all: Vec<String> =
        all.map(|(name, values)| format!("{name}: {}", json::joined(values, ""))).collect();
    all.join("; ")
}

async fn one(session: Session, Path(policy): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&policy)).await?;
    let (name, formula) = (json::text(&found, "/name").to_owned(), json::text(&found, "/formula").to_owned());
    let body = PolicyPage {
        facts: facts(&session, &found),
        path: href(&name),
        satisfied: resolve(&session, &formula).await?,
        generations: generations(&session, &found),
        may_manage: session.may("key_policy.manage"),
    };
    Page::new(&session, format!("Policy {name}"))
        .command(format!("bulla key policy show {name}"))
        .command(format!("bulla key policy check {}", quoted(&formula)))
        .reads(path_of(&name))
        .show(&body)
}

fn facts(session: &Session, policy: &Value) -> Facts {
    Facts::default()
        .with("Formula", Cell::code(json::text(policy, "/formula")))
        .with("Satisfying nodes", Cell::number(json::number(policy, "/nodes")))
        .with("Newest key pair", Cell::number(json::number(policy, "/generation")))
        .with("Created", Cell::time(json::text(policy, "/created_at"), session.now))
        .with("Created by", Cell::text(json::text(policy, "/created_by")))
        .with("Rotated", Cell::time(json::text(policy, "/updated_at"), session.now))
        .with("Identity", Cell::code(json::text(policy, "/id")))
}

/// Returns the key pairs of a policy, newest first.
fn generations(session: &Session, policy: &Value) -> Table {
    let rows = json::list(policy, "/generations").iter().rev().map(|pair| {
        let lagging = json::joined(pair, "/lagging");
        let state = match lagging.is_empty() {
            true => Cell::badge(Tone::Good, "at every node"),
            false => Cell::badge(Tone::Warn, "not at every node"),
        };
        vec![
            Cell::number(json::number(pair, "/generation")),
            state,
            Cell::number(json::number(pair, "/wrapped")),
            Cell::number(json::number(pair, "/keys")),
            Cell::text(lagging),
            Cell::time(json::text(pair, "/created_at"), session.now),
        ]
    });
    Table::new(
        "Key pairs of the policy",
        &["Key pair", "State", "Nodes with it", "Keys sealed to it", "Nodes without it", "Created"],
        rows,
    )
}

async fn check(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let formula: String = parameter(query.as_deref(), "formula");
    let formula = formula.trim().to_owned();
    let satisfied = match formula.is_empty() {
        true => None,
        false => Some(resolve(&session, &formula).await?),
    };
    let command = format!("bulla key policy check {}", quoted(&formula));
    let body = Check {
        formula,
        satisfied,
        csrf: session.csrf().to_owned(),
        may_manage: session.may("key_policy.manage"),
    };
    Page::new(&session, "Check a policy").command(command).show(&body)
}

async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let name = form.text("name");
    let body = json!({ "name": name, "formula": form.text("formula") });
    let answer = session.api.change(Method::POST, "/api/v1/key-policies", form.csrf(), Some(&body)).await?;
    Ok(redirect(&href(name), "created", &answer))
}

/// Returns the number of keys encrypted under a policy, with any of its key pairs.
fn sealed(policy: &Value) -> i64 {
    json::list(policy, "/generations").iter().map(|pair| json::number(pair, "/keys")).sum()
}

async fn confirm_rotate(session: Session, Path(policy): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&policy)).await?;
    let name = json::text(&found, "/name").to_owned();
    let body = Confirmation::new(&session, format!("{}/rotation", href(&name)), href(&name), "Rotate the policy").danger()
        .says(format!("The policy gets a new key pair. Its {} nodes receive it immediately.", json::number(&found, "/nodes")))
        .says(format!("{} sealed keys are re-wrapped to the new pair gradually. The old pair is deleted when no key uses it. Signing continues.", sealed(&found)))
        .facts(facts(&session, &found));
    Page::new(&session, format!("Rotate policy {name}"))
        .command(format!("bulla key policy rotate {name}"))
        .reads(path_of(&name))
        .show(&body)
}

async fn rotate(session: Session, Path(policy): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/rotate", path_of(&policy));
    let answer = session.api.change(Method::POST, &path, form.csrf(), None).await?;
    Ok(redirect(&href(&policy), "rotated", &answer))
}

async fn confirm_delete(session: Session, Path(policy): Path<String>) -> Result<Response, Failure> {
    let found = session.api.get(&path_of(&policy)).await?;
    let name = json::text(&found, "/name").to_owned();
    let says = match sealed(&found) {
        0 => "No key is sealed to it. The policy and its pairs are deleted permanently.".to_owned(),
        keys => format!(
            "{keys} keys are sealed to it. It can be deleted only after they are withdrawn or sealed to another policy."
        ),
    };
    let body =
        Confirmation::new(&session, format!("{}/deletion", href(&name)), href(&name), "Delete the policy")
            .danger()
            .says(says)
            .facts(facts(&session, &found));
    Page::new(&session, format!("Delete policy {name}"))
        .command(format!("bulla key policy delete {name}"))
        .reads(path_of(&name))
        .show(&body)
}

async fn delete(session: Session, Path(policy): Path<String>, form: FormData) -> Result<Response, Failure> {
    let answer = session.api.change(Method::DELETE, &path_of(&policy), form.csrf(), None).await?;
    Ok(redirect(PAGE, "removed", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_quoted_as_one_shell_argument() {
        assert_eq!(quoted("region: EU"), "'region: EU'");
        assert_eq!(quoted("a'; rm -rf /'"), r"'a'\''; rm -rf /'\'''");
    }

    #[test]
    fn unsatisfiable_formula_is_reported_and_known_values_are_listed() {
        let nobody = FormulaMatches::of(&json!({ "nodes": [], "sites": [], "enrolled": 4 }));
        assert!(nobody.sentence.contains("no node could open a key"), "{}", nobody.sentence);
        let known = json!({ "attributes": { "country": ["DE", "FR"], "region": ["EU"] } });
        assert_eq!(known_values(&known), "country: DE, FR; region: EU");
    }

    #[test]
    fn keys_of_all_generations_are_counted() {
        assert_eq!(sealed(&json!({ "generations": [{ "keys": 2 }, { "keys": 3 }] })), 5);
        assert_eq!(sealed(&json!({})), 0);
    }
}
