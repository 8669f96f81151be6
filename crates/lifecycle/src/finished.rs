//! An attempt of a run that came to an end.

use std::sync::Arc;

use issuers::{Delivered, IssuerError};

use crate::at_work::AtWork;
use crate::job::{JobId, id_of};
use crate::surroundings::ProfileFacts;
use crate::tables::jobs::JobRow;

/// An attempt that came to an end.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) job: JobRow,
    pub(crate) facts: Option<ProfileFacts>,
    pub(crate) outcome: Result<Delivered, IssuerError>,
    /// Whether its issuer may suggest when to renew.
    pub(crate) suggests: bool,
    /// Its lease is kept until its end is stored.
    pub(crate) at_work: Arc<AtWork>,
}

impl Finished {
    pub(crate) fn id(&self) -> JobId {
        id_of(&self.job)
    }
}
