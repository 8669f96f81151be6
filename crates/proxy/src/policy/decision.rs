//! A decision, and its reason.

use std::fmt;
use std::sync::Arc;

use hyper::HeaderMap;
use x509::HostOrIp;

use super::identity::Identity;
use super::path::AmbiguousPath;
use super::session::DatabaseSession;
use super::text::Action;

/// A request about which a policy decides.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// Identity of the client, if it has one.
    pub identity: Option<&'a Identity>,
    /// The verified host of the connection, never an unverified header.
    pub host: &'a HostOrIp,
    /// The TCP port of the request.
    pub port: u16,
    /// Stage at which the policy decides, with the data that are known at this stage.
    pub phase: Phase<'a>,
}

/// Stage at which the policy decides about a request or a connection, with the data that are known at this stage.
#[derive(Clone, Copy, Debug)]
pub enum Phase<'a> {
    /// A connection that will be intercepted. The policy decides whether any request on the connection could be allowed.
    Connect,
    /// The proxy's own connection, to copy the server's certificate. The policy decides whether any request could be allowed
    /// without an approval.
    Probe,
    /// A tunneled connection. Rules with conditions on the request do not allow it.
    Tunnel,
    /// A complete request.
    Request(RequestFacts<'a>),
    /// A session with a database.
    Session(DatabaseSession<'a>),
}

/// A request, as the client sent it.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// HTTP method, as the client sent it. Rules compare it case-sensitively.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The query without `?`; `None` if the URL has none.
    pub query: Option<&'a str>,
    /// Header fields, before the proxy injects credentials.
    pub headers: &'a HeaderMap,
    /// Size of the body in bytes, if known.
    pub body_bytes: Option<u64>,
}

/// The decision of a policy about a request or a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// Action for the request: allow, deny, log or hold.
    pub action: Action,
    /// Name of the rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    /// Source of the decision, such as a rule or the default.
    pub reason: Reason,
    /// Seconds until the deadline, if the request is held.
    pub hold_for_s: u16,
}

/// Reason of a policy decision, such as a matching rule or an expired identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The first matching rule decided.
    Rule,
    /// No rule matches, so the default action applies.
    Default,
    /// The identity has expired, so its requests are denied.
    Expired,
    /// The decision depends on the path, and the path is ambiguous.
    Path(AmbiguousPath),
    /// The decision depends on the request, but the connection is tunneled without interception.
    NotIntercepted,
    /// The rule holds requests, and a session with a database cannot be held.
    NotHeld,
}

impl Reason {
    /// Returns the name of this reason in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Default => "default",
            Self::Expired => "identity-expired",
            Self::Path(_) => "ambiguous-path",
            Self::NotIntercepted => "not-intercepted",
            Self::NotHeld => "not-held",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.write_str("it is the first rule that matches"),
            Self::Default => f.write_str("no rule matches, so the default applies"),
            Self::Expired => f.write_str("the identity has expired"),
            Self::Path(why) => write!(f, "a rule depends on the path, but {why}"),
            Self::NotIntercepted => {
                f.write_str("a rule depends on the request, but this connection is not intercepted")
            }
            Self::NotHeld => f.write_str("the rule holds requests, but a session cannot be held"),
        }
    }
}
