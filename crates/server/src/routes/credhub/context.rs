//! The state of the credential store's routes.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::credhub::CredHub;
use crate::state::State;

/// The state of the credential store's routes: the store itself, which always exists on this listener, and the state of the server.
/// Handlers take it as an argument.
#[derive(Clone)]
pub(crate) struct Context {
    hub: CredHub,
    server: State,
    accepts_sessions: bool,
}

impl Context {
    /// Creates the state for the listener: callers use a token or a client certificate.
    pub(crate) fn new(hub: CredHub, server: State) -> Self {
        Self { hub, server, accepts_sessions: false }
    }

    /// Creates the state for pages of this process: callers can also use a browser session.
    pub(crate) fn with_sessions(hub: CredHub, server: State) -> Self {
        Self { hub, server, accepts_sessions: true }
    }

    /// Returns whether a browser session can identify a caller.
    pub(crate) fn accepts_sessions(&self) -> bool {
        self.accepts_sessions
    }

    pub(crate) fn hub(&self) -> &CredHub {
        &self.hub
    }

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

/// Returns the host name that the client used for this server. In HTTP/2 the host name is in the URI (RFC 9113 section 8.3.1).
pub(crate) fn host<'a>(headers: &'a http::HeaderMap, uri: &'a http::Uri) -> Option<&'a str> {
    let header = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| uri.authority().map(http::uri::Authority::as_str))
}
