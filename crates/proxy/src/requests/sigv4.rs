//! Signature Version 4 of AWS, in the `Authorization` header. The proxy signs requests, so that clients need no key.
//!
//! AWS documents the algorithm as "Create a signed AWS API request" in the IAM user guide.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use data_encoding::HEXLOWER;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use jiff::Timestamp;
use keys::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::unavailable::SecretUnavailable;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Values of `x-amz-content-sha256` other than a digest. They are sent and signed unchanged.
const UNSIGNED_PAYLOADS: [&str; 2] = ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];
/// Set of escaped bytes: all except letters, digits, `-`, `.`, `_` and `~`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// As [`ESCAPED`], for paths.
const ESCAPED_IN_PATHS: &AsciiSet = &ESCAPED.remove(b'/');

/// An access key, in the format of `credential_process` of the AWS command line.
#[derive(Deserialize)]
pub(super) struct AccessKey {
    #[serde(rename = "AccessKeyId")]
    pub(super) id: String,
    #[serde(rename = "SecretAccessKey")]
    pub(super) secret: Secret,
    /// The token of temporary credentials.
    #[serde(rename = "SessionToken", default)]
    pub(super) session: Option<Secret>,
}

impl AccessKey {
    /// Reads the values of a credential: the JSON document of a file, or ID and secret.
    pub(super) fn read(values: &[Secret], name: &str) -> Result<Self, SecretUnavailable> {
        let unusable = |why: &str| SecretUnavailable::Unusable(format!("{name}: {why}"));
        let key = match values {
            [id, secret] => Self { id: id.expose().to_owned(), secret: secret.clone(), session: None },
            // The parser's error is not shown, because it may quote the key.
            [document] => serde_json::from_str(document.expose()).map_err(|_| {
                unusable("not a JSON document with AccessKeyId, SecretAccessKey and, for temporary credentials, SessionToken")
            })?,
            _ => return Err(unusable("it has no access key")),
        };
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_usable = is_plain(&key.id)
            && is_plain(key.secret.expose())
            && key.session.as_ref().is_none_or(|session| is_plain(session.expose()));
        if is_usable {
            Ok(key)
        } else {
            Err(unusable("a part of the access key is empty or has invalid characters"))
        }
    }
}

/// Service and region of a signature.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Scope {
    pub(super) service: String,
    pub(super) region: String,
}

impl Scope {
    /// Returns the scope of a host of AWS, such as `BUCKET.s3.REGION.amazonaws.com`. Hosts without a region are in `us-east-1`.
    pub(super) fn of_host(host: &str) -> Option<Self> {
        let labels =
            host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
        let labels: Vec<&str> =
            labels.split('.').filter(|label| !matches!(*label, "dualstack" | "vpce")).collect();
        let of = |service: &str, region: &str| {
            let service = service.strip_suffix("-fips").unwrap_or(service);
            Some(Self { service: service.to_owned(), region: region.to_owned() })
        };
        match labels.as_slice() {
            [.., service, region] if is_region(region) => of(service, region),
            [.., region, service] if is_region(region) => of(service, region),
            [.., last] => match last.strip_prefix("s3-").filter(|region| is_region(region)) {
                Some(region) => of("s3", region),
                None => of(last, "us-east-1"),
            },
            [] => None,
        }
    }
}

/// Returns whether a label is a region, such as `eu-central-1` or `us-gov-east-1`.
fn is_region(label: &str) -> bool {
    let mut parts = label.split('-');
    let area = parts.next().is_some_and(|area| area.len() == 2);
    let number = parts
        .next_back()
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty());
    area && number && parts.next().is_some()
}

/// The parts of a request that are signed, and the body for its digest.
pub(super) struct Signable<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    /// The value of `Host` in the request that is sent.
    pub(super) host: &'a HeaderValue,
    pub(super) headers: &'a mut HeaderMap,
    /// The whole body; `None` if it is not known.
    pub(super) body: Option<&'a [u8]>,
}

/// Returns whether the URL has its own signature. Such a URL is not signed again.
pub(super) fn is_presigned(uri: &Uri) -> bool {
    let names =
        uri.query().unwrap_or_default().split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    names.map(|name| percent_decode_str(name).collect::<Vec<u8>>()).any(|name| {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        is("X-Amz-Signature") || is("X-Amz-Algorithm") || is("AWSAccessKeyId")
    })
}

/// Returns whether the digest of the body must be computed, because the client did not send it.
pub(super) fn needs_body(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_SHA256)
}

/// Signs a request at the time `now`. Replaces the client's signature and session token.
///
/// # Errors
/// The reason why the request cannot be signed, for the client.
pub(super) fn sign_request(
    request: Signable<'_>,
    key: &AccessKey,
    scope: &Scope,
    now: Timestamp,
) -> Result<(), &'static str> {
    let Signable { method, uri, host, headers, body } = request;
    for name in [AUTHORIZATION, DATE, TOKEN] {
        headers.remove(name);
    }
    let payload = payload_digest(headers, body)?;
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let unsendable = "the request cannot be signed: its Host or date is not a valid header";
    headers.insert(DATE, HeaderValue::from_str(&time).map_err(|_| unsendable)?);
    if let Some(session) = &key.session {
        let mut value = HeaderValue::from_str(session.expose()).map_err(|_| unsendable)?;
        value.set_sensitive(true);
        headers.insert(TOKEN, value);
    }
    if scope.service == "s3" && needs_body(headers) {
        headers.insert(CONTENT_SHA256, HeaderValue::from_str(&payload).map_err(|_| unsendable)?);
    }
    let (names, fields) = signed_fields(headers, host)?;
    let path = canonical_path(uri.path(), &scope.service);
    let query = canonical_query(uri.query().unwrap_or_default());
    let canonical = format!("{method}\n{path}\n{query}\n{fields}\n{names}\n{payload}");
    let day = &time[..8];
    let Scope { service, region } = scope;
    let credential_scope = format!("{day}/{region}/{service}/aws4_request");
    let digested = HEXLOWER.encode(digest(&SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{time}\n{credential_scope}\n{digested}");
    let first = Zeroizing::new(format!("AWS4{}", key.secret.expose()));
    let hmac = |key: &[u8], text: &str| sign(&Key::new(HMAC_SHA256, key), text.as_bytes());
    let mut derived = hmac(first.as_bytes(), day);
    for part in [region, service, "aws4_request"] {
        derived = hmac(derived.as_ref(), part);
    }
    let signature = HEXLOWER.encode(hmac(derived.as_ref(), &to_sign).as_ref());
    let value = format!(
        "{ALGORITHM} Credential={}/{credential_scope}, SignedHeaders={names}, Signature={signature}",
        key.id
    );
    let mut value = HeaderValue::from_str(&value).map_err(|_| unsendable)?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(())
}

/// Returns the digest of the body in the form that is signed. A digest from the client is checked by AWS.
fn payload_digest(headers: &HeaderMap, body: Option<&[u8]>) -> Result<String, &'static str> {
    const UNKNOWN: &str = "the request cannot be signed: send its body with Content-Length and at most 1 MiB, or with X-Amz-Content-Sha256";
    const CHUNKS: &str = "the request cannot be signed: the chunks of its body have signatures of their own. Configure the client to send \
         unsigned payloads (for the AWS command line: payload_signing_enabled = false)";
    let mut given = headers.get_all(CONTENT_SHA256).iter();
    match (given.next().map(|value| value.to_str()), given.next()) {
        (None, _) => body.map(|body| HEXLOWER.encode(digest(&SHA256, body).as_ref())).ok_or(UNKNOWN),
        (Some(Ok(value)), None) if UNSIGNED_PAYLOADS.contains(&value) => Ok(value.to_owned()),
        (Some(Ok(value)), None)
            if value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            Ok(value.to_owned())
        }
        (Some(Ok(value)), None) if value.starts_with("STREAMING-") => Err(CHUNKS),
        _ => Err("the request cannot be signed: its X-Amz-Content-Sha256 is invalid"),
    }
}

/// Returns the names of the signed headers, and their lines: `Host`, `Content-Type` and all `X-Amz-*`.
fn signed_fields(headers: &HeaderMap, host: &HeaderValue) -> Result<(String, String), &'static str> {
    let is_signed = |name: &HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-");
    let mut names: Vec<&HeaderName> = headers.keys().filter(|name| is_signed(name)).collect();
    names.push(&HOST);
    names.sort_by_key(|name| name.as_str());
    let mut lines = String::new();
    for name in &names {
        let given: Vec<&HeaderValue> = match **name == HOST {
            true => vec![host],
            false => headers.get_all(*name).iter().collect(),
        };
        lines.push_str(name.as_str());
        for (at, value) in given.into_iter().enumerate() {
            let text =
                value.to_str().map_err(|_| "the request cannot be signed: a header of AWS is not ASCII")?;
            lines.push(if at == 0 { ':' } else { ',' });
            let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
            lines.push_str(&words.join(" "));
        }
        lines.push('\n');
    }
    let names: Vec<&str> = names.into_iter().map(HeaderName::as_str).collect();
    Ok((names.join(";"), lines))
}

/// Returns the canonical path. S3 escapes the decoded path, and other services escape the path of the request.
fn canonical_path(path: &str, service: &str) -> String {
    let path = if path.is_empty() { "/" } else { path };
    match service {
        "s3" => percent_encode(&percent_decode_str(path).collect::<Vec<u8>>(), ESCAPED_IN_PATHS).to_string(),
        _ => percent_encode(path.as_bytes(), ESCAPED_IN_PATHS).to_string(),
    }
}

/// Returns the canonical query: escaped again and sorted.
fn canonical_query(query: &str) -> String {
    let escaped =
        |text: &str| percent_encode(&percent_decode_str(text).collect::<Vec<u8>>(), ESCAPED).to_string();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (escaped(name), escaped(value)))
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs a request, and returns its `Authorization`.
    fn signed(
        (method, url): (Method, &str),
        (headers, body): (&[(&'static str, &str)], &str),
        (key, scope, at): (&AccessKey, &str, &str),
    ) -> Result<(HeaderMap, String), &'static str> {
        let uri: Uri = url.parse().unwrap();
        let host = HeaderValue::from_str(uri.authority().unwrap().as_str()).unwrap();
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().unwrap());
        }
        let (service, region) = scope.split_once('/').unwrap();
        let scope = Scope { service: service.to_owned(), region: region.to_owned() };
        let body = Some(body.as_bytes());
        let request = Signable { method: &method, uri: &uri, host: &host, headers: &mut all, body };
        sign_request(request, key, &scope, at.parse().unwrap())?;
        let value = all[AUTHORIZATION].to_str().unwrap().to_owned();
        Ok((all, value))
    }

    fn key(id: &str, secret: &str) -> AccessKey {
        AccessKey { id: id.to_owned(), secret: Secret::new(secret), session: None }
    }

    const AT: &str = "2015-08-30T12:36:00Z";

    #[test]
    fn signatures_equal_those_of_the_published_vectors() {
        let example = key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let session = Some(Secret::new("6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"));
        let temporary = AccessKey { session, ..key(&example.id, example.secret.expose()) };
        // From the test suite of Signature Version 4.
        for (key, method, target, names, wanted) in [
            (
                &example,
                Method::GET,
                "/",
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                &example,
                Method::POST,
                "/",
                "",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                &example,
                Method::GET,
                "/?Param2=value2&Param1=value1",
                "",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                &example,
                Method::GET,
                "/?%E1%88%B4=bar",
                "",
                "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            ),
            (
                &temporary,
                Method::GET,
                "/",
                ";x-amz-security-token",
                "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
            ),
        ] {
            let url = format!("https://example.amazonaws.com{target}");
            // Signature fields of the client, which the proxy replaces.
            let mine = [
                ("authorization", "AWS4-HMAC-SHA256 mine"),
                ("x-amz-date", "old"),
                ("x-amz-security-token", "mine"),
            ];
            let (_, value) = signed((method, &url), (&mine, ""), (key, "service/us-east-1", AT)).unwrap();
            let wanted = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date{names}, Signature={wanted}"
            );
            assert_eq!(value, wanted, "{target}");
        }
        // From the documentation of S3.
        let example = key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        for (target, wanted) in [
            ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let (url, at) =
                (format!("https://examplebucket.s3.amazonaws.com{target}"), "2013-05-24T00:00:00Z");
            let (_, value) = signed((Method::GET, &url), (&[], ""), (&example, "s3/us-east-1", at)).unwrap();
            assert!(
                value.contains("=host;x-amz-content-sha256;x-amz-date,") && value.ends_with(wanted),
                "{value}"
            );
        }
    }

    #[test]
    fn digest_of_the_client_is_signed_and_signed_chunks_are_refused() {
        let example = key("AKIDEXAMPLE", "secret");
        let url = "https://b.s3.eu-central-1.amazonaws.com/a%20b";
        let of = |value: &str| {
            let given = [("x-amz-content-sha256", value)];
            signed((Method::PUT, url), (&given, "body"), (&example, "s3/eu-central-1", AT))
        };
        for value in ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", &"0a".repeat(32)] {
            let (headers, _) = of(value).unwrap();
            assert_eq!(headers[CONTENT_SHA256], value);
        }
        assert!(of("STREAMING-AWS4-HMAC-SHA256-PAYLOAD").unwrap_err().contains("chunks"));
        assert!(of("no digest").unwrap_err().contains("invalid"));
        assert_eq!(canonical_path("/a%20b/c+d/@x", "s3"), "/a%20b/c%2Bd/%40x");
        assert_eq!(
            canonical_path("/test/@connections/JBDvjfGEIAMCERw%3D", "execute-api"),
            "/test/%40connections/JBDvjfGEIAMCERw%253D"
        );
        for (url, presigned) in [
            ("https://b.s3.amazonaws.com/k?X-Amz-Signature=1", true),
            ("https://b.s3.amazonaws.com/k?x=1&X%2DAmz-Signature=1", true),
            ("https://b.s3.amazonaws.com/k?AWSAccessKeyId=1", true),
            ("https://b.s3.amazonaws.com/k?versionId=1", false),
        ] {
            assert_eq!(is_presigned(&url.parse().unwrap()), presigned, "{url}");
        }
    }

    #[test]
    fn service_and_region_are_those_of_the_host() {
        for (host, wanted) in [
            ("s3.eu-central-1.amazonaws.com", Some("s3/eu-central-1")),
            ("my.bucket.s3.dualstack.eu-central-1.amazonaws.com", Some("s3/eu-central-1")),
            ("bucket.s3.amazonaws.com", Some("s3/us-east-1")),
            ("s3-us-west-2.amazonaws.com", Some("s3/us-west-2")),
            ("sts.amazonaws.com", Some("sts/us-east-1")),
            ("sts-fips.us-gov-east-1.amazonaws.com", Some("sts/us-gov-east-1")),
            ("api.ecr.us-east-1.amazonaws.com", Some("ecr/us-east-1")),
            ("x1.execute-api.eu-west-3.amazonaws.com", Some("execute-api/eu-west-3")),
            ("search-x.eu-west-3.es.amazonaws.com", Some("es/eu-west-3")),
            ("s3.cn-north-1.amazonaws.com.cn", Some("s3/cn-north-1")),
            ("s3.example", None),
            ("amazonaws.com", None),
        ] {
            let found = Scope::of_host(host).map(|scope| format!("{}/{}", scope.service, scope.region));
            assert_eq!(found.as_deref(), wanted, "{host}");
        }
    }

    #[test]
    fn access_key_is_a_document_or_a_pair() {
        let of = |values: &[&str]| {
            AccessKey::read(&values.iter().map(|value| Secret::new(*value)).collect::<Vec<_>>(), "/aws")
        };
        let document = r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S", "SessionToken": "T"}"#;
        let read = of(&[document]).unwrap();
        assert_eq!((&*read.id, read.secret.expose(), read.session.unwrap().expose()), ("A", "S", "T"));
        assert_eq!(of(&["A", "S"]).unwrap().id, "A");
        for wrong in [&["canary"][..], &["A", "canary\n"], &["", "canary"], &[r#"{"AccessKeyId": "canary"}"#]]
        {
            let error = of(wrong).err().unwrap().to_string();
            assert!(error.starts_with("/aws: ") && !error.contains("canary"), "{error}");
        }
    }
}
