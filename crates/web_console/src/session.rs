//! The session of a request: the user, their permissions, and an API client with their session.

use axum::extract::FromRequestParts;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::Value;

use crate::api::{Api, Client};
use crate::failure::Failure;
use crate::json;

/// The CSRF token of a request's session, for the extractor of forms.
#[derive(Clone)]
pub(crate) struct CsrfToken(pub(crate) String);

/// A signed-in session. As an extractor it redirects to the sign-in page if the user is not signed in.
pub(crate) struct Session {
    /// The API client with this user's session.
    pub(crate) api: Client,
    /// The time at which the page is rendered.
    pub(crate) now: Timestamp,
    /// The path and query of this page.
    pub(crate) path: String,
    me: Value,
}

impl Session {
    /// Returns the user's actor name in the audit log.
    pub(crate) fn actor(&self) -> &str {
        json::text(&self.me, "/actor")
    }

    /// Returns the CSRF token for forms of this session.
    pub(crate) fn csrf(&self) -> &str {
        json::text(&self.me, "/csrf_token")
    }

    /// Returns whether the user has a permission in any scope, such as `certificate.read`. Use it only to hide actions that would
    /// fail: the API checks permissions.
    pub(crate) fn may(&self, permission: &str) -> bool {
        json::list(&self.me, "/granted")
            .iter()
            .flat_map(|grant| json::list(grant, "/permissions"))
            .any(|granted| granted.as_str() == Some(permission))
    }

    /// Returns the API's response about the user.
    pub(crate) fn me(&self) -> &Value {
        &self.me
    }
}

impl FromRequestParts<Api> for Session {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Failure> {
        let api = api.client(parts);
        let path = parts.uri.path_and_query().map_or("/console", |path| path.as_str()).to_owned();
        match api.get("/api/v1/auth/me").await {
            Ok(me) => {
                let session = Self { api, now: Timestamp::now(), path, me };
                parts.extensions.insert(CsrfToken(session.csrf().to_owned()));
                Ok(session)
            }
            Err(Failure::Refused(problem)) if problem.status == 401 => Err(Failure::SignedOut(path)),
            Err(other) => Err(other),
        }
    }
}
