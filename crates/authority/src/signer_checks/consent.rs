//! Approvals, which the signer reads from the database.

use std::fmt;

use futures_util::future::{BoxFuture, FutureExt};
use keys::KeyType;
use store::StoreError;
use x509::PublicKey;

use super::refusal::Refusal;
use crate::Authority;
use crate::enrolment;
use crate::issue::{ApprovalRef, IssueRequest};
use crate::plan::{DocumentVersion, IssuancePlan, PlannedKey};
use crate::tables::{self, EnrolmentState};
use crate::tree::Ca;

/// Access to the approvals of managed certificates.
pub trait ApprovalSource: Send + Sync + fmt::Debug {
    /// Returns the approved plan of a run; `None` without an approval.
    ///
    /// # Errors
    /// Fails if the database fails.
    fn of_run<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<Option<ApprovedPlan>, StoreError>>;
}

/// An approval source without approvals: documents that need an approval are not signed.
#[derive(Clone, Copy, Debug)]
pub struct NoApprovals;

impl ApprovalSource for NoApprovals {
    fn of_run<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<ApprovedPlan>, StoreError>> {
        async { Ok(None) }.boxed()
    }
}

/// An approved plan, with the actors that approved it and the actors that are not allowed to approve it.
#[derive(Clone, Debug)]
pub struct ApprovedPlan {
    /// The plan as stored.
    pub plan: IssuancePlan,
    /// SHA-256 of the plan to which the approval refers.
    pub sha256: [u8; 32],
    /// Actors that approved the plan.
    pub decided_by: String,
    /// Actors that are not allowed to approve the plan: the requester, and the actors that changed the plan.
    pub barred: Vec<String>,
}

/// Checks that a certificate under a profile with required approval was approved.
pub(super) async fn check(
    authority: &Authority,
    consents: &dyn ApprovalSource,
    request: &IssueRequest,
    version: &DocumentVersion,
    ca: &Ca,
) -> Result<(), Refusal> {
    let refuse =
        |reason: &str| Refusal::Consent { profile: request.profile.clone(), reason: reason.to_owned() };
    match &request.consent {
        None => Err(refuse("the request names no approval")),
        Some(ApprovalRef::Enrolment(id)) => {
            let row = tables::Enrolments::of(authority.store()).get(*id, authority.clock().now_us()).await?;
            let row = row.filter(|row| row.state == EnrolmentState::Approved);
            let row = row.ok_or_else(|| refuse("the enrolment is not approved"))?;
            let approved = tables::Enrolments::of(authority.store()).plan(*id).await?;
            let plan = enrolment::issuance_plan(&row, Some(version.clone()), ca);
            if approved != Some(plan.sha256()) {
                return Err(refuse("the enrolment was approved with another plan"));
            }
            covers(&plan, request, version, ca).map_err(|reason| refuse(&reason))
        }
        Some(ApprovalRef::Run(run)) => {
            let approved = consents.of_run(run).await?.ok_or_else(|| refuse("the run is not approved"))?;
            if approved.plan.sha256() != approved.sha256 {
                return Err(refuse("the stored plan differs from the approved one"));
            }
            if approved.barred.contains(&approved.decided_by) {
                return Err(refuse("the approver was not allowed to approve this plan"));
            }
            covers(&approved.plan, request, version, ca).map_err(|reason| refuse(&reason))
        }
    }
}

/// Checks that the request matches the plan. An error names the field that differs.
fn covers(
    plan: &IssuancePlan,
    request: &IssueRequest,
    version: &DocumentVersion,
    ca: &Ca,
) -> Result<(), String> {
    let differs = |field: &str| Err(format!("the approved plan has a different {field}"));
    if plan.ca_id() != Some(ca.id) {
        return differs("CA");
    }
    let names: Vec<String> = request.names.iter().map(ToString::to_string).collect();
    if plan.names != names {
        return differs("list of names");
    }
    if plan.profile != request.profile || plan.profile_version.as_ref() != Some(version) {
        return differs("profile, or another revision of it");
    }
    if plan.must_staple != request.must_staple {
        return differs("must-staple extension");
    }
    if plan.lifetime_seconds != request.lifetime_seconds {
        return differs("lifetime");
    }
    if request.not_before.is_some() {
        return differs("beginning");
    }
    if plan.subject.as_ref() != request.subject.as_ref().map(|subject| &subject.text)
        && request.subject.is_some()
    {
        return differs("subject");
    }
    let key = PublicKey::parse(&request.spki).map_err(|error| error.to_string())?;
    match &plan.key {
        PlannedKey::New { key_type, .. }
            if KeyType::of(&key).is_some_and(|kind| kind.name() == key_type.as_str()) =>
        {
            Ok(())
        }
        PlannedKey::Request { spki_sha256, .. } if *spki_sha256 == key.spki_sha256.to_string() => Ok(()),
        PlannedKey::New { .. } | PlannedKey::Request { .. } => differs("key"),
    }
}
