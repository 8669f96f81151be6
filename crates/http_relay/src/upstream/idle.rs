//! The pool of idle connections.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::target::Origin;
use super::http2::StreamSlot;
use super::sender::{Ready, Sender};
use super::slot::Slots;
use inbound::ServiceTasks;

/// The pool of idle connections, and the slots of all connections.
pub(super) struct Pool {
    idle: Mutex<Idle>,
    slots: Arc<Slots>,
    /// Tracker of the connections' tasks.
    tasks: ServiceTasks,
}

impl Pool {
    /// Creates a pool of at most `most` idle connections, each closed after `life`.
    pub(super) fn new(most: usize, life: Duration, slots: Arc<Slots>, tasks: ServiceTasks) -> Self {
        Self { idle: Mutex::new(Idle::new(most, life)), slots, tasks }
    }

    /// Returns the tracker of the connections' tasks.
    pub(super) fn tasks(&self) -> &ServiceTasks {
        &self.tasks
    }

    /// Takes an idle connection to `origin`. Drops connections that have ended meanwhile.
    pub(super) fn take(&self, origin: &Arc<Origin>) -> Option<Ready> {
        loop {
            let (sender, stream) = self.idle.lock().take(origin)?;
            match &sender {
                Sender::Http1(one) if !one.sender.is_ready() => {}
                _ => return Some(Ready { sender, stream, pooled: true }),
            }
        }
    }

    /// Puts a connection back into the pool.
    pub(super) fn keep(&self, origin: &Arc<Origin>, sender: Sender) {
        let excess = self.idle.lock().put(origin, sender);
        // Close the connection outside of the lock.
        drop(excess);
    }

    /// Closes the longest idle connection if no slot is free.
    pub(super) fn evict_oldest(&self) {
        if !self.slots.has_free() {
            let oldest = self.idle.lock().take_oldest();
            drop(oldest);
        }
    }

    /// Closes connections whose idle time has expired.
    pub(super) fn close_expired(&self) {
        let old = self.idle.lock().take_expired();
        drop(old);
    }

    /// Closes all idle connections.
    pub(super) fn close_all(&self) {
        let all = self.idle.lock().take_all();
        drop(all);
    }
}

/// Idle connections, bounded in number and time. The most recently used connection of an origin is taken first, so that the others
/// can expire.
struct Idle {
    most: usize,
    life: Duration,
    /// Idle connections in the order of their return. May also contain connections that were taken since.
    order: VecDeque<(u64, Arc<Origin>)>,
    waiting: HashMap<Arc<Origin>, Vec<Waiting>>,
    count: usize,
    next: u64,
}

struct Waiting {
    number: u64,
    since: Instant,
    sender: Sender,
}

impl Idle {
    fn new(most: usize, life: Duration) -> Self {
        Self { most, life, order: VecDeque::new(), waiting: HashMap::new(), count: 0, next: 0 }
    }

    /// Takes the most recently used connection to `origin` with a free slot. A shared connection (HTTP/2) stays in the pool as the
    /// most recently used.
    fn take(&mut self, origin: &Arc<Origin>) -> Option<(Sender, Option<StreamSlot>)> {
        let of_origin = self.waiting.get_mut(origin)?;
        if matches!(of_origin.last(), Some(Waiting { sender: Sender::Http2(_), .. })) {
            let before = of_origin.len();
            of_origin.retain(|one| !matches!(&one.sender, Sender::Http2(shared) if shared.is_closed()));
            self.count -= before - of_origin.len();
        }
        let free_slot = |(at, one): (usize, &Waiting)| match &one.sender {
            Sender::Http1(_) => Some((at, None)),
            Sender::Http2(shared) => shared.claim().map(|stream| (at, Some(stream))),
        };
        let found = of_origin.iter().enumerate().rev().find_map(free_slot);
        let taken = found.map(|(at, stream)| (of_origin.remove(at).sender, stream));
        if of_origin.is_empty() {
            self.waiting.remove(origin);
        }
        let (sender, stream) = taken?;
        self.count -= 1;
        if let Sender::Http2(shared) = &sender {
            // The shared connection gets a new number, so that its idle time starts again.
            let excess = self.put(origin, Sender::Http2(shared.clone()));
            debug_assert!(excess.is_none(), "its own place is free");
        }
        Some((sender, stream))
    }

    /// Adds an idle connection. If the pool is full, returns the connection that must be closed.
    #[must_use]
    fn put(&mut self, origin: &Arc<Origin>, sender: Sender) -> Option<Sender> {
        let excess = if self.count >= self.most { self.take_oldest() } else { None };
        if self.most == 0 {
            return Some(sender);
        }
        self.next += 1;
        let waiting = Waiting { number: self.next, since: Instant::now(), sender };
        self.order.push_back((self.next, Arc::clone(origin)));
        self.waiting.entry(Arc::clone(origin)).or_default().push(waiting);
        self.count += 1;
        self.tidy();
        excess
    }

    /// Takes the longest idle connection.
    fn take_oldest(&mut self) -> Option<Sender> {
        while let Some((number, origin)) = self.order.pop_front() {
            if let Some(sender) = self.remove(number, &origin) {
                return Some(sender);
            }
        }
        None
    }

    /// Removes the connections whose idle time has expired, and returns them.
    fn take_expired(&mut self) -> Vec<Sender> {
        let mut old = Vec::new();
        while let Some((number, origin)) = self.order.front().cloned() {
            let since = self.waiting.get(&origin).and_then(|all| all.iter().find(|one| one.number == number));
            match since.map(|one| one.since) {
                Some(since) if since.elapsed() < self.life => break,
                _ => self.order.pop_front(),
            };
            old.extend(self.remove(number, &origin));
        }
        old
    }

    /// Removes all connections, and returns them.
    fn take_all(&mut self) -> Vec<Sender> {
        self.order.clear();
        self.count = 0;
        self.most = 0;
        self.waiting.drain().flat_map(|(_, all)| all).map(|one| one.sender).collect()
    }

    fn remove(&mut self, number: u64, origin: &Arc<Origin>) -> Option<Sender> {
        let of_origin = self.waiting.get_mut(origin)?;
        let at = of_origin.iter().position(|one| one.number == number)?;
        let removed = of_origin.remove(at);
        if of_origin.is_empty() {
            self.waiting.remove(origin);
        }
        self.count -= 1;
        Some(removed.sender)
    }

    /// Removes stale entries from `order` when they outnumber the connections.
    fn tidy(&mut self) {
        const FEW: usize = 64;
        if self.order.len() > 2 * self.count + FEW {
            let waiting = &self.waiting;
            let waits = |number: u64, origin: &Arc<Origin>| {
                waiting.get(origin).is_some_and(|all| all.iter().any(|one| one.number == number))
            };
            self.order.retain(|(number, origin)| waits(*number, origin));
        }
    }
}
