//! The parts of the distinguished encoding rules (X.690) that X.509 needs. The reader is bounded by its input and never recurses.
//! The writer writes any structure, valid or not.

mod read;
pub mod tag;
mod write;

pub use read::{DerError, Element, Reader, first_sloppy_length, oid_text};
pub use write::{Writer, oid_content, write};
