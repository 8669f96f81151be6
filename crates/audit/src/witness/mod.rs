//! Witnesses: external systems that store signed heads where an attacker with database access cannot change them.

mod all;
mod file;
mod options;
mod place;
mod syslog;
mod webhook;

pub(crate) use all::Witnesses;
pub use options::WitnessOptions;
pub use place::Witness;
pub use syslog::{BadSyslogAddress, SyslogAddress};
pub use webhook::WebhookWitness;
