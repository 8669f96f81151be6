//! A completed attempt of a run.

use std::sync::Arc;

use issuers::{DeliveredChain, IssuerError};

use crate::at_work::ActiveRunsGuard;
use crate::job::{JobId, id_of};
use crate::surroundings::ProfileFacts;
use crate::tables::jobs::JobRow;

/// A completed attempt of a run, with the data that is needed to store its result.
#[derive(Clone, Debug)]
pub(crate) struct FinishedAttempt {
    pub(crate) job: JobRow,
    pub(crate) facts: Option<ProfileFacts>,
    /// Profile of the order that issued the version.
    pub(crate) profile: Option<String>,
    pub(crate) outcome: Result<DeliveredChain, IssuerError>,
    /// Whether the issuer may suggest a renewal time (ARI).
    pub(crate) suggests: bool,
    /// Guard that keeps the lease of the run until the result is stored.
    pub(crate) at_work: Arc<ActiveRunsGuard>,
}

impl FinishedAttempt {
    pub(crate) fn id(&self) -> JobId {
        id_of(&self.job)
    }
}
