//! One node, and the requests that are under way to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::Member;
use super::holders::{Rank, distance};
use super::latency::{Latency, smoothed};
use super::metrics::SiteMetrics;
use crate::native::proto::SignRequest;
use crate::server::STREAM_MAX;
use crate::stage::Cost;
use crate::tenant::Counts;
use crate::{ELSEWHERE_PER_KEY_MAX, tenant};

/// Requests under way to one node, 2 KB each here and 1 KB there: as many as it takes of one stream.
pub const IN_FLIGHT_MAX: usize = STREAM_MAX;
/// Of one tenant: at 100 ms 40,960 a second, and the same is left for the others. What is asked for is half of that, for
/// replies are late when there is much to do, and then more are under way for the same rate.
pub const TENANT_IN_FLIGHT_MAX: usize = IN_FLIGHT_MAX / 2;
// One tenant with one key gets as far as that: its other bounds, here and there, are no narrower.
const _: () = assert!(
    TENANT_IN_FLIGHT_MAX <= ELSEWHERE_PER_KEY_MAX
        && TENANT_IN_FLIGHT_MAX <= tenant::IN_FLIGHT_MAX
        && TENANT_IN_FLIGHT_MAX <= Cost::Light.waiting_max()
);
/// Before a node that owes an answer is asked after the others: at least, and at most, which is more than between two pings.
const SUSPECT_MIN: Duration = Duration::from_millis(250);
const SUSPECT_MAX: Duration = Duration::from_millis(1_500);
/// After which a second node is asked, of one of which nothing is known but the way to it; at least, in any case.
const HEDGE_MIN: Duration = Duration::from_millis(5);
/// The way to a node that was not measured.
const FAR: Duration = Duration::from_millis(250);

/// Why there is no answer of a node.
#[derive(Clone, Debug)]
pub(super) enum PeerError {
    /// As many requests as may are under way to it; of the tenant, or in all.
    Full,
    /// There was no connection any more.
    Unsent,
    /// The connection was lost.
    Lost,
    /// It did not answer in time. Whatever comes later is dropped.
    Late,
    /// It said so.
    Answered(Status),
}

/// Whether a node can be asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Its first connection, or the next after a good one, is being made.
    Connecting,
    Up,
    Down,
}

/// One node.
pub(super) struct Peer {
    member: Member,
    pub(super) metrics: SiteMetrics,
    stopping: CancellationToken,
    changed: Arc<Notify>,
    /// For whoever ranks many: no lock is taken for these.
    is_up: AtomicBool,
    round_trip_us: AtomicU64,
    in_flight: AtomicUsize,
    next: AtomicU64,
    queue: Mutex<Queue>,
    /// Microseconds since this was made: when the node was asked first after it was last heard of; 0 when it was not.
    owes_since_us: AtomicU64,
    suspect_after_us: AtomicU64,
    born: Instant,
    figures: Mutex<Figures>,
}

struct Queue {
    state: State,
    sender: Option<mpsc::Sender<SignRequest>>,
    waiting: HashMap<u64, oneshot::Sender<Result<Vec<u8>, Status>>>,
    by_tenant: Counts,
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
    pub(super) fn new(
        member: Member,
        metrics: SiteMetrics,
        stopping: CancellationToken,
        changed: Arc<Notify>,
    ) -> Self {
        let queue = Queue {
            state: State::Connecting,
            sender: None,
            waiting: HashMap::new(),
            by_tenant: Counts::default(),
        };
        Self {
            member,
            metrics,
            stopping,
            changed,
            is_up: AtomicBool::new(false),
            round_trip_us: AtomicU64::new(u64::MAX),
            in_flight: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            queue: Mutex::new(queue),
            owes_since_us: AtomicU64::new(0),
            suspect_after_us: AtomicU64::new(SUSPECT_MIN.as_micros() as u64),
            born: Instant::now(),
            figures: Mutex::default(),
        }
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Is asked no more.
    pub(super) fn leave(&self) {
        self.stopping.cancel();
    }

    /// `None` for one that cannot be asked.
    pub(super) fn rank(&self) -> Option<Rank> {
        if !self.is_up.load(Relaxed) {
            return None;
        }
        let in_flight = self.in_flight.load(Relaxed);
        let since_us = self.owes_since_us.load(Relaxed);
        let is_late = || self.now_us().saturating_sub(since_us) > self.suspect_after_us.load(Relaxed);
        let is_suspect = since_us > 0 && is_late();
        let distance = distance(self.round_trip_us.load(Relaxed));
        Some(Rank { is_suspect, is_lacking: false, distance, in_flight })
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.queue.lock().state == State::Connecting
    }

    /// The way there and back, once it was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        if !self.is_up.load(Relaxed) {
            return None;
        }
        self.figures.lock().round_trip
    }

    fn now_us(&self) -> u64 {
        self.born.elapsed().as_micros() as u64
    }

    fn heard(&self) {
        self.owes_since_us.store(0, Relaxed);
    }

    /// The way was measured once more.
    pub(super) fn measured(&self, round_trip: Duration) {
        let smooth = {
            let mut figures = self.figures.lock();
            let smooth = smoothed(figures.round_trip, round_trip);
            figures.round_trip = Some(smooth);
            smooth
        };
        self.round_trip_us.store(smooth.as_micros() as u64, Relaxed);
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
        let figures = self.figures.lock();
        let way = figures.round_trip.unwrap_or(FAR);
        figures.replies.quantile(95).unwrap_or(way * 3).max(HEDGE_MIN)
    }

    /// Requests are taken from now on, by this way.
    pub(super) fn open(&self, sender: mpsc::Sender<SignRequest>) {
        {
            let mut queue = self.queue.lock();
            (queue.sender, queue.state) = (Some(sender), State::Up);
        }
        self.heard();
        self.is_up.store(true, Relaxed);
        self.metrics.up(1);
        self.changed.notify_waiters();
    }

    /// Everything under way is lost. `again`: the next connection is made right away, so that to wait for it is reasonable.
    pub(super) fn close(&self, again: bool) {
        let was_up = self.is_up.swap(false, Relaxed);
        let lost = {
            let mut queue = self.queue.lock();
            queue.sender = None;
            queue.state = if again { State::Connecting } else { State::Down };
            std::mem::take(&mut queue.waiting)
        };
        if was_up {
            self.metrics.up(-1);
        }
        drop(lost);
        self.changed.notify_waiters();
    }

    /// Gives an answer to whoever waits for it; nobody may.
    pub(super) fn answer(&self, id: u64, answer: Result<Vec<u8>, Status>) {
        self.heard();
        let waiting = self.queue.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Asks, for a tenant, which may have `most` under way here, [`TENANT_IN_FLIGHT_MAX`] at most; the request's id is replaced.
    pub(super) fn ask(
        self: &Arc<Self>,
        mut request: SignRequest,
        tenant: &str,
        most: usize,
    ) -> Result<Asked, PeerError> {
        let (sender, answer) = oneshot::channel();
        let id = self.next.fetch_add(1, Relaxed);
        {
            let mut queue = self.queue.lock();
            let Some(way) = &queue.sender else { return Err(PeerError::Unsent) };
            let most = most.min(TENANT_IN_FLIGHT_MAX);
            if self.in_flight.load(Relaxed) >= IN_FLIGHT_MAX || queue.by_tenant.of(tenant) >= most {
                return Err(PeerError::Full);
            }
            request.id = id;
            match way.try_send(request) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => return Err(PeerError::Full),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(PeerError::Unsent),
            }
            queue.waiting.insert(id, sender);
            queue.by_tenant.add(tenant);
            self.in_flight.fetch_add(1, Relaxed);
        }
        let _ = self.owes_since_us.compare_exchange(0, self.now_us().max(1), Relaxed, Relaxed);
        self.metrics.began();
        let (peer, tenant) = (Arc::clone(self), tenant.to_owned());
        Ok(Asked { peer, id, tenant, answer, began: Instant::now() })
    }

    /// Forgets a request; one that is under way still is taken back.
    fn forget(&self, id: u64, tenant: &str) {
        let mut queue = self.queue.lock();
        queue.by_tenant.remove(tenant);
        self.in_flight.fetch_sub(1, Relaxed);
        let is_under_way = queue.waiting.remove(&id).is_some();
        if let Some(way) = queue.sender.as_ref().filter(|_| is_under_way) {
            // It goes on there if this finds no room: until its deadline.
            let _ = way.try_send(SignRequest { id, cancel: true, ..SignRequest::default() });
        }
    }
}

/// One request under way; dropped, it is forgotten, here and there.
pub(super) struct Asked {
    peer: Arc<Peer>,
    id: u64,
    tenant: String,
    answer: oneshot::Receiver<Result<Vec<u8>, Status>>,
    began: Instant,
}

impl Asked {
    pub(super) async fn answered(mut self, patience: Duration) -> Result<Vec<u8>, PeerError> {
        let done = match tokio::time::timeout(patience, &mut self.answer).await {
            Ok(Ok(Ok(signature))) => Ok(signature),
            Ok(Ok(Err(status))) => Err(PeerError::Answered(status)),
            Ok(Err(_)) => Err(PeerError::Lost),
            Err(_) => Err(PeerError::Late),
        };
        // What a node could not do says nothing of how long it takes.
        let counts = match &done {
            Ok(_) => true,
            Err(PeerError::Late) => true,
            Err(PeerError::Answered(status)) => status.code() == Code::DeadlineExceeded,
            Err(_) => false,
        };
        if counts {
            self.peer.took(self.began.elapsed());
        }
        if let Err(error) = &done {
            self.peer.metrics.failed(error);
        }
        done
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.peer.forget(self.id, &self.tenant);
        self.peer.metrics.ended(self.began.elapsed());
    }
}

impl PeerError {
    /// Whether another node may do what this one did not: one that is gone, late or has too much to do says nothing of the
    /// key, nor does one that does not have it yet. A failure of the key itself is the same everywhere.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Full | Self::Unsent | Self::Lost | Self::Late => true,
            Self::Answered(status) => matches!(
                status.code(),
                Code::NotFound
                    | Code::ResourceExhausted
                    | Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
            ),
        }
    }

    /// Whether the node did nothing for it: then another one's work is the first, and no second.
    pub(super) fn was_free(&self) -> bool {
        matches!(self, Self::Full | Self::Unsent) || self.is_lack()
    }

    /// It does not hold the key.
    pub(super) fn is_lack(&self) -> bool {
        matches!(self, Self::Answered(status) if status.code() == Code::NotFound)
    }

    /// In metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Unsent => "unsent",
            Self::Lost => "lost",
            Self::Late => "late",
            Self::Answered(status) => crate::native::code_name(status.code()),
        }
    }
}

impl std::fmt::Display for PeerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => f.write_str("as many requests as may are under way to it"),
            Self::Unsent => f.write_str("there is no connection to it"),
            Self::Lost => f.write_str("the connection to it was lost"),
            Self::Late => f.write_str("it did not answer in time"),
            Self::Answered(status) => f.write_str(status.message()),
        }
    }
}
