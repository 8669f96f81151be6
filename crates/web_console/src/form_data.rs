//! Submitted forms, and the redirect after a change.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::failure::Failure;
use crate::session::CsrfToken;

/// Maximum bytes of a form: a certificate chain or a long note fits.
const FORM_BYTES_MAX: usize = 256 << 10;

/// The fields of a submitted form, in their order; a name may repeat. As an extractor it rejects a form without the CSRF token of the
/// session with 403.
#[derive(Default)]
pub(crate) struct FormData(Vec<(String, String)>);

/// The form of a sign-in. The browser has no session yet, so the form has no CSRF token.
pub(crate) struct SignInForm(pub(crate) FormData);

impl FormData {
    /// Returns the first value of a field, trimmed; `None` if it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the trimmed value of a field; empty if it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.field(name).unwrap_or_default()
    }

    /// Returns the value of a field including its white space, for example of a password; `None` if the field is absent or empty.
    pub(crate) fn exact(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn of(fields: &[(&str, &str)]) -> Self {
        Self(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// Returns the trimmed values of a field that are not empty.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let of_name = self.0.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the words of a field, separated by white space or commas.
    pub(crate) fn words(&self, name: &str) -> Vec<&str> {
        let words = self.text(name).split(|letter: char| letter.is_whitespace() || letter == ',');
        words.filter(|word| !word.is_empty()).collect()
    }

    /// Returns the CSRF token, which the API checks again.
    pub(crate) fn csrf(&self) -> &str {
        self.text("csrf")
    }

    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    async fn read(request: Request) -> Result<Self, Failure> {
        let site = request.headers().get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(Failure::refused(
                StatusCode::FORBIDDEN,
                "The form was sent by a page of another site.",
                "open the page in this console and send its form",
            ));
        }
        let body = Limited::new(request.into_body(), FORM_BYTES_MAX).collect().await.map_err(|_| {
            Failure::refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a form can have at most {FORM_BYTES_MAX} bytes"),
                "use the API for larger requests",
            )
        })?;
        let fields = serde_urlencoded::from_bytes(&body.to_bytes()).map_err(|error| {
            Failure::refused(StatusCode::BAD_REQUEST, error.to_string(), "go back and send the form again")
        })?;
        Ok(Self(fields))
    }
}

impl<S: Send + Sync> FromRequest<S> for FormData {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        // The session is extracted before the body. A caller with a client certificate or a token in the header has an empty CSRF
        // token.
        let wanted = request.extensions().get::<CsrfToken>().cloned();
        let form = Self::read(request).await?;
        let is_own = wanted.is_some_and(|CsrfToken(wanted)| {
            verify_slices_are_equal(wanted.as_bytes(), form.csrf().as_bytes()).is_ok()
        });
        if is_own {
            return Ok(form);
        }
        Err(Failure::refused(
            StatusCode::FORBIDDEN,
            "The form does not carry the CSRF token of this session.",
            "open the page again and send its form",
        ))
    }
}

impl<S: Send + Sync> FromRequest<S> for SignInForm {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        FormData::read(request).await.map(Self)
    }
}

/// Redirects to a page of the console after a change. `message` is the name of a message in [`crate::shell`]. If the change waits
/// for approval, the page tells the user so instead.
pub(crate) fn redirect(page: &str, message: &str, answer: &Value) -> Response {
    let needs_approval =
        ["required_approvals", "approvals_needed"].iter().any(|member| answer.get(member).is_some());
    let sign = if page.contains('?') { '&' } else { '?' };
    let message = if needs_approval { "waiting" } else { message };
    Redirect::to(&format!("{page}{sign}done={message}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_reports_changes_waiting_for_approval() {
        let location = |answer: Value| {
            let response = redirect("/console/profiles/web", "saved", &answer);
            response.headers()["location"].to_str().unwrap().to_owned()
        };
        assert_eq!(
            location(serde_json::json!({ "approvals_needed": 1, "approvals_given": 0 })),
            "/console/profiles/web?done=waiting"
        );
        assert_eq!(location(serde_json::json!({ "approvals": 1 })), "/console/profiles/web?done=saved");
        assert_eq!(location(Value::Null), "/console/profiles/web?done=saved");
    }
}
