//! Enrolments that wait for consent, and the keys that SCEP clients encrypt to.

use coded::coded;
use uuid::Uuid;

use super::issued::Source;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

store::handle! {
    /// Requests for enrolment, and the recipients that keys are sent to.
    Enrolments
}

coded! {
    /// What was decided of an enrolment.
    pub enum EnrolmentState: "enrolment state" {
        /// Nothing yet.
        Open = 0 => "open",
        /// The certificate may be issued.
        Approved = 1 => "approved",
        /// The certificate may not be issued.
        Rejected = 2 => "rejected",
    }
}

/// An enrolment about to wait.
#[derive(Clone, Debug)]
pub struct NewEnrolment {
    /// Its identity outside, made by the caller.
    pub id: Uuid,
    /// SHA-256 over protocol, profile, requester and request: the same for a repeated request.
    pub key_sha256: [u8; 32],
    /// [`Source::Est`] or [`Source::Scep`].
    pub protocol: Source,
    /// Under which profile.
    pub profile: String,
    /// The requester, as in the audit log.
    pub requester: String,
    /// The certification request, DER, without the password in it where there is one.
    pub request: Vec<u8>,
    /// Summary of the request: subject and names.
    pub summary: String,
    /// Time of the request, µs.
    pub requested_at_us: i64,
    /// When it is forgotten, decided or not, µs.
    pub expires_at_us: i64,
    /// The plan to approve.
    pub plan: EnrolmentPlan,
}

/// The plan to approve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EnrolmentPlan {
    /// The plan, JSON.
    pub text: String,
    /// SHA-256 of its canonical encoding.
    pub sha256: [u8; 32],
    /// How many people must approve it.
    pub needed: u32,
}

/// An enrolment as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct EnrolmentRow {
    /// Its identity outside.
    pub id: Uuid,
    /// See [`NewEnrolment::key_sha256`].
    pub key_sha256: [u8; 32],
    /// See [`NewEnrolment::protocol`].
    pub protocol: Source,
    /// Under which profile.
    pub profile: String,
    /// The requester.
    pub requester: String,
    /// The certification request, DER.
    pub request: Vec<u8>,
    /// Summary of the request.
    pub summary: String,
    /// The decision.
    pub state: EnrolmentState,
    /// Time of the request, µs.
    pub requested_at_us: i64,
    /// When it is forgotten, µs.
    pub expires_at_us: i64,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, µs.
    pub decided_at_us: Option<i64>,
    /// The note with the decision.
    pub note: Option<String>,
    /// The plan that approval is asked for, JSON; `None` for enrolments from before plans were stored.
    pub plan: Option<String>,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: Option<[u8; 32]>,
    /// How many people must approve the plan.
    pub needed: u32,
    /// How many did.
    pub given: u32,
}

/// The key of an authority that messages to it are encrypted to (RFC 8894 section 2.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecipientRow {
    /// The authority.
    pub ca: Uuid,
    /// The key, in table `keys`.
    pub key: Uuid,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// The end of the certificate, µs.
    pub not_after_us: i64,
}

macro_rules! select {
    ($name:literal $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT id, key_sha256, protocol, profile, requester, request, summary, state, requested_at, expires_at, \
             decided_by, decided_at, note, plan, plan_sha256, needed, (SELECT count(*) FROM approval_votes v \
             WHERE v.subject = e.id AND v.plan_sha256 = e.plan_sha256), seq FROM enrolments e ",
            $rest
        )
    };
}

const BY_KEY: &str = select!("enrolment_by_key" "WHERE key_sha256 = ?1 AND expires_at > ?2");
const BY_ID: &str = select!("enrolment_by_id" "WHERE id = ?1 AND expires_at > ?2");
const PAGE: &str =
    select!("enrolments_page" "WHERE state = ?1 AND seq > ?2 AND expires_at > ?3 ORDER BY seq LIMIT ?4");

const PLAN: &str = "-- enrolment_plan
SELECT plan_sha256 FROM enrolments WHERE id = ?1";

const REOPEN: &str = db::with_codes!([EnrolmentState::{Open, Rejected}] "-- enrolment_reopen
UPDATE enrolments SET state = {EnrolmentState::Open}, plan_sha256 = ?2, requested_at = ?3, expires_at = ?4, decided_by = NULL,
    decided_at = NULL, note = NULL, plan = ?5, needed = ?6
WHERE id = ?1 AND state <> {EnrolmentState::Rejected}");

/// One that lapsed makes room for itself. Nothing is stored while ?10 others wait.
const INSERT: &str = db::with_codes!([EnrolmentState::{Open}] "-- enrolment_insert
INSERT INTO enrolments (id, key_sha256, protocol, profile, requester, request, summary, state, requested_at, expires_at,
  plan_sha256, plan, needed)
SELECT ?1, ?2, CAST(?3 AS TEXT), CAST(?4 AS TEXT), CAST(?5 AS TEXT), ?6, CAST(?7 AS TEXT), {EnrolmentState::Open},
       CAST(?8 AS BIGINT), CAST(?9 AS BIGINT), ?11, CAST(?12 AS TEXT), CAST(?13 AS BIGINT)
WHERE (SELECT count(*) FROM (SELECT 1 FROM enrolments WHERE state = {EnrolmentState::Open} AND expires_at > ?8
                             LIMIT ?10) AS open)
      < CAST(?10 AS BIGINT)
ON CONFLICT (key_sha256) DO UPDATE
SET id = excluded.id, request = excluded.request, summary = excluded.summary, state = {EnrolmentState::Open},
    requested_at = excluded.requested_at, expires_at = excluded.expires_at, decided_by = NULL, decided_at = NULL,
    note = NULL, plan_sha256 = excluded.plan_sha256, plan = excluded.plan, needed = excluded.needed
WHERE enrolments.expires_at <= excluded.requested_at");

const DECIDE: &str = db::with_codes!([EnrolmentState::{Open}] "-- enrolment_decide
UPDATE enrolments SET state = ?2, decided_by = ?3, decided_at = ?4, note = ?5, expires_at = ?6
WHERE id = ?1 AND state = {EnrolmentState::Open} AND expires_at > ?4");

const TRIM: &str = "-- enrolments_trim
DELETE FROM enrolments WHERE expires_at <= ?1";

const RECIPIENT: &str = "-- recipient_get
SELECT ca, key_id, certificate, not_after FROM recipients WHERE ca = ?1";

/// `?6`: the certificate that it replaces.
const RECIPIENT_PUT: &str = "-- recipient_put
INSERT INTO recipients (ca, key_id, certificate, not_after, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ca) DO UPDATE
SET key_id = excluded.key_id, certificate = excluded.certificate, not_after = excluded.not_after,
    created_at = excluded.created_at
WHERE recipients.certificate = ?6";

pub(crate) const ALL: &[&str] =
    &[BY_KEY, BY_ID, PAGE, PLAN, REOPEN, INSERT, DECIDE, TRIM, RECIPIENT, RECIPIENT_PUT];

/// Stores an enrolment, unless it waits already or is decided; false for that, and while `open_max` others wait.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_enrolment(tx: &mut Tx, new: NewEnrolment, open_max: u32) -> Result<bool, StoreError> {
    let parameters = vec![
        new.id.into(),
        new.key_sha256.into(),
        new.protocol.name().into(),
        new.profile.into(),
        new.requester.into(),
        new.request.into(),
        new.summary.into(),
        new.requested_at_us.into(),
        new.expires_at_us.into(),
        i64::from(open_max).into(),
        new.plan.sha256.into(),
        new.plan.text.into(),
        i64::from(new.plan.needed).into(),
    ];
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// SHA-256 of the plan that consent was asked for; `None` for enrolments from before plans were stored.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn enrolment_plan(tx: &mut Tx, id: Uuid) -> Result<Option<[u8; 32]>, StoreError> {
    match tx.row(PLAN, vec![id.into()]).await? {
        Some(mut row) => row.maybe_hash(),
        None => Ok(None),
    }
}

/// Asks for consent again, to another plan: what was decided is void. One that was rejected stays rejected.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn reopen_enrolment(
    tx: &mut Tx,
    id: Uuid,
    plan: EnrolmentPlan,
    now_us: i64,
    expires_at_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![
        id.into(),
        plan.sha256.into(),
        now_us.into(),
        expires_at_us.into(),
        plan.text.into(),
        i64::from(plan.needed).into(),
    ];
    Ok(tx.execute(REOPEN, parameters).await? == 1)
}

/// A decision on an enrolment.
#[derive(Clone, Debug)]
pub struct EnrolmentDecision {
    /// Which.
    pub id: Uuid,
    /// Whether it may be issued.
    pub approved: bool,
    /// Actor that decides.
    pub by: String,
    /// When, µs.
    pub at_us: i64,
    /// The note with the decision.
    pub note: String,
    /// Until when the client may come for it, or is told that it was rejected, µs.
    pub until_us: i64,
}

/// Decides an enrolment; false when it is not there, or not open any more.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn decide_enrolment(tx: &mut Tx, decision: EnrolmentDecision) -> Result<bool, StoreError> {
    let state = if decision.approved { EnrolmentState::Approved } else { EnrolmentState::Rejected };
    let parameters = vec![
        decision.id.into(),
        state.code().into(),
        decision.by.into(),
        decision.at_us.into(),
        decision.note.into(),
        decision.until_us.into(),
    ];
    Ok(tx.execute(DECIDE, parameters).await? == 1)
}

/// Stores the key of an authority in place of the one with the certificate `replaces`, or of none; false when another
/// is there.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_recipient(
    tx: &mut Tx,
    row: &RecipientRow,
    now_us: i64,
    replaces: Option<&[u8]>,
) -> Result<bool, StoreError> {
    let parameters = vec![
        row.ca.into(),
        row.key.into(),
        row.certificate.as_slice().into(),
        row.not_after_us.into(),
        now_us.into(),
        replaces.unwrap_or_default().into(),
    ];
    Ok(tx.execute(RECIPIENT_PUT, parameters).await? == 1)
}

impl Enrolments<'_> {
    /// The enrolment under a key, unless it lapsed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn by_key(
        self,
        key_sha256: &[u8; 32],
        now_us: i64,
    ) -> Result<Option<EnrolmentRow>, StoreError> {
        self.0.row(BY_KEY, vec![(*key_sha256).into(), now_us.into()]).await?.map(row_of).transpose()
    }

    /// The enrolment with this id, unless it lapsed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get(self, id: Uuid, now_us: i64) -> Result<Option<EnrolmentRow>, StoreError> {
        self.0.row(BY_ID, vec![id.into(), now_us.into()]).await?.map(row_of).transpose()
    }

    /// The hash of the plan that consent to an enrolment is asked for, or was given for.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn plan(self, id: Uuid) -> Result<Option<[u8; 32]>, StoreError> {
        self.0.row(PLAN, vec![id.into()]).await?.map(|mut row| row.hash()).transpose()
    }

    /// A page of enrolments in a state, oldest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn page(
        self,
        state: EnrolmentState,
        now_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<EnrolmentRow>, StoreError> {
        let start = key_or(after, "enrolments", &[Value::Int(0)])?;
        let (limit, ask) = limit_of(limit);
        let mut parameters = vec![state.code().into()];
        parameters.extend(start);
        parameters.extend([now_us.into(), ask.into()]);
        let rows = self.0.rows(Cost::Walk, PAGE, parameters).await?;
        let read = |mut row: Row| {
            let enrolment = fields_of(&mut row)?;
            Ok((enrolment, vec![Value::Int(row.int()?)]))
        };
        page(rows, limit, "enrolments", read)
    }

    /// Forgets enrolments that lapsed before `before_us`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![before_us.into()]).await
    }

    /// The key that messages to an authority are encrypted to.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn recipient(self, ca: Uuid) -> Result<Option<RecipientRow>, StoreError> {
        let found = self.0.row(RECIPIENT, vec![ca.into()]).await?;
        let read = |mut row: Row| {
            Ok(RecipientRow {
                ca: row.uuid()?,
                key: row.uuid()?,
                certificate: row.blob()?,
                not_after_us: row.int()?,
            })
        };
        found.map(read).transpose()
    }
}

fn row_of(mut row: Row) -> Result<EnrolmentRow, StoreError> {
    fields_of(&mut row)
}

fn fields_of(row: &mut Row) -> Result<EnrolmentRow, StoreError> {
    Ok(EnrolmentRow {
        id: row.uuid()?,
        key_sha256: row.hash()?,
        protocol: row.named("enrolments.protocol")?,
        profile: row.text()?,
        requester: row.text()?,
        request: row.blob()?,
        summary: row.text()?,
        state: row.coded("enrolments.state")?,
        requested_at_us: row.int()?,
        expires_at_us: row.int()?,
        decided_by: row.maybe_text()?,
        decided_at_us: row.maybe_int()?,
        note: row.maybe_text()?,
        plan: row.maybe_text()?,
        plan_sha256: row.maybe_hash()?,
        needed: u32::try_from(row.int()?).unwrap_or(u32::MAX),
        given: u32::try_from(row.int()?).unwrap_or(u32::MAX),
    })
}
