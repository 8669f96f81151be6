//! One peer: its round-trip time, its reply times, and the path of requests to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::Code;

use super::channel::{Channel, ConnectionState, Reply};
use super::error::PeerError;
use super::latency::{Latency, NO_PATH, smoothed, us};
use super::metrics::SiteMetrics;
use super::rank::{Rank, distance};
use crate::in_flight::TenantCounts;
use crate::limits::{NODE_MAX, NODE_PER_TENANT_MAX};
use crate::native::proto::SignRequest;
use crate::node::Member;
/// Minimum of the time without a reply after which a node ranks last.
const SUSPECT_MIN: Duration = Duration::from_millis(250);
/// Maximum of the time without a reply after which a node ranks last; longer than the ping interval.
const SUSPECT_MAX: Duration = Duration::from_millis(1_500);
/// Minimum delay before a request is hedged on a second node.
const HEDGE_MIN: Duration = Duration::from_millis(5);
/// Assumed round-trip time of a node that was not measured yet.
const FAR: Duration = Duration::from_millis(250);

/// A node that is reached directly, or through a relay. A relay is another node that forwards requests: a node of the same
/// [pod](super::pod), or the helper of a [detour](super::detours).
pub(super) struct Peer {
    member: Member,
    pub(super) metrics: SiteMetrics,
    changed: Arc<Notify>,
    channel: Channel,
    /// Triggers an immediate ping, which sends the destinations wanted from the node.
    woken: Notify,
    /// The relays to the node, in order of preference.
    relays: RwLock<Vec<RelayPath>>,
    /// Number of relays at the front of `relays` that share the requests.
    owners: AtomicUsize,
    /// Round-trip times in microseconds, readable without a lock, because ranking reads many of them.
    direct_round_trip_us: AtomicU64,
    relayed_round_trip_us: AtomicU64,
    is_reached: Mutex<bool>,
    /// Whether a connection to the node was ever open.
    was_up: AtomicBool,
    /// Whether the direct connection will close soon, so that relays are preferred.
    is_leaving: AtomicBool,
    /// Whether requests should wait for a relay: a relay may reach the node soon, or no relay was assigned yet.
    may_be_reached: AtomicBool,
    in_flight: AtomicUsize,
    by_tenant: Mutex<TenantCounts>,
    requests_sent: AtomicU64,
    /// Time when the oldest unanswered request was sent, in microseconds since the creation of this peer; 0: no reply is
    /// outstanding.
    unanswered_since_us: AtomicU64,
    /// Time of the last reply, in microseconds since the creation of this peer; 0: none yet.
    replied_us: AtomicU64,
    /// Whether other nodes reported this node as silent, and the node has not replied since.
    is_reported_silent: AtomicBool,
    suspect_after_us: AtomicU64,
    created_at: Instant,
    measurements: Mutex<Measurements>,
}

/// A node of the same pod that forwards requests to the destination.
#[derive(Clone, Debug)]
pub(super) struct RelayPath {
    pub(super) peer: Arc<Peer>,
    /// Round-trip time from the relay to the destination.
    pub(super) way: Duration,
}

#[derive(Default)]
struct Measurements {
    replies: Latency,
    round_trip: Option<Duration>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Peer {
    /// Creates a peer without a connection.
    pub(super) fn new(member: Member, metrics: SiteMetrics, changed: Arc<Notify>) -> Self {
        Self {
            member,
            metrics,
            changed,
            channel: Channel::new(),
            woken: Notify::new(),
            relays: RwLock::default(),
            owners: AtomicUsize::new(1),
            direct_round_trip_us: AtomicU64::new(NO_PATH),
            relayed_round_trip_us: AtomicU64::new(NO_PATH),
            is_reached: Mutex::new(false),
            was_up: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            may_be_reached: AtomicBool::new(true),
            in_flight: AtomicUsize::new(0),
            by_tenant: Mutex::default(),
            requests_sent: AtomicU64::new(0),
            unanswered_since_us: AtomicU64::new(0),
            replied_us: AtomicU64::new(0),
            is_reported_silent: AtomicBool::new(false),
            suspect_after_us: AtomicU64::new(SUSPECT_MIN.as_micros() as u64),
            created_at: Instant::now(),
            measurements: Mutex::default(),
        }
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the direct connection.
    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the round-trip time of the current path; `None` without a path.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self.round_trip_us() {
            NO_PATH => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Returns the round-trip time of the direct connection.
    pub(super) fn direct_round_trip(&self) -> Option<Duration> {
        match self.direct_round_trip_us.load(Relaxed) {
            NO_PATH => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Returns the round-trip time of the current path in microseconds.
    fn round_trip_us(&self) -> u64 {
        let (own, through) =
            (self.direct_round_trip_us.load(Relaxed), self.relayed_round_trip_us.load(Relaxed));
        if self.prefers_direct(own, through) { own } else { through }
    }

    fn prefers_direct(&self, own: u64, through: u64) -> bool {
        own != NO_PATH && (through == NO_PATH || !self.is_leaving.load(Relaxed))
    }

    /// Sets whether the direct connection will close soon.
    pub(super) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Relaxed);
    }

    /// Returns whether requests go through a relay.
    pub(super) fn is_relayed(&self) -> bool {
        let (own, through) =
            (self.direct_round_trip_us.load(Relaxed), self.relayed_round_trip_us.load(Relaxed));
        through != NO_PATH && !self.prefers_direct(own, through)
    }

    /// Returns the rank of the node; `None` without a path.
    pub(super) fn rank(&self) -> Option<Rank> {
        let round_trip_us = self.round_trip_us();
        if round_trip_us == NO_PATH {
            return None;
        }
        let in_flight = self.in_flight.load(Relaxed);
        let since_us = self.unanswered_since_us.load(Relaxed);
        let is_late = || self.now_us().saturating_sub(since_us) > self.suspect_after_us.load(Relaxed);
        let is_suspect = self.is_reported_silent.load(Relaxed) || since_us > 0 && is_late();
        Some(Rank { is_suspect, is_lacking: false, distance: distance(round_trip_us), in_flight })
    }

    /// Returns whether requests should wait for a path: the connection is being opened, or a relay may reach the node.
    pub(super) fn may_come(&self) -> bool {
        self.channel.state() == ConnectionState::Connecting || self.may_be_reached.load(Relaxed)
    }

    fn now_us(&self) -> u64 {
        self.created_at.elapsed().as_micros() as u64
    }

    /// Records that the node sent something, so that no reply is outstanding.
    pub(super) fn record_received(&self) {
        self.unanswered_since_us.store(0, Relaxed);
        self.is_reported_silent.store(false, Relaxed);
    }

    /// Records that other nodes reported this node as silent. The node ranks last until it replies, and is pinged immediately.
    pub(super) fn mark_suspect(&self) {
        self.is_reported_silent.store(true, Relaxed);
        self.wake();
    }

    /// Returns whether the node sent a reply after `then`.
    pub(super) fn replied_since(&self, then: Instant) -> bool {
        let replied = self.replied_us.load(Relaxed);
        replied > 0 && self.created_at + Duration::from_micros(replied) > then
    }

    /// Triggers an immediate ping, which also sends the wanted destinations.
    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Records a new round-trip time.
    pub(super) fn measured(&self, round_trip: Duration) {
        let smooth = {
            let mut measurements = self.measurements.lock();
            let smooth = smoothed(measurements.round_trip, round_trip);
            measurements.round_trip = Some(smooth);
            smooth
        };
        // No update without a connection.
        let update = |round_trip_us: u64| (round_trip_us != NO_PATH).then_some(us(smooth));
        let _ = self.direct_round_trip_us.fetch_update(Relaxed, Relaxed, update);
        self.metrics.round_trip(smooth);
        self.record_received();
    }

    fn took(&self, took: Duration) {
        let usual_duration = {
            let mut measurements = self.measurements.lock();
            measurements.replies.observe(took);
            measurements.replies.quantile(95)
        };
        let suspect = usual_duration
            .map_or(SUSPECT_MIN, |usual_duration| (usual_duration * 4).clamp(SUSPECT_MIN, SUSPECT_MAX));
        self.suspect_after_us.store(suspect.as_micros() as u64, Relaxed);
    }

    /// Returns the 99th percentile of reply times, once there are enough replies.
    pub(super) fn usual_duration(&self) -> Option<Duration> {
        self.measurements.lock().replies.quantile(99)
    }

    /// Returns the delay before a request to this node is hedged.
    pub(super) fn hedge_after(&self) -> Duration {
        let way = self.round_trip().unwrap_or(FAR);
        self.measurements.lock().replies.quantile(95).unwrap_or(way * 3).max(HEDGE_MIN)
    }

    /// Returns the number of requests that this node has sent to the peer so far, without requests forwarded for other nodes.
    pub(super) fn requests_sent(&self) -> u64 {
        self.requests_sent.load(Relaxed)
    }

    /// Records that a connection is being opened. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        let generation = self.channel.begin();
        self.disconnected();
        generation
    }

    /// Records that the connection is open, and sends requests to `sender`.
    pub(super) fn open(&self, generation: u64, sender: mpsc::Sender<SignRequest>) {
        let way = self.measurements.lock().round_trip.unwrap_or(FAR);
        if !self.channel.open(generation, sender) {
            return;
        }
        self.was_up.store(true, Relaxed);
        if self.direct_round_trip_us.swap(us(way), Relaxed) == NO_PATH {
            self.metrics.connected(1);
        }
        self.record_received();
        self.update_reached();
    }

    /// Records that the connection ended. Its pending requests fail.
    pub(super) fn close(&self, generation: u64, state: ConnectionState) {
        let was_up = self.direct_round_trip_us.load(Relaxed) != NO_PATH;
        if self.channel.close(generation, state) {
            if was_up && state != ConnectionState::Unwanted {
                // A relay may still reach this peer.
                self.may_be_reached.store(true, Relaxed);
            }
            self.disconnected();
            self.changed.notify_waiters();
        }
    }

    fn disconnected(&self) {
        if self.direct_round_trip_us.swap(NO_PATH, Relaxed) != NO_PATH {
            self.metrics.connected(-1);
        }
        self.update_reached();
    }

    /// Returns whether this peer can be a relay: its connection is open, or was never open and has not failed.
    pub(super) fn is_available(&self) -> bool {
        match self.channel.state() {
            ConnectionState::Up => true,
            ConnectionState::Connecting | ConnectionState::Unwanted => !self.was_up.load(Relaxed),
            ConnectionState::Down => false,
        }
    }

    /// Sets the relays to the node; the first `owners` of them share the requests. `may_come`: more relays may follow soon.
    pub(super) fn set_relays(&self, relays: Vec<RelayPath>, owners: usize, may_come: bool) {
        self.may_be_reached.store(may_come, Relaxed);
        self.owners.store(owners.max(1), Relaxed);
        *self.relays.write() = relays;
        self.update_relay_distance();
    }

    fn update_relay_distance(&self) {
        let way =
            self.relays.read().iter().find_map(|relay| Some(relay.peer.direct_round_trip()? + relay.way));
        let round_trip_us = way.map_or(NO_PATH, us);
        if self.relayed_round_trip_us.swap(round_trip_us, Relaxed) == NO_PATH && round_trip_us != NO_PATH {
            self.record_received();
        }
        self.update_reached();
    }

    /// Wakes requests that wait for a path if the node's reachability changed.
    fn update_reached(&self) {
        let mut known = self.is_reached.lock();
        let is_reached = self.round_trip_us() != NO_PATH;
        if std::mem::replace(&mut *known, is_reached) != is_reached {
            self.metrics.reached(if is_reached { 1 } else { -1 });
            self.changed.notify_waiters();
        }
    }

    /// Delivers a reply to the request with this ID. A reply to a cancelled request is dropped.
    pub(super) fn complete(&self, id: u64, reply: Reply) {
        self.replied_us.store(self.now_us(), Relaxed);
        self.record_received();
        self.channel.complete(id, reply);
    }

    /// Sends a request on the direct connection, or else through a relay of the pod.
    pub(super) fn send(self: &Arc<Self>, request: PeerRequest<'_>) -> Result<PendingRequest, PeerError> {
        self.requests_sent.fetch_add(1, Relaxed);
        if self
            .prefers_direct(self.direct_round_trip_us.load(Relaxed), self.relayed_round_trip_us.load(Relaxed))
        {
            return self.send_direct(request);
        }
        let Some(relay) = self.relay() else {
            // The relay was lost: the request waits for another path instead of failing again immediately.
            self.update_relay_distance();
            return Err(PeerError::Unsent);
        };
        let message = SignRequest { node: self.member.id.0.to_vec(), ..request.message };
        let pending = self.send_through(relay, PeerRequest { message, ..request })?;
        self.metrics.relayed();
        Ok(pending)
    }

    /// Sends a request on the direct connection only.
    pub(super) fn send_direct(
        self: &Arc<Self>,
        request: PeerRequest<'_>,
    ) -> Result<PendingRequest, PeerError> {
        self.send_through(Arc::clone(self), request)
    }

    /// Returns the connected relay with the fewest requests in flight. Considers only the first `owners` connected relays.
    fn relay(&self) -> Option<Arc<Self>> {
        let relays = self.relays.read();
        let up = relays.iter().filter(|relay| relay.peer.channel.state() == ConnectionState::Up);
        let owners = up.take(self.owners.load(Relaxed));
        owners.min_by_key(|relay| relay.peer.channel.in_flight()).map(|relay| Arc::clone(&relay.peer))
    }

    /// Sends a request to this peer on the connection of `carrier`: the peer itself, or a relay to it.
    fn send_through(
        self: &Arc<Self>,
        carrier: Arc<Self>,
        request: PeerRequest<'_>,
    ) -> Result<PendingRequest, PeerError> {
        let permit = InFlightPermit::new(self, request.tenant, request.most)?;
        // The other node must time out first, and send its error. A relay subtracts its own round trip again.
        let back = carrier.direct_round_trip().unwrap_or_default() + request.margin;
        let remote_time_left = request.time_left.saturating_sub(back).max(Duration::from_millis(1));
        let timeout_ms = u32::try_from(remote_time_left.as_millis()).unwrap_or(u32::MAX);
        let message = SignRequest { timeout_ms, ..request.message };
        let (id, reply) = carrier.channel.send(message, request.tenant)?;
        let _ = self.unanswered_since_us.compare_exchange(0, self.now_us().max(1), Relaxed, Relaxed);
        self.metrics.began();
        Ok(PendingRequest { permit, carrier, id, reply, began: Instant::now() })
    }
}

/// A request to a node.
pub(super) struct PeerRequest<'a> {
    /// The request. ID, node and timeout are set when it is sent.
    pub(super) message: SignRequest,
    pub(super) tenant: &'a str,
    /// Maximum requests of the tenant in flight to the node; at most [`NODE_PER_TENANT_MAX`].
    pub(super) most: usize,
    /// The time left until the deadline.
    pub(super) time_left: Duration,
    /// Part of `time_left` that is reserved for the reply, in addition to the round trip.
    pub(super) margin: Duration,
}

/// A guard that counts a request as in flight to a node until dropped.
struct InFlightPermit {
    peer: Arc<Peer>,
    tenant: String,
}

impl InFlightPermit {
    fn new(peer: &Arc<Peer>, tenant: &str, most: usize) -> Result<Self, PeerError> {
        let mut by_tenant = peer.by_tenant.lock();
        let is_full = peer.in_flight.load(Relaxed) >= NODE_MAX;
        if is_full || by_tenant.of(tenant) >= most.min(NODE_PER_TENANT_MAX) {
            return Err(PeerError::Full);
        }
        by_tenant.add(tenant);
        peer.in_flight.fetch_add(1, Relaxed);
        Ok(Self { peer: Arc::clone(peer), tenant: tenant.to_owned() })
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.peer.by_tenant.lock().remove(&self.tenant);
        self.peer.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A request that waits for its reply. Dropping it cancels the request, here and at the node.
pub(super) struct PendingRequest {
    permit: InFlightPermit,
    carrier: Arc<Peer>,
    id: u64,
    reply: oneshot::Receiver<Reply>,
    began: Instant,
}

impl PendingRequest {
    /// Returns the relay that forwards the request, if any.
    pub(super) fn relay(&self) -> Option<&Member> {
        let is_relayed = !Arc::ptr_eq(&self.carrier, &self.permit.peer);
        is_relayed.then_some(&self.carrier.member)
    }

    pub(super) async fn reply(mut self, time_left: Duration) -> Reply {
        let done = match tokio::time::timeout(time_left, &mut self.reply).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(PeerError::Lost),
            Err(_) => Err(PeerError::Late),
        };
        let peer = &self.permit.peer;
        if matches!(done, Ok(_) | Err(PeerError::Answered(_))) {
            peer.record_received();
        }
        // Errors do not count: their time differs from the time of a signature.
        let counts = match &done {
            Ok(_) => true,
            Err(PeerError::Late) => true,
            Err(PeerError::Answered(status)) => status.code() == Code::DeadlineExceeded,
            Err(_) => false,
        };
        if counts {
            peer.took(self.began.elapsed());
        }
        if let Err(error) = &done {
            peer.metrics.failed(error);
        }
        done
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.carrier.channel.abandon(self.id, &self.permit.tenant);
        self.permit.peer.metrics.ended(self.began.elapsed());
    }
}
