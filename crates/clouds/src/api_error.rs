//! Errors of a provider's API.

use std::time::Duration;

use outbound::pool::{ClassifyError, Verdict};

/// Maximum bytes of a provider's error message that are stored.
const MESSAGE_MAX: usize = 500;
/// Longest accepted `Retry-After` in seconds: a day.
const RETRY_AFTER_MAX_S: u64 = 86_400;

/// Error of one call of a provider's API, and whether to retry the call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// The provider's error code (`ThrottlingException`, `Forbidden`, `RESOURCE_EXHAUSTED`), or a code defined here if there was no
    /// response.
    pub code: String,
    /// The provider's message, truncated, without control characters.
    pub message: String,
    /// Whether and when to retry the call.
    pub verdict: Verdict,
    /// Whether the call was denied, so that other credentials or permissions could help.
    pub denied: bool,
}

impl ApiError {
    /// Creates an error from the HTTP status, error code, message and `Retry-After` of a response.
    #[must_use]
    pub fn of_status(status: u16, code: &str, message: &str, retry_after: Option<&str>) -> Self {
        if (200..300).contains(&status) {
            return Self::malformed(&format!("HTTP {status}, and the response cannot be read"));
        }
        let retry_after = retry_after.and_then(seconds);
        let verdict = match status {
            429 => Verdict::Throttled { retry_after },
            // A 503 response with `Retry-After` is treated as throttling.
            503 if retry_after.is_some() => Verdict::Throttled { retry_after },
            _ if throttles(code) => Verdict::Throttled { retry_after },
            408 | 500 | 502 | 503 | 504 => Verdict::Transient,
            _ => Verdict::Final,
        };
        let code = if code.is_empty() { format!("HTTP {status}") } else { code.to_owned() };
        let denied = matches!(status, 401 | 403) || denies(&code);
        Self { code, message: shown(message), verdict, denied }
    }

    /// Creates the error for a call without a response: no connection, or a broken one.
    #[must_use]
    pub fn unreachable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { code: "unreachable".into(), message: chain(error), verdict: Verdict::Transient, denied: false }
    }

    /// Creates the error for missing or unusable credentials.
    #[must_use]
    pub fn credentials(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { code: "credentials".into(), message: chain(error), verdict: Verdict::Final, denied: true }
    }

    /// Creates the error for a temporary failure of the credentials service: it is unreachable or overloaded.
    #[must_use]
    pub fn credentials_unavailable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { verdict: Verdict::Transient, denied: false, ..Self::credentials(error) }
    }

    /// Creates the error for a malformed response, such as a truncated page. A retry may help.
    #[must_use]
    pub fn malformed(what: &str) -> Self {
        Self { code: "malformed".into(), message: shown(what), verdict: Verdict::Transient, denied: false }
    }
}

impl ClassifyError for ApiError {
    fn verdict(&self) -> Verdict {
        self.verdict
    }
}

/// Returns whether the error code means that access was denied. Some providers use other statuses than 401 and 403 (ACM returns
/// 400).
fn denies(code: &str) -> bool {
    matches!(code, "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation")
}

/// Returns whether the error code means throttling. Some providers use other statuses than 429 (AWS returns 400).
fn throttles(code: &str) -> bool {
    matches!(
        code,
        "ThrottlingException"
            | "ThrottledException"
            | "Throttling"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "RequestLimitExceeded"
            | "TooManyRequestsException"
            | "TooManyRequests"
            | "SlowDown"
            | "PriorRequestNotComplete"
            | "RESOURCE_EXHAUSTED"
            | "rateLimitExceeded"
            | "userRateLimitExceeded"
    )
}

/// Parses `Retry-After` in seconds (RFC 9110 section 10.2.3). None of these providers sends a date, which would require
/// synchronized clocks.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: u64 = text.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(RETRY_AFTER_MAX_S)))
}

fn shown(message: &str) -> String {
    let mut shown: String = message.chars().filter(|c| !c.is_control()).collect();
    if shown.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX).rev().find(|end| shown.is_char_boundary(*end)).unwrap_or(0);
        shown.truncate(end);
    }
    shown
}

/// Formats an error and its sources as human-readable text: truncated, without control characters.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    shown(&telemetry::chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_status_and_error_code_map_to_a_retry_verdict() {
        let wait = |s| Verdict::Throttled { retry_after: Some(Duration::from_secs(s)) };
        let throttled = Verdict::Throttled { retry_after: None };
        for (status, code, retry_after, verdict) in [
            (429, "", Some("7"), wait(7)),
            (429, "TooManyRequests", None, throttled),
            (429, "", Some("Wed, 21 Oct 2026 07:28:00 GMT"), throttled),
            (429, "", Some("99999999"), wait(86_400)),
            (400, "ThrottlingException", None, throttled),
            (400, "ValidationException", None, Verdict::Final),
            (403, "rateLimitExceeded", None, throttled),
            (403, "AccessDeniedException", None, Verdict::Final),
            (400, "AccessDeniedException", None, Verdict::Final),
            (503, "", Some("2"), wait(2)),
            (503, "", None, Verdict::Transient),
            (500, "InternalFailure", None, Verdict::Transient),
            (404, "NotFound", None, Verdict::Final),
            // A truncated page.
            (200, "", None, Verdict::Transient),
        ] {
            let error = ApiError::of_status(status, code, "m", retry_after);
            assert_eq!(error.verdict, verdict, "{status} {code} {retry_after:?}");
            assert_eq!(error.denied, matches!(status, 401 | 403) || code.starts_with("AccessDenied"));
        }
        let long = ApiError::of_status(500, "", &"ä\n".repeat(1_000), None);
        assert!(long.message.len() <= MESSAGE_MAX && !long.message.contains('\n'));
    }
}
