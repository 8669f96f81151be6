//! A record of every signature: key, input, tenant, client, version of the tenant rules, and time.
//!
//! A request takes a slot before its signature is made, and fills the slot with a record when the signature is sent. A task
//! writes records to the folder in batches, off the path of requests ([`Recorder::write`]).
//!
//! Records form segments. A closed segment has a [`SegmentHead`]: the root of a Merkle tree over its records (RFC 6962 section
//! 2.1), chained to the previous head. Each head is logged. If logs leave the host, a change of records is detectable, even by
//! someone with access to the disk.

mod draft;
mod figures;
mod folder;
mod head;
mod record;
mod recorder;
mod sample;

pub(crate) use draft::Draft;
pub(crate) use figures::register;
pub use folder::{RecordsError, Verified, verify};
pub use head::SegmentHead;
pub use record::SignatureRecord;
pub(crate) use recorder::Slot;
pub use recorder::{Recorder, RecordsOptions, WhenFull};
pub use sample::Sample;
