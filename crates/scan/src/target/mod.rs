//! Targets of a scan: parses the user's input and expands it into single endpoints.
//!
//! | input | meaning |
//! |---|---|
//! | `host`, `host:port` | a host; default port: `--port`, or 443 |
//! | `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]:443` | an address; no server name is sent |
//! | `192.0.2.1:443=a.example,b.example` | an address, probed once with each of these server names (SNI) |
//! | `10.0.0.0/24`, `10.0.0.0/24:8443`, `[2001:db8::/120]:443` | every address of a network |
//! | `https://h/x`, `smtp://h`, `smtps://h`, `ldap://h`, … | the scheme selects the STARTTLS protocol and the default port |
//! | `./certs`, `/etc/ssl`, `file:x.pem`, any existing path | certificates in files |
//! | `@list.txt`, `-` | targets from a file or standard input, one per line, with `#` comments |
//!
//! Targets are produced lazily. Neither an endless list nor a large network is kept in memory.

mod error;
mod expand;
mod host_name;
mod list;
mod parse;
mod ports;
mod protocol;
mod shuffle;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

pub use error::{InvalidPorts, TargetError, TargetOrigin, TargetProblem};
pub use expand::{CIDR_ADDRESSES_MAX, TargetOptions};
pub use host_name::{InvalidHost, host_name};
pub use list::Targets;
pub use ports::Ports;
pub use protocol::{CloudStore, HTTPS_PORT, Protocol, ProtocolSource};
pub use x509::HostName;

/// Host, file or cloud resource to scan.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// A name, resolved by DNS.
    Name(HostName),
    /// An IP address.
    Address(IpAddr),
    /// A file, or a folder that is read recursively.
    Path(Arc<Path>),
    /// A certificate in a cloud or cluster, by its full resource name. It is read through the cloud's API, never by a connection.
    Resource(Arc<str>),
}

/// One endpoint or file to scan.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    /// Host name, address, path or cloud resource to scan.
    pub host: Host,
    /// The TCP port; 0 for a file.
    pub port: u16,
    /// STARTTLS protocol of the endpoint.
    pub protocol: Protocol,
    /// Whether the protocol was given, guessed from the port, or is the default.
    pub protocol_source: ProtocolSource,
    /// Server name (SNI), if it differs from the host.
    pub server_name: Option<HostName>,
    /// The host as text, if `host` does not contain the text.
    text: Box<str>,
    /// Whether the target is an address of a scanned network. In that case, a missing response is not a finding.
    of_network: bool,
}

impl Target {
    /// Creates a target for a network endpoint.
    #[must_use]
    pub fn new(
        host: Host,
        port: u16,
        protocol: Protocol,
        protocol_source: ProtocolSource,
        server_name: Option<HostName>,
    ) -> Self {
        let text = match &host {
            Host::Name(_) => Box::default(),
            Host::Address(address) => address.to_string().into(),
            Host::Path(path) => path.to_string_lossy().into(),
            Host::Resource(name) => (&**name).into(),
        };
        Self { host, port, protocol, protocol_source, server_name, text, of_network: false }
    }

    /// Marks the target as an address of a scanned network.
    #[must_use]
    pub(crate) fn of_network(self) -> Self {
        Self { of_network: true, ..self }
    }

    /// Returns whether the target is an address of a scanned network. Most addresses of a network are not expected to have a
    /// server.
    #[must_use]
    pub fn is_from_network_range(&self) -> bool {
        self.of_network
    }

    /// Creates a target for a file or folder. The path is made absolute, without resolving symbolic links, so that it is the same
    /// endpoint in scans from other working directories.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self::new(Host::Path(path.into()), 0, Protocol::File, ProtocolSource::Given, None)
    }

    /// Creates a target for a certificate in a cloud or cluster, by its full resource name.
    #[must_use]
    pub fn resource(store: CloudStore, name: Arc<str>) -> Self {
        Self::new(Host::Resource(name), 0, Protocol::Cloud(store), ProtocolSource::Given, None)
    }

    /// Returns the host as text: a name, an address without brackets, a path, or a resource name.
    #[must_use]
    pub fn host_text(&self) -> &str {
        match &self.host {
            Host::Name(name) => name.as_str(),
            Host::Address(_) | Host::Path(_) | Host::Resource(_) => &self.text,
        }
    }

    /// Returns the name for the server_name extension. `None` for addresses, which the extension does not allow (RFC 6066 section 3).
    #[must_use]
    pub fn sni(&self) -> Option<&str> {
        match (&self.server_name, &self.host) {
            (Some(name), _) | (None, Host::Name(name)) => Some(name.as_str()),
            (None, Host::Address(_) | Host::Path(_) | Host::Resource(_)) => None,
        }
    }

    /// Returns the name that the certificate must match: the server name if there is one, otherwise the host.
    #[must_use]
    pub fn expected_name(&self) -> &str {
        self.sni().unwrap_or(self.host_text())
    }

    /// Returns the endpoint's identity in the inventory and for `--resume`. It is the same in every scan, and [`Targets`] can parse it.
    #[must_use]
    pub fn identity(&self) -> String {
        self.to_string()
    }

    /// Returns the identity of one address of the endpoint (`--all-addresses`).
    #[must_use]
    pub fn identity_at(&self, address: IpAddr) -> String {
        format!("{self}@{address}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Tls => {}
            Protocol::File => return f.write_str(&self.text),
            Protocol::Cloud(store) => return write!(f, "{store}:{}", self.text),
            protocol => write!(f, "{protocol}://")?,
        }
        match &self.host {
            Host::Address(address) => write!(f, "{}", SocketAddr::new(*address, self.port))?,
            Host::Name(_) | Host::Path(_) | Host::Resource(_) => {
                write!(f, "{}:{}", self.host_text(), self.port)?
            }
        }
        match &self.server_name {
            Some(name) => write!(f, "={name}"),
            None => Ok(()),
        }
    }
}
