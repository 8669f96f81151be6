//! Runs of issuance, renewal, deployment and revocation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use store::jobs::{JobRow, JobView};
use uuid::Uuid;

/// Names a run: a UUIDv7 (RFC 9562) made of the time it was made, to the microsecond, and its row. So it needs no column
/// and no index, and two runs of one database never share one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// Of a row made at a time, µs.
    #[must_use]
    pub fn of(row: i64, created_at_us: i64) -> Self {
        // 48 bits of milliseconds, then the microseconds of RFC 9562 section 6.2 method 3, then the row.
        let at = u64::try_from(created_at_us).unwrap_or(0);
        let high = (at / 1_000) << 16 | 0x7000 | (at % 1_000);
        let low = 0x8000_0000_0000_0000 | (row.unsigned_abs() & 0x3fff_ffff_ffff_ffff);
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The row it would be, if it is one of ours: its time of making has to be that of the row.
    #[must_use]
    pub fn row(self) -> i64 {
        let (_, low) = self.0.as_u64_pair();
        (low & 0x3fff_ffff_ffff_ffff) as i64
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a run does. The numbers are those of the database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// The first version.
    Issuance = 0,
    /// The next version.
    Renewal = 1,
    /// Puts a version in place at an agent's targets.
    Deployment = 2,
    /// Revokes a version.
    Revocation = 3,
}

/// How far a run is. The numbers are those of the database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its time, or a place.
    Queued = 0,
    /// Somebody is at it, as long as the lease lasts.
    Running = 1,
    /// Waits for a second person.
    AwaitingApproval = 2,
    /// Waits for the agent's CSR.
    AwaitingCsr = 3,
    /// Ended with success.
    Done = 4,
    /// Ended without.
    Failed = 5,
    /// Taken back.
    Cancelled = 6,
}

/// Whether a run needs consent. The numbers are those of the database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Consent {
    /// No.
    NotNeeded = 0,
    /// Yes, and it was not given yet.
    Needed = 1,
    /// It was given.
    Given = 2,
}

macro_rules! words {
    ($kind:ident, $noun:literal, $($variant:ident $word:literal),*) => {
        impl $kind {
            /// Every one, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The number stored.
            #[must_use]
            pub fn code(self) -> i64 {
                self as i64
            }

            /// That of a stored number.
            #[must_use]
            pub fn from_code(code: i64) -> Option<Self> {
                usize::try_from(code).ok().and_then(|at| Self::ALL.get(at)).copied()
            }

            /// The word shown to people and programs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }

        impl FromStr for $kind {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                let found = Self::ALL.iter().find(|one| one.as_str() == word).copied();
                found.ok_or_else(|| UnknownWord { noun: $noun, word: word.to_owned() })
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(JobKind, "kind of job", Issuance "issuance", Renewal "renewal", Deployment "deployment", Revocation "revocation");
words!(
    JobState, "state of a job",
    Queued "queued", Running "running", AwaitingApproval "awaiting_approval", AwaitingCsr "awaiting_csr",
    Done "done", Failed "failed", Cancelled "cancelled"
);

/// Not one of the words there are.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no {noun} {word:?}")]
pub struct UnknownWord {
    noun: &'static str,
    word: String,
}

impl JobState {
    /// Whether something is still to come.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.code() <= Self::AwaitingCsr.code()
    }
}

impl Consent {
    pub(crate) fn code(self) -> i64 {
        self as i64
    }
}

/// A run, for reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// The certificate.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// Its profile.
    pub profile: String,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// Whether its time is yet to come and it was never tried.
    pub planned: bool,
    /// The issuer asked.
    pub issuer: String,
    /// The agent that takes part.
    pub agent: Option<Uuid>,
    /// Why there is such a run, a word.
    pub reason: String,
    /// Who wanted it.
    pub requested_by: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it begins, or tries again, µs.
    pub next_attempt_at_us: i64,
    /// When it is given up, µs.
    pub deadline_at_us: i64,
    /// What the last attempt said.
    pub last_error: Option<String>,
    /// When it was made, µs.
    pub created_at_us: i64,
    /// When it was first tried, µs.
    pub started_at_us: Option<i64>,
    /// When it ended, µs.
    pub finished_at_us: Option<i64>,
}

impl Job {
    pub(crate) fn from_view(view: &JobView, now_us: i64) -> Self {
        let row = &view.job;
        let state = JobState::from_code(row.state).unwrap_or(JobState::Failed);
        Self {
            id: id_of(row),
            certificate: view.certificate,
            name: view.name.clone(),
            profile: view.profile.clone(),
            kind: JobKind::from_code(row.kind).unwrap_or(JobKind::Renewal),
            state,
            planned: state == JobState::Queued && row.attempts == 0 && row.next_attempt_at_us > now_us,
            issuer: row.issuer.clone(),
            agent: row.agent,
            reason: row.reason.clone(),
            requested_by: row.requested_by.clone(),
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            next_attempt_at_us: row.next_attempt_at_us,
            deadline_at_us: row.deadline_at_us,
            last_error: row.last_error.clone(),
            created_at_us: row.created_at_us,
            started_at_us: row.started_at_us,
            finished_at_us: row.finished_at_us,
        }
    }
}

pub(crate) fn id_of(row: &JobRow) -> JobId {
    JobId::of(row.id, row.created_at_us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_and_numbers_lead_back() {
        for kind in JobKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            assert_eq!(JobKind::from_code(kind.code()), Some(*kind));
        }
        for state in JobState::ALL {
            assert_eq!(state.as_str().parse(), Ok(*state));
            assert_eq!(JobState::from_code(state.code()), Some(*state));
        }
        assert_eq!("x".parse::<JobState>().unwrap_err().to_string(), "there is no state of a job \"x\"");
    }

    proptest! {
        #[test]
        fn a_job_id_is_a_uuid_version_7_that_names_its_row(row in 1..i64::MAX >> 2, at in 0..1_i64 << 57) {
            let id = JobId::of(row, at);
            prop_assert_eq!(id.0.get_version_num(), 7);
            prop_assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            prop_assert_eq!(id.row(), row);
            prop_assert_eq!(JobId::of(id.row(), at), id);
            prop_assert_ne!(JobId::of(row, at + 1), id);
        }
    }
}
