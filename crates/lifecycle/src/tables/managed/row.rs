//! The row of a managed certificate, and its open run.

use uuid::Uuid;

use db::{Row, StoreError};
use store::states::{JobState, KeyHolder, ManagedState};

/// Value of `not_after_us` for a certificate without a version, so that it sorts last.
pub const NEVER_ISSUED_US: i64 = i64::MAX;

/// The stored row of a managed certificate. The caller interprets its JSON columns.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedRow {
    /// Row id of the certificate.
    pub id: i64,
    /// Public id of the certificate.
    pub uuid: Uuid,
    /// Unique name of the certificate.
    pub name: String,
    /// State of the certificate, such as pending, issuing or active.
    pub state: ManagedState,
    /// Increases with every change.
    pub revision: i64,
    /// Profile that the certificate is issued by.
    pub profile: String,
    /// Name of the issuer.
    pub issuer: String,
    /// Person who owns the certificate.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Environment, such as `production`.
    pub environment: Option<String>,
    /// Policy that the certificate names.
    pub policy: Option<String>,
    /// Kind of location of the private key: server, agent or key service.
    pub key_location: KeyHolder,
    /// Agent on whose host the private key is stored.
    pub agent: Option<Uuid>,
    /// Name of a `KeyType`, such as `p256`.
    pub key_type: String,
    /// Names as a JSON array of strings.
    pub names: String,
    /// Tags as a JSON object of strings.
    pub tags: String,
    /// Targets as a JSON array.
    pub targets: String,
    /// Further settings as a JSON object.
    pub options: String,
    /// Row id of the current version.
    pub version: Option<i64>,
    /// SHA-256 of the current version's leaf.
    pub fingerprint: Option<[u8; 32]>,
    /// Start of the current version's validity, in µs since 1970; 0 before the first version.
    pub not_before_us: i64,
    /// End of the current version's validity, in µs since 1970; [`NEVER_ISSUED_US`] before the first version.
    pub not_after_us: i64,
    /// The version verified as served. `None` if no version was verified.
    pub served: Option<ServedFacts>,
    /// Time from which a version has been waiting for deployment to at least one target, in µs since 1970. `None` if no version is
    /// waiting.
    pub undeployed_since_us: Option<i64>,
    /// Time at which a late-deployment notification is due, in µs since 1970. `None` if it was sent, or nothing waits for
    /// deployment.
    pub undeployed_late_at_us: Option<i64>,
    /// Whether the current version is revoked.
    pub revoked: bool,
    /// Number of failed runs since the last successful one.
    pub failures: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970.
    pub updated_at_us: i64,
}

/// Among the versions verified as served, the version that expires first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServedFacts {
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// Earliest end of validity in the chain, in µs since 1970.
    pub not_after_us: i64,
}

impl ManagedRow {
    /// Returns the end of validity of the served version, or else of the newest version, in µs since 1970. [`NEVER_ISSUED_US`]
    /// before the first version.
    #[must_use]
    pub fn ends_at_us(&self) -> i64 {
        self.served.map_or(self.not_after_us, |served| served.not_after_us)
    }

    /// Returns the lifetime of the newest version, or else an assumed lifetime, in µs.
    #[must_use]
    pub fn life_us(&self) -> i64 {
        match self.not_after_us {
            NEVER_ISSUED_US => store::time_limits::LIFE_UNKNOWN_US,
            not_after_us => not_after_us.saturating_sub(self.not_before_us).max(0),
        }
    }

    /// Returns the remaining validity of the served version, or else of the newest version, in µs; at least 0.
    #[must_use]
    pub fn left_us(&self, now_us: i64) -> i64 {
        match self.ends_at_us() {
            NEVER_ISSUED_US => 0,
            ends_at_us => ends_at_us.saturating_sub(now_us).max(0),
        }
    }

    /// Records that a version waits for deployment from now on. If an earlier version already waits, its start time is kept: a
    /// renewal does not end the wait.
    pub fn set_undeployed(&mut self, now_us: i64) {
        self.undeployed_since_us.get_or_insert(now_us);
        let late_at_us = now_us + store::time_limits::late_deployment_us(self.left_us(now_us));
        self.undeployed_late_at_us =
            Some(self.undeployed_late_at_us.map_or(late_at_us, |at| at.min(late_at_us)));
    }

    /// Records that nothing waits for deployment any more.
    pub fn clear_undeployed(&mut self) {
        self.undeployed_since_us = None;
        self.undeployed_late_at_us = None;
    }
}

/// A certificate with its open run, as shown to readers.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedView {
    /// The certificate, as stored.
    pub row: ManagedRow,
    /// The planned issuance or renewal run, or the one in progress.
    pub run: Option<OpenRun>,
}

/// The open issuance or renewal run of a certificate. There is at most one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenRun {
    /// Row id of the run.
    pub id: i64,
    /// State of the run, such as queued, running or waiting for approval.
    pub state: JobState,
    /// Time of the first attempt or the next retry, in µs since 1970.
    pub next_attempt_at_us: i64,
    /// Number of attempts so far.
    pub attempts: i64,
    /// Creation time, in µs since 1970.
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

/// Inserts the state codes that [`run_join`] uses into the text.
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
