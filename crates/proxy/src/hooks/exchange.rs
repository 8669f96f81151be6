//! Data about a request that hooks get, and the verdicts that hooks return.

use std::sync::Arc;

use bytes::Bytes;
use http_relay::client::Client;
use http_relay::page::{self, Body};
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use x509::HostOrIp;

use super::fault::HookFault;
use super::fields::{FieldChange, apply};

/// Properties of a request that are not in its header.
pub(crate) struct HookFacts<'a> {
    pub(crate) client: &'a Client,
    /// The identity of the client in the policy.
    pub(crate) identity: Option<Arc<str>>,
    /// The rule of the policy that allowed the request.
    pub(crate) rule: Option<Arc<str>>,
    /// The host that the request names, with the port of the connection.
    pub(crate) host: &'a HostOrIp,
    pub(crate) port: u16,
    /// `https` or `http`; empty for a tunnel.
    pub(crate) scheme: &'static str,
    /// The id of the request in the audit log; empty without an audit log.
    pub(crate) id: Arc<str>,
}

impl HookFacts<'_> {
    /// Returns the name of the client's identity; without an identity, the name of its user.
    pub(super) fn principal(&self) -> &str {
        self.identity.as_deref().or(self.client.user.as_deref()).unwrap_or_default()
    }

    /// Returns host and port as in `:authority`.
    pub(super) fn authority(&self) -> String {
        match self.host {
            HostOrIp::Ip(std::net::IpAddr::V6(address)) => format!("[{address}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }

    /// Returns `:method`, `:scheme`, `:authority` and `:path` of a request.
    pub(super) fn pseudo_fields(&self, head: &RequestHead) -> [(&'static str, String); 4] {
        [
            (":method", head.method.clone()),
            (":scheme", self.scheme.to_owned()),
            (":authority", self.authority()),
            (":path", head.path.clone()),
        ]
    }
}

/// The part of a request's header that a hook gets and may not change.
pub(crate) struct RequestHead {
    pub(super) method: String,
    /// Path and query.
    pub(super) path: String,
    pub(super) version: Version,
}

impl RequestHead {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Self { method: request.method().to_string(), path, version: request.version() }
    }

    /// Describes a connection that is tunneled without interception.
    pub(super) fn tunnel() -> Self {
        Self { method: "CONNECT".to_owned(), path: String::new(), version: Version::HTTP_11 }
    }

    pub(super) const fn protocol(&self) -> &'static str {
        match self.version {
            Version::HTTP_2 => "HTTP/2",
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        }
    }
}

/// A response from a hook, which the client gets instead of the server's response.
#[derive(Debug)]
pub(crate) struct HookReply {
    pub(super) status: StatusCode,
    pub(super) fields: Vec<FieldChange>,
    pub(super) body: Bytes,
}

impl HookReply {
    /// Returns the status of a reply; `fallback` if the hook sent none.
    pub(super) fn status(code: Option<i32>, fallback: StatusCode) -> Result<StatusCode, HookFault> {
        let code = code.filter(|code| *code != 0);
        let status =
            code.map(|code| u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok()));
        let status = status.unwrap_or(Some(fallback)).filter(|status| !status.is_informational());
        status.ok_or(HookFault::Invalid("its status is not one of a final response"))
    }

    pub(crate) fn code(&self) -> StatusCode {
        self.status
    }

    /// Returns whether the reply is an error status without header fields and body.
    pub(crate) fn is_bare_refusal(&self) -> bool {
        let is_error = self.status.is_client_error() || self.status.is_server_error();
        is_error && self.fields.is_empty() && self.body.is_empty()
    }

    /// Converts the reply to the HTTP response for the client.
    pub(crate) fn response(self) -> Response<Body> {
        let mut response = page::text(self.status, "text/plain; charset=utf-8", self.body);
        apply(response.headers_mut(), &self.fields);
        response
    }
}

/// Verdict of a hook about a part of a message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Continue, with these changes.
    Continue(Changes),
    /// The client gets this response.
    Reply(HookReply),
    /// The hook takes no further part in this request.
    Done,
}

/// Changes that a hook makes to a message: header fields and body.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) fields: Vec<FieldChange>,
    /// Changes of header fields in the later response to this request.
    pub(super) response_fields: Vec<FieldChange>,
    pub(super) body: Option<Bytes>,
    /// Whether the hook ignores the rest of the message. If so, the body is not sent to the hook.
    pub(super) is_final: bool,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.response_fields.is_empty() && self.body.is_none()
    }

    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        apply(headers, &self.fields);
    }
}
