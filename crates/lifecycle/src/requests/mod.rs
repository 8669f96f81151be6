//! Requests of people and programs: create, read, change, approve, claim, export and revoke certificates.

mod approvals;
mod change;
mod create;
mod export;
mod inventory;
mod judging;
mod people;
mod policies;
mod read;
mod release;
mod search;
mod selection;
mod status;
mod work;

pub use self::inventory::{ClaimError, DismissError, FOUND_READ_MAX, FoundEndpoint, OwnerFilter};
pub use approvals::{ApprovalError, NOTE_BYTES_MAX};
pub use change::{ChangePreview, JobError, LifecycleActionError, UpdateError};
pub(crate) use create::batcher;
pub use export::{ExportError, ExportFormat, Exported, PASSWORD_BYTES_MIN};
pub use people::{PersonChangeError, PersonRecord};
pub use policies::{PolicyChangeError, PolicyRecord, ViolationRecord};
pub use read::{CertificatePage, Counts, JobPage, VersionPage};
pub use release::NotApproved;
pub use selection::{BulkError, BulkReport, IDS_MAX, REVOCATION_REASONS, Reassign, RevokeRequest, Selection};
pub use status::{DueRuns, SchedulerStatus};
pub use work::CsrError;
