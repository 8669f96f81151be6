//! The row of a certificate under management, and its open run.

use uuid::Uuid;

use db::{Row, StoreError};
use store::states::{JobState, KeyHolder, ManagedState};

/// `not_after_us` of a certificate that was never issued, so that it sorts last.
pub const NEVER_ISSUED_US: i64 = i64::MAX;

/// A certificate under management, as stored. What the numbers and JSON mean is the caller's.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedRow {
    /// Its row.
    pub id: i64,
    /// Its identity outside.
    pub uuid: Uuid,
    /// Its name, unique.
    pub name: String,
    /// Its state's number.
    pub state: ManagedState,
    /// Moves with every change.
    pub revision: i64,
    /// The profile it is issued by.
    pub profile: String,
    /// The issuer.
    pub issuer: String,
    /// The owner.
    pub owner: Option<String>,
    /// The owner's team.
    pub team: Option<String>,
    /// The environment: `production`.
    pub environment: Option<String>,
    /// The certificate's own policy.
    pub policy: Option<String>,
    /// Where its key is: a number.
    pub key_location: KeyHolder,
    /// The agent that holds the key.
    pub agent: Option<Uuid>,
    /// The kind of its key.
    pub key_type: String,
    /// JSON array of texts.
    pub names: String,
    /// JSON object of texts.
    pub tags: String,
    /// JSON array.
    pub targets: String,
    /// JSON object: the rest.
    pub options: String,
    /// The current version.
    pub version: Option<i64>,
    /// SHA-256 of the current version's leaf.
    pub fingerprint: Option<[u8; 32]>,
    /// Start of the current version's validity, µs; 0 before the first.
    pub not_before_us: i64,
    /// End of the current version's validity, µs; [`NEVER_ISSUED_US`] before the first.
    pub not_after_us: i64,
    /// What is verified as served; `None` when nothing was verified.
    pub served: Option<ServedFacts>,
    /// Since when a version waits to be in place at every target, µs.
    pub undeployed_since_us: Option<i64>,
    /// When people are told that it still waits, µs; `None` when they were, or nothing waits.
    pub undeployed_late_at_us: Option<i64>,
    /// Whether the current version is revoked.
    pub revoked: bool,
    /// Runs without success since the last one with.
    pub failures: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// When it was entered, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// Of the versions that are verified as served somewhere, the one that ends first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServedFacts {
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// The earliest end in its chain, µs.
    pub not_after_us: i64,
}

impl ManagedRow {
    /// The certificate's end, µs: of what is served, else of the newest version; [`NEVER_ISSUED_US`] before the first.
    #[must_use]
    pub fn ends_at_us(&self) -> i64 {
        self.served.map_or(self.not_after_us, |served| served.not_after_us)
    }

    /// The length of a life of this certificate, µs: of its newest version, else what is assumed.
    #[must_use]
    pub fn life_us(&self) -> i64 {
        match self.not_after_us {
            NEVER_ISSUED_US => store::patience::LIFE_UNKNOWN_US,
            not_after_us => not_after_us.saturating_sub(self.not_before_us).max(0),
        }
    }

    /// What is left of the life of what is served, else of the newest version, µs; not below 0.
    #[must_use]
    pub fn left_us(&self, now_us: i64) -> i64 {
        match self.ends_at_us() {
            NEVER_ISSUED_US => 0,
            ends_at_us => ends_at_us.saturating_sub(now_us).max(0),
        }
    }

    /// A version waits from now on to be in place at every target. One that waited before it waits on: a renewal is no
    /// success.
    pub fn set_undeployed(&mut self, now_us: i64) {
        self.undeployed_since_us.get_or_insert(now_us);
        let late_at_us = now_us + store::patience::deployment_us(self.left_us(now_us));
        self.undeployed_late_at_us =
            Some(self.undeployed_late_at_us.map_or(late_at_us, |at| at.min(late_at_us)));
    }

    /// Nothing waits to be in place any more.
    pub fn set_in_place(&mut self) {
        self.undeployed_since_us = None;
        self.undeployed_late_at_us = None;
    }
}

/// A certificate with its open run, for reading.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedView {
    /// The certificate.
    pub row: ManagedRow,
    /// Its run of issuance or renewal that is planned or under way.
    pub run: Option<OpenRun>,
}

/// The run of issuance or renewal that a certificate has open: at most one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenRun {
    /// The job's row.
    pub id: i64,
    /// Its state's number.
    pub state: JobState,
    /// When it begins, or tries again, µs.
    pub next_attempt_at_us: i64,
    /// How often it was tried.
    pub attempts: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
}

macro_rules! managed_columns {
    () => {
        "m.id, m.uuid, m.name, m.state, m.revision, m.profile, m.issuer, m.owner, m.team, m.environment, m.policy, \
         m.key_location, m.agent, m.key_type, m.names, m.tags, m.targets, m.options, m.version_id, m.fingerprint, \
         m.not_before, m.not_after, m.served_fingerprint, m.served_not_before, m.served_not_after, m.undeployed_since, \
         m.undeployed_late_at, m.revoked, m.failures, m.last_error, m.created_at, m.updated_at"
    };
}

macro_rules! run_columns {
    () => {
        "j.id, j.state, j.next_attempt_at, j.attempts, j.created_at"
    };
}

macro_rules! run_join {
    () => {
        " LEFT JOIN jobs j ON j.certificate_id = m.id AND j.kind <= {JobKind::Renewal} AND j.state <= {JobState::AwaitingCsr}"
    };
}

/// The text with the codes of [`run_join`].
macro_rules! with_run_states {
    ($text:expr) => {
        db::with_codes!([JobKind::{Renewal}, JobState::{AwaitingCsr}] $text)
    };
}

pub(super) use {managed_columns, run_columns, run_join, with_run_states};

pub(super) fn managed_row(row: &mut Row) -> Result<ManagedRow, StoreError> {
    Ok(ManagedRow {
        id: row.int()?,
        uuid: row.uuid()?,
        name: row.text()?,
        state: row.coded("managed_certificates.state")?,
        revision: row.int()?,
        profile: row.text()?,
        issuer: row.text()?,
        owner: row.maybe_text()?,
        team: row.maybe_text()?,
        environment: row.maybe_text()?,
        policy: row.maybe_text()?,
        key_location: row.coded("managed_certificates.key_location")?,
        agent: row.maybe_uuid()?,
        key_type: row.text()?,
        names: row.text()?,
        tags: row.text()?,
        targets: row.text()?,
        options: row.text()?,
        version: row.maybe_int()?,
        fingerprint: row.maybe_hash()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        served: served(row)?,
        undeployed_since_us: row.maybe_int()?,
        undeployed_late_at_us: row.maybe_int()?,
        revoked: row.flag()?,
        failures: row.int()?,
        last_error: row.maybe_text()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

fn served(row: &mut Row) -> Result<Option<ServedFacts>, StoreError> {
    let (fingerprint, not_before, not_after) = (row.maybe_hash()?, row.maybe_int()?, row.maybe_int()?);
    Ok(fingerprint.zip(not_before.zip(not_after)).map(|(fingerprint, (not_before_us, not_after_us))| {
        ServedFacts { fingerprint, not_before_us, not_after_us }
    }))
}

pub(super) fn view(mut row: Row) -> Result<ManagedView, StoreError> {
    let managed = managed_row(&mut row)?;
    let run = match row.maybe_int()? {
        None => None,
        Some(id) => Some(OpenRun {
            id,
            state: row.coded("jobs.state")?,
            next_attempt_at_us: row.int()?,
            attempts: row.int()?,
            created_at_us: row.int()?,
        }),
    };
    Ok(ManagedView { row: managed, run })
}
