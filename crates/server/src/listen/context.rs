//! What all connections of a server share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::listener::Listener;
use super::options::ServerOptions;
use super::tls::Presented;
use crate::state::State;

/// What all connections share.
pub(super) struct ServerContext {
    pub(super) state: State,
    pub(super) options: ServerOptions,
    pub(super) presented: Arc<Presented>,
    pub(super) tls: RwLock<Arc<ServerConfig>>,
    pub(super) credential_tls: RwLock<Arc<ServerConfig>>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) by_address: Mutex<HashMap<IpAddr, usize>>,
    pub(super) tracker: TaskTracker,
    pub(super) stopping: CancellationToken,
    pub(super) kill: CancellationToken,
}

impl ServerContext {
    pub(super) fn tls(&self, kind: Listener) -> Arc<ServerConfig> {
        match kind {
            Listener::Credentials => Arc::clone(&self.credential_tls.read()),
            Listener::Tls | Listener::Public => Arc::clone(&self.tls.read()),
        }
    }
}

/// A slot of one connection, counted over all listeners and for its address. Freed on drop.
pub(super) struct ConnectionSlot {
    shared: Arc<ServerContext>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    pub(super) fn take(
        shared: &Arc<ServerContext>,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
    ) -> Option<Self> {
        let mut counts = shared.by_address.lock();
        let count = counts.entry(address).or_default();
        if *count >= shared.options.connections_per_address_max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Self { shared: Arc::clone(shared), address, _permit: permit })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.shared.by_address.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}
