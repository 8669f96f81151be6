//! What all connections of a server share.

use std::sync::Arc;

use inbound::{ServiceTasks, Slots};
use parking_lot::RwLock;
use rustls::ServerConfig;

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
    /// Of all listeners.
    pub(super) slots: Slots,
    pub(super) tasks: ServiceTasks,
}

impl ServerContext {
    pub(super) fn tls(&self, kind: Listener) -> Arc<ServerConfig> {
        match kind {
            Listener::Credentials => Arc::clone(&self.credential_tls.read()),
            Listener::Tls | Listener::Public => Arc::clone(&self.tls.read()),
        }
    }
}
