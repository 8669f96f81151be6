//! A certificate on its way into management.

use uuid::Uuid;

use crate::job::{Consent, JobId};
use crate::managed::ManagedCertificate;
use crate::policy::Violation;

/// A certificate that was entered.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// Its identity.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// The run that issues it, if it is issued now.
    pub job: Option<JobId>,
    /// What it does against policies that only advise.
    pub violations: Vec<Violation>,
}

/// A creation that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    pub(crate) certificate: ManagedCertificate,
    pub(crate) issue: bool,
    pub(crate) consent: Consent,
    pub(crate) actor: String,
    pub(crate) violations: Vec<Violation>,
}
