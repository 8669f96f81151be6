//! Heartbeats: sent four times a second, independent of all other work.
//!
//! A control plane that rejects the node has retired it. The node's sealed keys then no longer sign, also after a restart, until
//! the control plane accepts the node again.

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
use crate::work::{Heartbeat, HeartbeatResponse, MEASURED_MAX, Membership};

/// Timeout of a heartbeat's response. The next heartbeat is due long before.
const BEAT_WITHIN: Duration = Duration::from_secs(5);
/// Time after which an unanswered heartbeat is sent again over another connection, early enough to keep the lease. Both requests
/// continue.
const HEDGE_AFTER: Duration = Duration::from_millis(400);
/// Number of heartbeats that are sent only once after one was sent twice: a slow control plane gets at most an eighth more load.
const UNHEDGED_COUNT: u32 = 8;
/// Minimum pause between two heartbeats, whatever the control plane requests.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Maximum pause between two heartbeats, whatever the control plane requests.
const PAUSE_MAX: Duration = AWAY_PAUSE_MAX;
/// Time after which a node that the control plane rejects counts as retired. A server that was started with a wrong database by
/// mistake, and stopped immediately, rejects nodes for a shorter time.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Interval at which the members are written to disk, for the next start.
const PERSIST_EVERY: Duration = Duration::from_secs(10);
/// Number of members below which each change is written immediately.
const PERSIST_AT_ONCE_MAX: usize = 100;

/// State that is carried from one heartbeat to the next.
#[derive(Default)]
struct HeartbeatState {
    failures: u32,
    doubled: DoubledHeartbeats<HeartbeatResponse>,
    /// Time since which the control plane rejects this node.
    refused_since: Option<Instant>,
    /// State number of the last response.
    received: Option<i64>,
}

impl KeyNode {
    /// Sends heartbeats forever.
    pub(super) async fn beat(&self) {
        let mut state = HeartbeatState::default();
        loop {
            let began = Instant::now();
            let pause = match self.send_heartbeat(&mut state).await {
                Ok(pause) => {
                    if std::mem::take(&mut state.failures) > 0 {
                        tracing::info!("the control plane answers");
                    }
                    pause.saturating_sub(began.elapsed())
                }
                Err(error) => {
                    if state.failures == 0 {
                        tracing::warn!(%error, "the control plane does not answer; the node continues with its last known state");
                    }
                    state.failures = state.failures.saturating_add(1);
                    self.refused(&mut state, &error);
                    let requested =
                        if let ApiError::Refused { retry_after, .. } = &error { *retry_after } else { None };
                    pause_after(state.failures, requested)
                }
            };
            self.metrics.set_unreachable(state.failures > 0);
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends one heartbeat and applies the response. Returns the time until the next one.
    async fn send_heartbeat(&self, state: &mut HeartbeatState) -> Result<Duration, ApiError> {
        let since = self.known.lock().members.since();
        let beat =
            Arc::new(Heartbeat { address: Some(self.address.clone()), since, measured: self.measured() });
        let api = self.api();
        let send_request = || {
            let (api, beat) = (Arc::clone(&api), Arc::clone(&beat));
            AbortOnDropHandle::new(tokio::spawn(async move {
                let _live = telemetry::tasks::guard("key-node-beat");
                api.post::<HeartbeatResponse>("/api/v1/key-nodes/self/beat", &*beat, BEAT_WITHIN).await
            }))
        };
        let answer = send_hedged(&mut state.doubled, send_request).await?;
        self.record_accepted(state);
        let (more, anew) = (answer.membership.more, answer.membership.anew);
        self.apply_members(answer.membership, answer.now_ms / 1_000);
        // Any other number is news, even a smaller one, as after a restored backup.
        if state.received.replace(answer.state) != Some(answer.state) || anew {
            self.news.notify_one();
        }
        Ok(if more {
            PAUSE_MIN
        } else {
            Duration::from_millis(answer.beat_every_ms).clamp(PAUSE_MIN, PAUSE_MAX)
        })
    }

    /// Returns the round-trip times in milliseconds to the nearest other nodes.
    fn measured(&self) -> BTreeMap<Uuid, u32> {
        let mut all = self.router.measured();
        all.sort_by_key(|(_, round_trip)| *round_trip);
        let milliseconds = |round_trip: Duration| u32::try_from(round_trip.as_millis()).unwrap_or(u32::MAX);
        let nearest = all.into_iter().take(MEASURED_MAX);
        nearest.map(|(node, round_trip)| (Uuid::from_bytes(node.0), milliseconds(round_trip))).collect()
    }

    /// Applies the membership that the control plane sent. `now_s` is the control plane's time, in seconds since 1970-01-01 UTC.
    fn apply_members(&self, received: Membership, now_s: i64) {
        let mut known = self.known.lock();
        let MemberChanges { changed, absent } = known.members.take(received, now_s);
        // An absent node may still be alive: check immediately whether it is reachable from here.
        self.router.check(absent.iter().map(|node| NodeId(*node.as_bytes())));
        if changed.is_empty() && absent.is_empty() {
            return;
        }
        self.router.set_members(known.members.list());
        let known = &mut *known;
        known.sealed.apply_member_changes(&changed, &known.members);
        self.metrics.members(known.members.count());
        // Write immediately when changes are rare, but not for each of many changes.
        if known.persisted.elapsed() >= PERSIST_EVERY || known.members.count() < PERSIST_AT_ONCE_MAX {
            known.persisted = Instant::now();
            self.to_persist.send_replace(Some(Arc::new(known.members.known())));
        }
    }

    /// Writes the newest members to disk, in a separate task: a slow disk must not delay heartbeats.
    pub(super) async fn persist_members(&self) {
        let mut to_persist = self.to_persist.subscribe();
        while to_persist.changed().await.is_ok() {
            let Some(members) = to_persist.borrow_and_update().clone() else { continue };
            let persisted = self.run_blocking(move |folder| Ok(folder.write_members(&members)?)).await;
            if let Err(error) = persisted {
                tracing::warn!(%error, "the list of nodes was not saved for the next start");
            }
        }
    }

    /// Records that the control plane may have retired this node.
    fn refused(&self, state: &mut HeartbeatState, error: &ApiError) {
        // A heartbeat during a retirement gets 409, until the listener no longer knows the node.
        if !matches!(error, ApiError::Refused { status: 401 | 403 | 409, .. }) {
            return;
        }
        let began = state.refused_since.get_or_insert_with(Instant::now);
        if began.elapsed() < REFUSED_FOR || self.is_suspended.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(%error, "the control plane no longer knows this node: keys sealed for this node are suspended");
        self.put_keys();
        self.to_suspend.send_replace(true);
    }

    /// Records that the control plane accepts this node.
    fn record_accepted(&self, state: &mut HeartbeatState) {
        state.refused_since = None;
        if self.is_suspended.swap(false, Ordering::AcqRel) {
            tracing::info!("the control plane knows this node again: keys sealed for this node are usable");
            self.put_keys();
            self.to_suspend.send_replace(false);
        }
    }

    /// Writes to disk whether the node is suspended. If the state changes during a write, only the newest state is written next.
    pub(super) async fn persist_suspended(&self) {
        let mut to_suspend = self.to_suspend.subscribe();
        while to_suspend.changed().await.is_ok() {
            let suspended = *to_suspend.borrow_and_update();
            let persisted =
                self.run_blocking(move |folder| folder.suspend(suspended).map_err(NodeError::from)).await;
            if let Err(error) = persisted {
                tracing::warn!(%error, "the suspension of this node was not saved for the next start");
            }
        }
    }
}

/// Returns the pause after failures. The pause after the first failure is short, so that the lease stays valid while a closed
/// connection is reopened. Pauses after later failures grow.
fn pause_after(failures: u32, requested: Option<Duration>) -> Duration {
    if failures <= 1 && requested.is_none() {
        return backoff(1, None) / 8;
    }
    backoff(failures.saturating_sub(1), requested).min(PAUSE_MAX)
}

/// A request that runs in the background until it finishes or this handle is dropped.
type PendingRequest<T> = AbortOnDropHandle<Result<T, ApiError>>;

/// Sends a request, and sends it again if there is no response in time. After such a duplicate, the next [`UNHEDGED_COUNT`] requests are
/// sent only once. Returns the first successful response. The slower request continues until the next duplicate: cancelling it
/// would close its HTTP/1.1 connection, and the next retry would need a handshake.
async fn send_hedged<T: Send + 'static>(
    doubled: &mut DoubledHeartbeats<T>,
    send_request: impl Fn() -> PendingRequest<T>,
) -> Result<T, ApiError> {
    let mut first = send_request();
    if doubled.unhedged_left > 0 {
        doubled.unhedged_left -= 1;
        return join_result(first.await);
    }
    if let Ok(answer) = tokio::time::timeout(HEDGE_AFTER, &mut first).await {
        return join_result(answer);
    }
    doubled.unhedged_left = UNHEDGED_COUNT;
    let (answer, other) = match select(first, send_request()).await {
        Either::Left((answer, other)) | Either::Right((answer, other)) => (join_result(answer), other),
    };
    if answer.is_err() {
        return join_result(other.await);
    }
    doubled.other = Some(other);
    answer
}

/// State of heartbeats that are sent twice.
struct DoubledHeartbeats<T> {
    /// Number of heartbeats left that are sent only once.
    unhedged_left: u32,
    /// The request of the last pair whose response was not used.
    other: Option<PendingRequest<T>>,
}

impl<T> Default for DoubledHeartbeats<T> {
    fn default() -> Self {
        Self { unhedged_left: 0, other: None }
    }
}

fn join_result<T>(ended: Result<Result<T, ApiError>, JoinError>) -> Result<T, ApiError> {
    ended.unwrap_or_else(|error| {
        Err(ApiError::Unavailable { server: "the control plane".to_owned(), reason: error.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::timing::{BEAT_EVERY, LEASE};

    /// Numbers of started and of finished requests.
    #[derive(Clone, Default)]
    struct Counted(Arc<(AtomicU32, AtomicU32)>);

    impl Counted {
        fn requested(&self) -> u32 {
            self.0.0.load(Ordering::Relaxed)
        }

        fn ended(&self) -> u32 {
            self.0.1.load(Ordering::Relaxed)
        }

        /// Starts a request. `takes` returns its duration by its number; `None` means forever.
        fn send_request(&self, takes: impl Fn(u32) -> Option<Duration>) -> PendingRequest<u32> {
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
    async fn lost_heartbeat_is_resent_before_the_lease_expires() {
        let (counted, mut doubled, began) =
            (Counted::default(), DoubledHeartbeats::default(), Instant::now());
        // The first request is lost; all later ones are answered.
        let lossy = |number| (number > 1).then_some(Duration::ZERO);
        let received = send_hedged(&mut doubled, || counted.send_request(lossy)).await.unwrap();
        assert_eq!((received, counted.requested()), (2, 2));
        assert!(BEAT_EVERY + began.elapsed() + BEAT_EVERY < LEASE, "{:?}", began.elapsed());
        // Also after a failure the next heartbeat is within the lease.
        assert!(BEAT_EVERY + pause_after(1, None) + BEAT_EVERY < LEASE);
        assert!(pause_after(2, Some(Duration::from_secs(3))) >= Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_to_a_slow_control_plane_are_duplicated_rarely() {
        let (counted, mut doubled) = (Counted::default(), DoubledHeartbeats::default());
        for _ in 0..2 * (UNHEDGED_COUNT + 1) {
            send_hedged(&mut doubled, || counted.send_request(|_| Some(2 * HEDGE_AFTER))).await.unwrap();
        }
        assert_eq!(counted.requested(), 2 * (UNHEDGED_COUNT + 1) + 2);
    }

    /// Cancelling the other request would close its connection.
    #[tokio::test(start_paused = true)]
    async fn slower_of_two_duplicate_heartbeats_runs_to_completion() {
        let (counted, mut doubled) = (Counted::default(), DoubledHeartbeats::default());
        let slow = |number| Some(if number == 1 { 4 * HEDGE_AFTER } else { Duration::ZERO });
        assert_eq!(send_hedged(&mut doubled, || counted.send_request(slow)).await.unwrap(), 2);
        assert_eq!(counted.ended(), 1);
        tokio::time::sleep(8 * HEDGE_AFTER).await;
        assert_eq!(counted.ended(), 2);
    }
}
