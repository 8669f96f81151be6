//! Leaves for other programs: TLS servers get leaves from the same store, by HTTP for Caddy (`get_certificate http`) or by Envoy's
//! secret discovery service (SDS).
//!
//! Responses contain private keys. They are only sent over loopback, a Unix socket, or TLS with client certificates. They are never
//! the keys of the proxy itself: each consumer has its own leaf key, which is replaced after [`Options::key_life`], and an RSA key
//! if configured.

mod consumer;
mod http;
mod leaf_issuer;
mod listener;
mod listening;
mod metrics;
mod options;
pub mod sds;
mod service;
mod subscriptions;

pub use consumer::CONSUMERS_MAX;
pub(crate) use leaf_issuer::LeafSource;
pub(crate) use metrics::MintingMetrics;
pub use options::{ConsumerAddress, NAMES_MAX, Options, StartError};

use std::net::SocketAddr;
use std::sync::Arc;

use inbound::{OriginLimit, ServiceTasks, Slots};
use tokio::sync::Semaphore;

use leaf_issuer::LeafIssuer;
use listener::{Listener, listen};
use service::MintingService;

/// An open listener; removes its socket when dropped.
#[derive(Debug)]
pub(crate) struct Open {
    /// Address of a TCP listener; `None` for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
}

/// Opens the listener for consumers, and serves their connections as tasks of `tasks`.
pub(crate) async fn start(
    options: Options,
    leaves: LeafSource,
    tasks: ServiceTasks,
    metrics: MintingMetrics,
) -> Result<Open, StartError> {
    let listener = listen(options.listen, options.revoked, metrics.revocation()).await?;
    let address = match &listener {
        Listener::Tcp(listener, _) => listener.local_addr().ok(),
        Listener::Unix(..) => None,
    };
    if let Listener::Tcp(_, Some(tls)) = &listener {
        tasks.spawn(Arc::clone(&tls.guarded).keep(tasks.stopping()));
    }
    let rsa = options.rsa_consumers.into_iter().collect();
    let leaf_issuer = LeafIssuer::new(leaves, options.names, (options.key_life, rsa), metrics.clone());
    let shared = Arc::new(MintingService {
        leaf_issuer,
        streams: Arc::new(Semaphore::new(options.streams_max)),
        names: Arc::new(Semaphore::new(NAMES_MAX)),
        names_per_stream_max: options.names_per_stream_max,
        tasks: tasks.clone(),
        metrics,
    });
    // One host may use all slots. At most half of its connections may be silent.
    let slots = Slots::limited(options.connections_max, OriginLimit::PerNetwork(options.connections_max));
    tasks.spawn(listening::accept(shared, listener, slots));
    Ok(Open { address })
}
