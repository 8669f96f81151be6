//! Permission checks of the proxy: it intercepts a connection only if the permission service permits a leaf for the host. The
//! permission is checked at CONNECT, so that the client can get an error page, and for the server name in the ClientHello.

use http_relay::client::Client;
use http_relay::page::{self, Body};
use http_relay::target::Target;
use hyper::{Response, StatusCode};
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::proxy::Proxy;
use crate::permission::{LeafRequester, NotPermitted};

impl Proxy {
    /// Checks the permission for the host name of a CONNECT target, if the connection would be intercepted. For an IP address, the
    /// permission is checked after the ClientHello, which may contain a name.
    pub(super) async fn permits_target(&self, target: &Target, client: &Client) -> Result<(), NotPermitted> {
        let name = &target.name;
        let is_intercepted =
            self.action_of(target, name).await.intercepts() && !self.refusals.has(client, name);
        match name {
            HostOrIp::Dns(_) if is_intercepted => self.permits(target, name, client).await,
            _ => Ok(()),
        }
    }

    /// Checks the permission for a request to `host` on a connection with a mirrored leaf. The connection's own name was checked
    /// before the handshake, but the leaf's other names were not.
    pub(super) async fn permits_other_host(&self, context: &ConnectionContext, host: &HostOrIp) -> bool {
        let is_another = context.mirrored.is_some() && context.origin.server.as_ref() != Some(host);
        !is_another || self.permits(&context.origin.target, host, &context.client).await.is_ok()
    }

    /// Checks the permission for a leaf for `name` at `target`. Writes a denial to the access log and to the process log.
    pub(super) async fn permits(
        &self,
        target: &Target,
        name: &HostOrIp,
        client: &Client,
    ) -> Result<(), NotPermitted> {
        let requester = LeafRequester { address: client.ip(), user: client.user.as_deref(), consumer: None };
        let permitted = self.permission.check(requester, name).await;
        if let Err(refused) = &permitted {
            self.requests.log_not_permitted(client, target, name, (status(refused), refused.name()));
            tracing::info!(%client, %target, %name, %refused, "a client was not intercepted: no permission");
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

/// Returns the error response to a CONNECT that the permission service does not permit. If the service is unavailable, the cause is
/// only in the log.
pub(super) fn page(name: &HostOrIp, refused: &NotPermitted) -> Response<Body> {
    let (reason, detail) = match refused {
        NotPermitted::No => ("http_request_denied", format!("{name} is not permitted here")),
        NotPermitted::TooMany(_) => ("http_request_denied", refused.to_string()),
        NotPermitted::Unknown(_) => (
            "proxy_internal_error",
            format!("the permission service is unavailable and cannot decide about {name}"),
        ),
        NotPermitted::Busy => ("connection_limit_reached", refused.to_string()),
    };
    page::problem(status(refused), reason, &detail)
}
