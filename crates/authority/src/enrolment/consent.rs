//! Enrolments under profiles that want a second person's consent.

use events::{EnrolmentDecided, EnrolmentWaiting, Event};
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError, Tx, audit, emit};
use uuid::Uuid;
use x509::csr::CertificateRequest;

use super::error::EnrolmentError;
use super::request::{Enrolment, hash, without_password};
use crate::Authority;
use crate::issue::Source;
use crate::plan::{self, DocumentVersion, IssuancePlan, PlannedKey};
use crate::principal::Principal;
use crate::tables;
use crate::tables::{EnrolmentDecision, EnrolmentRow, EnrolmentState, NewEnrolment};

/// Enrolments that may wait at one time; more is a flood.
const OPEN_MAX: u32 = 10_000;
/// How long one waits to be decided, µs: two weeks.
const OPEN_FOR_US: i64 = 14 * 86_400 * 1_000_000;
/// How long the client may come for what was decided, µs: two weeks.
const DECIDED_FOR_US: i64 = 14 * 86_400 * 1_000_000;
/// Characters of a note.
const NOTE_MAX: usize = 2_000;

/// What a second person says of an enrolment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Issue it.
    Approve,
    /// Do not.
    Reject,
}

/// Why an enrolment was not decided.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// Caller: list what waits.
    #[error("no enrolment {0} waits: it is decided, lapsed or was never there")]
    Unknown(Uuid),
    /// Caller: have somebody else decide.
    #[error("{0} asked for this certificate and is the same person as you: another person must decide")]
    OwnRequest(String),
    /// Caller: look at it again.
    #[error("the profile changed after the enrolment was asked for: look at it again, then decide")]
    PlanChanged,
    /// Caller: shorten it.
    #[error("the note is over {NOTE_MAX} characters")]
    NoteTooLong,
    /// Those of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An enrolment read back.
pub(super) struct Waiting {
    pub(super) id: Uuid,
    pub(super) state: EnrolmentState,
    pub(super) profile: String,
    pub(super) requester: String,
    pub(super) request: CertificateRequest,
    /// The request as stored.
    pub(super) stored: Vec<u8>,
    pub(super) note: String,
}

impl Authority {
    /// A page of enrolments over EST and SCEP in a state, oldest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    #[crate::boxed]
    pub async fn enrolments(
        &self,
        state: EnrolmentState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<EnrolmentRow>, StoreError> {
        tables::Enrolments::of(self.store()).page(state, self.clock().now_us(), after, limit).await
    }

    /// An enrolment, unless it lapsed.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn enrolment(&self, id: Uuid) -> Result<Option<EnrolmentRow>, StoreError> {
        tables::Enrolments::of(self.store()).get(id, self.clock().now_us()).await
    }

    /// Decides an enrolment that waits; the certificate is issued when its client asks again.
    ///
    /// # Errors
    /// [`DecideError`]
    #[crate::boxed]
    pub async fn decide_enrolment(
        &self,
        id: Uuid,
        decision: Decision,
        note: &str,
        by: &Principal,
    ) -> Result<EnrolmentRow, DecideError> {
        if note.chars().count() > NOTE_MAX {
            return Err(DecideError::NoteTooLong);
        }
        let now_us = self.clock().now_us();
        let row =
            tables::Enrolments::of(self.store()).get(id, now_us).await?.ok_or(DecideError::Unknown(id))?;
        let approved = decision == Decision::Approve;
        let (principal, requester) = (by.clone(), row.requester.clone());
        let (by, note) = (by.actor().to_owned(), note.to_owned());
        let plan = ConsentPlan::of(id, &row.requester, &row.profile, &row.request);
        let event = AuditEvent {
            at_us: now_us,
            actor: by.clone(),
            action: if approved { "enrolment.approve" } else { "enrolment.reject" },
            resource: format!("enrolment/{id}"),
            details: json!({ "note": note, "profile": row.profile, "requester": row.requester }),
        };
        let told = Event::EnrolmentDecided(EnrolmentDecided { approved });
        let told = store::new_event(now_us, event.resource.clone(), &told);
        let until_us = now_us.saturating_add(DECIDED_FOR_US);
        let decision = EnrolmentDecision { id, approved, by, at_us: now_us, note, until_us };
        let decided = self.store().write("enrolment_decide", move |tx| {
            Box::pin(async move {
                if is_same_person(tx, &requester, &principal).await? {
                    return Ok(Err(DecideError::OwnRequest(requester)));
                }
                if approved && !plan.is_asked_for(tx, now_us).await? {
                    return Ok(Err(DecideError::PlanChanged));
                }
                if !tables::decide_enrolment(tx, decision).await? {
                    return Ok(Err(DecideError::Unknown(id)));
                }
                audit(tx, vec![event]).await?;
                emit(tx, vec![told]).await?;
                Ok(Ok(()))
            })
        });
        decided.await??;
        tables::Enrolments::of(self.store()).get(id, now_us).await?.ok_or(DecideError::Unknown(id))
    }
}

/// What waits or was decided; `None` when it was asked for just now.
pub(super) async fn of(
    authority: &Authority,
    enrolment: &Enrolment,
) -> Result<Option<Waiting>, EnrolmentError> {
    let before = under(authority, enrolment.source, &enrolment.key).await?;
    if before.is_some() || ask(authority, enrolment).await? {
        return Ok(before);
    }
    // Either another node was faster, or too many wait.
    let waiting = under(authority, enrolment.source, &enrolment.key).await?;
    let full =
        || EnrolmentError::Unavailable("too many enrolments wait to be decided: try again later".to_owned());
    waiting.ok_or_else(full).map(Some)
}

/// The enrolment under this key, unless it lapsed.
pub(super) async fn under(
    authority: &Authority,
    source: Source,
    key: &str,
) -> Result<Option<Waiting>, EnrolmentError> {
    let row = tables::Enrolments::of(authority.store())
        .by_key(&key_of(source, key), authority.clock().now_us())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let request = CertificateRequest::parse(&row.request).map_err(|error| {
        EnrolmentError::Unavailable(format!("the enrolment {} cannot be read: {error}", row.id))
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

/// Whether who decides is the person who asks, by every mark that is known of both.
async fn is_same_person(tx: &mut Tx, requester: &str, by: &Principal) -> Result<bool, StoreError> {
    let asked = tables::marks_of(tx, vec![requester.to_owned()]).await?;
    let decides = tables::marks_of(tx, by.marks().map(str::to_owned).collect()).await?;
    Ok(!asked.is_disjoint(&decides))
}

/// The plan of an enrolment, but for its profile, which is read in the transaction.
#[derive(Clone)]
struct ConsentPlan {
    id: Uuid,
    requester: String,
    plan: IssuancePlan,
}

impl ConsentPlan {
    /// Of a stored request; one that cannot be read has a plan that names nothing.
    fn of(id: Uuid, requester: &str, profile: &str, request: &[u8]) -> Self {
        Self { id, requester: requester.to_owned(), plan: plan_without_profile(id, profile, request) }
    }

    async fn sha256(&self, tx: &mut Tx) -> Result<[u8; 32], StoreError> {
        let profile = tables::profile_row(tx, &self.plan.profile).await?;
        let version = profile.map(|row| DocumentVersion::of(row.revision, &row.body));
        Ok(IssuancePlan { profile_version: version, ..self.plan.clone() }.sha256())
    }

    /// Whether consent was asked for this plan. If not, what was decided is void, and consent is asked for anew.
    async fn is_asked_for(&self, tx: &mut Tx, now_us: i64) -> Result<bool, StoreError> {
        let now = self.sha256(tx).await?;
        if tables::enrolment_plan(tx, self.id).await? == Some(now) {
            return Ok(true);
        }
        if tables::reopen_enrolment(tx, self.id, now, now_us, now_us.saturating_add(OPEN_FOR_US)).await? {
            let event = AuditEvent {
                at_us: now_us,
                actor: "system:enrolments".to_owned(),
                action: "enrolment.void",
                resource: format!("enrolment/{}", self.id),
                details: json!({ "plan_sha256": x509::Fingerprint::from_bytes(now) }),
            };
            let (profile, requester) = (self.plan.profile.clone(), self.requester.clone());
            let told = Event::EnrolmentWaiting(EnrolmentWaiting { profile, requester });
            let told = store::new_event(now_us, event.resource.clone(), &told);
            audit(tx, vec![event]).await?;
            emit(tx, vec![told]).await?;
        }
        Ok(false)
    }
}

/// The plan of an enrolment under this version of its profile.
pub(crate) fn plan_of(row: &EnrolmentRow, profile_version: Option<DocumentVersion>) -> IssuancePlan {
    IssuancePlan { profile_version, ..plan_without_profile(row.id, &row.profile, &row.request) }
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
        issuer_profile: None,
        lifetime_seconds: None,
        targets: Vec::new(),
    }
}

/// Whether consent was given to the plan as it is now; asked in the transaction before issuing. If not, it is asked for anew.
pub(super) async fn is_for_this_plan(
    authority: &Authority,
    waiting: &Waiting,
) -> Result<bool, EnrolmentError> {
    let plan = ConsentPlan::of(waiting.id, &waiting.requester, &waiting.profile, &waiting.stored);
    let now_us = authority.clock().now_us();
    let held = authority
        .store()
        .write("enrolment_plan", move |tx| Box::pin(async move { plan.is_asked_for(tx, now_us).await }));
    Ok(held.await?)
}

async fn ask(authority: &Authority, enrolment: &Enrolment) -> Result<bool, EnrolmentError> {
    let request = &enrolment.asked.request;
    let now_us = authority.clock().now_us();
    tables::Enrolments::of(authority.store()).trim(now_us).await?;
    let mut new = NewEnrolment {
        id: Uuid::now_v7(),
        plan_sha256: [0; 32],
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
    let told = Event::EnrolmentWaiting(EnrolmentWaiting { profile, requester });
    let told = store::new_event(now_us, event.resource.clone(), &told);
    let plan = ConsentPlan::of(new.id, &new.requester, &new.profile, &new.request);
    let principal = enrolment.requester.clone();
    let stored = authority.store().write("enrolment_insert", move |tx| {
        Box::pin(async move {
            tables::note_principal(tx, &principal).await?;
            new.plan_sha256 = plan.sha256(tx).await?;
            if !tables::insert_enrolment(tx, new, OPEN_MAX).await? {
                return Ok(false);
            }
            audit(tx, vec![event]).await?;
            emit(tx, vec![told]).await?;
            Ok(true)
        })
    });
    Ok(stored.await?)
}

/// Subject and names, for who decides; bounded.
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
