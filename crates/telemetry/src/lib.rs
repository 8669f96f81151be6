//! Logs, metrics, spans for collectors of traces, task accounting, sketches of what is measured, and errors for people.

mod chain;
mod log;
pub mod metrics;
pub mod sketch;
pub mod spans;
pub mod tasks;

pub use chain::chain;
pub use log::{BadFilter, LogFormat, init};
