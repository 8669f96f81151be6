//! A record of every signature: which key signed what, for which tenant and client, under which rules, when.
//!
//! A request takes a slot before its signature is made, and fills it with a record when the signature leaves. A task writes records to
//! the folder in batches, off the path of requests ([`Recorder::write`]). Records form segments; a closed segment is sealed by a
//! [`SegmentHead`]: the root of a Merkle tree over its records (RFC 6962 section 2.1), chained to the head before it. Each head is logged, so
//! that where logs leave the host nobody can change records unnoticed, not even with its disk.

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
