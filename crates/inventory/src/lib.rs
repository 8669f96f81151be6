//! The inventory of certificates: what scans and listings of clouds showed, when they run, and who owns what they found.
//!
//! - [`record`]: observations as rows of the database.
//! - [`recording`]: the one place where the observations of a scan are gathered and stored.
//! - [`sources`]: what clouds and clusters keep, as observations.
//! - [`watch`]: scans that a server repeats by itself.
//! - [`ownership`]: rules that say which team owns an endpoint or certificate.
//! - [`history`]: how long scans and calls to clouds take, and whether that has become worse.

pub mod history;
pub mod ownership;
pub mod record;
pub mod recording;
pub mod sources;
pub mod tables;
pub mod watch;

/// Boxes the future of a public `async fn`. Every crate that awaits an unboxed one compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use record::Recorder;
pub use recording::{Recording, RecordingError, ScanEnd};
