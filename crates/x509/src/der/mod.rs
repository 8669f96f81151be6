//! The distinguished encoding rules (X.690), as little of them as X.509 needs: a reader that is
//! bounded by its input and never recurses, and a writer that writes what it is told, rules broken
//! or not.

mod read;
pub mod tag;
mod write;

pub use read::{DerError, Element, Reader, first_sloppy_length, oid_text};
pub use write::{Writer, oid_content, write};
