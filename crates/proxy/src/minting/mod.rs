//! Leaves for others: programs that speak TLS themselves get theirs out of the same store, by HTTP as Caddy asks
//! (`get_certificate http`) or by Envoy's secret discovery (SDS).
//!
//! What is handed out includes a private key, so it goes over loopback, a Unix socket, or TLS where both sides have shown
//! certificates; and it is never the proxy's own: each consumer has a leaf key of its own, changed as often as that, and those that ask for
//! it one for RSA.

mod consumer;
mod desk;
mod http;
mod listening;
mod metrics;
pub mod sds;
mod subscriptions;

pub use consumer::CONSUMERS_MAX;
pub(crate) use metrics::MintingMetrics;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_relay::doors::Doors;
use keyless::server::{BoundSocket, TlsError, TlsOptions, mutual_tls};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use x509::Fingerprint;

use crate::Rules;
use crate::certificate_store::CertificateStore;
use crate::mint::{Minter, RsaStock};
use crate::permission::Permission;
use crate::revocation::{BadLists, Guarded, Lists, RevocationLists, RevocationMetrics};
use desk::Desk;

/// Names of all streams together, some 1 KiB each.
pub const NAMES_MAX: usize = 262_144;

/// Where consumers find it.
#[derive(Clone, Debug)]
pub enum Listen {
    /// Of this machine alone, in the clear.
    Loopback(SocketAddr),
    /// For its owner alone.
    Socket(PathBuf),
    /// Anywhere, with certificates on both sides.
    Tls(SocketAddr, TlsOptions),
}

/// How leaves are handed to others.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub listen: Listen,
    /// Lists of revoked certificates, where consumers show theirs.
    pub revoked: Option<RevocationLists>,
    /// The names there are leaves for: those that these rules would have intercepted.
    pub names: Rules,
    /// Connections at once; more are closed at once.
    pub connections_max: usize,
    /// Streams of secret discovery at once; more are refused.
    pub streams_max: usize,
    /// Names of one stream; more are refused.
    pub names_per_stream_max: usize,
    /// How long new leaves of a consumer stand over the same key.
    pub key_life: Duration,
    /// Consumers that have leaves over RSA, by their subject or one of their other names; whoever is on this machine: `local`.
    pub rsa_consumers: Vec<String>,
}

/// Why leaves are not handed out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Somebody else listens there, or it is not permitted.
    #[error("cannot listen on {place}: {source}")]
    Bind {
        /// Where.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// Anybody who sees the network would have the keys.
    #[error("{0} is not of this machine alone, and leaves go out with their private keys")]
    InTheClear(SocketAddr),
    /// The certificates.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] TlsError),
    /// Of revoked certificates.
    #[error(transparent)]
    Lists(#[from] BadLists),
}

/// How consumers show who they are.
#[derive(Clone)]
struct Tls {
    guarded: Arc<Guarded>,
    /// Of the roots below which their certificates stand.
    roots: Fingerprint,
}

enum Listener {
    Tcp(TcpListener, Option<Tls>),
    Unix(UnixListener, BoundSocket),
}

/// What all connections share.
struct Shared {
    desk: Desk,
    streams: Arc<Semaphore>,
    /// Of all streams together.
    names: Arc<Semaphore>,
    names_per_stream_max: usize,
    doors: Doors,
    metrics: MintingMetrics,
}

/// Where it listens; the socket goes with it.
#[derive(Debug)]
pub(crate) struct Open {
    /// The address, where it is one.
    pub(crate) address: Option<SocketAddr>,
}

/// Where leaves are from.
pub(crate) struct Leaves {
    pub(crate) minter: Minter,
    /// How the minter makes them.
    pub(crate) profile: Arc<str>,
    pub(crate) store: CertificateStore,
    /// Who is asked before there is one.
    pub(crate) permission: Permission,
    /// Of keys for leaves over RSA; whoever calls keeps it, where there are [`Options::rsa_consumers`].
    pub(crate) stock: RsaStock,
}

/// Listens, as one of the services behind `doors`.
pub(crate) async fn start(
    options: Options,
    leaves: Leaves,
    doors: Doors,
    metrics: MintingMetrics,
) -> Result<Open, StartError> {
    let listener = listen(options.listen, options.revoked, metrics.revocation()).await?;
    let address = match &listener {
        Listener::Tcp(listener, _) => listener.local_addr().ok(),
        Listener::Unix(..) => None,
    };
    if let Listener::Tcp(_, Some(tls)) = &listener {
        doors.spawn(Arc::clone(&tls.guarded).keep(doors.stopping()));
    }
    let rsa = options.rsa_consumers.into_iter().collect();
    let desk = Desk::new(leaves, options.names, (options.key_life, rsa), metrics.clone());
    let shared = Arc::new(Shared {
        desk,
        streams: Arc::new(Semaphore::new(options.streams_max)),
        names: Arc::new(Semaphore::new(NAMES_MAX)),
        names_per_stream_max: options.names_per_stream_max,
        doors: doors.clone(),
        metrics,
    });
    let places = Arc::new(Semaphore::new(options.connections_max));
    doors.spawn(listening::accept(shared, listener, places));
    Ok(Open { address })
}

async fn listen(
    listen: Listen,
    revoked: Option<RevocationLists>,
    metrics: RevocationMetrics,
) -> Result<Listener, StartError> {
    let failed = |place: String| move |source| StartError::Bind { place, source };
    match listen {
        Listen::Loopback(address) if !address.ip().to_canonical().is_loopback() => {
            Err(StartError::InTheClear(address))
        }
        Listen::Loopback(address) => {
            let listener = inbound::listen(address).map_err(failed(address.to_string()))?;
            Ok(Listener::Tcp(listener, None))
        }
        Listen::Tls(address, tls) => {
            let lists = Lists::of(revoked.as_ref())?;
            let roots = consumer::digest_of_roots(&tls.client_roots);
            let build = move |crls: &[Vec<u8>]| {
                let mut config = mutual_tls(&TlsOptions { client_crls: crls.to_vec(), ..tls.clone() })?;
                config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
                Ok::<_, TlsError>(config)
            };
            let config = build(&lists.ders)?;
            let build = Box::new(move |crls: &[Vec<u8>]| build(crls).map_err(|error| error.to_string()));
            let guarded = Guarded::new(config, lists, revoked, build, (metrics, "minting"));
            let listener = inbound::listen(address).map_err(failed(address.to_string()))?;
            Ok(Listener::Tcp(listener, Some(Tls { guarded: Arc::new(guarded), roots })))
        }
        Listen::Socket(path) => {
            let bound = BoundSocket::at(&path).await.map_err(failed(path.display().to_string()))?;
            Ok(Listener::Unix(bound.1, bound.0))
        }
    }
}
