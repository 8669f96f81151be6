//! Outbox events: one enum, with a typed body for each kind.
//!
//! Producers build an [`Event`]. Its kind and its JSON body are stored in the outbox, in the transaction of the change. Consumers
//! parse the row with [`Event::read`] and match on the enum. A kind of a newer version parses as `None`, and its row is forwarded
//! unchanged.
//!
//! Kinds and bodies are a stable interface: they are stored, and the API streams them. Kinds keep their names; members keep their
//! names and types. A new member has `#[serde(default)]`, because rows without it stay in the outbox for seven days.

mod acme;
mod agent;
mod audit;
mod certificate;
mod change;
mod credential;
mod ct;
mod drift;
mod endpoint;
mod enrolment;
mod event;
pub mod feed;
mod issuer;
mod ownership;
mod probe;
mod profile;
mod watch;

pub use acme::{
    AcmeAccountChanged, AcmeAccountCreated, AcmeAccountKeyChanged, AcmeAccountRevoked, AcmeOrderCompleted,
    AcmeOrderRefused,
};
pub use agent::AgentContact;
pub use audit::{AuditBroken, AuditWitness};
pub use certificate::{
    CertificateClaimed, CertificateCreated, CertificateDeployed, CertificateDeploymentLate,
    CertificateDismissed, CertificateFailed, CertificateFound, CertificateIssued, CertificateRejected,
    CertificateRevocationFailed, CertificateRevoked, CertificateRun, CertificateServed, CertificateUnserved,
    Deployment, DeploymentOutcome, IssuedByAuthority, IssuedVersion, ManagedCertificate, RevocationOrigin,
    RevokedByAuthority, RevokedVersion, Run,
};
pub use change::{ApprovalGiven, ChangeDecided, ChangeWaiting};
pub use credential::{CredentialChange, CredentialLeaseRevocation, CredentialName, CredentialRotationFailed};
pub use ct::{
    CtForgotten, CtIssuance, CtIssuanceDecision, CtIssuanceExpected, CtLag, CtLagEnded, CtLogAlarm,
    CtLogConsistent, CtLogInconsistent, CtLogRecovered,
};
pub use drift::Drift;
pub use endpoint::{
    CertificateChange, Condition, EndpointCertificate, EndpointCertificateChanged, EndpointTrouble,
    EndpointTroubleOver,
};
pub use enrolment::{EnrolmentDecided, EnrolmentWaiting};
pub use event::{Event, UnreadableEvent};
pub use issuer::IssuerCondition;
pub use ownership::Ownership;
pub use probe::ProbeOutcome;
pub use profile::ProfileChanged;
pub use watch::{WatchCounts, WatchRemoved, WatchRun};
