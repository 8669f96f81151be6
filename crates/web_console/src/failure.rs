//! Error pages.

use api::problem::ProblemDocument;
use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::StatusCode;

/// Reason why a page cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API returned an error.
    #[error("{}", .0.title)]
    Refused(Box<ProblemDocument>),
    /// The user is not signed in. Contains the path to return to.
    #[error("not signed in")]
    SignedOut(String),
    /// A response of the API is invalid.
    #[error("a response of the API cannot be parsed: {0}")]
    Unreadable(String),
    /// A page could not be rendered.
    #[error("a page cannot be rendered: {0}")]
    Template(#[from] askama::Error),
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage<'a> {
    title: &'a str,
    status: u16,
    detail: Option<&'a str>,
    hint: Option<&'a str>,
    instance: Option<&'a str>,
    /// Whether the action can continue after the user confirms their identity.
    unproved: bool,
}

impl Failure {
    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::Unreadable(error.to_string())
    }

    /// Creates an error for a form or URL that the console itself rejects.
    pub(crate) fn refused(status: StatusCode, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused(Box::new(ProblemDocument {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: Some(detail.into()),
            hint: Some(hint.into()),
            instance: None,
            members: serde_json::Map::new(),
        }))
    }

    /// Returns the error text to show above a form that the API rejected.
    ///
    /// # Errors
    /// The failure itself if other input would not help.
    pub(crate) fn form_problem(self) -> Result<String, Self> {
        match self {
            Self::Refused(problem) if matches!(problem.status, 400 | 409 | 412 | 422) => {
                let parts = [Some(problem.title), problem.detail, problem.hint];
                Ok(parts.into_iter().flatten().collect::<Vec<_>>().join(". "))
            }
            other => Err(other),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(problem) => {
                StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::SignedOut(_) => StatusCode::UNAUTHORIZED,
            Self::Unreadable(_) | Self::Template(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Returns the result of an optional request: `None` for 403, 404 and 503 (a component that this process does not run).
///
/// # Errors
/// Any other failure.
pub(crate) fn if_allowed<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Refused(problem)) if matches!(problem.status, 403 | 404 | 503) => Ok(None),
        Err(other) => Err(other),
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.status();
        let problem = match &self {
            Self::SignedOut(to) => {
                return Redirect::to(&format!("/console/sign-in?to={}", api::path::segment(to)))
                    .into_response();
            }
            Self::Refused(problem) => Some(problem),
            Self::Unreadable(_) | Self::Template(_) => {
                tracing::error!(error = %self, "a page of the console failed");
                None
            }
        };
        let page = FailurePage {
            title: problem.map_or("The page could not be rendered", |problem| &problem.title),
            status: status.as_u16(),
            detail: problem.and_then(|problem| problem.detail.as_deref()),
            hint: problem.and_then(|problem| problem.hint.as_deref()),
            instance: problem.and_then(|problem| problem.instance.as_deref()),
            unproved: problem.is_some_and(|problem| problem.kind.ends_with("/reauthentication-required")),
        };
        match page.render() {
            Ok(html) => (status, Html(html)).into_response(),
            Err(_) => status.into_response(),
        }
    }
}
