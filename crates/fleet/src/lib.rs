//! Simulated TLS endpoints, DNS, Certificate Transparency, CRLs and OCSP, with latency, faults and expected scan results.
//!
//! All servers run on 127.0.0.0/8 in this process: for the demo, for tests, and to compare scan results with the actual state.

mod clock;
pub mod cloud;
pub mod ct;
mod dns;
mod error;
mod estate;
mod fault;
mod forge;
mod key;
mod key_kind;
mod kind;
mod mint;
#[cfg(target_os = "linux")]
pub mod network;
mod old_key;
mod plan;
mod ports;
mod random;
pub mod revocation;
mod serve;
mod starttls;
mod truth;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use inbound::ServiceTasks;
use rustls::RootCertStore;
use x509::Fingerprint;
use x509::crl::{Reason, Revoked};

use crate::clock::now;
use crate::estate::{Estate, Host, Ports};
use crate::fault::BlackHole;
use crate::kind::{Issuer, StarttlsProtocol};
use crate::mint::{FleetAuthorities, Identity};
use crate::revocation::RevocationServer;
use crate::serve::Servers;
use crate::truth::Tally;

pub use error::FleetError;
pub use plan::{Latency, Mix, Plan};
pub use ports::free_port;
pub use truth::{Counters, Truth};

/// Maximum black holes; further endpoints share them. Each needs three file descriptors on Linux.
const BLACK_HOLES_MAX: usize = 256;
/// Endpoints per black hole, up to the maximum number of black holes.
const ENDPOINTS_TO_A_HOLE: usize = 32;
/// First address of black holes, separate from all servers.
const BLACK_HOLE_ADDRESS: u32 = 0x7f00_0100;

/// A running fleet. Stops when dropped.
pub struct Fleet {
    dns: SocketAddr,
    questions: dns::QueryCounts,
    estate: Arc<Estate>,
    mint: Arc<FleetAuthorities>,
    truth: Vec<Truth>,
    tally: Tally,
    revocation: Option<RevocationServer>,
    tasks: ServiceTasks,
    _holes: Vec<BlackHole>,
    _reserved: socket2::Socket,
}

impl Fleet {
    /// Creates all certificates and starts all servers.
    ///
    /// # Errors
    /// [`FleetError`]: a port is in use, or there are not enough file descriptors.
    pub async fn start(plan: &Plan) -> Result<Self, FleetError> {
        let mut listeners = vec![serve::listen(plan.port.unwrap_or(0))?];
        let tls = listeners[0].local_addr()?.port();
        let mut upgrades = HashMap::new();
        for upgrade in StarttlsProtocol::ALL {
            let listener = serve::listen(0)?;
            upgrades.insert(upgrade, listener.local_addr()?.port());
            listeners.push(listener);
        }
        let (reserved, refused) = reserve()?;
        let holes = tokio::task::block_in_place(|| open_black_holes(plan))?;
        let hole_addresses = holes.iter().filter_map(|hole| match hole.address {
            SocketAddr::V4(address) => Some((*address.ip(), address.port())),
            SocketAddr::V6(_) => None,
        });
        let ports = Ports { tls, upgrades, refused, holes: hole_addresses.collect() };
        let revocation = match plan.revocation {
            true => Some(RevocationServer::start(Duration::ZERO).await?),
            false => None,
        };
        let mint = Arc::new(FleetAuthorities::new(now(), revocation.as_ref().map(|server| server.url("")))?);
        let estate = tokio::task::block_in_place(|| Estate::build(plan, &mint, &ports))?;
        let revoked = match &revocation {
            Some(server) => revoke(&estate, &mint, server)?,
            None => HashSet::new(),
        };
        let truth = estate.truth(&ports, &revoked);
        let (estate, tally) = (Arc::new(estate), Tally::default());
        let tasks = ServiceTasks::default();
        let (dns, questions) = dns::start(estate.clone(), &tasks).await?;
        let mut client_roots = RootCertStore::empty();
        for root in mint.roots() {
            client_roots.add(root.clone())?;
        }
        let servers = Arc::new(Servers::new(estate.clone(), tally.clone(), client_roots));
        for listener in listeners {
            servers.clone().accept(listener, &tasks);
        }
        Ok(Self {
            dns,
            questions,
            estate,
            mint,
            truth,
            tally,
            revocation,
            tasks,
            _holes: holes,
            _reserved: reserved,
        })
    }

    /// Returns the address of the DNS server, for UDP and TCP.
    #[must_use]
    pub fn dns(&self) -> SocketAddr {
        self.dns
    }

    /// Returns the roots to trust, PEM.
    #[must_use]
    pub fn roots_pem(&self) -> String {
        self.mint.roots().into_iter().map(|root| pem(root)).collect()
    }

    /// Returns the expected scan results at startup, one entry per endpoint, in an unspecified but stable order.
    #[must_use]
    pub fn truth(&self) -> Vec<Truth> {
        self.truth.clone()
    }

    /// Returns the counters of all TLS and DNS servers since the start of the fleet.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.tally.counters(self.questions.counts())
    }

    /// Replaces the key and certificate of `host` at every address; returns the new leaf's SHA-256 in hexadecimal. Existing session
    /// tickets stay valid, as in most servers. `None`: no such host.
    pub fn replace_certificate(&self, host: &str) -> Option<String> {
        let host = self.estate.named(host)?;
        let served = self.issue_replacement(host)?;
        let leaf = served.fingerprint().to_string();
        host.host_addresses
            .write()
            .iter_mut()
            .for_each(|host_address| host_address.served = Some(served.clone()));
        Some(leaf)
    }

    /// Moves `host` to another address with a new certificate; the old address continues to serve the old certificate. Returns the
    /// new leaf's SHA-256 and the new address. `None`: no such host.
    pub fn move_address(&self, host: &str) -> Option<(String, Ipv4Addr)> {
        let host = self.estate.named(host)?;
        let served = self.issue_replacement(host)?;
        let leaf = served.fingerprint().to_string();
        Some((leaf, self.estate.move_host(host, served)))
    }

    fn issue_replacement(&self, host: &Host) -> Option<Arc<mint::Served>> {
        let address = host.host_addresses.read().first()?.address.octets();
        let from_days = host.kind.leaf.from_days;
        let identity = Identity { host: &host.name, more: &[], address, from_days };
        self.mint.serve(host.kind, &identity, None).ok().map(Arc::new)
    }

    /// Returns the CRL server, if the plan has one.
    #[must_use]
    pub fn revocation(&self) -> Option<&RevocationServer> {
        self.revocation.as_ref()
    }

    /// Stops all servers and waits until their tasks have ended.
    pub async fn stop(mut self) {
        self.tasks.clone().close(Duration::ZERO).await;
        if let Some(server) = self.revocation.take() {
            server.stop().await;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Publishes the CRL of every issuer; returns the revoked leaves.
fn revoke(
    estate: &Estate,
    mint: &FleetAuthorities,
    server: &RevocationServer,
) -> Result<HashSet<Fingerprint>, FleetError> {
    let revoked = estate.to_revoke();
    for issuer in Issuer::AUTHORITIES {
        let of_issuer = revoked.iter().filter(|(of, _)| *of == issuer);
        let entries: Vec<_> = of_issuer
            .map(|(_, leaf)| Revoked {
                serial: leaf.serial.clone(),
                at: now().plus(-7_200),
                reason: Some(Reason::Superseded),
                invalidity_date: None,
            })
            .collect();
        let (path, crl) = mint.crl(issuer, &entries)?;
        server.put_bytes(&path, crl);
    }
    Ok(revoked.into_iter().map(|(_, leaf)| leaf.fingerprint).collect())
}

/// Reserves a port without a listener.
fn reserve() -> io::Result<(socket2::Socket, u16)> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    let bound = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("no port"))?;
    Ok((socket, bound.port()))
}

fn open_black_holes(plan: &Plan) -> Result<Vec<BlackHole>, FleetError> {
    let dead = (plan.endpoints as f64 * plan.dead_fraction).ceil() as usize;
    let count = (dead / ENDPOINTS_TO_A_HOLE + 1).min(BLACK_HOLES_MAX);
    (0..count as u32).map(|i| BlackHole::open(Ipv4Addr::from(BLACK_HOLE_ADDRESS + i))).collect()
}

/// Encodes PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let lines: String =
        text.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}
