//! Ownership rules, which assign results of scans to owners.

use std::net::IpAddr;

use api::ownership::{
    AssignBody, ExplanationView, FromTagsBody, QuestionBody, RuleBody, RuleView, StepView, WhenBody,
};
use axum::response::{IntoResponse, Response};
use clouds::TAGS_KEPT_MAX;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::ownership::{
    Assignment, Candidate, Conditions, NewRule, Ownership, OwnershipError, RuleRecord, Step, TagKeys,
};

use crate::access::{Caller, Permission};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::shown;

pub(crate) fn routes() -> Api {
    Api::area("ownership-rules")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::InventoryManage, routes!(create))
        .route(Permission::InventoryRead, routes!(get_one))
        .route(Permission::InventoryManage, routes!(replace))
        .route(Permission::InventoryManage, routes!(delete))
        .route(Permission::InventoryRead, routes!(explain))
}

impl From<OwnershipError> for Problem {
    fn from(error: OwnershipError) -> Self {
        match error {
            OwnershipError::Store(error) => error.into(),
            OwnershipError::Invalid(why) => Self::unprocessable(why),
            OwnershipError::Unknown(_) => Self::missing(error),
            OwnershipError::Taken(_) | OwnershipError::Full => Self::conflict(error),
            OwnershipError::Changed => Self::precondition_failed(error),
        }
    }
}

fn assign_body(assignment: Assignment) -> AssignBody {
    let Assignment { team, owner, environment, tags } = assignment;
    AssignBody { team, owner, environment, tags }
}

fn from_tags_body(from_tags: TagKeys) -> FromTagsBody {
    let TagKeys { team, owner, environment } = from_tags;
    FromTagsBody { team, owner, environment }
}

fn rule_view(record: RuleRecord) -> RuleView {
    let RuleRecord { rule, created_at_us, updated_at_us, .. } = record;
    RuleView {
        id: rule.id,
        name: rule.name,
        position: rule.position,
        when: WhenBody {
            host: rule.when.host.map(String::from),
            name: rule.when.name.map(String::from),
            network: rule.when.network.map(|network| network.to_string()),
            source: rule.when.source.map(String::from),
            issuer: rule.when.issuer,
            tag: rule.when.tag.map(String::from),
        },
        assign: assign_body(rule.assign),
        from_tags: from_tags_body(rule.from_tags),
        created_at: shown(created_at_us),
        updated_at: shown(updated_at_us),
    }
}

fn new_rule(body: RuleBody) -> NewRule {
    let WhenBody { host, name, network, source, issuer, tag } = body.when;
    let AssignBody { team, owner, environment, tags } = body.assign;
    NewRule {
        name: body.name,
        position: body.position,
        when: Conditions { host, name, network, source, issuer, tag },
        assign: Assignment { team, owner, environment, tags },
        from_tags: TagKeys {
            team: body.from_tags.team,
            owner: body.from_tags.owner,
            environment: body.from_tags.environment,
        },
    }
}

fn candidate(body: QuestionBody) -> Result<Candidate, Problem> {
    let address = match &body.address {
        Some(text) => Some(
            text.parse::<IpAddr>()
                .map_err(|_| Problem::unprocessable(format_args!("{text:?} is not an IP address")))?,
        ),
        None => body.host.parse().ok(),
    };
    if body.tags.len() > TAGS_KEPT_MAX {
        return Err(Problem::unprocessable(format_args!(
            "a certificate can have at most {TAGS_KEPT_MAX} tags"
        )));
    }
    let place = Candidate {
        host: body.host,
        server_name: body.server_name,
        address,
        names: Vec::new(),
        issuer: body.issuer,
        protocol: body.source,
        group: body.group,
        tags: body.tags.into_iter().collect(),
    };
    Ok(place.named(&body.names))
}

fn step_view(step: &Step<'_>) -> StepView {
    StepView {
        rule: step.rule.name.clone(),
        position: step.rule.position,
        matches: step.unmet.is_none(),
        why_not: step.unmet.clone(),
    }
}

fn answer(record: RuleRecord) -> Revision<RuleView> {
    Revision(record.revision, rule_view(record))
}

/// Lists the ownership rules in their order: the first that matches applies.
#[utoipa::path(get, path = "/api/v1/ownership-rules", operation_id = "listOwnershipRules", params(PageQuery),
    responses((status = 200, body = Listing<RuleView>)))]
async fn list(
    Component(ownership): Component<Ownership>,
    paging: Paging,
) -> Result<Json<Listing<RuleView>>, Problem> {
    let page = ownership.list(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, rule_view)))
}

/// Creates an ownership rule. At most 1,000 rules can exist.
#[utoipa::path(post, path = "/api/v1/ownership-rules", operation_id = "createOwnershipRule", request_body = RuleBody,
    responses((status = 201, body = RuleView)))]
async fn create(
    Component(ownership): Component<Ownership>,
    caller: Caller,
    Json(body): Json<RuleBody>,
) -> Result<Response, Problem> {
    let record = ownership.create(&new_rule(body), caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/ownership-rules/{}", record.rule.id));
    let place = place.map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], answer(record)).into_response())
}

/// Shows an ownership rule, by its ID or name.
#[utoipa::path(get, path = "/api/v1/ownership-rules/{id}", operation_id = "getOwnershipRule",
    params(("id" = String, Path)), responses((status = 200, body = RuleView)))]
async fn get_one(
    Component(ownership): Component<Ownership>,
    Path(id): Path<String>,
) -> Result<Revision<RuleView>, Problem> {
    Ok(answer(ownership.get(&id).await?))
}

/// Changes an ownership rule. It applies from the next run of each watch.
#[utoipa::path(put, path = "/api/v1/ownership-rules/{id}", operation_id = "replaceOwnershipRule",
    params(("id" = String, Path)), request_body = RuleBody, responses((status = 200, body = RuleView)))]
async fn replace(
    Component(ownership): Component<Ownership>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
    Json(body): Json<RuleBody>,
) -> Result<Revision<RuleView>, Problem> {
    let record = ownership.get(&id).await?;
    if_match.check(record.revision)?;
    Ok(answer(ownership.update(&record, &new_rule(body), caller.actor()).await?))
}

/// Deletes an ownership rule. Certificates that were claimed under the rule remain unchanged.
#[utoipa::path(delete, path = "/api/v1/ownership-rules/{id}", operation_id = "deleteOwnershipRule",
    params(("id" = String, Path)), responses((status = 204)))]
async fn delete(
    Component(ownership): Component<Ownership>,
    caller: Caller,
    Path(id): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let record = ownership.get(&id).await?;
    if_match.check(record.revision)?;
    ownership.delete(&record, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Explains which ownership rule matches an object, and why the rules before it do not. Changes nothing.
#[utoipa::path(post, path = "/api/v1/ownership-rules/explain", operation_id = "explainOwnership",
    request_body = QuestionBody, responses((status = 200, body = ExplanationView)))]
async fn explain(
    Component(ownership): Component<Ownership>,
    Json(body): Json<QuestionBody>,
) -> Result<Json<ExplanationView>, Problem> {
    let place = candidate(body)?;
    let rules = ownership.rules().await?;
    let steps = rules.explain(&place);
    let matched = steps.last().filter(|step| step.unmet.is_none()).map(|step| step.rule);
    Ok(Json(ExplanationView {
        rule: matched.map(|rule| rule.name.clone()),
        assign: rules.of(&place).map(assign_body),
        steps: steps.iter().map(step_view).collect(),
    }))
}
