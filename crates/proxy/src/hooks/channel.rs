//! The connection to the service of a hook: one HTTP/2 connection, opened by the first call and reopened after a failure.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_relay::upstream::UpstreamTls;
use hyper_util::rt::TokioIo;
use outbound::dial::happy_eyeballs;
use outbound::guard::Guard;
use outbound::resolve::{Families, Resolver};
use outbound::tls::system_roots;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};
use x509::HostOrIp;

use super::options::HookOptions;
use crate::setting::{InvalidSetting, invalid, is_loopback_host};

/// Timeout of resolving, connecting and the TLS handshake together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings. They detect a dead connection before the next request needs it.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Timeout of a keep-alive ping.
const PING_WITHIN: Duration = Duration::from_secs(5);

/// Address of a hook's service, with the resolver and TLS options to reach it.
struct Service {
    host: HostOrIp,
    port: u16,
    tls: Option<UpstreamTls>,
    resolver: Resolver,
}

/// The parsed URL of a hook.
pub(super) struct Address {
    url: String,
    host: HostOrIp,
    port: u16,
    is_tls: bool,
}

impl Address {
    /// Parses the URL of a hook.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidSetting> {
        let url = Guard::default().url(text).map_err(|error| wrong(error.to_string()))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("the URL of a hook must have no path and no query: gRPC sets the path".into()));
        }
        let (text, is_tls) = (url.host_str().unwrap_or_default(), url.scheme() == "https");
        if !is_tls && !is_loopback_host(text) {
            let why = "a hook sees requests, so it must use https, unless it is on this machine";
            return Err(wrong(why.into()));
        }
        let host =
            HostOrIp::parse(text).map_err(|_| wrong(format!("{text:?} is not a host name or address")))?;
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(Self { url: url.to_string(), host, port, is_tls })
    }

    fn tls(&self, options: &HookOptions) -> Result<Option<UpstreamTls>, InvalidSetting> {
        if !self.is_tls {
            return Ok(None);
        }
        let roots = options.roots.clone().unwrap_or_else(system_roots);
        let tls = UpstreamTls::new(self.host.clone(), roots, None);
        tls.map(Some)
            .map_err(|error| invalid("ca_files", error.to_string(), "give PEM files with CA certificates"))
    }
}

fn wrong(why: String) -> InvalidSetting {
    invalid("url", why, "for example http://127.0.0.1:9001, or https://hooks.example:9001")
}

/// Returns the channel to the service of a hook. Must be called on a runtime.
pub(super) fn open(options: &HookOptions, resolver: &Resolver) -> Result<Channel, InvalidSetting> {
    let address = Address::parse(&options.url)?;
    let tls = address.tls(options)?;
    let Address { url, host, port, .. } = address;
    let service = Arc::new(Service { host, port, tls, resolver: resolver.clone() });
    // The connector opens the connection. The URI is only for the field `:authority`.
    let endpoint = Endpoint::from_shared(url)
        .map_err(|error| wrong(error.to_string()))?
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let service = Arc::clone(&service);
        async move { service.connect().await }
    })))
}

/// A connection, with TLS or without.
type Connection = TokioIo<Box<dyn Stream>>;

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}

impl Service {
    async fn connect(&self) -> io::Result<Connection> {
        let stream = self.dial().await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let alpn = vec![b"h2".to_vec()];
                Box::new(tls.connect(stream, alpn, CONNECT_WITHIN).await.map_err(io::Error::other)?)
            }
            None => Box::new(stream),
        };
        Ok(TokioIo::new(stream))
    }

    async fn dial(&self) -> io::Result<TcpStream> {
        let found = match &self.host {
            HostOrIp::Ip(address) => vec![*address],
            HostOrIp::Dns(name) => {
                let found = self.resolver.resolve(name.as_str(), Families::Both, CONNECT_WITHIN).await;
                found.map_err(io::Error::other)?.addresses
            }
        };
        let allowed: Vec<IpAddr> =
            found.into_iter().filter(|address| Guard::default().address(*address).is_ok()).collect();
        let dialled = happy_eyeballs(&allowed, self.port, CONNECT_WITHIN).await;
        dialled
            .map(|(stream, _)| stream)
            .map_err(|(address, error)| io::Error::other(format!("{address}:{}: {error}", self.port)))
    }
}
