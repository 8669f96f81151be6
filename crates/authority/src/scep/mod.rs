//! SCEP (RFC 8894): enrolment of devices that support no other protocol.
//!
//! Paths are `/scep` for the default profile and `/scep/PROFILE`. Each also works with one additional segment, because clients add
//! `pkiclient.exe`. Clients encrypt requests to an RSA key that is separate from the CA key. The CA issues a certificate for this
//! RSA key, and GetCACert returns it.

mod cipher;
mod message;
mod operations;
mod query;
mod recipient;
mod recipient_keys;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use flight::Cache;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Deserialize;
use shared::Shared;
use uuid::Uuid;

use crate::enrolment::{self, BODY_MAX, EnrolmentPassword};
use crate::profile::{Profile, ProfileError};
use crate::tree::Ca;
use crate::{Authority, Peer};
pub use query::OPERATIONS;
use query::{Operation, Query};
use recipient::{Recipient, RecipientError};
pub(crate) use recipient_keys::{RECIPIENT_LIFETIME_SECONDS, recipient_tbs};

/// Path prefix of all SCEP operations.
pub const PREFIX: &str = "/scep";

/// Maximum number of cached recipients, one for each CA.
const RECIPIENTS_MAX: u64 = 1_024;

/// Response to GetCACaps (RFC 8894 section 3.5.2). SCEPStandard implies AES, POST and SHA-256. The other keywords are for clients
/// that do not know SCEPStandard.
const CAPABILITIES: &[u8] = b"SCEPStandard\nAES\nPOSTPKIOperation\nRenewal\nSHA-256\nSHA-512\n";

/// Options of the SCEP server: its profiles and the accepted hash algorithms.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScepOptions {
    /// Names of the profiles that are available over SCEP.
    pub profiles: Vec<String>,
    /// The profile for paths without a profile name.
    pub default_profile: Option<String>,
    /// Whether messages hashed with SHA-1 are accepted, for old devices. Replies always use SHA-256. MD5 and DES are never
    /// accepted.
    pub allow_sha1: bool,
}

/// The SCEP server. Clones are cheap.
#[derive(Clone)]
pub struct Scep {
    inner: Shared<ScepState>,
}

struct ScepState {
    authority: Authority,
    passwords: Option<Arc<dyn EnrolmentPassword>>,
    options: ScepOptions,
    recipients: Cache<Uuid, Arc<Recipient>, RecipientError>,
}

/// HTTP status and reason, for errors that have no SCEP reply.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl From<RecipientError> for Refusal {
    fn from(error: RecipientError) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

fn refuse<T>(status: StatusCode, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(status, reason.into()))
}

impl Scep {
    /// Creates a SCEP server for an authority. Without `passwords`, it only grants renewals with a certificate of this authority.
    #[must_use]
    pub fn new(
        authority: Authority,
        passwords: Option<Arc<dyn EnrolmentPassword>>,
        options: ScepOptions,
    ) -> Self {
        let recipients = Cache::with_entries_max(RECIPIENTS_MAX);
        Self { inner: Shared::new(ScepState { authority, passwords, options, recipients }) }
    }

    /// Handles a request under [`PREFIX`], over HTTP or HTTPS.
    #[crate::boxed]
    pub async fn handle(&self, request: Request<Bytes>, _: &Peer) -> Response<Bytes> {
        match self.answer(&request).await {
            Ok((content_type, body)) => {
                let mut response = Response::new(body);
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(Refusal(status, reason)) => refused(status, &reason),
        }
    }

    async fn answer(&self, request: &Request<Bytes>) -> Result<(&'static str, Bytes), Refusal> {
        let Some(label) = label(request.uri().path()) else {
            return refuse(StatusCode::NOT_FOUND, "the path must be /scep or /scep/PROFILE");
        };
        if request.body().len() > BODY_MAX {
            return refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the message is larger than {BODY_MAX} bytes"),
            );
        }
        if ![Method::GET, Method::POST].contains(request.method()) {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET or POST");
        }
        let Some(query) = Query::read(request.uri().query().unwrap_or_default()) else {
            return refuse(
                StatusCode::BAD_REQUEST,
                "the query has no known operation: use GetCACaps, GetCACert or PKIOperation",
            );
        };
        let profile = self.profile(label).await?;
        match query.operation {
            Operation::Capabilities => Ok(("text/plain", Bytes::from_static(CAPABILITIES))),
            Operation::Certificates => self.certificates(&profile).await,
            Operation::Message => {
                let message = match (request.method(), query.message) {
                    (&Method::POST, _) => request.body().to_vec(),
                    (_, Some(message)) => message,
                    _ => {
                        return refuse(
                            StatusCode::BAD_REQUEST,
                            "the parameter message is missing, or is not base64",
                        );
                    }
                };
                let reply = self.operate(&profile, &message).await?;
                Ok(("application/x-pki-message", reply.into()))
            }
        }
    }

    /// Handles GetCACert (RFC 8894 section 4.2): returns the encryption certificate, then the certificate of the CA and of its
    /// parents, including the root.
    async fn certificates(&self, profile: &Profile) -> Result<(&'static str, Bytes), Refusal> {
        let ca = self.ca(profile).await?;
        let recipient = self.recipient(&ca).await?;
        let above = ca.chain.iter().chain(&ca.anchor).map(|der| &der[..]);
        let all: Vec<&[u8]> = std::iter::once(&recipient.certificate.der[..]).chain(above).collect();
        Ok(("application/x-x509-ca-ra-cert", x509::cms::certs_only(&all, &[]).into()))
    }

    async fn ca(&self, profile: &Profile) -> Result<Arc<Ca>, Refusal> {
        let ca = self.inner.authority.issuing_ca(profile.ca.as_deref()).await;
        ca.map_err(|error| Refusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
    }

    /// Returns the profile of a path, if it is available over SCEP.
    async fn profile(&self, label: Option<&str>) -> Result<Arc<Profile>, Refusal> {
        let options = &self.inner.options;
        let Some(name) = label.or(options.default_profile.as_deref()) else {
            return refuse(StatusCode::NOT_FOUND, "no default profile is configured: name one in the path");
        };
        let missing =
            || refuse(StatusCode::NOT_FOUND, format!("the profile {name:?} is not offered over SCEP"));
        if !options.profiles.iter().any(|offered| offered == name) {
            return missing();
        }
        match self.inner.authority.profile(name).await {
            Ok(profile) => Ok(profile),
            Err(ProfileError::Unknown(_)) => missing(),
            Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }
}

impl fmt::Debug for Scep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scep").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

fn refused(status: StatusCode, reason: &str) -> Response<Bytes> {
    let reason = match status {
        StatusCode::SERVICE_UNAVAILABLE => enrolment::unavailable("SCEP", reason),
        _ => reason,
    };
    let mut response = Response::new(format!("{reason}\n").into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        }
        _ => {}
    }
    response
}

/// Returns the profile name in a SCEP path; `Some(None)` for the default profile, and `None` for a path that is not a SCEP path.
fn label(path: &str) -> Option<Option<&str>> {
    /// Path segment that clients append to the configured URL.
    const PROGRAM: &str = "pkiclient.exe";
    let rest = path.strip_prefix(PREFIX)?;
    let mut parts = rest.strip_prefix('/').or(rest.is_empty().then_some(""))?.split('/');
    let label = parts.next().filter(|label| !label.is_empty() && *label != PROGRAM);
    let below = parts.next().is_none_or(|program| program.is_empty() || program == PROGRAM);
    (below && parts.next().is_none()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn scep_paths_have_an_optional_profile() {
        let table = [
            ("/scep", Some(None)),
            ("/scep/", Some(None)),
            ("/scep/pkiclient.exe", Some(None)),
            ("/scep/tablets", Some(Some("tablets"))),
            ("/scep/tablets/", Some(Some("tablets"))),
            ("/scep/tablets/pkiclient.exe", Some(Some("tablets"))),
            ("/scep/tablets/other", None),
            ("/scep/tablets/pkiclient.exe/x", None),
            ("/scepter", None),
            ("/", None),
        ];
        for (path, want) in table {
            assert_eq!(label(path), want, "{path}");
        }
    }
}
