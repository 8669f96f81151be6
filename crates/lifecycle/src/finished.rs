//! A completed attempt of a run.

use std::sync::Arc;

use issuers::{Delivered, IssuerError};

use crate::at_work::AtWork;
use crate::job::{JobId, id_of};
use crate::surroundings::ProfileFacts;
use crate::tables::jobs::JobRow;

/// A completed attempt of a run.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) job: JobRow,
    pub(crate) facts: Option<ProfileFacts>,
    pub(crate) outcome: Result<Delivered, IssuerError>,
    /// Whether the issuer may suggest a renewal time (ARI).
    pub(crate) suggests: bool,
    /// Keeps the lease of the run until the result is stored.
    pub(crate) at_work: Arc<AtWork>,
}

impl Finished {
    pub(crate) fn id(&self) -> JobId {
        id_of(&self.job)
    }
}
