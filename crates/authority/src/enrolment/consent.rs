//! Approval of enrolments under profiles that require a second person.

use events::{ApprovalGiven, EnrolmentDecided, EnrolmentWaiting, Event};
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError, Tx, audit, emit};
use uuid::Uuid;
use x509::csr::CertificateRequest;

use super::error::EnrolmentError;
use super::request::{Enrolment, hash, without_password};
use crate::issue::Source;
use crate::plan::{self, DocumentVersion, IssuancePlan, PlannedKey};
use crate::principal::Principal;
use crate::profile::Profile;
use crate::tables::{
    self, EnrolmentDecision, EnrolmentPlan, EnrolmentRow, EnrolmentState, NewEnrolment, VoteRow,
};
use crate::tree::{Ca, CaChoice, planned_name};
use crate::{Authority, quorum};

/// Maximum number of enrolments that wait for approval. A larger number indicates a flood of requests.
const OPEN_MAX: u32 = 10_000;
/// Microseconds until an undecided enrolment expires: two weeks.
const OPEN_FOR_US: i64 = 14 * 86_400 * 1_000_000;
/// Microseconds after the decision in which the client may fetch the result: two weeks.
const DECISION_RETENTION_US: i64 = 14 * 86_400 * 1_000_000;
/// Maximum length of a note in characters.
const NOTE_MAX: usize = 2_000;

/// An approver's decision on an enrolment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The certificate may be issued.
    Approve,
    /// The certificate must not be issued.
    Reject,
}

/// Reason why an enrolment was not decided.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// The enrolment is not waiting for a decision. The caller must list the waiting enrolments again.
    #[error("no enrolment {0} is waiting for approval: it is decided, expired or unknown")]
    Unknown(Uuid),
    /// The caller requested the enrolment. Another person must decide.
    #[error("{0} requested this certificate and is the same person as you: another person must decide")]
    OwnRequest(String),
    /// The plan has changed. The caller must read the enrolment again.
    #[error(
        "the profile, or the CA that issues, changed after the enrolment was requested: read the enrolment again, then decide"
    )]
    PlanChanged,
    /// The plan is not the one that was shown. The caller must read the enrolment again.
    #[error(
        "the SHA-256 does not match the plan of the enrolment: read the plan again, then approve its SHA-256"
    )]
    OtherPlan,
    /// The caller has already approved the enrolment. Another person must decide.
    #[error("you already approved this enrolment: {needed} different people must approve it, {given} did")]
    Repeated {
        /// Number of people who have approved the enrolment.
        given: u32,
        /// Number of people who must approve the enrolment.
        needed: u32,
    },
    /// The note is too long or has a null character, which PostgreSQL cannot store.
    #[error("the note must have at most {NOTE_MAX} characters and no null character")]
    Note,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An enrolment read from the database.
pub(super) struct Waiting {
    pub(super) id: Uuid,
    pub(super) state: EnrolmentState,
    pub(super) profile: String,
    pub(super) requester: String,
    pub(super) request: CertificateRequest,
    /// The stored CSR, without its challenge password.
    pub(super) stored: Vec<u8>,
    pub(super) note: String,
}

impl Authority {
    /// Returns a page of EST and SCEP enrolments in a state, oldest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    #[crate::boxed]
    pub async fn enrolments(
        &self,
        state: EnrolmentState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<EnrolmentRow>, StoreError> {
        tables::Enrolments::of(self.store()).page(state, self.clock().now_us(), after, limit).await
    }

    /// Returns an enrolment, unless it has expired.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn enrolment(&self, id: Uuid) -> Result<Option<EnrolmentRow>, StoreError> {
        tables::Enrolments::of(self.store()).get(id, self.clock().now_us()).await
    }

    /// Returns the actors that approved the current plan of an enrolment, earliest approval first.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn enrolment_approvers(&self, row: &EnrolmentRow) -> Result<Vec<String>, StoreError> {
        match row.plan_sha256 {
            Some(plan) => tables::Votes::of(self.store()).approvers(row.id, plan).await,
            None => Ok(Vec::new()),
        }
    }

    /// Approves or rejects an enrolment. The certificate is issued when the client of an approved enrolment repeats its request. If
    /// the profile requires several approvals, an approval counts as one of them. `shown` is the SHA-256 of the plan that was shown
    /// to the approver, if known.
    ///
    /// # Errors
    /// [`DecideError`]
    #[crate::boxed]
    pub async fn decide_enrolment(
        &self,
        id: Uuid,
        decision: Decision,
        shown: Option<[u8; 32]>,
        note: &str,
        by: &Principal,
    ) -> Result<EnrolmentRow, DecideError> {
        if note.chars().count() > NOTE_MAX || note.contains('\0') {
            return Err(DecideError::Note);
        }
        let now_us = self.clock().now_us();
        let row =
            tables::Enrolments::of(self.store()).get(id, now_us).await?.ok_or(DecideError::Unknown(id))?;
        let approved = decision == Decision::Approve;
        let (principal, requester) = (by.clone(), row.requester.clone());
        let (by, note) = (by.actor().to_owned(), note.to_owned());
        let plan = EnrolmentApprovalPlan::of(id, &row.requester, &row.profile, &row.request);
        let event = AuditEvent {
            at_us: now_us,
            actor: by.clone(),
            action: if approved { "enrolment.approve" } else { "enrolment.reject" },
            resource: format!("enrolment/{id}"),
            details: json!({ "note": note, "profile": row.profile, "requester": row.requester }),
        };
        let notification = Event::EnrolmentDecided(EnrolmentDecided { approved });
        let notification = store::new_event(now_us, event.resource.clone(), &notification);
        let until_us = now_us.saturating_add(DECISION_RETENTION_US);
        let decision = EnrolmentDecision { id, approved, by, at_us: now_us, note, until_us };
        let decided = self.store().write("enrolment_decide", move |tx| {
            Box::pin(async move {
                if is_same_person(tx, &requester, &principal).await? {
                    return Ok(Err(DecideError::OwnRequest(requester)));
                }
                if approved {
                    let Some(requested) = plan.requested_plan(tx, now_us).await? else {
                        return Ok(Err(DecideError::PlanChanged));
                    };
                    if shown.is_some_and(|shown| shown != requested.sha256) {
                        return Ok(Err(DecideError::OtherPlan));
                    }
                    if let Some(error) = approve(tx, &requested, &decision, &event, &principal).await? {
                        return Ok(error);
                    }
                }
                if !tables::decide_enrolment(tx, decision).await? {
                    return Ok(Err(DecideError::Unknown(id)));
                }
                audit(tx, vec![event]).await?;
                emit(tx, vec![notification]).await?;
                Ok(Ok(()))
            })
        });
        decided.await??;
        tables::Enrolments::of(self.store()).get(id, now_us).await?.ok_or(DecideError::Unknown(id))
    }
}

/// Adds an approval. Returns `None` if it was the last required one, otherwise the result for the caller.
async fn approve(
    tx: &mut Tx,
    plan: &EnrolmentPlan,
    decision: &EnrolmentDecision,
    event: &AuditEvent,
    by: &Principal,
) -> Result<Option<Result<(), DecideError>>, StoreError> {
    let needed = plan.needed;
    let vote = VoteRow {
        subject: decision.id,
        actor: by.actor().to_owned(),
        plan_sha256: plan.sha256,
        voted_at_us: decision.at_us,
        note: Some(decision.note.clone()),
    };
    let before = tables::approvers_of(tx, decision.id, plan.sha256).await?.len();
    let Some(progress) = quorum::vote(tx, vote, by, needed).await? else {
        let given = u32::try_from(before).unwrap_or(u32::MAX);
        return Ok(Some(Err(DecideError::Repeated { given, needed })));
    };
    if progress.is_enough() {
        return Ok(None);
    }
    let (given, approver) = (progress.given, by.actor().to_owned());
    let notification = Event::ApprovalGiven(ApprovalGiven { approver, given, needed });
    emit(tx, vec![store::new_event(decision.at_us, event.resource.clone(), &notification)]).await?;
    audit(tx, vec![event.clone()]).await?;
    Ok(Some(Ok(())))
}

/// Returns the enrolment if it is already stored. Otherwise stores it and returns `None`.
pub(super) async fn of(
    authority: &Authority,
    enrolment: &Enrolment,
) -> Result<Option<Waiting>, EnrolmentError> {
    let before = find_by_key(authority, enrolment.source, &enrolment.key).await?;
    if before.is_some() || request_approval(authority, enrolment).await? {
        return Ok(before);
    }
    // Another node stored the enrolment first, or too many are waiting.
    let waiting = find_by_key(authority, enrolment.source, &enrolment.key).await?;
    let full =
        || EnrolmentError::Unavailable("too many enrolments wait for approval: try again later".to_owned());
    waiting.ok_or_else(full).map(Some)
}

/// Returns the enrolment with this key, unless it has expired.
pub(super) async fn find_by_key(
    authority: &Authority,
    source: Source,
    key: &str,
) -> Result<Option<Waiting>, EnrolmentError> {
    let row = tables::Enrolments::of(authority.store())
        .by_key(&key_of(source, key), authority.clock().now_us())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let request = CertificateRequest::parse(&row.request).map_err(|error| {
        EnrolmentError::Unavailable(format!("cannot read the enrolment {}: {error}", row.id))
    })?;
    Ok(Some(Waiting {
        id: row.id,
        state: row.state,
        profile: row.profile,
        requester: row.requester,
        request,
        stored: row.request,
        note: row.note.unwrap_or_default(),
    }))
}

fn key_of(source: Source, key: &str) -> [u8; 32] {
    hash(&[source.name().as_bytes(), key.as_bytes()])
}

/// Returns whether the approver and the requester share an identity.
async fn is_same_person(tx: &mut Tx, requester: &str, by: &Principal) -> Result<bool, StoreError> {
    quorum::is_one_of(tx, vec![requester.to_owned()], by).await
}

/// The plan of an enrolment without the profile. The profile is read in the transaction.
#[derive(Clone)]
struct EnrolmentApprovalPlan {
    id: Uuid,
    requester: String,
    plan: IssuancePlan,
}

impl EnrolmentApprovalPlan {
    /// Builds the plan of a stored CSR. If the CSR cannot be parsed, the plan has no names.
    fn of(id: Uuid, requester: &str, profile: &str, request: &[u8]) -> Self {
        Self { id, requester: requester.to_owned(), plan: plan_without_profile(id, profile, request) }
    }

    /// Returns the plan with the current version of the profile and the CA that issues now.
    async fn now(&self, tx: &mut Tx, now_us: i64) -> Result<EnrolmentPlan, StoreError> {
        let profile = tables::profile_row(tx, &self.plan.profile).await?;
        let needed = profile.as_ref().and_then(|row| Profile::from_json(&row.body).ok());
        let needed = needed.map_or(1, |profile| profile.approvals);
        let ca = match &profile {
            Some(row) => CaChoice::read(tx, now_us).await?.of_profile(&row.body),
            None => None,
        };
        let version = profile.map(|row| DocumentVersion::of(row.revision, &row.body));
        let plan = IssuancePlan { profile_version: version, ca, ..self.plan.clone() };
        let text = serde_json::to_string(&plan).unwrap_or_default();
        Ok(EnrolmentPlan { text, sha256: plan.sha256(), needed })
    }

    /// Returns the current plan if approval was requested for this plan. Otherwise voids earlier decisions and requests approval
    /// for the current plan.
    async fn requested_plan(&self, tx: &mut Tx, now_us: i64) -> Result<Option<EnrolmentPlan>, StoreError> {
        let plan = self.now(tx, now_us).await?;
        let now = plan.sha256;
        if tables::enrolment_plan(tx, self.id).await? == Some(now) {
            return Ok(Some(plan));
        }
        if tables::reopen_enrolment(tx, self.id, plan, now_us, now_us.saturating_add(OPEN_FOR_US)).await? {
            let event = AuditEvent {
                at_us: now_us,
                actor: "system:enrolments".to_owned(),
                action: "enrolment.void",
                resource: format!("enrolment/{}", self.id),
                details: json!({ "plan_sha256": x509::Fingerprint::from_bytes(now) }),
            };
            let (profile, requester) = (self.plan.profile.clone(), self.requester.clone());
            let notification = Event::EnrolmentWaiting(EnrolmentWaiting { profile, requester });
            let notification = store::new_event(now_us, event.resource.clone(), &notification);
            audit(tx, vec![event]).await?;
            emit(tx, vec![notification]).await?;
        }
        Ok(None)
    }
}

/// Returns the plan of an enrolment with this version of its profile and with this CA.
pub(crate) fn issuance_plan(
    row: &EnrolmentRow,
    profile_version: Option<DocumentVersion>,
    ca: &Ca,
) -> IssuancePlan {
    let ca = Some(planned_name(&ca.name, ca.id));
    IssuancePlan { profile_version, ca, ..plan_without_profile(row.id, &row.profile, &row.request) }
}

fn plan_without_profile(id: Uuid, profile: &str, request: &[u8]) -> IssuancePlan {
    let parsed = CertificateRequest::parse(request).ok();
    let spki = parsed.as_ref().map(|request| request.public_key.spki_sha256.to_string());
    IssuancePlan {
        object: format!("enrolment/{id}"),
        names: parsed.iter().flat_map(CertificateRequest::names).map(|name| name.to_string()).collect(),
        subject: parsed.as_ref().map(|request| request.subject.text.clone()),
        key: PlannedKey::Request {
            spki_sha256: spki.unwrap_or_default(),
            request_sha256: plan::hex(request),
        },
        must_staple: parsed.as_ref().is_some_and(|request| request.must_staple),
        profile: profile.to_owned(),
        profile_version: None,
        issuer: "internal".to_owned(),
        issuer_version: None,
        ca: None,
        issuer_profile: None,
        lifetime_seconds: None,
        targets: Vec::new(),
    }
}

/// Returns the CA of the current plan, if this plan was approved. The check runs in the transaction before the issuance. If the
/// check fails, approval is requested again.
pub(super) async fn approved_ca(
    authority: &Authority,
    waiting: &Waiting,
) -> Result<Option<Uuid>, EnrolmentError> {
    let plan = EnrolmentApprovalPlan::of(waiting.id, &waiting.requester, &waiting.profile, &waiting.stored);
    let now_us = authority.clock().now_us();
    let current_plan = authority
        .store()
        .write("enrolment_plan", move |tx| Box::pin(async move { plan.requested_plan(tx, now_us).await }));
    let Some(plan) = current_plan.await? else { return Ok(None) };
    let plan: IssuancePlan = serde_json::from_str(&plan.text)
        .map_err(|error| StoreError::Corrupt(format!("enrolments.plan: {error}")))?;
    match plan.ca_id() {
        Some(ca) => Ok(Some(ca)),
        None => {
            Err(EnrolmentError::Unavailable("no CA issues: create one, or change the profile".to_owned()))
        }
    }
}

async fn request_approval(authority: &Authority, enrolment: &Enrolment) -> Result<bool, EnrolmentError> {
    let request = &enrolment.requested.request;
    let now_us = authority.clock().now_us();
    tables::Enrolments::of(authority.store()).trim(now_us).await?;
    let mut new = NewEnrolment {
        id: Uuid::now_v7(),
        plan: EnrolmentPlan::default(),
        key_sha256: key_of(enrolment.source, &enrolment.key),
        protocol: enrolment.source,
        profile: enrolment.profile.name.clone(),
        requester: enrolment.requester.actor().to_owned(),
        request: without_password(request),
        summary: summary(request),
        requested_at_us: now_us,
        expires_at_us: now_us.saturating_add(OPEN_FOR_US),
    };
    let event = AuditEvent {
        at_us: now_us,
        actor: new.requester.clone(),
        action: "enrolment.request",
        resource: format!("enrolment/{}", new.id),
        details: json!({ "profile": new.profile, "protocol": new.protocol, "asks": new.summary }),
    };
    let (profile, requester) = (new.profile.clone(), new.requester.clone());
    let notification = Event::EnrolmentWaiting(EnrolmentWaiting { profile, requester });
    let notification = store::new_event(now_us, event.resource.clone(), &notification);
    let plan = EnrolmentApprovalPlan::of(new.id, &new.requester, &new.profile, &new.request);
    let principal = enrolment.requester.clone();
    let stored = authority.store().write("enrolment_insert", move |tx| {
        Box::pin(async move {
            tables::store_principal_marks(tx, &principal).await?;
            new.plan = plan.now(tx, now_us).await?;
            if !tables::insert_enrolment(tx, new, OPEN_MAX).await? {
                return Ok(false);
            }
            audit(tx, vec![event]).await?;
            emit(tx, vec![notification]).await?;
            Ok(true)
        })
    });
    Ok(stored.await?)
}

/// Returns the subject and names for the approver, with limited length.
fn summary(request: &CertificateRequest) -> String {
    const SHOWN: usize = 20;
    let names = request.names();
    let mut text: Vec<String> = names.iter().take(SHOWN).map(ToString::to_string).collect();
    if names.len() > SHOWN {
        text.push(format!("and {} more", names.len() - SHOWN));
    }
    let text = format!("{} [{}]", request.subject.text, text.join(", "));
    text.chars().filter(|c| !c.is_control()).take(4_000).collect()
}
