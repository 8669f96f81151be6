//! The inventory of certificates: results of scans and cloud listings, their schedule, and the owners of the found endpoints and
//! certificates.
//!
//! - [`record`]: observations as rows of the database.
//! - [`recording`]: collects and stores the observations of a scan.
//! - [`retention`]: removes old observations.
//! - [`sources`]: certificates in clouds and clusters, as observations.
//! - [`watch`]: scans that a server repeats on a schedule.
//! - [`ownership`]: rules that assign owners to endpoints and certificates.
//! - [`history`]: durations of scans and error rates of calls, and whether they have become worse.

pub mod history;
pub mod ownership;
pub mod record;
pub mod recording;
pub mod retention;
pub mod sources;
pub mod tables;
pub mod watch;

/// Boxes the future of a public `async fn`. Without the box, every crate that awaits the future compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use record::Recorder;
pub use recording::{Recording, RecordingError, ScanEnd};
