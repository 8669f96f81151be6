//! Many certificates at once.

use std::collections::BTreeMap;

use lifecycle::{BulkReport, Lifecycle, Reassign, Selection};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::{NewCertificateBody, given};
use super::filter::CertificateFilter;
use super::revocation::RevokeBody;
use super::scope::scopes;
use super::view::CreatedView;
use crate::access::{Caller, Permission};
use crate::api::{Access, Api, routes};
use crate::extract::Json;
use crate::problem::{Problem, ProblemDocument};
use crate::state::Component;

/// Certificates in one batch of entries.
const BATCH_MAX: usize = 1_000;
/// Octets of a batch's body: some kilobytes each.
const BATCH_OCTETS_MAX: usize = 8 << 20;

pub(super) fn routes() -> Api {
    Api::area("certificates")
        .route(
            Access::needs(Permission::CertificateRequest).scoped().body_max(BATCH_OCTETS_MAX),
            routes!(create_batch),
        )
        .route(Permission::CertificateRenew, routes!(renew))
        .route(Permission::CertificateRevoke, routes!(revoke))
        .route(Permission::CertificateManage, routes!(reassign))
}

/// Which certificates: by identity or by filter, not both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SelectionBody {
    /// These, up to 10,000.
    #[schema(max_items = 10000)]
    ids: Option<Vec<Uuid>>,
    /// All that match, however many; `{}` is everything.
    filter: Option<CertificateFilter>,
}

impl SelectionBody {
    fn read(self) -> Result<Selection, Problem> {
        match (self.ids, self.filter) {
            (Some(ids), None) => Ok(Selection::Ids(ids)),
            (None, Some(filter)) => Ok(Selection::Filter(filter.checked(None)?)),
            _ => Err(Problem::unprocessable("a selection has either ids or a filter")),
        }
    }
}

/// What became of an action on many.
#[derive(Serialize, ToSchema)]
struct BulkView {
    /// Certificates selected.
    matched: u64,
    /// Those it was done to.
    done: u64,
    /// Those that were so already, or are under way.
    already: u64,
    /// Those it could not be done to.
    refused: u64,
    /// Identities that do not exist.
    missing: u64,
    /// Why, for the first hundred refused.
    reasons: Vec<RefusedView>,
}

/// One that an action could not be done to.
#[derive(Serialize, ToSchema)]
struct RefusedView {
    /// Which.
    id: Uuid,
    /// Why.
    reason: String,
}

impl BulkView {
    fn of(report: BulkReport) -> Self {
        let refused = |(id, reason)| RefusedView { id, reason };
        Self {
            matched: report.matched,
            done: report.done,
            already: report.already,
            refused: report.refused,
            missing: report.missing,
            reasons: report.reasons.into_iter().map(refused).collect(),
        }
    }
}

/// Certificates to enter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    /// Up to 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    certificates: Vec<NewCertificateBody>,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
struct BatchView {
    /// As many as were given.
    items: Vec<BatchItem>,
}

/// What became of one: either member is there.
#[derive(Serialize, ToSchema)]
struct BatchItem {
    /// It was entered.
    created: Option<CreatedView>,
    /// It was not.
    problem: Option<ProblemDocument>,
}

/// Brings many certificates under management, each with an answer of its own.
#[utoipa::path(post, path = "/api/v1/certificates/batch", operation_id = "createCertificates", request_body = BatchBody,
    responses((status = 200, body = BatchView)))]
async fn create_batch(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<BatchBody>,
) -> Result<Json<BatchView>, Problem> {
    if body.certificates.is_empty() || body.certificates.len() > BATCH_MAX {
        return Err(Problem::unprocessable(format_args!("a batch has 1 to {BATCH_MAX} certificates")));
    }
    // Asked once for the guard; each certificate is asked for below.
    let _ = caller.reach(Permission::CertificateRequest);
    let one = |body: NewCertificateBody| {
        let (lifecycle, caller) = (lifecycle.clone(), caller.clone());
        async move {
            let new = body.read()?;
            let issuer = new.issuer.as_deref().unwrap_or(lifecycle::managed::INTERNAL_ISSUER);
            caller.may(Permission::CertificateRequest, &scopes(&new.profile, issuer, new.team.as_deref()))?;
            Ok::<_, Problem>(lifecycle.create(new, caller.actor()).await?)
        }
    };
    let outcomes = futures_util::future::join_all(body.certificates.into_iter().map(one)).await;
    let items = outcomes.into_iter().map(|outcome| match outcome {
        Ok(created) => BatchItem { created: Some(CreatedView::of(created)), problem: None },
        Err(problem) => BatchItem { created: None, problem: Some(problem.document()) },
    });
    Ok(Json(BatchView { items: items.collect() }))
}

/// What to renew.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RenewMany {
    /// Which.
    select: SelectionBody,
    /// Why, a few words for the log.
    #[schema(max_length = 200)]
    reason: Option<String>,
}

/// Renews many now.
#[utoipa::path(post, path = "/api/v1/certificates/renew", operation_id = "renewCertificates", request_body = RenewMany,
    responses((status = 200, body = BulkView)))]
async fn renew(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<RenewMany>,
) -> Result<Json<BulkView>, Problem> {
    let reason = body.reason.as_deref().unwrap_or("asked");
    let selection = body.select.read()?;
    let report = lifecycle.renew(&selection, reason, caller.actor()).await?;
    Ok(Json(BulkView::of(report)))
}

/// What to revoke.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RevokeMany {
    /// Which.
    select: SelectionBody,
    /// `unspecified`, `keyCompromise`, `affiliationChanged`, `superseded`, `cessationOfOperation` or
    /// `privilegeWithdrawn`; unspecified when absent.
    reason: Option<String>,
    /// Whether each gets a new version, with a new key, at once.
    #[serde(default)]
    replace: bool,
}

/// Revokes many. What an issuer does not do at once is counted as under way and tried again.
#[utoipa::path(post, path = "/api/v1/certificates/revoke", operation_id = "revokeCertificates",
    request_body = RevokeMany, responses((status = 200, body = BulkView)))]
async fn revoke(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<RevokeMany>,
) -> Result<Json<BulkView>, Problem> {
    let request = RevokeBody { reason: body.reason, replace: body.replace }.read()?;
    let selection = body.select.read()?;
    let report = lifecycle.revoke(&selection, request, caller.actor()).await?;
    Ok(Json(BulkView::of(report)))
}

/// What many certificates get. A member left out stays; one that is null is taken away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReassignMany {
    /// Which.
    select: SelectionBody,
    /// Who answers for them.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    owner: Option<Option<String>>,
    /// The team that does.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    team: Option<Option<String>>,
    /// Where they are used.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    environment: Option<Option<String>>,
    /// The policy that says when they are renewed.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    policy: Option<Option<String>>,
    /// Tags to set.
    #[serde(default)]
    tags_set: BTreeMap<String, String>,
    /// Tags to take away.
    #[serde(default)]
    #[schema(max_items = 32)]
    tags_unset: Vec<String>,
}

/// Gives many another owner, team, environment, policy or other tags.
#[utoipa::path(post, path = "/api/v1/certificates/reassign", operation_id = "reassignCertificates",
    request_body = ReassignMany, responses((status = 200, body = BulkView)))]
async fn reassign(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(body): Json<ReassignMany>,
) -> Result<Json<BulkView>, Problem> {
    let selection = body.select.read()?;
    let to = Reassign {
        owner: body.owner,
        team: body.team,
        environment: body.environment,
        policy: body.policy,
        tags_set: body.tags_set,
        tags_unset: body.tags_unset,
    };
    let report = lifecycle.reassign(&selection, to, caller.actor()).await?;
    Ok(Json(BulkView::of(report)))
}
