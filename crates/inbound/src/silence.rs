//! Silent connections: clients that have not yet sent a request. They are evicted first when slots run out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The silent connections of a limit, in order of arrival. There are at most as many as slots.
#[derive(Clone, Debug)]
pub(crate) struct SilentConnections {
    /// Maximum silent connections of one network. An additional silent connection evicts the oldest one of the network.
    of_network_max: usize,
    queue: Arc<Mutex<SilentQueue>>,
}

#[derive(Debug, Default)]
struct SilentQueue {
    next: u64,
    all: BTreeMap<u64, (Option<IpAddr>, CancellationToken)>,
    by_network: HashMap<IpAddr, BTreeSet<u64>>,
}

impl SilentQueue {
    fn remove(&mut self, number: u64) -> Option<CancellationToken> {
        let (network, evicted) = self.all.remove(&number)?;
        if let Some(network) = network
            && let Some(of_network) = self.by_network.get_mut(&network)
        {
            of_network.remove(&number);
            if of_network.is_empty() {
                self.by_network.remove(&network);
            }
        }
        Some(evicted)
    }

    fn evict(&mut self, number: Option<u64>) -> bool {
        let evicted = number.and_then(|number| self.remove(number));
        evicted.is_some_and(|evicted| {
            evicted.cancel();
            true
        })
    }
}

impl SilentConnections {
    pub(crate) fn new(of_network_max: usize) -> Self {
        Self { of_network_max, queue: Arc::default() }
    }

    /// Adds a silent connection of a client in `network`. Beyond the network's limit, evicts the network's oldest silent
    /// connection. Without a network, there is no such limit.
    pub(crate) fn enter(&self, network: Option<IpAddr>) -> Silence {
        let entry = Entry {
            position: Mutex::new(QueuePosition { network, number: None }),
            silent: self.clone(),
            evicted: CancellationToken::new(),
        };
        entry.enter();
        Silence(Some(Arc::new(entry)))
    }

    fn add(&self, network: Option<IpAddr>, evicted: &CancellationToken) -> u64 {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.all.insert(number, (network, evicted.clone()));
        if let Some(network) = network {
            let of_network = queue.by_network.entry(network).or_default();
            of_network.insert(number);
            let oldest = of_network.first().copied().filter(|_| of_network.len() > self.of_network_max);
            queue.evict(oldest);
        }
        number
    }

    /// Evicts the longest silent connection. Returns false if there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let mut queue = self.queue.lock();
        let oldest = queue.all.keys().next().copied();
        queue.evict(oldest)
    }
}

/// The silence of a connection: while it lasts, the connection may be evicted. Clones belong to the same connection.
#[derive(Clone, Debug, Default)]
pub struct Silence(Option<Arc<Entry>>);

#[derive(Debug)]
struct Entry {
    position: Mutex<QueuePosition>,
    silent: SilentConnections,
    evicted: CancellationToken,
}

#[derive(Debug)]
struct QueuePosition {
    network: Option<IpAddr>,
    /// Number of the connection among the silent connections; `None` if the connection is not silent.
    number: Option<u64>,
}

impl Silence {
    /// Ends the silence: the client has sent a request, and the connection is no longer evicted.
    pub fn end(&self) {
        if let Some(entry) = &self.0 {
            entry.leave();
        }
    }

    /// Starts the silence again: the connection waits for a request, and becomes the last candidate for eviction.
    pub fn begin(&self) {
        if let Some(entry) = &self.0 {
            entry.enter();
        }
    }

    /// Counts the connection for `network` from now on.
    pub(crate) fn move_to(&self, network: IpAddr) {
        if let Some(entry) = &self.0 {
            entry.leave();
            entry.position.lock().network = Some(network);
            entry.enter();
        }
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        match &self.0 {
            Some(entry) => entry.evicted.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Entry {
    fn enter(&self) {
        let mut position = self.position.lock();
        if position.number.is_none() {
            position.number = Some(self.silent.add(position.network, &self.evicted));
        }
    }

    fn leave(&self) {
        let Some(number) = self.position.lock().number.take() else { return };
        let removed = self.silent.queue.lock().remove(number);
        // Dropped outside of the lock.
        drop(removed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}
