//! A cache of HTTP clients, with eviction of the least recently used.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// Maximum clients in the cache. A changed configuration has a new revision, and so a new client.
const CLIENTS_MAX: usize = 1_024;

/// Lifetime of an unused client in the cache.
const CLIENT_LIFE: Duration = Duration::from_secs(3_600);

/// Cached clients, by ID and revision of their configuration.
#[derive(Debug)]
pub struct ClientCache<C>(HashMap<(Uuid, i64), (C, Instant)>);

impl<C> Default for ClientCache<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Clone> ClientCache<C> {
    /// Returns the cached client of the configuration with this ID and revision.
    pub fn get(&mut self, key: (Uuid, i64)) -> Option<C> {
        let (client, used) = self.0.get_mut(&key)?;
        *used = Instant::now();
        Some(client.clone())
    }

    /// Caches a client. Evicts clients that were unused for an hour, and the least recently used one when the cache holds 1,024.
    pub fn put(&mut self, key: (Uuid, i64), client: C) {
        let now = Instant::now();
        // Older revisions of the same configuration are never requested again.
        self.0.retain(|(id, _), (_, used)| *id != key.0 && now.duration_since(*used) < CLIENT_LIFE);
        if self.0.len() >= CLIENTS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(key, (client, now));
    }

    /// Iterates over the cached clients.
    pub(crate) fn values(&self) -> impl Iterator<Item = &C> {
        self.0.values().map(|(client, _)| client)
    }
}
