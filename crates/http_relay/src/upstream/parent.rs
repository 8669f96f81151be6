//! Parent proxies, through which the pool reaches upstreams.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::super::target::Target;
use super::error::ParentProxyError;
use inbound::ServiceTasks;

/// Maximum bytes of a parent's response to CONNECT.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A parent proxy, through which the pool reaches upstreams: its address and credentials.
#[derive(Clone)]
pub struct Parent {
    pub(super) target: Target,
    /// Whether the connection to the parent uses TLS.
    pub(super) tls: bool,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parent").field("target", &self.target).field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// Reason why the configuration of a parent proxy is rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadParent {
    /// The URL has an invalid form.
    #[error("{0:?} is not http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    /// The user name or the password is invalid.
    #[error("the credentials are not USER:PASSWORD on one line")]
    Credentials,
}

impl Parent {
    /// Parses `url` (`http://HOST:PORT` or `https://HOST:PORT`) with `credentials` (`USER:PASSWORD`).
    ///
    /// # Errors
    /// [`BadParent`]
    pub fn new(url: &str, credentials: Option<&str>) -> Result<Self, BadParent> {
        let wrong = || BadParent::Url(without_credentials(url).to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        if uri.path() != "/" || uri.query().is_some() {
            return Err(wrong());
        }
        let target = Target::from_connect_uri(&uri).map_err(|_| wrong())?;
        let authorization = credentials.map(basic).transpose()?;
        Ok(Self { target, tls, authorization })
    }

    /// Converts an unencrypted request for `target` to the form for a proxy: with an absolute URL and the parent's credentials.
    pub(super) fn address<B>(&self, request: &mut Request<B>, target: &Target) {
        let path = request.uri().path_and_query().cloned();
        let whole = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(target.to_string())
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
            .build();
        if let Ok(whole) = whole {
            *request.uri_mut() = whole;
        }
        self.authorize(request);
    }

    fn authorize<B>(&self, request: &mut Request<B>) {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
    }

    /// Asks the parent to connect to `target`. The caller sets the timeout.
    pub(super) async fn connect(
        &self,
        link: Link,
        target: &Target,
        tasks: &ServiceTasks,
    ) -> Result<Link, ParentProxyError> {
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(link)).await?;
        tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-parent");
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a parent proxy failed");
            }
        });
        let (authority, host) =
            (target.to_string().parse::<Authority>(), HeaderValue::try_from(target.to_string()));
        let (Ok(authority), Ok(host)) = (authority, host) else { return Err(ParentProxyError::Name) };
        let mut request =
            Request::connect(Uri::from(authority)).body(Empty::<Bytes>::new()).unwrap_or_default();
        request.headers_mut().insert(HOST, host);
        self.authorize(&mut request);
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(ParentProxyError::Refused(response.status()));
        }
        Ok(Link::Tunnel(TokioIo::new(hyper::upgrade::on(response).await?)))
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.target)
    }
}

/// Returns an invalid URL without its credentials, for error messages.
fn without_credentials(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

fn basic(credentials: &str) -> Result<HeaderValue, BadParent> {
    if !credentials.contains(':') || credentials.chars().any(char::is_control) {
        return Err(BadParent::Credentials);
    }
    // Allocate the full capacity first, so that no reallocation leaves a copy in memory.
    let mut text = Zeroizing::new(String::with_capacity("Basic ".len() + credentials.len().div_ceil(3) * 4));
    text.push_str("Basic ");
    STANDARD.encode_string(credentials, &mut text);
    let mut value = HeaderValue::from_str(&text).map_err(|_| BadParent::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A byte stream to an upstream.
pub enum Link {
    /// TCP, to the upstream or to an unencrypted parent.
    Direct(TcpStream),
    /// TLS to a parent.
    Tls(Box<TlsStream<TcpStream>>),
    /// A CONNECT tunnel through a parent.
    Tunnel(TokioIo<Upgraded>),
}

impl Link {
    /// Returns the address of the upstream; `None` for a connection through a parent.
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Direct(stream) => stream.peer_addr().ok().map(|peer| peer.ip().to_canonical()),
            Self::Tls(_) | Self::Tunnel(_) => None,
        }
    }
}

macro_rules! with {
    ($link:expr, $stream:ident => $done:expr) => {
        match $link.get_mut() {
            Link::Direct($stream) => $done,
            Link::Tls($stream) => $done,
            Link::Tunnel($stream) => $done,
        }
    };
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with!(self, stream => Pin::new(stream).poll_read(cx, into))
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Direct(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Tunnel(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_url_must_not_contain_a_path_or_user() {
        for url in ["http://p.example:3128", "https://[2001:db8::1]:8443/", "http://10.0.0.1:1"] {
            assert!(Parent::new(url, Some("a:b:c")).is_ok(), "{url}");
        }
        for url in
            ["p.example:3128", "http://p.example", "socks5://p:1", "http://p:1/x", "http://a:secret@p:1", ""]
        {
            let refused = Parent::new(url, None).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        for credentials in ["alice", "a:b\nX: y"] {
            assert_eq!(Parent::new("http://p:1", Some(credentials)).unwrap_err(), BadParent::Credentials);
        }
    }
}
