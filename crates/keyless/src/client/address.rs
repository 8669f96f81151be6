//! Address of a key service.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::wire::PORT;

/// Address of a key service: a Unix socket, or a host and port with TLS.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Server {
    /// A Unix socket on this host: `unix:PATH`.
    Unix(PathBuf),
    /// TLS with client and server certificates: `tls:HOST:PORT`. The default port is [`PORT`].
    Tls {
        /// Host to connect to, and name that the server's certificate must contain.
        host: String,
        /// TCP port of the server.
        port: u16,
    },
}

/// The text is not the address of a key service.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a key service: write unix:PATH or tls:HOST:PORT")]
pub struct InvalidServer(pub String);

impl FromStr for Server {
    type Err = InvalidServer;

    fn from_str(text: &str) -> Result<Self, InvalidServer> {
        let none = || InvalidServer(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(none()) } else { Ok(Self::Unix(path.into())) };
        }
        let host_port = text.strip_prefix("tls:").ok_or_else(none)?;
        let host_port = host_port.strip_prefix("//").unwrap_or(host_port);
        let (host, port) = match host_port.rsplit_once(':') {
            // A bare IPv6 address contains colons but no port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| none())?)
            }
            _ => (host_port, PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err(none());
        }
        Ok(Self::Tls { host: host.to_owned(), port })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tls { host, port } if host.contains(':') => write!(f, "tls:[{host}]:{port}"),
            Self::Tls { host, port } => write!(f, "tls:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_parsed_and_formatted() {
        for (text, wanted) in [
            ("unix:/run/keys.sock", Some("unix:/run/keys.sock")),
            ("tls:keys.example", Some("tls:keys.example:2407")),
            ("tls://keys.example:99", Some("tls:keys.example:99")),
            ("tls:[::1]:99", Some("tls:[::1]:99")),
            ("tls:::1", Some("tls:[::1]:2407")),
            ("tls:192.0.2.1:1", Some("tls:192.0.2.1:1")),
            ("keys.example", None),
            ("unix:", None),
            ("tls:", None),
            ("tls::99", None),
            ("tls:keys.example:0", None),
            ("tls:keys.example:x", None),
        ] {
            let read = text.parse::<Server>().ok().map(|server| server.to_string());
            assert_eq!(read.as_deref(), wanted, "{text}");
        }
    }
}
