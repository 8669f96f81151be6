//! CRLs, OCSP and CA certificates over plain HTTP, without authentication, because they are public.
//!
//! | path | content |
//! |---|---|
//! | `/crl/{ca}.crl`, `/crl/{ca}/{shard}.crl`, `/crl/{ca}/delta.crl` | CRLs |
//! | `POST /ocsp/{ca}`, `GET /ocsp/{ca}/{base64}`, the same without `{ca}` | OCSP (RFC 6960 appendix A.1) |
//! | `/ca/{ca}.cer`, `/ca/{ca}.p7c` | the certificate of the CA; the certificate and its parents' certificates (RFC 5280 section
//! 4.2.2.1) |
//!
//! `{ca}` is an identifier or a name.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use percent_encoding::percent_decode_str;
use x509::UnixTime;
use x509::ocsp::Request as OcspRequest;

use crate::crl::CrlPart;
use crate::ocsp::OcspAnswer;
use crate::operation::{AccessRule, Operation};
use crate::tree::{Ca, CaError};
use crate::{Authority, Peer};

const CRL: &str = "application/pkix-crl";
const OCSP_REQUEST: &str = "application/ocsp-request";
const OCSP_RESPONSE: &str = "application/ocsp-response";
const CERTIFICATE: &str = "application/pkix-cert";
const CERTIFICATES: &str = "application/pkcs7-mime; smime-type=certs-only";
const TEXT: &str = "text/plain; charset=utf-8";

/// Maximum age in seconds of a CA certificate in HTTP caches. CA certificates rarely change.
const CERTIFICATE_MAX_AGE: i64 = 86_400;

/// Base64 decoder that accepts missing padding, which is often lost in URLs.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The public documents of the CAs: CRLs, OCSP responses and certificates.
#[derive(Clone, Debug)]
pub struct Publications {
    authority: Authority,
}

/// A document with its header fields for HTTP caches.
struct Document {
    body: Bytes,
    media_type: &'static str,
    etag: String,
    modified: UnixTime,
    /// Maximum age of the document in HTTP caches, in seconds.
    max_age: i64,
}

/// HTTP operations that serve CRLs, OCSP responses and CA certificates.
pub const OPERATIONS: [Operation; 3] = [
    Operation::of(&["GET", "HEAD"], "/crl/{*path}", AccessRule::Anybody),
    Operation::of(&["GET", "HEAD", "POST"], "/ocsp/{*path}", AccessRule::Anybody),
    Operation::of(&["GET", "HEAD"], "/ca/{*path}", AccessRule::Anybody),
];

impl Publications {
    /// Creates the handler of the public documents of this authority.
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self { authority }
    }

    /// Maximum size of a request body in bytes. Larger bodies are rejected.
    pub const BODY_MAX: usize = OcspRequest::DER_MAX;

    /// Handles any request whose path begins with `/crl/`, `/ocsp` or `/ca/`.
    #[crate::boxed]
    pub async fn handle(&self, request: Request<Bytes>, _peer: &Peer) -> Response<Bytes> {
        let path = request.uri().path().to_owned();
        if let Some(rest) = path.strip_prefix("/ocsp") {
            return self.ocsp(rest, &request).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use GET");
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let found = if let Some(rest) = path.strip_prefix("/crl/") {
            self.crl(rest).await
        } else if let Some(rest) = path.strip_prefix("/ca/") {
            self.certificate(rest).await
        } else {
            Ok(None)
        };
        match found {
            Ok(Some(document)) => document.respond(request.headers(), request.method() == Method::HEAD),
            Ok(None) => text(StatusCode::NOT_FOUND, "not found"),
            Err(error) => {
                tracing::warn!(
                    error = &*error as &dyn std::error::Error,
                    path,
                    "cannot serve a published document"
                );
                let mut later = text(StatusCode::SERVICE_UNAVAILABLE, "try again");
                later.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
                later
            }
        }
    }

    async fn crl(&self, rest: &str) -> Result<Option<Document>, PublishError> {
        let Some(rest) = rest.strip_suffix(".crl") else { return Ok(None) };
        let (ca, part) = match rest.rsplit_once('/') {
            None => (rest, CrlPart::Full),
            Some((ca, "delta")) => (ca, CrlPart::Delta),
            Some((ca, shard)) => match shard.parse::<u32>() {
                Ok(shard) => (ca, CrlPart::Shard(shard)),
                Err(_) => return Ok(None),
            },
        };
        let Some(ca) = self.ca(ca).await? else { return Ok(None) };
        let Some(crl) = self.authority.crl(ca.id, part).await? else { return Ok(None) };
        let now = UnixTime(self.authority.clock().now_seconds());
        Ok(Some(Document {
            body: crl.der.clone(),
            media_type: CRL,
            etag: crl.etag.clone(),
            modified: crl.this_update,
            max_age: crl.next_update.since(now).max(0),
        }))
    }

    async fn certificate(&self, rest: &str) -> Result<Option<Document>, PublishError> {
        let Some((name, kind)) = rest.rsplit_once('.') else { return Ok(None) };
        let Some(ca) = self.ca(name).await? else { return Ok(None) };
        let certificate = &ca.certificate;
        let (body, media_type) = match kind {
            "cer" | "crt" | "der" => (Bytes::copy_from_slice(&certificate.der), CERTIFICATE),
            "p7c" => {
                let mut all: Vec<&[u8]> = vec![&certificate.der];
                all.extend(ca.chain.iter().filter(|der| **der != certificate.der).map(|der| &**der));
                (x509::cms::certs_only(&all, &[]).into(), CERTIFICATES)
            }
            _ => return Ok(None),
        };
        Ok(Some(Document {
            body,
            media_type,
            etag: format!("\"{}-{kind}\"", certificate.fingerprint),
            modified: certificate.not_before,
            max_age: CERTIFICATE_MAX_AGE,
        }))
    }

    async fn ca(&self, name: &str) -> Result<Option<Arc<Ca>>, PublishError> {
        match self.authority.ca(&percent_decode_str(name).decode_utf8_lossy()).await {
            Ok(ca) => Ok(Some(ca)),
            Err(CaError::Unknown(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles an OCSP request. `rest` is the part of the path after `/ocsp`: empty, `/{ca}`, `/{ca}/{base64}` or `/{base64}`.
    async fn ocsp(&self, rest: &str, request: &Request<Bytes>) -> Response<Bytes> {
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let (first, remainder) = rest.split_once('/').unwrap_or((rest, ""));
        let ca = match self.ca(first).await {
            Ok(ca) => ca,
            Err(_) => return text(StatusCode::SERVICE_UNAVAILABLE, "try again"),
        };
        if ca.is_none() && *request.method() == Method::POST && !rest.is_empty() {
            return text(StatusCode::NOT_FOUND, "unknown CA");
        }
        match *request.method() {
            Method::POST => {
                let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
                if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case(OCSP_REQUEST.as_bytes())) {
                    return text(
                        StatusCode::UNSUPPORTED_MEDIA_TYPE,
                        "the Content-Type must be application/ocsp-request",
                    );
                }
                if request.body().len() > Self::BODY_MAX {
                    return text(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large");
                }
                let answer = self.authority.ocsp_for_ca(ca.as_ref(), request.body()).await;
                self.ocsp_response(answer, None)
            }
            Method::GET | Method::HEAD => {
                // A base64 request may contain slashes.
                let encoded = if ca.is_some() { remainder } else { rest };
                let encoded = percent_decode_str(encoded).decode_utf8_lossy();
                if encoded.is_empty() {
                    return text(
                        StatusCode::BAD_REQUEST,
                        "POST an OCSP request, or append it to the path in base64",
                    );
                }
                let der = BASE64.decode(encoded.as_bytes()).unwrap_or_default();
                let answer = self.authority.ocsp_for_ca(ca.as_ref(), &der).await;
                self.ocsp_response(answer, Some(request))
            }
            _ => {
                let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or HEAD");
                refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
                refused
            }
        }
    }

    /// Builds the HTTP response. A cacheable response to GET has the header fields of RFC 5019 section 6.2; every other response
    /// has `no-store`.
    fn ocsp_response(&self, answer: OcspAnswer, asked: Option<&Request<Bytes>>) -> Response<Bytes> {
        let head = asked.is_some_and(|request| *request.method() == Method::HEAD);
        if let (Some(freshness), Some(request)) = (answer.freshness, asked) {
            let now = UnixTime(self.authority.clock().now_seconds());
            let digest = x509::Fingerprint::of(&answer.der).to_string();
            let document = Document {
                etag: format!("\"{}\"", &digest[..32]),
                body: answer.der,
                media_type: OCSP_RESPONSE,
                modified: freshness.this_update,
                max_age: freshness.refresh_at.since(now).max(0),
            };
            return document.respond(request.headers(), head);
        }
        let mut response = Response::new(if head { Bytes::new() } else { answer.der });
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCSP_RESPONSE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// An error that prevents a document from being served.
type PublishError = Box<dyn std::error::Error + Send + Sync>;

impl Document {
    fn respond(self, asked: &HeaderMap, head: bool) -> Response<Bytes> {
        let unchanged = self.is_not_modified(asked);
        let length = self.body.len();
        let mut response = Response::new(if unchanged || head { Bytes::new() } else { self.body });
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        let mut set = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(header::ETAG, &self.etag);
        set(
            header::CACHE_CONTROL,
            &format!("public, max-age={}, no-transform, must-revalidate", self.max_age),
        );
        if let Some(date) = http_date(self.modified) {
            set(header::LAST_MODIFIED, &date);
        }
        if !unchanged {
            set(header::CONTENT_TYPE, self.media_type);
        }
        if head && !unchanged {
            set(header::CONTENT_LENGTH, &length.to_string());
        }
        response
    }

    /// Returns whether the client's cached copy of the document is current (RFC 9110 section 13.2.2): an entity tag takes
    /// precedence over the date.
    fn is_not_modified(&self, asked: &HeaderMap) -> bool {
        if let Some(tags) = asked.get(header::IF_NONE_MATCH) {
            let matches = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag;
            return tags.to_str().is_ok_and(|tags| tags.split(',').map(str::trim).any(matches));
        }
        let since = asked.get(header::IF_MODIFIED_SINCE).and_then(|date| date.to_str().ok());
        let since = since.and_then(|date| rfc2822::parse(date).ok());
        since.is_some_and(|since| self.modified.0 <= since.timestamp().as_second())
    }
}

fn http_date(time: UnixTime) -> Option<String> {
    let time = Timestamp::from_second(time.0).ok()?;
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

fn text(status: StatusCode, what: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(what.as_bytes()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditional_request_for_an_unchanged_document_returns_304() {
        let document = || Document {
            body: Bytes::from_static(b"x"),
            media_type: CRL,
            etag: "\"7-1\"".to_owned(),
            modified: UnixTime(1_795_219_200),
            max_age: 60,
        };
        let table = [
            (header::IF_NONE_MATCH, "\"7-1\"", 304),
            (header::IF_NONE_MATCH, "\"6-1\", W/\"7-1\"", 304),
            (header::IF_NONE_MATCH, "*", 304),
            (header::IF_NONE_MATCH, "\"8-1\"", 200),
            (header::IF_MODIFIED_SINCE, "Sat, 21 Nov 2026 00:00:00 GMT", 304),
            (header::IF_MODIFIED_SINCE, "Fri, 20 Nov 2026 23:59:59 GMT", 200),
            (header::IF_MODIFIED_SINCE, "yesterday", 200),
        ];
        for (name, value, status) in table {
            let mut asked = HeaderMap::new();
            asked.insert(name, HeaderValue::from_static(value));
            let response = document().respond(&asked, false);
            assert_eq!(response.status().as_u16(), status, "{value}");
            assert_eq!(response.body().is_empty(), status == 304);
            assert_eq!(response.headers()[header::LAST_MODIFIED], "Sat, 21 Nov 2026 00:00:00 GMT");
        }
    }
}
