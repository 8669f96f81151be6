//! State that all connections of a server share.

use std::sync::Arc;

use inbound::{KeyedConcurrencyLimit, OriginLimit, ServiceTasks, Slots};
use parking_lot::RwLock;
use rustls::ServerConfig;

use super::listener::Listener;
use super::memory::ResponseMemory;
use super::options::ServerOptions;
use super::tls::CurrentCertificate;
use crate::state::State;

/// State that all connections share.
pub(super) struct ServerContext {
    pub(super) state: State,
    pub(super) options: ServerOptions,
    pub(super) presented: Arc<CurrentCertificate>,
    pub(super) tls: RwLock<Arc<ServerConfig>>,
    pub(super) credential_tls: RwLock<Arc<ServerConfig>>,
    pub(super) connection_slots: ListenerSlots,
    pub(super) tasks: ServiceTasks,
}

/// Connection slots: each listener has its own, so that one listener cannot exhaust the slots of another.
pub(super) struct ListenerSlots {
    tls: ConnectionSlots,
    public: ConnectionSlots,
    credentials: ConnectionSlots,
}

/// The connection slots of one listener.
pub(super) struct ConnectionSlots {
    pub(super) slots: Slots,
    /// Slots of clients, by the SHA-256 of their certificate (DER).
    pub(super) certificates: KeyedConcurrencyLimit<[u8; 32]>,
    pub(super) memory: ResponseMemory,
}

impl ConnectionSlots {
    fn new(options: &ServerOptions) -> Self {
        let slots = Slots::limited(options.connections_max, OriginLimit::PerNetwork(options.per_address()));
        Self {
            slots: slots.behind(options.trusted_proxies.clone()),
            certificates: KeyedConcurrencyLimit::new(options.connections_per_certificate()),
            memory: ResponseMemory::new(options.answer_bytes_max),
        }
    }
}

impl ListenerSlots {
    pub(super) fn new(options: &ServerOptions) -> Self {
        Self {
            tls: ConnectionSlots::new(options),
            public: ConnectionSlots::new(options),
            credentials: ConnectionSlots::new(options),
        }
    }

    pub(super) fn of(&self, kind: Listener) -> &ConnectionSlots {
        match kind {
            Listener::Tls => &self.tls,
            Listener::Public => &self.public,
            Listener::Credentials => &self.credentials,
        }
    }

    pub(super) fn in_use(&self) -> usize {
        [&self.tls, &self.public, &self.credentials]
            .map(|connection_slots| connection_slots.slots.in_use())
            .iter()
            .sum()
    }
}

impl ServerContext {
    pub(super) fn tls(&self, kind: Listener) -> Arc<ServerConfig> {
        match kind {
            Listener::Credentials => Arc::clone(&self.credential_tls.read()),
            Listener::Tls | Listener::Public => Arc::clone(&self.tls.read()),
        }
    }
}
