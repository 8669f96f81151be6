//! ACME renewal information (RFC 9773).

use callout::Reply;
use jiff::Timestamp;
use serde::Deserialize;
use x509::{Certificate, UnixTime};

use crate::jose::base64url;
use crate::order::Window;

/// Minimum and maximum seconds between two requests for renewal information (RFC 9773 section 4.3.2).
const RETRY_MIN: u32 = 60;
const RETRY_MAX: u32 = 86_400;
/// Seconds between two requests when the server sends no value.
const RETRY_DEFAULT: u32 = 6 * 3_600;
/// Maximum characters of a stored explanation URL.
const URL_MAX: usize = 500;

/// Returns the unique identifier of RFC 9773 section 4.1. `None` for a certificate without an authority key identifier.
#[must_use]
pub(crate) fn certificate_id(certificate: &Certificate) -> Option<String> {
    let key_id = certificate.authority_key_id.as_ref()?;
    Some(format!("{}.{}", base64url(key_id), base64url(certificate.serial.content())))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalInfo {
    suggested_window: SuggestedWindow,
    #[serde(default, rename = "explanationURL")]
    explanation_url: Option<String>,
}

#[derive(Deserialize)]
struct SuggestedWindow {
    start: Timestamp,
    end: Timestamp,
}

/// Parses the renewal window in a response. Returns `None`, so that the window is ignored, when the window is malformed or ends
/// before it starts (RFC 9773 section 4.2).
pub(super) fn window(reply: &Reply, now: UnixTime) -> Option<Window> {
    let info: RenewalInfo = serde_json::from_slice(&reply.body).ok()?;
    let (start, end) = (info.suggested_window.start.as_second(), info.suggested_window.end.as_second());
    let requested = reply
        .retry_after(now)
        .map_or(RETRY_DEFAULT, |wait| u32::try_from(wait.as_secs()).unwrap_or(RETRY_MAX));
    let window = Window {
        start: UnixTime(start),
        end: UnixTime(end),
        retry_after_seconds: requested.clamp(RETRY_MIN, RETRY_MAX),
        explanation: info.explanation_url.filter(|url| url.len() <= URL_MAX && url.starts_with("http")),
    };
    (start < end).then_some(window)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn reply(body: &str, retry_after: Option<&'static str>) -> Reply {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert("retry-after", http::HeaderValue::from_static(value));
        }
        Reply { status: StatusCode::OK, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    /// The example of RFC 9773 section 4.1, whose certificate has these two values.
    #[test]
    fn renewal_identifier_matches_the_rfc_9773_example() {
        let key_id = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0, 0xae, 0x2c,
            0xde, 0x01, 0xc8, 0xd4,
        ];
        let serial = [0x00, 0x87, 0x65, 0x43, 0x21];
        let issuer = x509::build::distinguished_name(&[]);
        let key = keys::PrivateKey::generate(keys::KeyType::P256).unwrap();
        let algorithm = x509::SignatureAlgorithm::EcdsaSha256;
        let build = |extensions: &[x509::build::Extension]| {
            let tbs = x509::build::tbs_certificate(&x509::build::CertificateSpec {
                serial: &x509::SerialNumber::from_content(&serial),
                signature: algorithm.clone(),
                issuer: &issuer.der,
                subject: &issuer.der,
                not_before: UnixTime(0),
                not_after: UnixTime(1),
                spki: keys::Signer::spki(&key),
                extensions,
            });
            let der = x509::build::signed(&tbs, &algorithm, &key.sign_now(&tbs).unwrap());
            Certificate::parse(&der).unwrap()
        };
        let with = build(&[x509::build::Extension::authority_key_id(&key_id)]);
        assert_eq!(certificate_id(&with).as_deref(), Some("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"));
        assert_eq!(certificate_id(&build(&[])), None);
    }

    #[test]
    fn renewal_windows_are_parsed_and_retry_after_is_bounded() {
        let body = r#"{"suggestedWindow":{"start":"2025-01-02T04:00:00Z","end":"2025-01-03T04:00:00+00:00"},
            "explanationURL":"https://ca.example/why"}"#;
        let read = window(&reply(body, Some("21600")), UnixTime(0)).unwrap();
        assert_eq!((read.start, read.end), (UnixTime(1_735_790_400), UnixTime(1_735_876_800)));
        assert_eq!(read.explanation.as_deref(), Some("https://ca.example/why"));
        for (header, seconds) in
            [(None, 21_600), (Some("1"), 60), (Some("999999"), 86_400), (Some("3600"), 3_600)]
        {
            assert_eq!(window(&reply(body, header), UnixTime(0)).unwrap().retry_after_seconds, seconds);
        }
        let backwards = body.replace("2025-01-03", "2025-01-01");
        for bad in [backwards.as_str(), "{}", "[", r#"{"suggestedWindow":{"start":"x","end":"y"}}"#] {
            assert_eq!(window(&reply(bad, None), UnixTime(0)), None, "{bad}");
        }
    }
}
