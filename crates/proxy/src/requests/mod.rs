//! Rules on requests.
//!
//! - `compile`: which rules match a request; `apply`: their actions.
//! - `inject`: credentials that are injected into requests; `sigv4` and `google` for clouds.
//! - `login`: credentials for sessions with databases.
//! - `log`: the access log, the audit log (`audit`) and recordings (`recording`, `har`, `har_parts`).
//! - `response_filter`: removal of injected values from responses: `decoding`, and `scrub` with `spellings`.
//! - `needles`, `fields`, `body`: redaction of recordings.

mod apply;
mod audit;
mod body;
mod compile;
mod decoding;
mod fetched;
mod fields;
mod google;
mod har;
pub(crate) mod har_parts;
mod inject;
mod live;
mod log;
mod login;
mod metrics;
mod needles;
mod options;
mod recording;
mod response_filter;
mod rewrite;
mod rule;
mod scrub;
mod scrubbed_stream;
mod setting;
mod sigv4;
mod spellings;
mod unavailable;

pub use audit::AuditOptions;
pub use compile::{RULES_MAX, RequestRules};
pub use fetched::Fetched;
pub use har::RecordOptions;
pub use http_relay::access_log::AccessLog;
pub use inject::{Fetching, Secrets};
pub use metrics::RequestMetrics;
pub use options::Options;
pub use rule::{BadRequestRule, Form, InjectText, RewriteText, RuleText};
pub use scrub::Scrubber;
pub use spellings::TooMuch;
pub use unavailable::SecretUnavailable;

pub(crate) use apply::{Destination, MatchedRules, record_credential_outcome};
pub(crate) use audit::{AuditEvent, AuditLog, AuditWriteError};
pub(crate) use inject::{CredentialSources, Injected};
pub(crate) use live::{LiveRules, RuleSet};
pub(crate) use log::{ReopenSignals, RequestLog};
pub(crate) use login::{DatabaseEndpoint, Login, NoLogin};
pub(crate) use response_filter::{ResponseFilter, SearchedValues, UnsearchableBody, make_searchable};
pub(crate) use scrubbed_stream::ScrubbedStream;
