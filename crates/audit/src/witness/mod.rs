//! Witnesses: external systems that store signed heads where an attacker with database access cannot change them.

mod all;
mod external;
mod file;
mod options;
mod syslog;
mod webhook;

pub(crate) use all::Witnesses;
pub use external::Witness;
pub use options::WitnessOptions;
pub use syslog::{BadSyslogAddress, SyslogAddress};
pub use webhook::WebhookWitness;
