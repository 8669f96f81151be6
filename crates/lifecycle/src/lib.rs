//! Managed certificates from creation to archiving: state machine, API operations, policies, approvals and renewal.
//!
//! [`Lifecycle`] is the handle. Its methods are the operations of users and programs; [`Lifecycle::run`] is the scheduler.

pub mod approval;
mod at_work;
pub mod claim;
mod creation;
mod csr;
mod error;
mod figures;
mod finished;
mod handle;
pub mod job;
mod judgement;
mod ledger;
pub mod managed;
mod opening;
pub mod people;
mod plan;
pub mod policy;
pub mod renewal;
mod requests;
mod revocation;
mod run_consents;
mod runs;
mod scheduler;
mod served;
pub mod signing_keys;
mod spans;
pub mod state;
mod surroundings;
pub mod tables;
mod transition;

/// Boxes the future of a public `async fn`. Without it, every crate that awaits the future compiles the function again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use creation::{AdmissionError, CreateError, Created};
pub use error::{DataError, Missing, NameTaken, NotWaiting, RemoveError, Stale, UnderWay};
pub use figures::{Figures, LoopFigures};
pub use handle::{Lifecycle, LifecycleOptions};
pub use judgement::LiftsApproval;
pub use requests::{
    ApprovalError, BulkError, BulkReport, CertificatePage, ChangePreview, ClaimError, Counts, CsrError,
    DismissError, DueRuns, ExportError, ExportFormat, Exported, FOUND_READ_MAX, FoundEndpoint, IDS_MAX,
    JobError, JobPage, LifecycleActionError, NOTE_BYTES_MAX, NotApproved, OwnerFilter, PASSWORD_BYTES_MIN,
    PersonChangeError, PersonRecord, PolicyChangeError, PolicyRecord, REVOCATION_REASONS, Reassign,
    RevokeRequest, SchedulerStatus, Selection, UpdateError, VersionPage, ViolationRecord,
};
pub use run_consents::RunApprovals;
pub use scheduler::TickReport;
pub use surroundings::{AuthorityError, InternalAuthority, IssuerSource, LocalAuthority, ProfileFacts};
