//! Messages of ACME servers (RFC 8555 sections 6.7, 7.1).

use callout::{Reply, excerpt};
use serde::Deserialize;
use serde_json::{Value, json};
use x509::GeneralName;

use crate::error::IssuerError;

/// The directory (RFC 8555 section 7.1.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Directory {
    pub(super) new_nonce: String,
    pub(super) new_account: String,
    pub(super) new_order: String,
    pub(super) revoke_cert: String,
    #[serde(default)]
    pub(super) renewal_info: Option<String>,
    #[serde(default)]
    pub(super) meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) terms_of_service: Option<String>,
    pub(super) external_account_required: bool,
    pub(super) profiles: std::collections::BTreeMap<String, Value>,
}

/// Status of an order (RFC 8555 section 7.1.6).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum OrderStatus {
    Pending,
    Ready,
    Processing,
    Valid,
    Invalid,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct OrderObject {
    pub(super) status: OrderStatus,
    #[serde(default)]
    pub(super) authorizations: Vec<String>,
    pub(super) finalize: String,
    #[serde(default)]
    pub(super) certificate: Option<String>,
    #[serde(default)]
    pub(super) error: Option<Problem>,
}

/// Status of an authorization (RFC 8555 section 7.1.6).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum AuthorizationStatus {
    Pending,
    Valid,
    Invalid,
    Deactivated,
    Expired,
    Revoked,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Authorization {
    pub(super) status: AuthorizationStatus,
    pub(super) identifier: Identifier,
    #[serde(default)]
    pub(super) challenges: Vec<Challenge>,
    #[serde(default)]
    pub(super) wildcard: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub(super) struct Identifier {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) value: String,
}

/// A challenge. Fields of unknown kinds are ignored.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Challenge {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) token: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) error: Option<Problem>,
}

/// A problem document (RFC 7807, RFC 8555 section 6.7).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) detail: String,
    pub(super) subproblems: Vec<Subproblem>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub(super) struct Subproblem {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) detail: String,
    pub(super) identifier: Option<Identifier>,
}

/// Maximum number of subproblems in an error text. A hundred names can fail in one order.
const SUBPROBLEMS_SHOWN_MAX: usize = 5;

impl Problem {
    /// Parses the problem document of a response, or builds one from the status.
    pub(super) fn of(reply: &Reply) -> Self {
        serde_json::from_slice(&reply.body).unwrap_or_else(|_| Self {
            detail: format!("HTTP status {}: {}", reply.status.as_u16(), reply.excerpt()),
            ..Self::default()
        })
    }

    /// Returns the problem type without the ACME prefix.
    pub(super) fn code(&self) -> &str {
        self.kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(&self.kind)
    }

    /// Formats the problem as human-readable text.
    pub(super) fn text(&self) -> String {
        let mut text = match self.code() {
            "" | "about:blank" => self.detail.clone(),
            code => format!("{} ({code})", self.detail),
        };
        for sub in self.subproblems.iter().take(SUBPROBLEMS_SHOWN_MAX) {
            let name = sub.identifier.as_ref().map_or("", |identifier| identifier.value.as_str());
            text.push_str(&format!("; {name}: {}", sub.detail));
        }
        excerpt(&text)
    }

    /// Converts the rejection of a request to an error.
    pub(super) fn error(&self, reply: &Reply, now: x509::UnixTime) -> IssuerError {
        let reason = self.text();
        let status = reply.status.as_u16();
        let retry_after = reply.retry_after(now);
        match self.code() {
            "rateLimited" => IssuerError::RateLimited { retry_after, reason },
            "serverInternal" => IssuerError::Unavailable { reason, retry_after },
            "externalAccountRequired"
            | "userActionRequired"
            | "invalidContact"
            | "unsupportedContact"
            | "badSignatureAlgorithm" => IssuerError::Misconfigured { reason },
            "unauthorized" | "accountDoesNotExist" => IssuerError::Denied { reason },
            _ => match status {
                429 => IssuerError::RateLimited { retry_after, reason },
                500.. => IssuerError::Unavailable { reason, retry_after },
                401 | 403 if self.kind.is_empty() => IssuerError::Denied { reason },
                404 | 405 if self.kind.is_empty() => IssuerError::Misconfigured { reason },
                _ => IssuerError::Refused { reason },
            },
        }
    }
}

/// Converts a name to an identifier (RFC 8555 section 7.1.3, RFC 8738).
pub(super) fn identifier(name: &GeneralName) -> Result<Value, IssuerError> {
    match name {
        GeneralName::Dns(name) => Ok(json!({ "type": "dns", "value": name.to_ascii_lowercase() })),
        GeneralName::Ip(address) => Ok(json!({ "type": "ip", "value": address.to_string() })),
        _ => Err(IssuerError::Unsupported {
            what: "issue certificates for names other than DNS names and addresses",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use x509::UnixTime;

    use super::*;

    fn reply(status: u16, body: String) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("90"));
        Reply { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::from(body) }
    }

    #[test]
    fn acme_problem_types_map_to_error_codes() {
        let table = [
            (429, "rateLimited", "rate_limited"),
            (503, "rateLimited", "rate_limited"),
            (500, "serverInternal", "unavailable"),
            (503, "", "unavailable"),
            (429, "", "rate_limited"),
            (400, "malformed", "refused"),
            (400, "badCSR", "refused"),
            (403, "caa", "refused"),
            (400, "rejectedIdentifier", "refused"),
            (400, "invalidProfile", "refused"),
            (403, "unauthorized", "denied"),
            (400, "accountDoesNotExist", "denied"),
            (401, "", "denied"),
            (403, "externalAccountRequired", "misconfigured"),
            (400, "invalidContact", "misconfigured"),
            (404, "", "misconfigured"),
        ];
        for (status, kind, code) in table {
            let body = match kind {
                "" => "<html>".to_owned(),
                kind => json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "no" })
                    .to_string(),
            };
            let reply = reply(status, body);
            let error = Problem::of(&reply).error(&reply, UnixTime(0));
            assert_eq!(error.code(), code, "{status} {kind}");
            if code == "rate_limited" || code == "unavailable" {
                assert_eq!(
                    error.retry(),
                    crate::error::Retry::After(Duration::from_secs(90)),
                    "{status} {kind}"
                );
            }
        }
    }

    #[test]
    fn subproblems_are_reported_with_their_identifier() {
        let body = json!({
            "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "two names",
            "subproblems": [
                {"type": "x", "detail": "not yours", "identifier": {"type": "dns", "value": "a.example"}},
                {"type": "x", "detail": "unknown"},
            ],
        });
        let text = Problem::of(&reply(403, body.to_string())).text();
        assert_eq!(text, "two names (rejectedIdentifier); a.example: not yours; : unknown");
    }

    #[test]
    fn only_dns_names_and_ip_addresses_become_identifiers() {
        let of = |text: &str| identifier(&GeneralName::parse(text).unwrap());
        assert_eq!(of("A.example"), Ok(json!({"type": "dns", "value": "a.example"})));
        assert_eq!(of("2001:db8::1"), Ok(json!({"type": "ip", "value": "2001:db8::1"})));
        assert!(of("spiffe://a/b").is_err());
    }
}
