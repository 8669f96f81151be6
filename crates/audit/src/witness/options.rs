//! Configuration of witnesses.

use std::path::PathBuf;
use std::sync::Arc;

use super::external::Witness;
use super::syslog::SyslogAddress;
use super::webhook::WebhookWitness;

/// Configuration of the witnesses to which signed heads are sent.
#[derive(Clone, Debug, Default)]
pub struct WitnessOptions {
    /// A file to which each head is appended as a line.
    pub file: Option<PathBuf>,
    /// Syslog server to which each head is sent as one message.
    pub syslog: Option<SyslogAddress>,
    /// Webhook to which each head is posted.
    pub webhook: Option<WebhookWitness>,
    /// Additional witness that the program provides, such as an object store.
    pub other: Option<Arc<dyn Witness>>,
}
