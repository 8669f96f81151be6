//! Logs, metrics, spans for trace collectors, task accounting, quantile sketches, and error messages.

mod chain;
mod log;
pub mod metrics;
pub mod sketch;
pub mod spans;
pub mod tasks;

pub use chain::chain;
pub use log::{BadFilter, LogFormat, init};
