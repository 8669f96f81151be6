//! What to look at: from what the user wrote to one target after the other.
//!
//! | written | meaning |
//! |---|---|
//! | `host`, `host:port` | port 443 unless given here or by `--port` |
//! | `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]:443` | an address; no server name is sent |
//! | `192.0.2.1:443=a.example,b.example` | an address asked for each of these server names |
//! | `10.0.0.0/24`, `10.0.0.0/24:8443`, `[2001:db8::/120]:443` | every address of a network |
//! | `https://h/x`, `smtp://h`, `smtps://h`, `ldap://h`, … | the scheme says what is spoken before TLS |
//! | `./certs`, `/etc/ssl`, `file:x.pem`, any existing path | certificates in files |
//! | `@list.txt`, `-` | targets from a file or standard input, one a line, `#` comments |
//!
//! Everything is lazy: a list may be endless and a network large, neither is ever held in memory.

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

/// Host of a target.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// A name, to be resolved.
    Name(HostName),
    /// An address.
    Address(IpAddr),
    /// A file, or a folder to be walked.
    Path(Arc<Path>),
    /// What a cloud or cluster keeps, by its full name there. Never dialled: only its source can look at it.
    Resource(Arc<str>),
}

/// One endpoint (or file) to look at.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    /// Host of the target.
    pub host: Host,
    /// The TCP port; 0 for a file.
    pub port: u16,
    /// The protocol before TLS.
    pub protocol: Protocol,
    /// How the protocol became known.
    pub protocol_source: ProtocolSource,
    /// The server name to ask for, when it is not the host itself.
    pub server_name: Option<HostName>,
    /// The host as text, where the host does not hold it.
    text: Box<str>,
    /// Whether it is an address of a scanned network: no answer is no finding there.
    of_network: bool,
}

impl Target {
    /// An endpoint.
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

    /// The same as an address of a network.
    #[must_use]
    pub(crate) fn of_network(self) -> Self {
        Self { of_network: true, ..self }
    }

    /// Whether it is an address of a network: nobody said that there is a server.
    #[must_use]
    pub fn is_from_network_range(&self) -> bool {
        self.of_network
    }

    /// A file or folder. Its path is made absolute (links are left as they are), so that it is the
    /// same endpoint wherever the next scan is started.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self::new(Host::Path(path.into()), 0, Protocol::File, ProtocolSource::Given, None)
    }

    /// A certificate in a cloud or cluster, by its full name there.
    #[must_use]
    pub fn resource(store: CloudStore, name: Arc<str>) -> Self {
        Self::new(Host::Resource(name), 0, Protocol::Cloud(store), ProtocolSource::Given, None)
    }

    /// The host as text: a name, an address without brackets, a path, or a resource's name.
    #[must_use]
    pub fn host_text(&self) -> &str {
        match &self.host {
            Host::Name(name) => name.as_str(),
            Host::Address(_) | Host::Path(_) | Host::Resource(_) => &self.text,
        }
    }

    /// The name for the server_name extension (RFC 6066 section 3), which knows no addresses.
    #[must_use]
    pub fn sni(&self) -> Option<&str> {
        match (&self.server_name, &self.host) {
            (Some(name), _) | (None, Host::Name(name)) => Some(name.as_str()),
            (None, Host::Address(_) | Host::Path(_) | Host::Resource(_)) => None,
        }
    }

    /// What the certificate must be for: the server name asked for, else the host.
    #[must_use]
    pub fn asked_name(&self) -> &str {
        self.sni().unwrap_or(self.host_text())
    }

    /// The endpoint, the same in every scan: how the inventory and `--resume` know it. The form is
    /// one [`Targets`] reads back.
    #[must_use]
    pub fn identity(&self) -> String {
        self.to_string()
    }

    /// One address of the endpoint, where each is an endpoint of its own (`--all-addresses`).
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
