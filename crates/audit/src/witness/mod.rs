//! Witnesses: places that keep signed heads where anyone who writes the database cannot.

mod all;
mod file;
mod options;
mod place;
mod syslog;
mod webhook;

pub(crate) use all::Witnesses;
pub use options::WitnessOptions;
pub(crate) use place::Witness;
pub use syslog::{BadSyslogAddress, SyslogAddress};
pub use webhook::WebhookWitness;
