//! ETags: conditional reads and conditional changes.
//!
//! All ETags are strong (RFC 9110 section 8.8.1). An object with a revision has its revision as its ETag (`"7"`), so that an
//! `If-Match` is one comparison. Other JSON responses to a `GET`, up to 4 MiB, have a hash of their body.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::Value;

use crate::extract::Json;
use crate::problem::Problem;

/// Maximum bytes of a body that is hashed and filtered: five hundred items of a few kilobytes. A larger body is sent unchanged.
const BODY_MAX: usize = 4 << 20;

/// Maximum members that `fields=` may name.
const FIELDS_MAX: usize = 64;

/// Bytes of the hash in an ETag: twelve make an accidental collision negligible.
const HASH_BYTES: usize = 12;

/// A response with the revision of its object as its ETag: `Revision(row.revision, view)`.
#[derive(Clone, Copy, Debug)]
pub struct Revision<T>(pub i64, pub T);

impl<T: Serialize> IntoResponse for Revision<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.1).into_response();
        response.headers_mut().insert(ETAG, etag(&self.0.to_string()));
        response
    }
}

fn etag(text: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"-\""))
}

/// The `If-Match` condition of a change. Handlers take it as an argument, and call [`IfMatch::check`] with the current revision.
/// A request without the header passes every check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IfMatch(Option<Vec<String>>);

impl IfMatch {
    /// Returns whether the request has no `If-Match` header.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Rejects the request if it has an `If-Match` condition that the object's current revision does not match.
    ///
    /// # Errors
    /// 412.
    pub fn check(&self, revision: i64) -> Result<(), Problem> {
        let Some(wanted) = &self.0 else { return Ok(()) };
        let now = revision.to_string();
        // The ETag of a filtered response has a suffix after the revision.
        let same = |tag: &String| tag == "*" || tag.split('.').next() == Some(now.as_str());
        if wanted.iter().any(same) {
            return Ok(());
        }
        Err(Problem::precondition_failed("the object changed since you read it")
            .with("revision", revision)
            .header(ETAG, etag(&now)))
    }

    /// Rejects a request with `If-Match` for an object that does not exist.
    ///
    /// # Errors
    /// 412.
    pub fn check_absent(&self) -> Result<(), Problem> {
        match self.0 {
            None => Ok(()),
            Some(_) => Err(Problem::precondition_failed("the object does not exist or was deleted")),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let tags = tags(&parts.headers, &IF_MATCH)?;
        // Weak tags never match in `If-Match` (RFC 9110 section 13.1.1).
        Ok(Self(tags.map(|tags| tags.into_iter().filter(|tag| !tag.weak).map(|tag| tag.text).collect())))
    }
}

#[derive(Debug, Eq, PartialEq)]
struct Tag {
    weak: bool,
    text: String,
}

/// Parses the entity tags of a header, including `*`.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<Tag>>, Problem> {
    let mut found = None;
    for line in headers.get_all(name) {
        let bad =
            || Problem::bad_request(format_args!("{name} is not a list of entity tags: write them as \"…\""));
        let tags: &mut Vec<Tag> = found.get_or_insert_default();
        for part in line.to_str().map_err(|_| bad())?.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if part == "*" {
                tags.push(Tag { weak: false, text: "*".to_owned() });
                continue;
            }
            let (weak, quoted) = part.strip_prefix("W/").map_or((false, part), |rest| (true, rest));
            let text = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(bad)?;
            tags.push(Tag { weak, text: text.to_owned() });
        }
    }
    Ok(found)
}

/// The conditions of a `GET`: the ETags in `If-None-Match`, and the fields in `fields=`.
pub(crate) struct ReadConditions {
    none_match: Option<Vec<Tag>>,
    fields: Option<BTreeSet<String>>,
}

impl ReadConditions {
    pub(crate) fn of(parts: &Parts) -> Result<Self, Problem> {
        Ok(Self {
            none_match: tags(&parts.headers, &IF_NONE_MATCH)?,
            fields: fields(parts.uri.query().unwrap_or_default())?,
        })
    }

    /// Filters a successful JSON response to the requested fields, and adds an ETag. Responds 304 without a body if `If-None-Match`
    /// contains this ETag.
    pub(crate) async fn answer(self, response: Response) -> Response {
        let json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        if response.status() != StatusCode::OK || !json {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let length = HttpBody::size_hint(&body).exact();
        if length.is_none_or(|length| length > BODY_MAX as u64) {
            return Response::from_parts(parts, body);
        }
        let Ok(body) = body.collect().await else {
            return Problem::internal("a response could not be read").into_response();
        };
        let body = self.select_fields(body.to_bytes());
        let tag = self.tag(&parts.headers, &body);
        parts.headers.insert(ETAG, etag(&tag));
        parts.headers.remove(CONTENT_LENGTH);
        if self.has(&tag) {
            parts.headers.remove(CONTENT_TYPE);
            parts.status = StatusCode::NOT_MODIFIED;
            return Response::from_parts(parts, Body::empty());
        }
        Response::from_parts(parts, Body::from(body))
    }

    /// Returns the ETag that the handler set, with a suffix if the response is filtered. If the handler set none, returns a hash of
    /// the body.
    fn tag(&self, headers: &HeaderMap, body: &Bytes) -> String {
        let own =
            headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(|tag| tag.trim_matches('"').to_owned());
        match (own, &self.fields) {
            (Some(own), None) => own,
            (Some(own), Some(_)) => format!("{own}.{}", short_hash(body)),
            (None, _) => short_hash(body),
        }
    }

    /// Returns whether `If-None-Match` contains this ETag, by weak comparison (RFC 9110 section 13.1.2).
    fn has(&self, tag: &str) -> bool {
        self.none_match.as_ref().is_some_and(|tags| tags.iter().any(|has| has.text == "*" || has.text == tag))
    }

    fn select_fields(&self, body: Bytes) -> Bytes {
        let Some(fields) = &self.fields else { return body };
        let Ok(mut value) = serde_json::from_slice::<Value>(&body) else { return body };
        match value.get_mut("items") {
            Some(Value::Array(items)) => items.iter_mut().for_each(|item| retain_fields(item, fields)),
            _ => retain_fields(&mut value, fields),
        }
        serde_json::to_vec(&value).map_or(body, Bytes::from)
    }
}

fn retain_fields(value: &mut Value, fields: &BTreeSet<String>) {
    if let Value::Object(members) = value {
        members.retain(|name, _| fields.contains(name));
    }
}

fn short_hash(body: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, body).as_ref()[..HASH_BYTES])
}

/// Parses `fields=a,b` of a query; member names need no percent-encoding.
fn fields(query: &str) -> Result<Option<BTreeSet<String>>, Problem> {
    let Some(list) = query.split('&').find_map(|pair| pair.strip_prefix("fields=")) else { return Ok(None) };
    let list = list.replace("%2C", ",").replace("%2c", ",");
    let fields: BTreeSet<String> =
        list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(Problem::bad_request(format_args!(
            "fields must be 1 to {FIELDS_MAX} names, separated by commas"
        )));
    }
    Ok(Some(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn if_match(text: &str) -> IfMatch {
        let mut headers = HeaderMap::new();
        headers.insert(IF_MATCH, HeaderValue::from_str(text).unwrap());
        let tags = tags(&headers, &IF_MATCH).unwrap().unwrap();
        IfMatch(Some(tags.into_iter().filter(|tag| !tag.weak).map(|tag| tag.text).collect()))
    }

    #[test]
    fn if_match_requires_the_current_revision() {
        for (text, good) in [
            ("\"7\"", true),
            ("\"6\", \"7\"", true),
            ("*", true),
            ("\"7.abc\"", true),
            ("W/\"7\"", false),
            ("\"77\"", false),
            ("\"\"", false),
        ] {
            assert_eq!(if_match(text).check(7).is_ok(), good, "{text}");
        }
        assert!(IfMatch::default().check(7).is_ok());
        assert!(IfMatch::default().check_absent().is_ok());
        assert_eq!(if_match("*").check_absent().unwrap_err().status(), 412);
        let mut headers = HeaderMap::new();
        headers.insert(IF_MATCH, HeaderValue::from_static("7"));
        assert_eq!(tags(&headers, &IF_MATCH).unwrap_err().status(), 400);
    }

    fn conditions(query: &str, none_match: Option<&str>) -> ReadConditions {
        let mut request = http::Request::get(format!("/x?{query}"));
        if let Some(tag) = none_match {
            request = request.header(IF_NONE_MATCH, tag);
        }
        ReadConditions::of(&request.body(()).unwrap().into_parts().0).unwrap()
    }

    async fn text(response: Response) -> (StatusCode, String, String) {
        let tag = response.headers()[ETAG].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, tag, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn unchanged_body_returns_304_not_modified() {
        let listing =
            || Json(serde_json::json!({ "items": [{ "a": 1, "b": 2 }], "next": null })).into_response();
        let (status, tag, body) = text(conditions("", None).answer(listing()).await).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"items":[{"a":1,"b":2}],"next":null}"#));
        let (status, second_tag, body) = text(conditions("", Some(&tag)).answer(listing()).await).await;
        assert_eq!(
            (status, second_tag.as_str(), body.as_str()),
            (StatusCode::NOT_MODIFIED, tag.as_str(), "")
        );
        let (status, other, body) = text(conditions("fields=b,c", Some(&tag)).answer(listing()).await).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"items":[{"b":2}],"next":null}"#));
        assert_ne!(other, tag);
    }

    #[tokio::test]
    async fn etag_of_a_partial_response_includes_the_revision() {
        let thing = || Revision(7, serde_json::json!({ "a": 1, "b": 2 })).into_response();
        assert_eq!(text(conditions("", None).answer(thing()).await).await.1, "\"7\"");
        let (_, tag, body) = text(conditions("fields=a", None).answer(thing()).await).await;
        assert_eq!(body, r#"{"a":1}"#);
        assert!(tag.starts_with("\"7.") && if_match(&tag).check(7).is_ok(), "{tag}");
    }

    #[test]
    fn empty_and_too_many_fields_are_rejected() {
        assert!(fields("limit=3").unwrap().is_none());
        assert_eq!(fields("limit=3&fields=a%2Cb").unwrap().unwrap().len(), 2);
        assert!(fields("fields=").is_err());
        assert!(fields(&format!("fields={}", (0..70).map(|n| format!("{n},")).collect::<String>())).is_err());
    }
}
