//! Connections whose bytes pass through unchanged: tunnels, and upgraded connections.

use std::time::Duration;

use http_relay::access_log::counted;
use http_relay::client::Client;
use http_relay::relay::{ByteCounters, RelayEnd, relay, relay_with};
use http_relay::target::{Origin, Target};
use hyper::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::policy::Phase;
use super::proxy::Proxy;
use super::rules::Action;

/// How to check a tunnel's address before dialling.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AddressCheck {
    /// No check: the tunnel connects to the host that the decision was made for.
    None,
    /// The address must belong to the name, by DNS or by the server's certificate.
    ByName,
}

impl Proxy {
    /// Tunnels a connection for the server name in its ClientHello. The tunnel leads to that name instead of the CONNECT target:
    /// otherwise a tunneled name could reach any server. A redirected connection always leads to its original address, so that
    /// address must belong to the name.
    pub(super) async fn tunnel_as<S>(&self, stream: S, target: &Target, name: &HostOrIp, client: &Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if *name == target.name {
            return self.tunnel(stream, target, name, client).await;
        }
        // With a policy, a server name that differs from the CONNECT target is refused.
        if !target.redirected && !self.rules.now().policy.is_active() {
            let named = Target { name: name.clone(), ..target.clone() };
            return self.tunnel(stream, &named, name, client).await;
        }
        self.tunnel_after(AddressCheck::ByName, stream, target, name, client).await;
    }

    /// Returns whether the address of a redirected connection belongs to the name: by DNS, or by the certificate of the server.
    async fn is_address_of(&self, target: &Target, name: &HostOrIp, client: &Client) -> bool {
        if self.upstreams.leads_to(name, &target.name).await {
            return true;
        }
        let origin = Origin {
            target: target.clone(),
            server: Some(name.clone()),
            tls: None,
            http2: true,
            absolute_form: false,
            may_be_local: client.is_local(),
        };
        self.upstreams.verifies(&origin) && self.upstreams.probe(&origin, name).await.is_ok()
    }

    /// Tunnels a connection. `name` is the host that the decision was made for, which may differ from the CONNECT target.
    pub(super) async fn tunnel<S>(&self, stream: S, target: &Target, name: &HostOrIp, client: &Client)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.tunnel_after(AddressCheck::None, stream, target, name, client).await;
    }

    async fn tunnel_after<S>(
        &self,
        check: AddressCheck,
        stream: S,
        target: &Target,
        name: &HostOrIp,
        client: &Client,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let admitted = self.judge_or_hold_tunnel(client, target, name).await;
        // Checked after the decision: nothing is resolved or dialled for a connection that is denied or held.
        if admitted.is_ok()
            && check == AddressCheck::ByName
            && !self.is_address_of(target, name, client).await
        {
            self.metrics.rejected();
            self.requests.log_misdirected(client, target, name);
            return tracing::info!(%client, %target, %name, "closed a connection: its address does not belong to the name in the ClientHello");
        }
        let Some(mut admission) = self.note_tunnel(client, target, name, admitted).await else { return };
        let bytes = self.metrics.tunnel();
        let mut entry = match admission.is_counted() {
            true => Some(self.requests.counted_tunnel(client, target, name)),
            false => self.requests.tunnel(client, target, name),
        };
        entry.iter_mut().for_each(|entry| admission.note(entry));
        let mut answered =
            |status| entry.iter_mut().for_each(|entry| entry.answered(status, &HeaderMap::new()));
        let rules = self.rules.now();
        let is_refused = self.refusals.has(client, name);
        let is_meant = |address| {
            is_refused || rules.names.action_at_address(name, address, target.port) == Action::Tunnel
        };
        match self.upstreams.link(target, name, client.is_local(), &is_meant).await {
            Ok((upstream, _slot)) => {
                answered(StatusCode::OK);
                let stream = counted(stream, entry.as_deref());
                tokio::select! {
                    ended = relay(stream, upstream, self.options.idle, &bytes) => {
                        tracing::debug!(%target, ?ended, "a tunnel ended");
                        if matches!(ended, RelayEnd::Closed) {
                            entry.iter_mut().for_each(|entry| entry.complete());
                        }
                    }
                    () = self.wait_until_not_admitted(client, target, name, Phase::Tunnel) => {
                        tracing::info!(%client, %target, "closed a tunnel: the policy no longer allows it");
                    }
                }
            }
            Err(error) => {
                answered(StatusCode::BAD_GATEWAY);
                tracing::info!(%target, %error, "cannot connect a tunnel to its target");
            }
        }
    }

    /// Relays the bytes of upgraded connections. After one side has ended, the other side may be silent for `half` at most. Returns
    /// whether both sides closed normally.
    pub(super) async fn relay_upgraded<A, B>(
        &self,
        context: &ConnectionContext,
        client: A,
        upstream: B,
        half: Duration,
    ) -> bool
    where
        A: AsyncRead + AsyncWrite + Unpin,
        B: AsyncRead + AsyncWrite + Unpin,
    {
        let bytes: ByteCounters = self.metrics.upgraded();
        let target = &context.origin.target;
        let name = context.origin.server.as_ref().unwrap_or(&target.name);
        tokio::select! {
            ended = relay_with(client, upstream, self.options.idle, half, &bytes) => {
                matches!(ended, RelayEnd::Closed)
            }
            () = self.wait_until_not_admitted(&context.client, target, name, Phase::Connect) => {
                tracing::info!(client = %context.client, %target, "closed a connection: the policy no longer allows the host");
                false
            }
        }
    }
}
