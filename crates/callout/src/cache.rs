//! ClientCache that are kept, by what they are for, the ones longest unused dropped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// ClientCache kept; what changed has another revision, and so another client.
const CLIENTS_MAX: usize = 1_024;

/// How long an unused client is kept.
const CLIENT_LIFE: Duration = Duration::from_secs(3_600);

/// ClientCache by identity and revision.
#[derive(Debug)]
pub struct ClientCache<C>(HashMap<(Uuid, i64), (C, Instant)>);

impl<C> Default for ClientCache<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Clone> ClientCache<C> {
    /// The client of this identity and revision.
    pub fn get(&mut self, of: (Uuid, i64)) -> Option<C> {
        let (client, used) = self.0.get_mut(&of)?;
        *used = Instant::now();
        Some(client.clone())
    }

    /// Caches a client; evicts those unused for an hour, and the least recently used when there are 1,024.
    pub fn put(&mut self, of: (Uuid, i64), client: C) {
        let now = Instant::now();
        // Another revision of the same is never asked for again.
        self.0.retain(|(id, _), (_, used)| *id != of.0 && now.duration_since(*used) < CLIENT_LIFE);
        if self.0.len() >= CLIENTS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(of, (client, now));
    }
}
