//! What the routes of the credential store reach.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::credhub::CredHub;
use crate::state::State;

/// What the routes of the credential store reach: the store itself, which their listener does not run without, and what
/// every server has. Handlers take it as an argument.
#[derive(Clone)]
pub(crate) struct Context {
    hub: CredHub,
    server: State,
    accepts_sessions: bool,
}

impl Context {
    /// For the listener: callers show a token or a client certificate.
    pub(crate) fn new(hub: CredHub, server: State) -> Self {
        Self { hub, server, accepts_sessions: false }
    }

    /// For pages of this process: the session of a browser identifies a caller too.
    pub(crate) fn with_sessions(hub: CredHub, server: State) -> Self {
        Self { hub, server, accepts_sessions: true }
    }

    /// Whether the session of a browser identifies a caller.
    pub(crate) fn accepts_sessions(&self) -> bool {
        self.accepts_sessions
    }

    /// The credential store.
    pub(crate) fn hub(&self) -> &CredHub {
        &self.hub
    }

    /// The server's state.
    pub(crate) fn server(&self) -> &State {
        &self.server
    }
}

impl FromRequestParts<Self> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, context: &Self) -> Result<Self, Infallible> {
        Ok(context.clone())
    }
}

/// As the client calls this server: over HTTP/2 it says so in the URI (RFC 9113 section 8.3.1).
pub(crate) fn host<'a>(headers: &'a http::HeaderMap, uri: &'a http::Uri) -> Option<&'a str> {
    let header = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| uri.authority().map(http::uri::Authority::as_str))
}
