//! The lease of one identity.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http_relay::client::Ended;
use jiff::Timestamp;
use keys::Secret;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use uuid::Uuid;

use super::issuer::{LeaseError, NewLease};

/// Maximum tokens and passwords that are remembered for one lease. If more tokens and passwords have used the lease, their removal
/// no longer ends the lease.
const HOLDERS_MAX: usize = 64;
/// Maximum margin before the expiry of a lease. Within the margin, a tenth of the lease's lifetime, requests no longer get the
/// lease.
const MARGIN_MAX: Duration = Duration::from_secs(30);

/// A lease that the store has created.
#[derive(Debug)]
pub(super) struct LiveLease {
    pub(super) id: Uuid,
    pub(super) expires: Instant,
    pub(super) renew_at: Instant,
    pub(super) expires_at: Timestamp,
    life: Duration,
    username: Secret,
    password: Secret,
    /// Permit of one of the [`LEASES_MAX`](super::LEASES_MAX) leases.
    _permit: OwnedSemaphorePermit,
}

/// User and password of a lease.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) id: Uuid,
    pub(crate) username: Secret,
    pub(crate) password: Secret,
}

impl LiveLease {
    pub(super) fn new(lease: NewLease, permit: OwnedSemaphorePermit) -> Self {
        let NewLease { id, username, password, created_at, expires_at } = lease;
        let (life, now) = (between(created_at, expires_at), Instant::now());
        let (expires, renew_at) = (now + life, now + life * 2 / 3);
        Self { id, expires, renew_at, expires_at, life, username, password, _permit: permit }
    }

    pub(super) fn leased(&self) -> Leased {
        Leased { id: self.id, username: self.username.clone(), password: self.password.clone() }
    }

    /// Returns whether requests may get the lease: its remaining lifetime is above the margin ([`MARGIN_MAX`]).
    pub(super) fn is_usable(&self) -> bool {
        Instant::now() + (self.life / 10).min(MARGIN_MAX) < self.expires
    }

    pub(super) fn has_expired(&self) -> bool {
        Instant::now() >= self.expires
    }

    /// Records a renewal. A lease that has reached its maximum lifetime is not renewed again.
    pub(super) fn renewed(&mut self, expires_at: Timestamp) {
        let longer = between(self.expires_at, expires_at);
        self.expires += longer;
        self.expires_at = expires_at;
        let left = self.expires.saturating_duration_since(Instant::now());
        self.renew_at = if longer.is_zero() { self.expires } else { Instant::now() + left * 2 / 3 };
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Slot for the leases of one identity and role, with the clients that have used the lease.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: tokio::sync::Mutex<SlotState>,
    /// End signals of the tokens and passwords that have used the lease.
    holders: Mutex<Vec<Ended>>,
    /// Whether a client without a token or password has used the lease.
    is_unbound: AtomicBool,
    /// Whether a request has got the lease since its last renewal.
    pub(super) is_used: AtomicBool,
    /// Whether a server has rejected the lease.
    pub(super) is_suspect: AtomicBool,
    /// Whether the identity has lost the lease.
    pub(super) is_over: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) live: Option<LiveLease>,
    /// Leases that reached their maximum lifetime. Requests in progress may use them until they expire.
    pub(super) retired: Vec<LiveLease>,
    /// Time and error of the last failed creation of a lease.
    pub(super) failure: Option<(Instant, LeaseError)>,
    /// Time of the last check after a rejection.
    pub(super) checked_at: Option<Instant>,
}

impl Slot {
    /// Records a client that uses the lease.
    pub(super) fn used_by(&self, ended: Option<&Ended>) {
        self.is_used.store(true, Relaxed);
        let Some(ended) = ended else { return self.is_unbound.store(true, Relaxed) };
        let mut holders = self.holders.lock();
        if holders.iter().any(|one| one.is_same(ended)) {
            return;
        }
        holders.retain(|one| !one.has_ended());
        match holders.len() < HOLDERS_MAX {
            true => holders.push(ended.clone()),
            false => self.is_unbound.store(true, Relaxed),
        }
    }

    /// Returns whether all tokens and passwords that have used the lease were removed.
    pub(super) fn is_abandoned(&self) -> bool {
        let holders = self.holders.lock();
        !self.is_unbound.load(Relaxed) && !holders.is_empty() && holders.iter().all(Ended::has_ended)
    }
}

impl SlotState {
    /// Removes and returns all leases of the slot.
    pub(super) fn take_all(&mut self) -> Vec<LiveLease> {
        self.retired.drain(..).chain(self.live.take()).collect()
    }
}

/// Reference to the lease that a request uses.
#[derive(Clone, Debug)]
pub(crate) struct SlotRef(pub(super) Arc<Slot>);

impl SlotRef {
    /// Records that a server rejected the lease. The next request checks whether the lease still exists.
    pub(crate) fn doubt(&self) {
        self.0.is_suspect.store(true, Relaxed);
    }
}
