//! Error pages.

use api::problem::ProblemDocument;
use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::StatusCode;

/// A page that cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API refused.
    #[error("{}", .0.title)]
    Refused(Box<ProblemDocument>),
    /// Nobody has signed in; the path to come back to.
    #[error("not signed in")]
    SignedOut(String),
    /// An answer of the API cannot be read.
    #[error("an answer of the API cannot be read: {0}")]
    Unreadable(String),
    /// A page could not be written.
    #[error("a page cannot be written: {0}")]
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
    /// Whether it goes on once the person has proved again who they are.
    unproved: bool,
}

impl Failure {
    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::Unreadable(error.to_string())
    }

    /// A form or an address that the console itself refuses.
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

    /// What a form says above its fields after the API rejected it.
    ///
    /// # Errors
    /// The failure itself where another text in the form would not help.
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

/// The result of a request whose object a person may lack access to: `None` for 403, 404 and 503 (a component that this process does
/// not run).
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
