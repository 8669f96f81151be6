//! The session of a request: the person, their permissions, and the API with their rights.

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

/// A signed-in session. As an extractor it redirects to the sign-in page where there is none.
pub(crate) struct Session {
    /// The API with this person's session.
    pub(crate) api: Client,
    /// The time of this page.
    pub(crate) now: Timestamp,
    /// The path and query of this page.
    pub(crate) path: String,
    me: Value,
}

impl Session {
    /// As the audit log names the person.
    pub(crate) fn actor(&self) -> &str {
        json::text(&self.me, "/actor")
    }

    /// The token that forms of this session carry.
    pub(crate) fn csrf(&self) -> &str {
        json::text(&self.me, "/csrf_token")
    }

    /// Whether the person has a permission in any scope, such as `certificate.read`. Only to hide what would be refused: the API decides.
    pub(crate) fn may(&self, permission: &str) -> bool {
        json::list(&self.me, "/granted")
            .iter()
            .flat_map(|grant| json::list(grant, "/permissions"))
            .any(|granted| granted.as_str() == Some(permission))
    }

    /// The person's own description by the API.
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
