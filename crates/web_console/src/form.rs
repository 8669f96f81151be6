//! Forms that pages send, and where the browser goes afterwards.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// Most bytes of a form: room for a certificate chain or a long note.
const FORM_BYTES_MAX: usize = 256 << 10;

/// The fields of a form, each name once or more, in their order.
#[derive(Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// A field, without blanks around it; `None` where it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// A field with the blanks around it, for what must not be changed; `None` where it is absent or empty.
    pub(crate) fn exact(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn of(fields: &[(&str, &str)]) -> Self {
        Self(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// Every value of a field.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let of_name = self.0.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The token that proves that the form is from a page of this session. The API checks it.
    pub(crate) fn csrf(&self) -> &str {
        self.field("csrf").unwrap_or_default()
    }

    /// Whether a box is ticked.
    pub(crate) fn ticked(&self, name: &str) -> bool {
        self.field(name).is_some()
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let body = Limited::new(request.into_body(), FORM_BYTES_MAX).collect().await.map_err(|_| {
            Failure::refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a form has at most {FORM_BYTES_MAX} bytes"),
                "use the API for larger requests",
            )
        })?;
        let fields = serde_urlencoded::from_bytes(&body.to_bytes()).map_err(|error| {
            Failure::refused(StatusCode::BAD_REQUEST, error.to_string(), "go back and send the form again")
        })?;
        Ok(Self(fields))
    }
}

/// Back to a page, which says what was done: a name known to the shell. `answer` is the API's: what waits for approval says so.
pub(crate) fn back(page: &str, done: &str, answer: &Value) -> Response {
    let waits = ["required_approvals", "approvals_needed"].iter().any(|member| answer.get(member).is_some());
    let sign = if page.contains('?') { '&' } else { '?' };
    let done = if waits { "waiting" } else { done };
    Redirect::to(&format!("{page}{sign}done={done}")).into_response()
}

/// A query without empty parameters, and without `cursor` and `done`: the filters of a list.
pub(crate) fn filters(query: Option<&str>) -> String {
    let pairs: Vec<(String, String)> =
        query.and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default();
    let kept = pairs.iter().filter(|(name, value)| !value.is_empty() && name != "cursor" && name != "done");
    let kept: Vec<String> = kept
        .map(|(name, value)| format!("{}={}", api::path::segment(name), api::path::segment(value)))
        .collect();
    kept.join("&")
}

/// One parameter of a query.
pub(crate) fn parameter<T: DeserializeOwned + Default>(query: Option<&str>, name: &str) -> T {
    let pairs: Vec<(String, String)> =
        query.and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default();
    let value = pairs.into_iter().find(|(known, _)| known == name).map(|(_, value)| Value::String(value));
    value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_waits_for_approval() {
        let place = |answer: Value| {
            let response = back("/console/profiles/web", "saved", &answer);
            response.headers()["location"].to_str().unwrap().to_owned()
        };
        assert_eq!(
            place(serde_json::json!({ "approvals_needed": 1, "approvals_given": 0 })),
            "/console/profiles/web?done=waiting"
        );
        assert_eq!(place(serde_json::json!({ "approvals": 1 })), "/console/profiles/web?done=saved");
        assert_eq!(place(Value::Null), "/console/profiles/web?done=saved");
    }

    #[test]
    fn filters_leave_out_what_is_not_one() {
        assert_eq!(
            filters(Some("status=active&owner=&cursor=abc&q=a%20b&done=saved")),
            "status=active&q=a%20b"
        );
        assert_eq!(filters(None), "");
        assert_eq!(parameter::<String>(Some("a=1&b=x%26y"), "b"), "x&y");
    }
}
