//! It is there: four times a second, whatever else it does.
//!
//! A control plane that refuses the node has retired it. What was sealed for it signs no more then, and not after a new start
//! either, until it is let in again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use enrollment::client::{ApiError, backoff};
use futures_util::future::{Either, select};
use keyless::routing::NodeId;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::members::MemberChanges;
use super::{KeyNode, NodeError};
use crate::timing::AWAY_PAUSE_MAX;
use crate::work::{Beat, BeatAnswer, MEASURED_MAX, Membership};

/// For the answer to a beat: the next one is due long before.
const BEAT_WITHIN: Duration = Duration::from_secs(5);
/// A beat without an answer is sent once more after this, over another connection: there is time for it in the lease. Both are kept.
const AGAIN_AFTER: Duration = Duration::from_millis(400);
/// Beats that are sent once, after one that was sent twice: a control plane that is slow gets an eighth more to do at most.
const SENT_ONCE: u32 = 8;
/// Between two beats, whatever the control plane says; and while it does not answer, when all nodes ask it.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = AWAY_PAUSE_MAX;
/// A control plane that refuses this node for so long has retired it. Longer than a server takes that starts with another
/// database by mistake and is stopped at once.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Interval at which the members are written to disk, for the next start.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// Of fewer nodes each change is noted.
const NOTED_AT_ONCE: usize = 100;

/// State from one beat to the next.
#[derive(Default)]
struct BeatState {
    failures: u32,
    twice: DoubledBeats<BeatAnswer>,
    /// Since when the control plane refuses this node.
    refused_since: Option<Instant>,
    /// Revision of the newest change received.
    told: Option<i64>,
}

impl KeyNode {
    /// Beats for ever.
    pub(super) async fn beat(&self) {
        let mut state = BeatState::default();
        loop {
            let began = Instant::now();
            let pause = match self.one_beat(&mut state).await {
                Ok(pause) => {
                    if std::mem::take(&mut state.failures) > 0 {
                        tracing::info!("the control plane answers");
                    }
                    pause.saturating_sub(began.elapsed())
                }
                Err(error) => {
                    if state.failures == 0 {
                        tracing::warn!(%error, "the control plane does not answer; what is known stays");
                    }
                    state.failures = state.failures.saturating_add(1);
                    self.refused(&mut state, &error);
                    let asked =
                        if let ApiError::Refused { retry_after, .. } = &error { *retry_after } else { None };
                    pause_after(state.failures, asked)
                }
            };
            self.metrics.is_away(state.failures > 0);
            tokio::time::sleep(pause).await;
        }
    }

    /// One beat, and what follows from its answer; when the next one is due.
    async fn one_beat(&self, state: &mut BeatState) -> Result<Duration, ApiError> {
        let since = self.known.lock().members.since();
        let beat = Arc::new(Beat { address: Some(self.address.clone()), since, measured: self.measured() });
        let api = self.api();
        let ask = || {
            let (api, beat) = (Arc::clone(&api), Arc::clone(&beat));
            AbortOnDropHandle::new(tokio::spawn(async move {
                let _live = telemetry::tasks::guard("key-node-beat");
                api.post::<BeatAnswer>("/api/v1/key-nodes/self/beat", &*beat, BEAT_WITHIN).await
            }))
        };
        let answer = once_more(&mut state.twice, ask).await?;
        self.let_in(state);
        let (more, anew) = (answer.membership.more, answer.membership.anew);
        self.take_members(answer.membership, answer.now_ms / 1_000);
        // A number that is another one, be it smaller, as after a restored backup.
        if state.told.replace(answer.state) != Some(answer.state) || anew {
            self.news.notify_one();
        }
        Ok(if more {
            PAUSE_MIN
        } else {
            Duration::from_millis(answer.beat_every_ms).clamp(PAUSE_MIN, PAUSE_MAX)
        })
    }

    /// Milliseconds to the nearest of the others.
    fn measured(&self) -> BTreeMap<Uuid, u32> {
        let mut all = self.router.measured();
        all.sort_by_key(|(_, way)| *way);
        let milliseconds = |way: Duration| u32::try_from(way.as_millis()).unwrap_or(u32::MAX);
        let nearest = all.into_iter().take(MEASURED_MAX);
        nearest.map(|(node, way)| (Uuid::from_bytes(node.0), milliseconds(way))).collect()
    }

    /// Takes what is told of the other nodes at the control plane's time `now_s`, in seconds since 1970.
    fn take_members(&self, told: Membership, now_s: i64) {
        let mut known = self.known.lock();
        let MemberChanges { changed, absent } = known.members.take(told, now_s);
        // Not heard there is not gone: whether it can be reached from here is found out at once.
        self.router.check(absent.iter().map(|node| NodeId(*node.as_bytes())));
        if changed.is_empty() && absent.is_empty() {
            return;
        }
        self.router.set_members(known.members.list());
        let known = &mut *known;
        known.sealed.members_changed(&changed, &known.members);
        self.metrics.members(known.members.count());
        // At once when much changes seldom, and not at each of many changes.
        if known.noted.elapsed() >= NOTE_EVERY || known.members.count() < NOTED_AT_ONCE {
            known.noted = Instant::now();
            self.to_note.send_replace(Some(Arc::new(known.members.known())));
        }
    }

    /// Notes who is there, the newest alone, on a thread of its own: a slow disk costs no beat.
    pub(super) async fn note_members(&self) {
        let mut to_note = self.to_note.subscribe();
        while to_note.changed().await.is_ok() {
            let Some(members) = to_note.borrow_and_update().clone() else { continue };
            let noted = self.aside(move |folder| Ok(folder.write_members(&members)?)).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "who is there is not noted for the next start");
            }
        }
    }

    /// Whether the control plane says that this is a node no more.
    fn refused(&self, state: &mut BeatState, error: &ApiError) {
        // A conflict is what a beat has with a retirement, until the door does not know the node any more.
        if !matches!(error, ApiError::Refused { status: 401 | 403 | 409, .. }) {
            return;
        }
        let began = state.refused_since.get_or_insert_with(Instant::now);
        if began.elapsed() < REFUSED_FOR || self.is_suspended.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(%error, "the control plane knows this node no more: what was sealed for it signs no more");
        self.put_keys();
        self.to_suspend.send_replace(true);
    }

    /// The control plane knows this node.
    fn let_in(&self, state: &mut BeatState) {
        state.refused_since = None;
        if self.is_suspended.swap(false, Ordering::AcqRel) {
            tracing::info!("the control plane knows this node again");
            self.put_keys();
            self.to_suspend.send_replace(false);
        }
    }

    /// Notes whether the node is suspended, the newest alone.
    pub(super) async fn note_suspended(&self) {
        let mut to_suspend = self.to_suspend.subscribe();
        while to_suspend.changed().await.is_ok() {
            let suspended = *to_suspend.borrow_and_update();
            let noted = self.aside(move |folder| folder.suspend(suspended).map_err(NodeError::from)).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "that is not noted for the next start");
            }
        }
    }
}

/// The first failure costs no lease: a connection that was closed is made again at once. Then it is waited.
fn pause_after(failures: u32, asked: Option<Duration>) -> Duration {
    if failures <= 1 && asked.is_none() {
        return backoff(1, None) / 8;
    }
    backoff(failures.saturating_sub(1), asked).min(PAUSE_MAX)
}

/// A request that goes on by itself until it ends, or this does.
type PendingRequest<T> = AbortOnDropHandle<Result<T, ApiError>>;

/// Asks, and once more where there is no answer in time, unless that was done a few beats ago. The first good answer counts. The other
/// request comes to its end, unless it is still under way when another two are: an HTTP/1.1 connection is closed with a request
/// that is given up, and the next second try would begin with a handshake.
async fn once_more<T: Send + 'static>(
    twice: &mut DoubledBeats<T>,
    ask: impl Fn() -> PendingRequest<T>,
) -> Result<T, ApiError> {
    let mut first = ask();
    if twice.sent_once > 0 {
        twice.sent_once -= 1;
        return answered(first.await);
    }
    if let Ok(answer) = tokio::time::timeout(AGAIN_AFTER, &mut first).await {
        return answered(answer);
    }
    twice.sent_once = SENT_ONCE;
    let (answer, other) = match select(first, ask()).await {
        Either::Left((answer, other)) | Either::Right((answer, other)) => (answered(answer), other),
    };
    if answer.is_err() {
        return answered(other.await);
    }
    twice.other = Some(other);
    answer
}

/// Beats that are sent twice.
struct DoubledBeats<T> {
    /// Beats left that are not.
    sent_once: u32,
    /// The one of two whose answer did not count.
    other: Option<PendingRequest<T>>,
}

impl<T> Default for DoubledBeats<T> {
    fn default() -> Self {
        Self { sent_once: 0, other: None }
    }
}

fn answered<T>(ended: Result<Result<T, ApiError>, JoinError>) -> Result<T, ApiError> {
    ended.unwrap_or_else(|error| {
        Err(ApiError::Away { server: "the control plane".to_owned(), reason: error.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::timing::{BEAT_EVERY, LEASE};

    /// Requests begun, and requests finished.
    #[derive(Clone, Default)]
    struct Counted(Arc<(AtomicU32, AtomicU32)>);

    impl Counted {
        fn asked(&self) -> u32 {
            self.0.0.load(Ordering::Relaxed)
        }

        fn ended(&self) -> u32 {
            self.0.1.load(Ordering::Relaxed)
        }

        /// One more, which takes as long as `takes` says of its number; `None` for ever.
        fn ask(&self, takes: impl Fn(u32) -> Option<Duration>) -> PendingRequest<u32> {
            let number = self.0.0.fetch_add(1, Ordering::Relaxed) + 1;
            let (counted, takes) = (self.clone(), takes(number));
            AbortOnDropHandle::new(tokio::spawn(async move {
                match takes {
                    Some(takes) => tokio::time::sleep(takes).await,
                    None => pending().await,
                }
                counted.0.1.fetch_add(1, Ordering::Relaxed);
                Ok(number)
            }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_beat_that_is_lost_ends_no_lease() {
        let (counted, mut twice, began) = (Counted::default(), DoubledBeats::default(), Instant::now());
        // The first is lost, and whatever is asked after it is answered.
        let lossy = |number| (number > 1).then_some(Duration::ZERO);
        let told = once_more(&mut twice, || counted.ask(lossy)).await.unwrap();
        assert_eq!((told, counted.asked()), (2, 2));
        assert!(BEAT_EVERY + began.elapsed() + BEAT_EVERY < LEASE, "{:?}", began.elapsed());
        // After a failure the next is sent in time, too.
        assert!(BEAT_EVERY + pause_after(1, None) + BEAT_EVERY < LEASE);
        assert!(pause_after(2, Some(Duration::from_secs(3))) >= Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_control_plane_is_asked_twice_now_and_then_only() {
        let (counted, mut twice) = (Counted::default(), DoubledBeats::default());
        for _ in 0..2 * (SENT_ONCE + 1) {
            once_more(&mut twice, || counted.ask(|_| Some(2 * AGAIN_AFTER))).await.unwrap();
        }
        assert_eq!(counted.asked(), 2 * (SENT_ONCE + 1) + 2);
    }

    /// Cancelling the second request would close its connection.
    #[tokio::test(start_paused = true)]
    async fn of_two_beats_the_one_that_does_not_count_comes_to_its_end() {
        let (counted, mut twice) = (Counted::default(), DoubledBeats::default());
        let slow = |number| Some(if number == 1 { 4 * AGAIN_AFTER } else { Duration::ZERO });
        assert_eq!(once_more(&mut twice, || counted.ask(slow)).await.unwrap(), 2);
        assert_eq!(counted.ended(), 1);
        tokio::time::sleep(8 * AGAIN_AFTER).await;
        assert_eq!(counted.ended(), 2);
    }
}
