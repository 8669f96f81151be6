//! Configuration of hooks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::setting::InvalidSetting;

/// Default timeout of each message to a hook.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);
/// Permitted timeouts of a message to a hook.
pub(super) const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
/// Default maximum bytes of a body that a hook gets.
pub(super) const BODY_BYTES: usize = 64 << 10;
/// Maximum of [`HookOptions::body_bytes_max`]: each concurrent call may hold a body of the request and one of the response.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;
/// Default maximum of concurrent requests at one hook.
pub(super) const CALLS: usize = 256;
/// Maximum of [`HookOptions::calls_max`].
pub(super) const CALLS_MAX: usize = 10_000;
/// Maximum hooks of a proxy. Each hook adds a round trip to the requests that it gets.
pub(super) const HOOKS_MAX: usize = 16;

/// The protocol between the proxy and the service of a hook.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookProtocol {
    /// `envoy.service.auth.v3.Authorization/Check`: decides about a request, and may change its header.
    ExtAuthz,
    /// `envoy.service.ext_proc.v3.ExternalProcessor/Process`: changes requests and responses, or sends its own response to the
    /// client.
    ExtProc,
}

/// Decision about a request if its hook does not answer, or sends an invalid answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The request is refused.
    #[default]
    Deny,
    /// The request continues without the hook.
    Allow,
}

/// Options of a hook: its service, hosts, limits, and the decision on errors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookOptions {
    /// Name of the hook in logs, metrics and the audit log.
    pub name: String,
    /// The protocol that the service implements.
    pub protocol: HookProtocol,
    /// URL of the service: `https://HOST:PORT`, or `http://` on this machine.
    pub url: String,
    /// Hosts whose requests the hook gets: `NAME`, `*.NAME` or an address. Empty: all.
    pub hosts: Vec<String>,
    /// Trust anchors (DER) of the service's certificate; `None` uses the system's trust anchors.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Timeout of each message to the hook. Default: 500 ms.
    pub timeout: Duration,
    /// Decision about a request if the hook does not answer, or sends an invalid answer.
    pub on_error: OnError,
    /// Whether the hook gets the bodies of requests.
    pub request_body: bool,
    /// Whether the hook gets the headers of responses. Only for [`HookProtocol::ExtProc`].
    pub response_headers: bool,
    /// Whether the hook gets the bodies of responses. Only for [`HookProtocol::ExtProc`].
    pub response_body: bool,
    /// Maximum bytes of a body that the hook gets. A request or response with a larger body is refused.
    pub body_bytes_max: usize,
    /// Maximum concurrent requests at the hook. [`Self::on_error`] decides about further requests.
    pub calls_max: usize,
}

impl HookOptions {
    /// Creates options with the defaults.
    #[must_use]
    pub fn new(name: String, protocol: HookProtocol, url: String) -> Self {
        Self {
            name,
            protocol,
            url,
            hosts: Vec::new(),
            roots: None,
            timeout: TIMEOUT,
            on_error: OnError::Deny,
            request_body: false,
            response_headers: false,
            response_body: false,
            body_bytes_max: BODY_BYTES,
            calls_max: CALLS,
        }
    }
}

/// An error in the options of a hook: setting, reason and fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("hook {name:?}: {key}: {why}")]
pub struct BadHook {
    /// Name of the invalid hook.
    pub name: String,
    /// Key of the invalid setting.
    pub key: &'static str,
    /// Reason why the value is rejected.
    pub why: String,
    /// How to fix the error.
    pub hint: &'static str,
}

impl BadHook {
    pub(super) fn of(name: &str, InvalidSetting { key, why, hint }: InvalidSetting) -> Self {
        Self { name: name.to_owned(), key, why, hint }
    }
}
