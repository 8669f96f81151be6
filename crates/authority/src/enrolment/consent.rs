//! Enrolments under profiles that want a second person's consent.

use events::{EnrolmentDecided, EnrolmentWaiting, Event};
use serde_json::json;
use store::{AuditEvent, Cursor, Page, StoreError, audit, emit};
use uuid::Uuid;
use x509::csr::CertificateRequest;

use super::error::EnrolmentError;
use super::request::{Enrolment, hash, without_password};
use crate::Authority;
use crate::issue::Source;
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
    #[error("who asks for a certificate cannot agree to it: somebody else must decide")]
    OwnRequest,
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
        actor: &str,
    ) -> Result<EnrolmentRow, DecideError> {
        if note.chars().count() > NOTE_MAX {
            return Err(DecideError::NoteTooLong);
        }
        let now_us = self.clock().now_us();
        let row =
            tables::Enrolments::of(self.store()).get(id, now_us).await?.ok_or(DecideError::Unknown(id))?;
        if row.requester == actor {
            return Err(DecideError::OwnRequest);
        }
        let approved = decision == Decision::Approve;
        let (by, note) = (actor.to_owned(), note.to_owned());
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
                if !tables::decide_enrolment(tx, decision).await? {
                    return Ok(false);
                }
                audit(tx, vec![event]).await?;
                emit(tx, vec![told]).await?;
                Ok(true)
            })
        });
        if !decided.await? {
            return Err(DecideError::Unknown(id));
        }
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
        note: row.note.unwrap_or_default(),
    }))
}

fn key_of(source: Source, key: &str) -> [u8; 32] {
    hash(&[source.name().as_bytes(), key.as_bytes()])
}

async fn ask(authority: &Authority, enrolment: &Enrolment) -> Result<bool, EnrolmentError> {
    let request = &enrolment.asked.request;
    let now_us = authority.clock().now_us();
    tables::Enrolments::of(authority.store()).trim(now_us).await?;
    let new = NewEnrolment {
        id: Uuid::now_v7(),
        key_sha256: key_of(enrolment.source, &enrolment.key),
        protocol: enrolment.source,
        profile: enrolment.profile.name.clone(),
        requester: enrolment.requester.clone(),
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
    let stored = authority.store().write("enrolment_insert", move |tx| {
        Box::pin(async move {
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
