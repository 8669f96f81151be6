//! Tables of signed heads, the audit key, witnesses and segments.

mod heads;
mod segments;

use db::ModuleStatements;

pub use heads::{AuditKeyRow, Heads, WitnessRow, insert_head, insert_key, put_witness};
pub use segments::{
    NewSegment, SEALED_SEGMENTS, SegmentBody, SegmentRow, Segments, insert_segment, prune_segment,
};

/// Every SQL statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[heads::SENDS, segments::SENDS];
