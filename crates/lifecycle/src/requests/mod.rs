//! What people and programs ask of managed certificates: create, read, change, approve, claim, export, revoke.

mod approvals;
mod change;
mod create;
mod export;
mod inventory;
mod judging;
mod people;
mod policies;
mod read;
mod selection;
mod work;

pub use approvals::NOTE_OCTETS_MAX;
pub(crate) use create::batcher;
pub use export::{ExportFormat, Exported, PASSWORD_OCTETS_MIN};
pub use inventory::{FOUND_LOOKED_MAX, FoundEndpoint, OwnerFilter};
pub use people::PersonRecord;
pub use policies::{PolicyRecord, ViolationRecord};
pub use read::{CertificatePage, Counts, JobPage, VersionPage};
pub use selection::{BulkReport, IDS_MAX, Reassign, RevokeRequest, Selection};
