//! One node, and the requests that are under way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::Code;

use super::error::PeerError;
use super::latency::{Latency, NO_WAY, smoothed, us};
use super::line::{Answer, Line, State};
use super::metrics::SiteMetrics;
use super::rank::{Rank, distance};
use crate::in_flight::Counts;
use crate::limits::{NODE_MAX, NODE_PER_TENANT_MAX};
use crate::native::proto::SignRequest;
use crate::node::Member;
/// Before a node that owes an answer is asked after the others: at least, and at most, which is more than between two pings.
const SUSPECT_MIN: Duration = Duration::from_millis(250);
const SUSPECT_MAX: Duration = Duration::from_millis(1_500);
/// After which a second node is asked, of one of which nothing is known but the way to it; at least, in any case.
const HEDGE_MIN: Duration = Duration::from_millis(5);
/// The way to a node that was not measured.
const FAR: Duration = Duration::from_millis(250);

/// One node: how far away it is and how long it takes, over a connection of this node's own, or over those of others of its
/// [pod](super::pod).
pub(super) struct Peer {
    member: Member,
    pub(super) metrics: SiteMetrics,
    changed: Arc<Notify>,
    line: Line,
    /// To be measured now, and told what is wanted of it.
    poked: Notify,
    /// Who passes requests on to it, whoever is to be asked first at the beginning.
    through: RwLock<Vec<Through>>,
    /// How many of these share the requests.
    owners: AtomicUsize,
    /// For whoever ranks many: no lock is taken for these.
    own_way_us: AtomicU64,
    way_through_us: AtomicU64,
    is_reached: Mutex<bool>,
    /// Whether it ever was connected to.
    was_up: AtomicBool,
    /// Whether its own connection is to end soon: it is asked through others, where there are some.
    is_leaving: AtomicBool,
    /// Whether others of the pod may reach it soon, or it is not settled yet who connects to it.
    may_be_reached: AtomicBool,
    in_flight: AtomicUsize,
    by_tenant: Mutex<Counts>,
    begun: AtomicU64,
    /// Microseconds since this was made: when the node was asked first after it was last heard of; 0 when it was not.
    owes_since_us: AtomicU64,
    suspect_after_us: AtomicU64,
    born: Instant,
    figures: Mutex<Figures>,
}

/// A node of the same pod that has a connection to the one that is meant.
#[derive(Clone, Debug)]
pub(super) struct Through {
    pub(super) peer: Arc<Peer>,
    /// From there on, there and back.
    pub(super) way: Duration,
}

#[derive(Default)]
struct Figures {
    replies: Latency,
    round_trip: Option<Duration>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Peer {
    /// Nobody is connected to it.
    pub(super) fn new(member: Member, metrics: SiteMetrics, changed: Arc<Notify>) -> Self {
        Self {
            member,
            metrics,
            changed,
            line: Line::new(),
            poked: Notify::new(),
            through: RwLock::default(),
            owners: AtomicUsize::new(1),
            own_way_us: AtomicU64::new(NO_WAY),
            way_through_us: AtomicU64::new(NO_WAY),
            is_reached: Mutex::new(false),
            was_up: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            may_be_reached: AtomicBool::new(true),
            in_flight: AtomicUsize::new(0),
            by_tenant: Mutex::default(),
            begun: AtomicU64::new(0),
            owes_since_us: AtomicU64::new(0),
            suspect_after_us: AtomicU64::new(SUSPECT_MIN.as_micros() as u64),
            born: Instant::now(),
            figures: Mutex::default(),
        }
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// The connection of this node's own.
    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    /// There and back, by whichever way it is asked; `None` where there is none.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self.way_us() {
            NO_WAY => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// The same by the connection of this node's own.
    pub(super) fn own_way(&self) -> Option<Duration> {
        match self.own_way_us.load(Relaxed) {
            NO_WAY => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// Of both ways the one that is taken.
    fn way_us(&self) -> u64 {
        let (own, through) = (self.own_way_us.load(Relaxed), self.way_through_us.load(Relaxed));
        if self.goes_itself(own, through) { own } else { through }
    }

    fn goes_itself(&self, own: u64, through: u64) -> bool {
        own != NO_WAY && (through == NO_WAY || !self.is_leaving.load(Relaxed))
    }

    /// Its own connection is to end soon, or not any more.
    pub(super) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Relaxed);
    }

    /// Whether it is asked by way of others.
    pub(super) fn is_relayed(&self) -> bool {
        let (own, through) = (self.own_way_us.load(Relaxed), self.way_through_us.load(Relaxed));
        through != NO_WAY && !self.goes_itself(own, through)
    }

    /// `None` for one that cannot be asked.
    pub(super) fn rank(&self) -> Option<Rank> {
        let way_us = self.way_us();
        if way_us == NO_WAY {
            return None;
        }
        let in_flight = self.in_flight.load(Relaxed);
        let since_us = self.owes_since_us.load(Relaxed);
        let is_late = || self.now_us().saturating_sub(since_us) > self.suspect_after_us.load(Relaxed);
        let is_suspect = since_us > 0 && is_late();
        Some(Rank { is_suspect, is_lacking: false, distance: distance(way_us), in_flight })
    }

    /// Whether it may be asked soon, where it cannot be just now.
    pub(super) fn may_come(&self) -> bool {
        self.line.state() == State::Connecting || self.may_be_reached.load(Relaxed)
    }

    fn now_us(&self) -> u64 {
        self.born.elapsed().as_micros() as u64
    }

    /// It was heard of.
    pub(super) fn heard(&self) {
        self.owes_since_us.store(0, Relaxed);
    }

    /// Has it measured now, and told what is wanted of it.
    pub(super) fn poke(&self) {
        self.poked.notify_one();
    }

    pub(super) async fn poked(&self) {
        self.poked.notified().await;
    }

    /// The way was measured once more.
    pub(super) fn measured(&self, round_trip: Duration) {
        let smooth = {
            let mut figures = self.figures.lock();
            let smooth = smoothed(figures.round_trip, round_trip);
            figures.round_trip = Some(smooth);
            smooth
        };
        // Nothing where it is not connected to.
        let update = |way_us: u64| (way_us != NO_WAY).then_some(us(smooth));
        let _ = self.own_way_us.fetch_update(Relaxed, Relaxed, update);
        self.metrics.round_trip(smooth);
        self.heard();
    }

    fn took(&self, took: Duration) {
        let usual = {
            let mut figures = self.figures.lock();
            figures.replies.observe(took);
            figures.replies.quantile(95)
        };
        let suspect = usual.map_or(SUSPECT_MIN, |usual| (usual * 4).clamp(SUSPECT_MIN, SUSPECT_MAX));
        self.suspect_after_us.store(suspect.as_micros() as u64, Relaxed);
    }

    /// What all but a hundredth of its replies take, once enough are known.
    pub(super) fn usual(&self) -> Option<Duration> {
        self.figures.lock().replies.quantile(99)
    }

    /// After how long another node is asked for the same.
    pub(super) fn hedge_after(&self) -> Duration {
        let way = self.round_trip().unwrap_or(FAR);
        self.figures.lock().replies.quantile(95).unwrap_or(way * 3).max(HEDGE_MIN)
    }

    /// Requests that this node asked for since it is known; those that it passes on are others'.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// A connection is being made: its number.
    pub(super) fn begin(&self) -> u64 {
        let generation = self.line.begin();
        self.disconnected();
        generation
    }

    /// Requests are taken from now on, by this way.
    pub(super) fn open(&self, generation: u64, sender: mpsc::Sender<SignRequest>) {
        let way = self.figures.lock().round_trip.unwrap_or(FAR);
        if !self.line.open(generation, sender) {
            return;
        }
        self.was_up.store(true, Relaxed);
        if self.own_way_us.swap(us(way), Relaxed) == NO_WAY {
            self.metrics.connected(1);
        }
        self.heard();
        self.look();
    }

    /// There is no connection any more: everything under way by it is lost.
    pub(super) fn close(&self, generation: u64, state: State) {
        if self.line.close(generation, state) {
            self.disconnected();
            self.changed.notify_waiters();
        }
    }

    fn disconnected(&self) {
        if self.own_way_us.swap(NO_WAY, Relaxed) != NO_WAY {
            self.metrics.connected(-1);
        }
        self.look();
    }

    /// Whether others of the pod are reached through it, or will be: one that was lost is not waited for.
    pub(super) fn is_available(&self) -> bool {
        match self.line.state() {
            State::Up => true,
            State::Connecting | State::Unwanted => !self.was_up.load(Relaxed),
            State::Down => false,
        }
    }

    /// It is asked through these where there is no connection of its own; the first so many share the requests. Without any,
    /// whether there may be some soon.
    pub(super) fn set_through(&self, through: Vec<Through>, owners: usize, may_come: bool) {
        self.may_be_reached.store(may_come, Relaxed);
        self.owners.store(owners.max(1), Relaxed);
        *self.through.write() = through;
        self.look_through();
    }

    fn look_through(&self) {
        let way = self.through.read().iter().find_map(|through| Some(through.peer.own_way()? + through.way));
        let way_us = way.map_or(NO_WAY, us);
        if self.way_through_us.swap(way_us, Relaxed) == NO_WAY && way_us != NO_WAY {
            self.heard();
        }
        self.look();
    }

    /// Tells whoever waits where it can be asked now and could not, or the other way round.
    fn look(&self) {
        let mut known = self.is_reached.lock();
        let is_reached = self.way_us() != NO_WAY;
        if std::mem::replace(&mut *known, is_reached) != is_reached {
            self.metrics.reached(if is_reached { 1 } else { -1 });
            self.changed.notify_waiters();
        }
    }

    /// Gives an answer to whoever waits for it; nobody may.
    pub(super) fn answer(&self, id: u64, answer: Answer) {
        self.heard();
        self.line.answer(id, answer);
    }

    /// Asks by its own connection, or else through one of the pod.
    pub(super) fn ask(self: &Arc<Self>, request: Outgoing<'_>) -> Result<Asked, PeerError> {
        self.begun.fetch_add(1, Relaxed);
        if self.goes_itself(self.own_way_us.load(Relaxed), self.way_through_us.load(Relaxed)) {
            return self.ask_itself(request);
        }
        let Some(carrier) = self.carrier() else {
            // Who passed on is gone: it is to be waited for, not asked again at once.
            self.look_through();
            return Err(PeerError::Unsent);
        };
        let message = SignRequest { node: self.member.id.0.to_vec(), ..request.message };
        let asked = self.ask_by(carrier, Outgoing { message, ..request })?;
        self.metrics.relayed();
        Ok(asked)
    }

    /// The same by its own connection alone.
    pub(super) fn ask_itself(self: &Arc<Self>, request: Outgoing<'_>) -> Result<Asked, PeerError> {
        self.ask_by(Arc::clone(self), request)
    }

    /// Of those that share the requests to it the one that has the least to do.
    fn carrier(&self) -> Option<Arc<Self>> {
        let through = self.through.read();
        let up = through.iter().filter(|through| through.peer.line.state() == State::Up);
        let owners = up.take(self.owners.load(Relaxed));
        owners.min_by_key(|through| through.peer.line.in_flight()).map(|through| Arc::clone(&through.peer))
    }

    fn ask_by(self: &Arc<Self>, carrier: Arc<Self>, request: Outgoing<'_>) -> Result<Asked, PeerError> {
        let counted = Counted::new(self, request.tenant, request.most)?;
        // Whoever is asked gives up first, and says so; who passes it on keeps its own way back in turn.
        let back = carrier.own_way().unwrap_or_default() + request.margin;
        let there = request.patience.saturating_sub(back).max(Duration::from_millis(1));
        let timeout_ms = u32::try_from(there.as_millis()).unwrap_or(u32::MAX);
        let message = SignRequest { timeout_ms, ..request.message };
        let (id, answer) = carrier.line.put(message, request.tenant)?;
        let _ = self.owes_since_us.compare_exchange(0, self.now_us().max(1), Relaxed, Relaxed);
        self.metrics.began();
        Ok(Asked { counted, carrier, id, answer, began: Instant::now() })
    }
}

/// A request to a node.
pub(super) struct Outgoing<'a> {
    /// Its id, its node and its time are set by whoever sends it.
    pub(super) message: SignRequest,
    pub(super) tenant: &'a str,
    /// Of the tenant, under way to the node: [`NODE_PER_TENANT_MAX`] at most.
    pub(super) most: usize,
    /// Until it is of no more use.
    pub(super) patience: Duration,
    /// What is kept of that beside the way back.
    pub(super) margin: Duration,
}

/// A request among those under way to a node, until dropped.
struct Counted {
    peer: Arc<Peer>,
    tenant: String,
}

impl Counted {
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

impl Drop for Counted {
    fn drop(&mut self) {
        self.peer.by_tenant.lock().remove(&self.tenant);
        self.peer.in_flight.fetch_sub(1, Relaxed);
    }
}

/// One request under way; dropped, it is forgotten, here and there.
pub(super) struct Asked {
    counted: Counted,
    carrier: Arc<Peer>,
    id: u64,
    answer: oneshot::Receiver<Answer>,
    began: Instant,
}

impl Asked {
    /// The node of the pod that passes it on, where one does.
    pub(super) fn through(&self) -> Option<&Member> {
        let is_passed_on = !Arc::ptr_eq(&self.carrier, &self.counted.peer);
        is_passed_on.then_some(&self.carrier.member)
    }

    pub(super) async fn answered(mut self, patience: Duration) -> Answer {
        let done = match tokio::time::timeout(patience, &mut self.answer).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(PeerError::Lost),
            Err(_) => Err(PeerError::Late),
        };
        let peer = &self.counted.peer;
        if matches!(done, Ok(_) | Err(PeerError::Answered(_))) {
            peer.heard();
        }
        // What a node could not do says nothing of how long it takes.
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

impl Drop for Asked {
    fn drop(&mut self) {
        self.carrier.line.forget(self.id, &self.counted.tenant);
        self.counted.peer.metrics.ended(self.began.elapsed());
    }
}
