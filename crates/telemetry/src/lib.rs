//! Logs, metrics, task accounting, and sketches of what is measured.

mod log;
pub mod metrics;
pub mod sketch;
pub mod tasks;

pub use log::{BadFilter, init};
