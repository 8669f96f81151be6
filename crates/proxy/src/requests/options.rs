//! Options of rules on requests, and of logs and recordings.

use std::sync::Arc;

use http_relay::access_log::{AccessLog, LoggedQuery};

use super::audit::AuditOptions;
use super::compile::RequestRules;
use super::har::RecordOptions;
use super::inject::Secrets;
use crate::leases::LeaseIssuer;

/// Options of the rules on requests, the access log, and recordings.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rules on requests and responses.
    pub rules: RequestRules,
    /// The source of credentials that are not in files.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// The issuer of leases of dynamic credentials.
    pub leases: Option<Arc<dyn LeaseIssuer>>,
    /// Destination of the access log; `None` disables it.
    pub access_log: Option<AccessLog>,
    /// Whether access log lines contain the query of the URL.
    pub access_log_query: LoggedQuery,
    /// Options of the audit log; `None` disables it.
    pub audit: Option<AuditOptions>,
    /// Options of recordings; `None` disables them.
    pub record: Option<RecordOptions>,
}
