//! What is not permitted is not looked into: asked at CONNECT, so that there is a page, and by the name in the ClientHello.

use http_relay::client::Client;
use http_relay::page::{self, Body};
use http_relay::target::Target;
use hyper::{Response, StatusCode};
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::proxy::Proxy;
use crate::permission::{Asker, NotPermitted};

impl Proxy {
    /// Whether whom CONNECT names may be looked into, where it would be by that name. Addresses wait for the ClientHello, which
    /// says the name behind them.
    pub(super) async fn permits_target(&self, target: &Target, client: &Client) -> Result<(), NotPermitted> {
        let name = &target.name;
        let is_looked_into = self.action_of(target, name).await.looks() && !self.refusals.has(client, name);
        match name {
            HostOrIp::Dns(_) if is_looked_into => self.permits(target, name, client).await,
            _ => Ok(()),
        }
    }

    /// Whether a request for `host` may be looked into on a connection whose leaf has the names of its server's certificate: that of
    /// the connection was asked for before its handshake, its other names are not.
    pub(super) async fn permits_beside(&self, way: &ConnectionContext, host: &HostOrIp) -> bool {
        let is_another = way.mirrored.is_some() && way.origin.server.as_ref() != Some(host);
        !is_another || self.permits(&way.origin.target, host, &way.client).await.is_ok()
    }

    /// Whether there may be a leaf for `name`, behind `target`. A refusal is told in both logs.
    pub(super) async fn permits(
        &self,
        target: &Target,
        name: &HostOrIp,
        client: &Client,
    ) -> Result<(), NotPermitted> {
        let asker = Asker { address: client.ip(), user: client.user.as_deref(), consumer: None };
        let permitted = self.permission.ask(asker, name).await;
        if let Err(refused) = &permitted {
            self.requests.not_permitted(client, target, name, (status(refused), refused.name()));
            tracing::info!(%client, %target, %name, %refused, "a client was not intercepted");
        }
        permitted
    }
}

fn status(refused: &NotPermitted) -> StatusCode {
    match refused {
        NotPermitted::No => StatusCode::FORBIDDEN,
        NotPermitted::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        NotPermitted::Unknown(_) | NotPermitted::Busy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The response to CONNECT without permission. The reason is only in the log.
pub(super) fn page(name: &HostOrIp, refused: &NotPermitted) -> Response<Body> {
    let (reason, detail) = match refused {
        NotPermitted::No => ("http_request_denied", format!("{name} is not permitted here")),
        NotPermitted::TooMany(_) => ("http_request_denied", refused.to_string()),
        NotPermitted::Unknown(_) => {
            ("proxy_internal_error", format!("nobody says now whether {name} is permitted"))
        }
        NotPermitted::Busy => ("connection_limit_reached", refused.to_string()),
    };
    page::problem(status(refused), reason, &detail)
}
