//! EST (RFC 7030, clarified by RFC 8951): enrolment over HTTPS for clients that have a password or a certificate.
//!
//! Paths are `/.well-known/est/OPERATION` for the default profile and `/.well-known/est/PROFILE/OPERATION`.

mod attributes;
mod body;
mod caller;
mod enrol;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde::Deserialize;
use shared::Shared;
use x509::{Certificate, SpkiHash};

use crate::enrolment::{self, BODY_MAX, EnrolmentError, EnrolmentPassword};
use crate::operation::{AccessRule, Operation};
use crate::profile::{Profile, ProfileError};
use crate::teams::OverQuota;
use crate::{Authority, Peer};
use body::CERTS_ONLY;

/// Path prefix of all EST operations.
pub const PREFIX: &str = "/.well-known/est";

/// Options of the EST server: its profiles, and the client certificates that it accepts.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EstOptions {
    /// Names of the profiles that are available over EST.
    pub profiles: Vec<String>,
    /// The profile for paths without a profile name.
    pub default_profile: Option<String>,
    /// Public keys of client certificates of registration authorities. Their holders may request any name that the profile allows.
    /// Holders of other certificates may request the names in their certificate.
    pub registrars: Vec<SpkiHash>,
    /// Other CAs, and the profiles that the holders of their certificates may use for the names in their certificate. A certificate
    /// of another CA that is not listed gives access to no profile, unless its key is in `registrars`.
    #[serde(skip)]
    pub client_cas: Vec<ClientCa>,
    /// Whether the challenge password of a CSR must be the base64 exporter value of the TLS connection (RFC 7030 section 3.5, RFC
    /// 9266). This requires TLS 1.3 and clients that support it.
    pub require_channel_binding: bool,
    /// Retry interval in seconds for clients that wait for approval.
    pub retry_after_seconds: u32,
}

/// Another CA. Holders of its certificates may use the listed profiles.
#[derive(Clone, Debug)]
pub struct ClientCa {
    /// Certificate of the CA: a root or an intermediate.
    pub certificate: Certificate,
    /// Names of the profiles that holders of certificates of this CA may use.
    pub profiles: Vec<String>,
}

impl Default for EstOptions {
    fn default() -> Self {
        Self {
            profiles: Vec::new(),
            default_profile: None,
            registrars: Vec::new(),
            client_cas: Vec::new(),
            require_channel_binding: false,
            retry_after_seconds: 300,
        }
    }
}

/// The EST server. Clones are cheap.
#[derive(Clone)]
pub struct Est {
    inner: Shared<EstState>,
}

/// The EST operations. Each also has a path with the name of a profile.
pub const OPERATIONS: [Operation; 5] = [
    Operation::of(&["GET"], "/.well-known/est/cacerts", AccessRule::Anybody),
    Operation::of(&["GET"], "/.well-known/est/csrattrs", AccessRule::Anybody),
    Operation::of(&["POST"], "/.well-known/est/simpleenroll", AccessRule::Enrolment),
    Operation::of(&["POST"], "/.well-known/est/simplereenroll", AccessRule::Replaced),
    Operation::of(&["POST"], "/.well-known/est/serverkeygen", AccessRule::Enrolment),
];

struct EstState {
    authority: Authority,
    passwords: Option<Arc<dyn EnrolmentPassword>>,
    options: EstOptions,
}

/// Outcome of an EST request that does not get status 200.
#[derive(Debug)]
enum Refusal {
    /// HTTP status and reason.
    Status(StatusCode, String),
    /// The HTTP method is not allowed; the value is the allowed method.
    Method(&'static str),
    /// The request waits for approval. The client must repeat it later.
    Waiting,
    /// The team has used its daily quota of certificates.
    Limited(OverQuota),
}

impl From<EnrolmentError> for Refusal {
    fn from(error: EnrolmentError) -> Self {
        if let EnrolmentError::Limited(over) = error {
            return Self::Limited(over);
        }
        let status = match &error {
            EnrolmentError::Refused(_) => StatusCode::BAD_REQUEST,
            EnrolmentError::Rejected(_) => StatusCode::FORBIDDEN,
            EnrolmentError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            EnrolmentError::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
        };
        Self::Status(status, error.to_string())
    }
}

impl From<store::StoreError> for Refusal {
    fn from(error: store::StoreError) -> Self {
        EnrolmentError::from(error).into()
    }
}

fn refuse<T>(status: StatusCode, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Status(status, reason.into()))
}

impl Est {
    /// Creates an EST server for an authority. Without `passwords` only client certificates authenticate.
    #[must_use]
    pub fn new(
        authority: Authority,
        passwords: Option<Arc<dyn EnrolmentPassword>>,
        options: EstOptions,
    ) -> Self {
        Self { inner: Shared::new(EstState { authority, passwords, options }) }
    }

    /// Handles a request under [`PREFIX`]. The request must arrive over TLS. If `peer` contains a client certificate, the handshake
    /// must have verified its chain.
    #[crate::boxed]
    pub async fn handle(&self, request: Request<Bytes>, peer: &Peer) -> Response<Bytes> {
        match self.answer(&request, peer).await {
            Ok(response) => response,
            Err(refusal) => self.refusal_response(&refusal),
        }
    }

    async fn answer(&self, request: &Request<Bytes>, peer: &Peer) -> Result<Response<Bytes>, Refusal> {
        let Some((label, operation)) = split_path(request.uri().path()) else {
            return refuse(StatusCode::NOT_FOUND, "the path must be /.well-known/est/[PROFILE/]OPERATION");
        };
        if request.body().len() > BODY_MAX {
            return refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the request is larger than {BODY_MAX} bytes"),
            );
        }
        let known = OPERATIONS.iter().find(|known| known.path.rsplit('/').next() == Some(operation));
        let wanted = match (known, operation) {
            (Some(known), _) => known.methods[0],
            (None, "fullcmc") => return refuse(StatusCode::NOT_IMPLEMENTED, "full CMC is not supported"),
            (None, other) => {
                return refuse(StatusCode::NOT_FOUND, format!("{other:?} is not an EST operation"));
            }
        };
        if request.method() != wanted {
            return Err(Refusal::Method(wanted));
        }
        let Some(name) = label.or(self.inner.options.default_profile.as_deref()) else {
            return refuse(StatusCode::NOT_FOUND, "no default profile is configured: name one in the path");
        };
        match operation {
            "cacerts" => {
                let profile = self.profile(name).await?;
                self.ca_certificates(&profile).await
            }
            "csrattrs" => {
                let profile = self.profile(name).await?;
                Ok(body::base64("application/csrattrs", &attributes::of(&profile)))
            }
            // The following operations authenticate first. Their response to an unauthenticated client does not depend on whether
            // the profile is offered.
            "simpleenroll" => self.enroll(name, request, peer).await,
            "simplereenroll" => self.reenroll(name, request, peer).await,
            _ => self.generate(name, request, peer).await,
        }
    }

    /// Returns a profile by its name, if it is available over EST.
    async fn profile(&self, name: &str) -> Result<Arc<Profile>, Refusal> {
        let missing =
            || refuse(StatusCode::NOT_FOUND, format!("the profile {name:?} is not offered over EST"));
        if !self.inner.options.profiles.iter().any(|offered| offered == name) {
            return missing();
        }
        match self.inner.authority.profile(name).await {
            Ok(profile) => Ok(profile),
            Err(ProfileError::Unknown(_)) => missing(),
            Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }

    /// Handles `cacerts` (RFC 7030 section 4.1): returns the certificate of the issuer and of its parents, including the root.
    async fn ca_certificates(&self, profile: &Profile) -> Result<Response<Bytes>, Refusal> {
        let ca = self.inner.authority.issuing_ca(profile.ca.as_deref()).await;
        let ca = match ca {
            Ok(ca) => ca,
            Err(error) => return refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        };
        let all: Vec<&[u8]> = ca.chain.iter().chain(&ca.anchor).map(|der| &der[..]).collect();
        Ok(body::base64(CERTS_ONLY, &x509::cms::certs_only(&all, &[])))
    }

    fn refusal_response(&self, refusal: &Refusal) -> Response<Bytes> {
        let (status, text) = match refusal {
            Refusal::Status(status @ StatusCode::SERVICE_UNAVAILABLE, text) => {
                (*status, enrolment::unavailable("EST", text))
            }
            Refusal::Status(status, text) => (*status, text.as_str()),
            Refusal::Limited(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "the team has reached its daily certificate quota: try again tomorrow",
            ),
            Refusal::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
            Refusal::Waiting => {
                (StatusCode::ACCEPTED, "the request waits for approval: send the same request again later")
            }
        };
        let mut response = body::text(status, text);
        let headers = response.headers_mut();
        match refusal {
            Refusal::Method(allowed) => {
                headers.insert(header::ALLOW, http::HeaderValue::from_static(allowed));
            }
            Refusal::Limited(over) => {
                headers.insert(header::RETRY_AFTER, over.retry_after.as_secs().max(1).into());
            }
            Refusal::Waiting => {
                headers.insert(header::RETRY_AFTER, self.inner.options.retry_after_seconds.max(1).into());
            }
            Refusal::Status(StatusCode::UNAUTHORIZED, _) if self.inner.passwords.is_some() => {
                let realm = http::HeaderValue::from_static("Basic realm=\"est\", charset=\"UTF-8\"");
                headers.insert(header::WWW_AUTHENTICATE, realm);
            }
            Refusal::Status(StatusCode::SERVICE_UNAVAILABLE, _) => {
                headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static("30"));
            }
            Refusal::Status(..) => {}
        }
        response
    }
}

impl fmt::Debug for Est {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Est").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// Splits an EST path into the profile name (`None` for the default profile) and the operation.
fn split_path(path: &str) -> Option<(Option<&str>, &str)> {
    let rest = path.strip_prefix(PREFIX)?.strip_prefix('/')?;
    match rest.split_once('/') {
        None => Some((None, rest)),
        Some((label, operation)) if !label.is_empty() && !operation.contains('/') => {
            Some((Some(label), operation))
        }
        Some(_) => None,
    }
    .filter(|(_, operation)| !operation.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn est_paths_have_an_optional_label_and_an_operation() {
        let table = [
            ("/.well-known/est/cacerts", Some((None, "cacerts"))),
            ("/.well-known/est/web/cacerts", Some((Some("web"), "cacerts"))),
            ("/.well-known/est/", None),
            ("/.well-known/est", None),
            ("/.well-known/est//cacerts", None),
            ("/.well-known/est/web/", None),
            ("/.well-known/est/web/x/cacerts", None),
            ("/.well-known/estate/cacerts", None),
            ("/", None),
        ];
        for (path, want) in table {
            assert_eq!(split_path(path), want, "{path}");
        }
    }
}
