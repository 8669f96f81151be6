//! A certificate on its way into management.

use issuers::IssuerError;
use uuid::Uuid;

use crate::error::{DataError, Missing, NameTaken, from_data};
use crate::job::{Consent, JobId};
use crate::managed::{BadRequest, ManagedCertificate};
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
    /// Violations of advisory policies.
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

/// Why a certificate is not admitted to management.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdmissionError {
    /// Something it names does not exist.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Enforced policies forbid the certificate.
    #[error("policies forbid it: {}", list(.0))]
    Forbidden(Vec<Violation>),
    /// The issuer cannot be used.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// An error in stored data.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(AdmissionError);

fn list(all: &[Violation]) -> String {
    let texts: Vec<String> = all.iter().map(|one| format!("{} ({})", one.message, one.policy)).collect();
    texts.join("; ")
}

/// Why a certificate was not created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// The request makes no sense by itself.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request names an object that does not exist, or a policy forbids it.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The name is taken.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// The work was given up: the process is going down.
    #[error("the server is stopping: try again")]
    Stopping,
    /// An error in stored data.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(CreateError);
