//! Rules that say who answers for what scans found.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::response::{IntoResponse, Response};
use clouds::TAGS_KEPT_MAX;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use inventory::ownership::{
    Assignment, Candidate, Conditions, FromTags, NewRule, Ownership, OwnershipError, RuleRecord, Step,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
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
            OwnershipError::Unknown(_) => Self::not_found(error),
            OwnershipError::Taken(_) | OwnershipError::Full => Self::conflict(error),
            OwnershipError::Changed => Self::precondition_failed(error),
        }
    }
}

/// Conditions; all that are given must hold, and none given holds everywhere.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = OwnershipConditions)]
struct WhenBody {
    /// What the host or the server name is like; `*` stands for any run of characters, dots included.
    #[schema(example = "*.pay.example", max_length = 253)]
    host: Option<String>,
    /// What one of the certificate's first 256 subject alternative names is like.
    #[schema(max_length = 253)]
    name: Option<String>,
    /// The network that the address is in, or the address.
    #[schema(example = "10.20.0.0/16")]
    network: Option<String>,
    /// What the protocol (`tls`, `smtp`, `aws-acm`) or the group of the watch that looks there is like.
    #[schema(example = "aws-*", max_length = 253)]
    source: Option<String>,
    /// What the issuer's name holds, in any case.
    #[schema(max_length = 256)]
    issuer: Option<String>,
    /// A tag that a cloud or cluster gives to the certificate: its key alone, or `KEY=PATTERN` for its value.
    #[schema(example = "team=pay*", max_length = 766)]
    tag: Option<String>,
}

/// Whom a rule names, and what it says beside; at least one of them.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = OwnershipAssignment)]
struct AssignBody {
    /// The team that answers.
    #[schema(example = "payments", max_length = 200)]
    team: Option<String>,
    /// Who does.
    #[schema(max_length = 200)]
    owner: Option<String>,
    /// Where it is used.
    #[schema(max_length = 200)]
    environment: Option<String>,
    /// Labels, at most 32.
    tags: BTreeMap<String, String>,
}

impl From<Assignment> for AssignBody {
    fn from(assignment: Assignment) -> Self {
        let Assignment { team, owner, environment, tags } = assignment;
        Self { team, owner, environment, tags }
    }
}

/// What a rule takes from the value of a tag, by the tag's key. A rule that takes something holds only where it finds
/// something to take; what it does not find is as `assign` says.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = OwnershipFromTags)]
struct FromTagsBody {
    /// The team that answers.
    #[schema(example = "team", max_length = 512)]
    team: Option<String>,
    /// Who does.
    #[schema(max_length = 512)]
    owner: Option<String>,
    /// Where it is used.
    #[schema(max_length = 512)]
    environment: Option<String>,
}

impl From<FromTags> for FromTagsBody {
    fn from(from_tags: FromTags) -> Self {
        let FromTags { team, owner, environment } = from_tags;
        Self { team, owner, environment }
    }
}

/// A rule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnershipRule)]
struct RuleView {
    /// Its identity.
    id: Uuid,
    /// Its name, unique.
    #[schema(example = "payments")]
    name: String,
    /// Its place among the others, lowest first; of equal ones the name decides.
    position: u32,
    /// Where it holds.
    when: WhenBody,
    /// Whom it names.
    assign: AssignBody,
    /// What of it is taken from tags.
    from_tags: FromTagsBody,
    /// When it was made.
    created_at: String,
    /// When it was last changed.
    updated_at: String,
}

impl RuleView {
    fn of(record: RuleRecord) -> Self {
        let RuleRecord { rule, created_at_us, updated_at_us, .. } = record;
        Self {
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
            assign: rule.assign.into(),
            from_tags: rule.from_tags.into(),
            created_at: shown(created_at_us),
            updated_at: shown(updated_at_us),
        }
    }
}

/// A rule to make, or what one shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OwnershipRuleBody)]
struct RuleBody {
    /// Unique: letters, digits, `.`, `_` and `-`.
    #[schema(example = "payments", min_length = 1, max_length = 64)]
    name: String,
    /// Its place among the others, lowest first. When absent, a new rule goes behind all others, ten after the last, and one
    /// that is replaced stays where it is.
    #[schema(maximum = 1_000_000)]
    position: Option<u32>,
    /// Where it holds.
    #[serde(default)]
    when: WhenBody,
    /// Whom it names; may be empty when something is taken from tags.
    #[serde(default)]
    assign: AssignBody,
    /// What of it is taken from tags.
    #[serde(default)]
    from_tags: FromTagsBody,
}

impl RuleBody {
    fn taken(self) -> NewRule {
        let WhenBody { host, name, network, source, issuer, tag } = self.when;
        let AssignBody { team, owner, environment, tags } = self.assign;
        NewRule {
            name: self.name,
            position: self.position,
            when: Conditions { host, name, network, source, issuer, tag },
            assign: Assignment { team, owner, environment, tags },
            from_tags: FromTags {
                team: self.from_tags.team,
                owner: self.from_tags.owner,
                environment: self.from_tags.environment,
            },
        }
    }
}

/// Something that was found, or might be. What is absent is not known, and meets no condition.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = OwnershipQuestion)]
struct QuestionBody {
    /// Name, address or path.
    host: String,
    /// The name asked for.
    server_name: String,
    /// The address; the host when that is one and this is absent.
    address: Option<String>,
    /// The certificate's subject alternative names; the first 256 count.
    names: Vec<String>,
    /// Who issued it.
    issuer: String,
    /// What is spoken, or where it is kept: `tls`, `smtp`, `aws-acm`.
    source: String,
    /// The group of the watch that looks there.
    group: String,
    /// Its tags in a cloud or cluster, at most 64.
    tags: BTreeMap<String, String>,
}

impl QuestionBody {
    fn place(self) -> Result<Candidate, Problem> {
        let address = match &self.address {
            Some(text) => Some(
                text.parse::<IpAddr>()
                    .map_err(|_| Problem::unprocessable(format_args!("{text:?} is no address")))?,
            ),
            None => self.host.parse().ok(),
        };
        if self.tags.len() > TAGS_KEPT_MAX {
            return Err(Problem::unprocessable(format_args!(
                "a certificate has at most {TAGS_KEPT_MAX} tags"
            )));
        }
        let place = Candidate {
            host: self.host,
            server_name: self.server_name,
            address,
            names: Vec::new(),
            issuer: self.issuer,
            protocol: self.source,
            group: self.group,
            tags: self.tags.into_iter().collect(),
        };
        Ok(place.named(&self.names))
    }
}

/// Whose something is, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnershipExplanation)]
struct ExplanationView {
    /// The name of the first rule that matches; null when none does.
    rule: Option<String>,
    /// Whom it names.
    assign: Option<AssignBody>,
    /// Every rule up to the one that matches, in their order.
    steps: Vec<StepView>,
}

/// One rule of an explanation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnershipStep)]
struct StepView {
    /// Its name.
    rule: String,
    /// Its place.
    position: u32,
    /// Whether it matches.
    matches: bool,
    /// The first of its conditions that does not hold, and what is there instead.
    why_not: Option<String>,
}

impl StepView {
    fn of(step: &Step<'_>) -> Self {
        Self {
            rule: step.rule.name.clone(),
            position: step.rule.position,
            matches: step.unmet.is_none(),
            why_not: step.unmet.clone(),
        }
    }
}

fn answer(record: RuleRecord) -> Revision<RuleView> {
    Revision(record.revision, RuleView::of(record))
}

/// Lists the rules of ownership, in their order: the first that matches wins.
#[utoipa::path(get, path = "/api/v1/ownership-rules", operation_id = "listOwnershipRules", params(PagingParams),
    responses((status = 200, body = Listing<RuleView>)))]
async fn list(
    Component(ownership): Component<Ownership>,
    paging: Paging,
) -> Result<Json<Listing<RuleView>>, Problem> {
    let page = ownership.list(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, RuleView::of)))
}

/// Makes a rule of ownership; there are at most 1,000.
#[utoipa::path(post, path = "/api/v1/ownership-rules", operation_id = "createOwnershipRule", request_body = RuleBody,
    responses((status = 201, body = RuleView)))]
async fn create(
    Component(ownership): Component<Ownership>,
    caller: Caller,
    Json(body): Json<RuleBody>,
) -> Result<Response, Problem> {
    let record = ownership.create(&body.taken(), caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/ownership-rules/{}", record.rule.id));
    let place = place.map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], answer(record)).into_response())
}

/// Shows a rule of ownership, by its identity or name.
#[utoipa::path(get, path = "/api/v1/ownership-rules/{id}", operation_id = "getOwnershipRule",
    params(("id" = String, Path)), responses((status = 200, body = RuleView)))]
async fn get_one(
    Component(ownership): Component<Ownership>,
    Path(id): Path<String>,
) -> Result<Revision<RuleView>, Problem> {
    Ok(answer(ownership.get(&id).await?))
}

/// Changes a rule of ownership. The next runs of watches tell by it.
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
    Ok(answer(ownership.update(&record, &body.taken(), caller.actor()).await?))
}

/// Removes a rule of ownership. What was claimed by it stays as it is.
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

/// Says which rule of ownership matches something, and why those before it do not. Changes nothing.
#[utoipa::path(post, path = "/api/v1/ownership-rules/explain", operation_id = "explainOwnership",
    request_body = QuestionBody, responses((status = 200, body = ExplanationView)))]
async fn explain(
    Component(ownership): Component<Ownership>,
    Json(body): Json<QuestionBody>,
) -> Result<Json<ExplanationView>, Problem> {
    let place = body.place()?;
    let rules = ownership.rules().await?;
    let steps = rules.explain(&place);
    let matched = steps.last().filter(|step| step.unmet.is_none()).map(|step| step.rule);
    Ok(Json(ExplanationView {
        rule: matched.map(|rule| rule.name.clone()),
        assign: rules.of(&place).map(AssignBody::from),
        steps: steps.iter().map(StepView::of).collect(),
    }))
}
