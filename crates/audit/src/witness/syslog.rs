//! A syslog server (RFC 5424), over UDP (RFC 5426), TCP (RFC 6587, counted bytes) or a Unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use api::audit::SignedHead;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};

use super::external::Witness;

/// Facility 13 (log audit), severity 5 (notice).
const PRIORITY: u8 = 13 * 8 + 5;
/// Timeout for the delivery of one message, including the connect.
const LIMIT: Duration = Duration::from_secs(15);

/// Address of a syslog server: UDP, TCP or Unix datagram socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SyslogAddress {
    /// `udp://HOST:PORT`: delivery is not acknowledged.
    Udp(String),
    /// `tcp://HOST:PORT`: the server closes the connection once it has read the message.
    Tcp(String),
    /// `unix:/dev/log`: a datagram socket.
    Unix(PathBuf),
}

/// The text is not a valid syslog address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0:?} is not udp://HOST:PORT, tcp://HOST:PORT or unix:PATH")]
pub struct BadSyslogAddress(String);

impl FromStr for SyslogAddress {
    type Err = BadSyslogAddress;

    fn from_str(text: &str) -> Result<Self, BadSyslogAddress> {
        let bad = || BadSyslogAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return path.starts_with('/').then(|| Self::Unix(path.into())).ok_or_else(bad);
        }
        let (scheme, authority) = text.split_once("://").ok_or_else(bad)?;
        let (host, port) = authority.rsplit_once(':').ok_or_else(bad)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(bad());
        }
        match scheme {
            "udp" => Ok(Self::Udp(authority.to_owned())),
            "tcp" => Ok(Self::Tcp(authority.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(authority) => write!(f, "udp://{authority}"),
            Self::Tcp(authority) => write!(f, "tcp://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A witness that sends each head to a syslog server as one message.
#[derive(Debug)]
pub(super) struct SyslogWitness {
    address: SyslogAddress,
}

impl SyslogWitness {
    pub(super) fn new(address: SyslogAddress) -> Self {
        Self { address }
    }

    async fn deliver(&self, message: &[u8]) -> io::Result<()> {
        match &self.address {
            SyslogAddress::Udp(authority) => {
                let mut last =
                    io::Error::new(io::ErrorKind::NotFound, "the name does not resolve to an address");
                for address in tokio::net::lookup_host(authority).await? {
                    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                    let socket = UdpSocket::bind(any).await?;
                    match socket.send_to(message, address).await {
                        Ok(_) => return Ok(()),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            SyslogAddress::Tcp(authority) => {
                let mut stream = TcpStream::connect(authority).await?;
                stream.write_all(format!("{} ", message.len()).as_bytes()).await?;
                stream.write_all(message).await?;
                stream.shutdown().await?;
                // Written bytes may be lost with the connection. Only a server that closes its side has read them.
                stream.read_to_end(&mut Vec::new()).await.map(drop)
            }
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.send(message).await.map(drop)
            }
        }
    }
}

impl Witness for SyslogWitness {
    fn name(&self) -> &'static str {
        "syslog"
    }

    fn send<'a>(&'a self, head: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let message = message(head);
            match tokio::time::timeout(LIMIT, self.deliver(message.as_bytes())).await {
                Ok(done) => done.map_err(|error| format!("{}: {error}", self.address)),
                Err(_) => Err(format!("{}: no answer within {} s", self.address, LIMIT.as_secs())),
            }
        })
    }
}

/// Formats `<PRI>1 TIME - bulla - audit-head - HEAD` (RFC 5424 section 6).
fn message(head: &str) -> String {
    let at = serde_json::from_str::<SignedHead>(head).map(|head| head.at);
    format!("<{PRIORITY}>1 {} - bulla - audit-head - {head}", at.as_deref().unwrap_or("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_addresses_roundtrip_and_invalid_ones_are_rejected() {
        for text in ["udp://logs.example:514", "tcp://[2001:db8::1]:601", "unix:/dev/log"] {
            assert_eq!(text.parse::<SyslogAddress>().unwrap().to_string(), text);
        }
        for text in
            ["", "logs:514", "udp://logs", "udp://:514", "tls://logs:6514", "unix:dev/log", "tcp://h:x"]
        {
            assert!(text.parse::<SyslogAddress>().is_err(), "{text}");
        }
    }
}
