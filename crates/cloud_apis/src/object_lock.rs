//! Objects in a bucket of S3 that no account may change or delete for a time (S3 Object Lock).

use std::fmt;
use std::time::SystemTime;

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SigningSettings, UriPathNormalizationMode,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use x509::Fingerprint;

use crate::auth::ApiError;
use crate::auth::aws::{AwsOptions, CachedCredentials, current, signed};
use crate::auth::http::HttpClient;

/// Header with the mode of a lock.
const MODE: &str = "x-amz-object-lock-mode";
/// Header with the end of a lock.
const UNTIL: &str = "x-amz-object-lock-retain-until-date";

coded::named! {
    /// The mode of an object lock: which accounts may remove the lock.
    #[derive(Default)]
    pub enum LockMode: "mode of an object lock" {
        /// No account can remove the lock before it expires.
        #[default]
        Compliance => "compliance",
        /// Accounts with the permission `s3:BypassGovernanceRetention` can remove the lock.
        Governance => "governance",
    }
}

/// A bucket of S3, or of a server with the same API.
pub struct LockedBucket {
    region: String,
    /// URL of the bucket, without `/` at its end.
    url: String,
    credentials: Option<CachedCredentials>,
    http: HttpClient,
}

impl LockedBucket {
    /// Creates a client. Sends no request except those that look up credentials.
    #[crate::boxed]
    pub async fn new(bucket: &str, region: &str, options: &AwsOptions, http: HttpClient) -> Self {
        let url = format!("{}/{bucket}", options.endpoint_of("s3", region));
        let credentials = options.credentials_in(region, &http).await;
        Self { region: region.to_owned(), url, credentials, http }
    }

    /// Stores an object that is locked until a time, and reads the lock back: a server without object locks could accept the object.
    /// `key` consists of letters, digits, `-`, `_`, `.` and `/`.
    ///
    /// # Errors
    /// [`ApiError`]: the code is `not-locked` if the server did not lock the object.
    #[crate::boxed]
    pub async fn put(
        &self,
        key: &str,
        content: Vec<u8>,
        mode: LockMode,
        until: SystemTime,
    ) -> Result<(), ApiError> {
        let until = jiff::Timestamp::try_from(until).unwrap_or(jiff::Timestamp::MAX);
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let name = mode.name().to_ascii_uppercase();
        let sha256 = STANDARD.encode(Fingerprint::of(&content).as_bytes());
        let headers = [
            ("content-type", "application/json"),
            // S3 requires a checksum with a lock, and the name of its algorithm.
            ("x-amz-sdk-checksum-algorithm", "SHA256"),
            ("x-amz-checksum-sha256", &sha256),
            (MODE, &name),
            (UNTIL, &until),
        ];
        self.call(Method::PUT, key, content.into(), &headers).await?;
        let stored = self.call(Method::HEAD, key, Bytes::new(), &[]).await?;
        check_lock(stored.headers(), &name, &until)
    }

    async fn call(
        &self,
        method: Method,
        key: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> Result<Response<Bytes>, ApiError> {
        let credentials = current(self.credentials.as_ref()).await?;
        let mut request = http::Request::builder().method(method).uri(format!("{}/{key}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body).map_err(|error| ApiError::malformed(&error.to_string()))?;
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        signed(&mut request, ("s3", &self.region), settings, &credentials)?;
        let answer = self.http.send(request).await.map_err(|error| ApiError::unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let text = String::from_utf8_lossy(answer.body());
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let (code, message) = (element(&text, "Code"), element(&text, "Message"));
        if matches!(code, "ExpiredToken" | "ExpiredTokenException")
            && let Some(cached) = &self.credentials
        {
            cached.forget();
        }
        Err(ApiError::of_status(answer.status().as_u16(), code, message, retry_after))
    }
}

impl fmt::Debug for LockedBucket {
    /// Omits the credentials: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedBucket").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Checks that the headers of an object have at least this lock.
fn check_lock(headers: &HeaderMap, mode: &str, until: &str) -> Result<(), ApiError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let (found, ends) = (text(MODE), time(text(UNTIL)));
    // Allow one second for rounding by the server.
    let enough = time(until).zip(ends).is_some_and(|(until, ends)| ends.as_second() + 1 >= until.as_second());
    if found.eq_ignore_ascii_case(mode) && enough {
        return Ok(());
    }
    Err(ApiError::of_status(
        409,
        "not-locked",
        &format!(
            "the object was stored with the lock {found:?} until {:?}, not {mode} until {until}",
            text(UNTIL)
        ),
        None,
    ))
}

/// Returns the text of an element of an XML document of S3, whose elements have no attributes.
fn element<'a>(document: &'a str, name: &str) -> &'a str {
    let found = document.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once("</"));
    found.map_or("", |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_without_the_requested_lock_is_rejected() {
        let headers = |mode: &str, until: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(MODE, mode), (UNTIL, until)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            headers
        };
        let check = |mode, until| {
            check_lock(&headers(mode, until), "COMPLIANCE", "2030-01-01T00:00:00Z")
                .map_err(|error| error.code)
        };
        assert_eq!(check("COMPLIANCE", "2030-01-01T00:00:00.000Z"), Ok(()));
        assert_eq!(check("COMPLIANCE", "2040-01-01T00:00:00Z"), Ok(()));
        for (mode, until) in [
            ("", ""),
            ("COMPLIANCE", ""),
            ("GOVERNANCE", "2030-01-01T00:00:00Z"),
            ("COMPLIANCE", "2029-12-31T00:00:00Z"),
            ("COMPLIANCE", "never"),
        ] {
            assert_eq!(check(mode, until).unwrap_err(), "not-locked", "{mode} {until}");
        }
    }

    #[test]
    fn errors_of_s3_are_read_from_their_xml() {
        let text = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
        assert_eq!(
            (element(text, "Code"), element(text, "Message"), element(text, "Key")),
            ("AccessDenied", "No.", "")
        );
    }
}
