//! Logs, metrics and task accounting.

mod log;
pub mod metrics;
pub mod tasks;

pub use log::{BadFilter, init};
