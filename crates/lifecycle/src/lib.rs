//! Managed certificates from entry to archive: the state machine, requests of people, policies, approvals, renewal.
//!
//! [`Lifecycle`] is the handle: its methods are what people and programs ask, [`Lifecycle::run`] is the scheduler.

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
pub mod policy;
pub mod renewal;
mod requests;
mod revocation;
mod runs;
mod scheduler;
pub mod signing_keys;
pub mod state;
mod surroundings;

pub use creation::Created;
pub use error::LifecycleError;
pub use figures::{Figures, LoopFigures};
pub use handle::{Lifecycle, LifecycleOptions};
pub use requests::{
    BulkReport, CertificatePage, Counts, ExportFormat, Exported, FOUND_LOOKED_MAX, FoundEndpoint, IDS_MAX,
    JobPage, NOTE_OCTETS_MAX, OwnerFilter, PASSWORD_OCTETS_MIN, PersonRecord, PolicyRecord, Reassign,
    RevokeRequest, Selection, VersionPage, ViolationRecord,
};
pub use scheduler::TickReport;
pub use surroundings::{IssuerSource, LocalAuthority, OwnAuthority, ProfileFacts};
