//! Opening of connections to upstreams.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use outbound::Deadline;
use outbound::dial::happy_eyeballs;
use outbound::guard::{Guard, address_and_embedded};
use outbound::resolve::{Families, Resolver};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509::HostOrIp;

use super::super::access_log::ServerKey;
use super::super::target::{Origin, Target};
use super::address_rule::AddressRule;
use super::error::{ParentProxyError, UpstreamConnectError};
use super::http2::Http2;
use super::parent::{Link, Parent};
use super::policy::{Policies, UpstreamRoute};
use super::sender::{Http1, Sender};
use super::slot::{Slot, SlotExecutor, Slots, SlottedStream};
use super::tls::server_name;
use crate::request_body::RequestBody;
use crate::strict::UpstreamStream;
use inbound::ServiceTasks;

/// Maximum bytes of a response's header.
const HEAD_BYTES_MAX: usize = 128 << 10;

/// Value for an upstream that has not sent its limit of concurrent streams. No upstream can send this number (RFC 9113 section
/// 6.5.2).
const LIMIT_UNKNOWN: usize = usize::MAX - 1;

/// First pause between checks whether the upstream has sent its limit; the pause doubles up to a maximum. The library has no
/// notification for it.
const LIMIT_POLL_FIRST: Duration = Duration::from_millis(1);
/// Maximum pause between checks whether the upstream has sent its limit.
const LIMIT_POLL_LAST: Duration = Duration::from_millis(50);

/// Performs a TLS handshake with `server`.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    server: &HostOrIp,
    stream: S,
    deadline: Deadline,
) -> Result<TlsStream<S>, UpstreamConnectError> {
    let name = server_name(server)?;
    let done = tokio::time::timeout(deadline.remaining(), connector.connect(name, stream)).await;
    done.map_err(|_| UpstreamConnectError::Late)?.map_err(UpstreamConnectError::Tls)
}

/// Removes the addresses that the guard blocks. The address decides, independently of the name.
fn guarded(guard: Guard, mut found: Vec<IpAddr>) -> Result<Vec<IpAddr>, UpstreamConnectError> {
    let mut refused = None;
    found.retain(|address| guard.address(*address).map_err(|error| refused = Some(error)).is_ok());
    match refused {
        Some(refused) if found.is_empty() => Err(UpstreamConnectError::Guarded(refused)),
        _ => Ok(found),
    }
}

/// Returns the addresses of `target` that the client may reach. Returns all of them if `may_be_local`, or if the configuration names
/// the target or the address.
fn reachable(
    mut found: Vec<IpAddr>,
    target: &Target,
    may_be_local: bool,
    policies: &Policies,
) -> Result<Vec<IpAddr>, UpstreamConnectError> {
    if may_be_local || found.is_empty() || policies.name(&target.name) {
        return Ok(found);
    }
    found.retain(|address| {
        let address = address.to_canonical();
        !address_and_embedded(address).any(is_machine_local) || policies.name(&HostOrIp::Ip(address))
    });
    if found.is_empty() { Err(UpstreamConnectError::NotAllowed) } else { Ok(found) }
}

/// Returns whether the address is local to a machine: loopback, unspecified or link-local.
fn is_machine_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.octets()[0] == 0 || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local(),
    }
}

/// Returns the key of a certificate that the TLS library accepted.
fn key_of(certificate: &CertificateDer<'_>) -> Option<ServerKey> {
    let parsed = x509::Certificate::parse(certificate).ok()?;
    Some(ServerKey(parsed.public_key.spki_sha256))
}

type Http2Connection<S> = http2::Connection<TokioIo<S>, RequestBody, SlotExecutor>;

/// Connector to upstreams, directly or through a parent proxy: resolver, rules for addresses, and slots.
pub(super) struct Dialler {
    resolver: Resolver,
    policies: Policies,
    guard: Guard,
    address_rule: AddressRule,
    own: Vec<SocketAddr>,
    slots: Arc<Slots>,
    tasks: ServiceTasks,
}

impl Dialler {
    pub(super) fn new(
        resolver: Resolver,
        policies: Policies,
        (guard, address_rule): (Guard, AddressRule),
        own: Vec<SocketAddr>,
        slots: Arc<Slots>,
        tasks: ServiceTasks,
    ) -> Self {
        Self { resolver, policies, guard, address_rule, own, slots, tasks }
    }

    /// Returns whether the upstream's certificate is verified.
    pub(super) fn verifies(&self, origin: &Origin) -> bool {
        self.policies.of_origin(origin).verifies
    }

    /// Returns the parent proxy that gets whole requests for `origin`, instead of CONNECT, if any.
    pub(super) fn parent_for_requests(&self, origin: &Origin) -> Option<&Parent> {
        match &self.policies.of_origin(origin).route {
            UpstreamRoute::Parent(parent) if origin.absolute_form && origin.server.is_none() => Some(parent),
            _ => None,
        }
    }

    /// Opens a connection to `origin` for HTTP requests.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        deadline: Deadline,
    ) -> Result<Sender, UpstreamConnectError> {
        if let Some(parent) = self.parent_for_requests(origin) {
            self.check_before_parent(&origin.target, origin.may_be_local)?;
            let mut slot = self.slots.take(&origin.target, deadline).await?;
            return self.http1(self.connect_to_parent(parent, &mut slot, deadline).await?, slot, None).await;
        }
        let Some(server) = &origin.server else {
            let (link, slot) = self
                .link(&origin.target, &origin.target.name, origin.may_be_local, &|_| true, deadline)
                .await?;
            return match origin.http2 {
                true => self.http2(link, slot, None).await,
                false => self.http1(link, slot, None).await,
            };
        };
        Ok(self.connect_tls(origin, server, deadline).await?.0)
    }

    /// Opens a TLS connection to `origin` as `server`, and returns the certificate that the upstream presented.
    pub(super) async fn connect_tls(
        &self,
        origin: &Origin,
        server: &HostOrIp,
        deadline: Deadline,
    ) -> Result<(Sender, Option<CertificateDer<'static>>), UpstreamConnectError> {
        let (stream, slot) = self.tls(origin, server, origin.http2, deadline).await?;
        let (shown, speaks_http2) = {
            let tls = &stream.get_ref().1;
            let own = tls.peer_certificates().and_then(|chain| chain.first()).cloned();
            (own, tls.alpn_protocol() == Some(b"h2"))
        };
        let server_key = shown.as_ref().and_then(key_of);
        let sender = match speaks_http2 {
            true => self.http2(stream, slot, server_key).await?,
            false => self.http1(stream, slot, server_key).await?,
        };
        Ok((sender, shown))
    }

    async fn tls(
        &self,
        origin: &Origin,
        server: &HostOrIp,
        http2: bool,
        deadline: Deadline,
    ) -> Result<(TlsStream<Link>, Slot), UpstreamConnectError> {
        let (link, slot) =
            self.link(&origin.target, server, origin.may_be_local, &|_| true, deadline).await?;
        let policy = self.policies.of(server);
        let connector = match &origin.tls {
            Some(own) => own.connector(http2),
            None if http2 => &policy.http2,
            None => &policy.http1,
        };
        Ok((handshake(connector, server, link, deadline).await?, slot))
    }

    /// Performs a TLS handshake over `link` by the policy of `server`.
    pub(super) async fn secure(
        &self,
        link: Link,
        server: &HostOrIp,
        alpn: Vec<Vec<u8>>,
        deadline: Deadline,
    ) -> Result<(TlsStream<Link>, Option<ServerKey>), UpstreamConnectError> {
        let policy = self.policies.of(server);
        let connecting = policy.http1.with_alpn(alpn).connect(server_name(server)?, link);
        let done = tokio::time::timeout(deadline.remaining(), connecting).await;
        let stream = done.map_err(|_| UpstreamConnectError::Late)?.map_err(UpstreamConnectError::Tls)?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let key = shown.filter(|_| policy.verifies).and_then(key_of);
        Ok((stream, key))
    }

    /// Opens an HTTP/2 connection to `origin` for a WebSocket. The upstream must announce support (RFC 8441 section 3).
    pub(super) async fn connect_for_websocket(
        &self,
        origin: &Origin,
        deadline: Deadline,
    ) -> Result<(http2::SendRequest<RequestBody>, Option<ServerKey>), UpstreamConnectError> {
        let Some(server) = &origin.server else {
            let (link, slot) = self
                .link(&origin.target, &origin.target.name, origin.may_be_local, &|_| true, deadline)
                .await?;
            return Ok((self.websocket_handshake(link, slot, deadline).await?, None));
        };
        let (stream, slot) = self.tls(origin, server, true, deadline).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(UpstreamConnectError::Tls(std::io::Error::other(
                "the server no longer negotiates HTTP/2",
            )));
        }
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let server_key = shown.and_then(key_of);
        Ok((self.websocket_handshake(stream, slot, deadline).await?, server_key))
    }

    async fn websocket_handshake<S>(
        &self,
        stream: S,
        slot: Slot,
        deadline: Deadline,
    ) -> Result<http2::SendRequest<RequestBody>, UpstreamConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = self.http2_builder(slot);
        builder.initial_max_send_streams(LIMIT_UNKNOWN);
        let made = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(UpstreamConnectError::Http)?;
        let connection = self.spawn_driver(connection);
        let mut pause = LIMIT_POLL_FIRST;
        loop {
            let connection = connection.upgrade().ok_or(UpstreamConnectError::ClosedAtOnce)?;
            let supports_websockets = {
                let connection = connection.lock();
                let is_limit_known = connection.current_max_send_streams() != LIMIT_UNKNOWN;
                is_limit_known.then(|| connection.is_extended_connect_protocol_enabled())
            };
            drop(connection);
            match supports_websockets {
                Some(true) => return Ok(sender),
                Some(false) => return Err(UpstreamConnectError::NoWebsockets),
                None if deadline.remaining().is_zero() => return Err(UpstreamConnectError::Late),
                None => tokio::time::sleep(pause).await,
            }
            pause = (2 * pause).min(LIMIT_POLL_LAST);
        }
    }

    /// Spawns the task that drives a connection. The returned weak reference gives access to the upstream's settings.
    fn spawn_driver<S>(&self, connection: Http2Connection<S>) -> Weak<Mutex<Http2Connection<S>>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Arc::new(Mutex::new(connection));
        let established = Arc::downgrade(&connection);
        self.tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream");
            let served = poll_fn(move |cx| Pin::new(&mut *connection.lock()).poll(cx));
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection to an upstream failed");
            }
        });
        established
    }

    fn http2_builder(&self, slot: Slot) -> http2::Builder<SlotExecutor> {
        let mut builder = http2::Builder::new(SlotExecutor::new(self.tasks.clone(), slot));
        builder
            .timer(TokioTimer::new())
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(Duration::from_secs(20));
        builder
    }

    /// Returns whether both names have the same verification and route.
    pub(super) fn treats_alike(&self, one: &HostOrIp, other: &HostOrIp) -> bool {
        std::ptr::eq(self.policies.of(one), self.policies.of(other))
    }

    /// Opens a byte stream to a target by the route that is configured for `name`.
    pub(super) async fn link(
        &self,
        target: &Target,
        name: &HostOrIp,
        may_be_local: bool,
        is_meant: &(dyn Fn(IpAddr) -> bool + Sync),
        deadline: Deadline,
    ) -> Result<(Link, Slot), UpstreamConnectError> {
        let mut slot = self.slots.take(target, deadline).await?;
        let UpstreamRoute::Parent(parent) = &self.policies.of(name).route else {
            let found = self.addresses(&target.name, deadline).await?;
            let found = self.reachable(found, target, may_be_local)?;
            let found = self.allowed(found, name, target.port, is_meant)?;
            let stream = self.dial(&found, target.port, &mut slot, deadline).await?;
            return Ok((Link::Direct(stream), slot));
        };
        self.check_before_parent(target, may_be_local)?;
        let link = self.connect_to_parent(parent, &mut slot, deadline).await?;
        let established =
            tokio::time::timeout(deadline.remaining(), parent.connect(link, target, &self.tasks)).await;
        let link = established
            .unwrap_or(Err(ParentProxyError::Late))
            .map_err(|why| UpstreamConnectError::by(parent, why))?;
        Ok((link, slot))
    }

    async fn connect_to_parent(
        &self,
        parent: &Parent,
        slot: &mut Slot,
        deadline: Deadline,
    ) -> Result<Link, UpstreamConnectError> {
        let reached = async {
            let found = self.addresses(&parent.target.name, deadline).await?;
            // The operator configures the parent: networks that are blocked for clients do not apply to it.
            let guard = Guard { networks: None, ..self.guard };
            let found = reachable(guarded(guard, found)?, &parent.target, true, &self.policies)?;
            let stream = self.dial(&found, parent.target.port, slot, deadline).await?;
            if !parent.tls {
                return Ok(Link::Direct(stream));
            }
            let connector = &self.policies.usual().http1;
            Ok(Link::Tls(Box::new(handshake(connector, &parent.target.name, stream, deadline).await?)))
        };
        reached
            .await
            .map_err(|error| UpstreamConnectError::by(parent, ParentProxyError::Connection(Box::new(error))))
    }

    /// Checks an address before a parent is asked to connect to it. The parent may be on this machine, and it resolves names
    /// itself.
    fn check_before_parent(&self, target: &Target, may_be_local: bool) -> Result<(), UpstreamConnectError> {
        match &target.name {
            HostOrIp::Ip(address) => self.reachable(vec![*address], target, may_be_local).map(drop),
            HostOrIp::Dns(_) => Ok(()),
        }
    }

    /// Resolves the addresses of `name`.
    pub(super) async fn addresses(
        &self,
        name: &HostOrIp,
        deadline: Deadline,
    ) -> Result<Vec<IpAddr>, UpstreamConnectError> {
        match name {
            HostOrIp::Ip(address) => Ok(vec![*address]),
            HostOrIp::Dns(name) => {
                let limit = deadline.remaining();
                Ok(self.resolver.resolve(name.as_str(), Families::Both, limit).await?.addresses)
            }
        }
    }

    /// Filters the `found` addresses of `target` by what this client may dial.
    fn reachable(
        &self,
        found: Vec<IpAddr>,
        target: &Target,
        may_be_local: bool,
    ) -> Result<Vec<IpAddr>, UpstreamConnectError> {
        reachable(guarded(self.guard, found)?, target, may_be_local, &self.policies)
    }

    /// Filters the `found` addresses by the rules for `name`.
    fn allowed(
        &self,
        mut found: Vec<IpAddr>,
        name: &HostOrIp,
        port: u16,
        is_meant: &(dyn Fn(IpAddr) -> bool + Sync),
    ) -> Result<Vec<IpAddr>, UpstreamConnectError> {
        found.retain(|address| self.address_rule.allows(name, *address, port) && is_meant(*address));
        if found.is_empty() { Err(UpstreamConnectError::Rejected) } else { Ok(found) }
    }

    /// Returns whether `name` is dialled directly rather than through a parent.
    pub(super) fn is_direct(&self, name: &HostOrIp) -> bool {
        matches!(self.policies.of(name).route, UpstreamRoute::Direct)
    }

    async fn dial(
        &self,
        found: &[IpAddr],
        port: u16,
        slot: &mut Slot,
        deadline: Deadline,
    ) -> Result<TcpStream, UpstreamConnectError> {
        let dialled = happy_eyeballs(found, port, deadline.remaining()).await;
        let (stream, _) = dialled.map_err(|(_, error)| UpstreamConnectError::Dial(error))?;
        if self.is_own(&stream) {
            return Err(UpstreamConnectError::Loop);
        }
        slot.assign_to(&stream);
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Returns whether the stream leads to a listener of this process. Such a loop would make this process appear as the client.
    fn is_own(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        let peer_ip = peer.ip().to_canonical();
        let is_local = peer_ip.is_loopback() || peer_ip == local.ip().to_canonical();
        self.own.iter().any(|own| {
            let own_ip = own.ip().to_canonical();
            peer.port() == own.port() && (peer_ip == own_ip || own_ip.is_unspecified() && is_local)
        })
    }

    async fn http1<S>(
        &self,
        stream: S,
        slot: Slot,
        server_key: Option<ServerKey>,
    ) -> Result<Sender, UpstreamConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(UpstreamStream::new(SlottedStream::new(stream, slot))))
            .await
            .map_err(UpstreamConnectError::Http)?;
        self.tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream");
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to an upstream failed");
            }
        });
        Ok(Sender::Http1(Http1 { sender, server_key }))
    }

    async fn http2<S>(
        &self,
        stream: S,
        slot: Slot,
        server_key: Option<ServerKey>,
    ) -> Result<Sender, UpstreamConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let made = self.http2_builder(slot).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(UpstreamConnectError::Http)?;
        let established = self.spawn_driver(connection);
        let allowed = move || {
            established.upgrade().map_or(0, |established| established.lock().current_max_send_streams())
        };
        Ok(Sender::Http2(Http2::new(sender, server_key, allowed)))
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use super::super::policy::{UpstreamPolicies, UpstreamPolicy};
    use super::*;

    fn policies(named: &[&str]) -> Policies {
        let mut options = UpstreamPolicies::default();
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        options.add(&named, UpstreamPolicy::default()).unwrap();
        Policies::new(&options, RootCertStore::empty()).unwrap()
    }

    fn target(name: &str) -> Target {
        Target { name: HostOrIp::parse(name).unwrap(), port: 2410, redirected: false }
    }

    const OF_THIS_PLACE: [&str; 13] = [
        "127.0.0.1",
        "127.255.0.9",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "::1",
        "::",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.1.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
    ];

    #[test]
    fn remote_clients_cannot_reach_local_addresses_by_any_name() {
        let policies = policies(&["*.example"]);
        for text in OF_THIS_PLACE {
            let address: IpAddr = text.parse().unwrap();
            for name in ["a.example", "localhost", text] {
                let judged = reachable(vec![address], &target(name), false, &policies);
                assert!(matches!(judged, Err(UpstreamConnectError::NotAllowed)), "{name} at {text}");
                assert!(reachable(vec![address], &target(name), true, &policies).is_ok(), "{name} at {text}");
            }
        }
        for text in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(reachable(vec![text.parse().unwrap()], &target("a.example"), false, &policies).is_ok());
        }
        let both = vec!["127.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        let left = reachable(both, &target("a.example"), false, &policies).unwrap();
        assert_eq!(left, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn metadata_addresses_are_blocked_in_every_form() {
        let judged = |guard, text: &str| guarded(guard, vec![text.parse().unwrap()]);
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "2001:0:5ef5:79fb:0:0:5601:5601",
            "fe80::1",
        ] {
            assert!(
                matches!(judged(Guard::default(), text), Err(UpstreamConnectError::Guarded(_))),
                "{text}"
            );
            let opened = Guard { allow_link_local: true, ..Guard::default() };
            assert!(judged(opened, text).is_ok(), "{text}, opened");
        }
        let both = vec!["169.254.169.254".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        assert_eq!(guarded(Guard::default(), both).unwrap(), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn local_targets_named_in_the_configuration_are_reachable() {
        let policies = policies(&["here.example", "127.0.0.2"]);
        let reached = |name: &str, address: &str| {
            reachable(vec![address.parse().unwrap()], &target(name), false, &policies).is_ok()
        };
        assert!(reached("here.example", "127.0.0.1"));
        assert!(reached("127.0.0.2", "127.0.0.2") && reached("a.example", "::ffff:127.0.0.2"));
        assert!(!reached("a.here.example", "127.0.0.1") && !reached("127.0.0.1", "127.0.0.1"));
    }
}
