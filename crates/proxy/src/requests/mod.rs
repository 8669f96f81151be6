//! Rules on requests.
//!
//! - `compile`: which rule matches; `apply`: what it does.
//! - `inject`: credentials that are put into requests.
//! - `log`: the access log, the audit log (`audit`) and recordings (`recording`, `har`).
//! - `needles`, `fields`, `body`: redaction of recordings.

mod apply;
mod audit;
mod body;
mod compile;
mod fields;
mod har;
mod inject;
mod live;
mod log;
mod metrics;
mod needles;
mod options;
mod recording;
mod rewrite;
mod rule;
mod setting;

pub use audit::AuditOptions;
pub use compile::{RULES_MAX, RequestRules};
pub use har::RecordOptions;
pub use http_relay::access_log::AccessLog;
pub use inject::{Fetching, NoSecret, Secrets};
pub use metrics::RequestMetrics;
pub use options::Options;
pub use rule::{BadRequestRule, Form, InjectText, RewriteText, RuleText};

pub(crate) use apply::{Destination, MatchedRules, redact, was_taken};
pub(crate) use audit::{AuditEvent, NotAudited};
pub(crate) use inject::Injected;
pub(crate) use live::{LiveRules, RuleSet};
pub(crate) use log::{Reopen, RequestLog};
