//! How requests are treated, and what is kept of them.

use std::sync::Arc;

use http_relay::access_log::{AccessLog, LoggedQuery};

use super::audit::AuditOptions;
use super::compile::RequestRules;
use super::har::RecordOptions;
use super::inject::Secrets;

/// The rules on requests, the access log, and recordings.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rules on requests and answers.
    pub rules: RequestRules,
    /// The source of credentials that are not in files.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// The destination of the access log. `None`: there is no access log.
    pub access_log: Option<AccessLog>,
    /// Whether lines of the access log contain queries.
    pub access_log_query: LoggedQuery,
    /// How the audit log is kept. `None`: there is no audit log.
    pub audit: Option<AuditOptions>,
    /// How recordings are kept. `None`: nothing is recorded.
    pub record: Option<RecordOptions>,
}
