//! Builders of ACME responses, and conversion of their time values.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::problem::Problem;

/// Returns a response with a JSON object.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response<Bytes>, Problem> {
    let body = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "cannot encode a response");
        Problem::internal()
    })?;
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Returns a response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

/// Adds a header field; an invalid value is omitted.
pub(crate) fn with_header(mut response: Response<Bytes>, name: HeaderName, value: &str) -> Response<Bytes> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().append(name, value);
    }
    response
}

/// Adds a link relation (RFC 8288).
pub(crate) fn with_link(response: Response<Bytes>, url: &str, relation: &str) -> Response<Bytes> {
    with_header(response, header::LINK, &format!("<{url}>;rel=\"{relation}\""))
}

/// Formats a time for ACME objects (RFC 3339), in whole seconds.
pub(crate) fn time(us: i64) -> String {
    jiff::Timestamp::from_second(us.div_euclid(1_000_000))
        .map_or_else(|_| String::new(), |time| time.to_string())
}

/// Parses an RFC 3339 time into microseconds.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_microsecond())
}

/// Inserts a member if `value` is present.
pub(crate) fn put(object: &mut serde_json::Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_and_parsed_as_rfc_3339() {
        assert_eq!(time(1_795_219_200_999_999), "2026-11-21T00:00:00Z");
        assert_eq!(parse_time("2026-11-21T01:00:00+01:00"), Some(1_795_219_200_000_000));
        assert_eq!(parse_time("tomorrow"), None);
    }
}
