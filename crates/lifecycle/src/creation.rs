//! Creation of managed certificates.

use issuers::IssuerError;
use uuid::Uuid;

use crate::error::{DataError, Missing, NameTaken, from_data};
use crate::job::{Consent, JobId};
use crate::managed::{BadRequest, ManagedCertificate};
use crate::policy::Violation;

/// Result of creating a managed certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Id of the run that issues the first version. `None` if nothing is issued now.
    pub job: Option<JobId>,
    /// Violations of advisory policies. They do not prevent the creation.
    pub violations: Vec<Violation>,
}

/// A certificate that passed validation and is to be created.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    pub(crate) certificate: ManagedCertificate,
    pub(crate) issue: bool,
    pub(crate) consent: Consent,
    pub(crate) actor: String,
    pub(crate) violations: Vec<Violation>,
}

/// Reason why the certificate cannot be managed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdmissionError {
    /// The request names an object that does not exist.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Enforced policies forbid the certificate.
    #[error("policies forbid this request: {}", list(.0))]
    Forbidden(Vec<Violation>),
    /// The issuer cannot be used.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(AdmissionError);

fn list(all: &[Violation]) -> String {
    let texts: Vec<String> = all.iter().map(|one| format!("{} ({})", one.message, one.policy)).collect();
    texts.join("; ")
}

/// Reason why the certificate was not created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// The request is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request names an object that does not exist, or a policy forbids it.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The name is already in use.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// The process is shutting down.
    #[error("the server is stopping: try again")]
    Stopping,
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(CreateError);
