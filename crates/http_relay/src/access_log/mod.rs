//! The access log: one line for each request, each tunnel, and each rejected CONNECT request.
//!
//! An [`Entry`] collects a request's data while the request is in progress. Dropping the entry writes its line. Lines pass through
//! a bounded [`Spool`] to one task, so that no request waits for a disk.

mod entry;
mod file;
mod line;
mod log;
mod logger;
mod span;
mod spool;

pub use entry::{
    CapturedBody, ConnectionReuse, EndHandler, Ended, Entry, METHOD_BYTES_MAX, Recording, ServerKey, Tee,
    Timings, counted,
};
pub use file::AccessLog;
pub use file::private;
pub use line::{Destination, Judgement, Line, LoggedQuery, Observer, Original, PATH_BYTES_MAX, Replay};
pub use logger::AccessLogger;
pub use spool::{Sink, Spool};
