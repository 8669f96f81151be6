//! Four times a second: beats are written, who came and went is told, statements are made anew, and the view is brought
//! up to date.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use super::{AWAY_PAUSE_MAX, LEASE, PlaceError, Places};
use crate::joining::TOKENS_KEPT_US;

/// Between two rounds: a few statements, however many nodes.
pub(super) const ROUND: Duration = Duration::from_millis(250);
/// A round so long after the last one was late, and so are beats that came meanwhile: they are heard before the next.
const LATE: Duration = Duration::from_millis(2 * ROUND.as_millis() as u64);
/// Every so many of them while there is no node: another server may have made one.
const IDLE_ROUNDS: u32 = 8;
/// How often tokens long expired are removed.
const PURGE_EVERY: Duration = Duration::from_secs(3_600);
/// Rows of one look.
const LOOK_ROWS: usize = 1_000;
/// Wraps of one look, 10 ms of the database; their nodes ask for all that there is, and the rest follows with the next.
const LOOK_WRAPS: usize = 10_000;

/// After a gap: everybody has asked again by then, and beaten since.
const GRACE: Duration = AWAY_PAUSE_MAX.saturating_add(LEASE);

/// Since when this server has heard beats without a gap. After one (it was stopped, or the database was away) all leases
/// are over, and nobody may be called gone before having had the time to be heard again.
#[derive(Debug, Default)]
pub(super) struct Steadiness {
    since_us: i64,
    last_us: i64,
    /// The last round was late, and called nobody gone: the next one does, late or not.
    was_passed_over: bool,
}

impl Steadiness {
    /// Notes a round; whether leases that are over count by now.
    fn round(&mut self, now_us: i64) -> bool {
        let lease = LEASE.as_micros() as i64;
        if !(self.last_us..self.last_us + lease).contains(&now_us) {
            self.since_us = now_us;
        }
        let is_late = now_us - self.last_us >= LATE.as_micros() as i64;
        self.was_passed_over = is_late && !self.was_passed_over;
        self.last_us = now_us;
        now_us - self.since_us >= GRACE.as_micros() as i64 && !self.was_passed_over
    }
}

impl Places {
    /// Hears beats and keeps who is there, until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("places");
        let every = |period| {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let (mut rounds, mut purges) = (every(ROUND), every(PURGE_EVERY));
        let mut number = 0_u32;
        loop {
            let failed: Vec<PlaceError> = tokio::select! {
                () = stop.cancelled() => return,
                _ = rounds.tick() => {
                    number = number.wrapping_add(1);
                    if self.0.view.is_empty() && number % IDLE_ROUNDS != 1 {
                        continue;
                    }
                    self.round().await
                }
                _ = purges.tick() => self.purge().await.err().into_iter().collect(),
            };
            for error in failed {
                tracing::warn!(%error, "a round of the key service's nodes failed");
            }
        }
    }

    /// What failed. Without a key that signs, it is still looked at who came and went.
    async fn round(&self) -> Vec<PlaceError> {
        // Where beats are not written, leases are over that are none: nobody is called gone by them. Nor by what passed while
        // they were written: beats that came meanwhile are not.
        let now = self.now_us();
        let told = match self.write_beats().await {
            Ok(()) => self.tell(now).await,
            failed => failed,
        };
        let (signed, looked) = (self.sign_due().await, self.look().await);
        let all = [told.map_err(PlaceError::from), signed.map(drop), looked];
        all.into_iter().filter_map(Result::err).collect()
    }

    async fn purge(&self) -> Result<(), PlaceError> {
        Ok(self.store().purge_node_tokens(self.now_us() - TOKENS_KEPT_US).await.map(drop)?)
    }

    async fn write_beats(&self) -> Result<(), StoreError> {
        let leases = self.0.beats.take();
        if leases.is_empty() {
            return Ok(());
        }
        let work = leases.clone();
        let written = self
            .store()
            .write("key_node_leases", move |tx| {
                async move { store::places::put_leases(tx, &work).await }.boxed()
            })
            .await;
        if written.is_err() {
            self.0.beats.give_back(leases);
        }
        written
    }

    /// Tells of those who came, and of those who were gone by `now`, as far as this server can say.
    async fn tell(&self, now: i64) -> Result<(), StoreError> {
        let steady = self.0.steadiness.lock().round(now);
        let mut flips = self.store().node_flips(now).await?;
        flips.retain(|(_, present)| *present || steady);
        if flips.is_empty() {
            return Ok(());
        }
        let (count, gone) = (flips.len(), flips.iter().filter(|(_, present)| !present).count());
        self.store()
            .write("key_node_flips", move |tx| {
                async move { store::places::flip_nodes(tx, &flips, now).await }.boxed()
            })
            .await?;
        tracing::info!(came = count - gone, gone, "nodes of the key service came or went");
        Ok(())
    }

    /// Brings the view up to date, and the numbers of what is new of sealed keys. Who waits while others look has what one
    /// sees that began meanwhile.
    pub(super) async fn look(&self) -> Result<(), PlaceError> {
        let asked = self.0.looks.load(Ordering::SeqCst);
        let mut looked = self.0.looked.lock().await;
        if *looked > asked {
            return Ok(());
        }
        let number = self.0.looks.fetch_add(1, Ordering::SeqCst) + 1;
        loop {
            let rows = self.store().key_nodes_changed(self.0.view.last(), LOOK_ROWS).await?;
            let whole = rows.len() == LOOK_ROWS;
            self.0.view.take(rows);
            if !whole {
                break;
            }
        }
        let (store, numbers) = (self.store(), &self.0.numbers);
        if numbers.seen() == 0 {
            numbers.begin(store.last_key_change().await?);
        }
        let own = store.wraps_changed(numbers.seen(), LOOK_WRAPS).await?;
        numbers.take(store.last_key_state().await?, own);
        *looked = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const BEGIN: i64 = 1_000 * SECOND;
    const GRACE_US: i64 = GRACE.as_micros() as i64;

    /// Rounds in time, from one to another; the last one's word.
    fn rounds(steadiness: &mut Steadiness, from: i64, to: i64) -> bool {
        let every = ROUND.as_micros() as usize;
        (from..=to).step_by(every).map(|at| steadiness.round(at)).last().unwrap()
    }

    #[test]
    fn after_a_gap_nobody_is_gone_before_having_had_the_time_to_be_heard() {
        let mut steadiness = Steadiness::default();
        assert!(!steadiness.round(BEGIN), "just started");
        assert!(!rounds(&mut steadiness, BEGIN, BEGIN + GRACE_US - 1));
        assert!(rounds(&mut steadiness, BEGIN + GRACE_US, BEGIN + 8 * SECOND));
        let again = BEGIN + 20 * SECOND;
        assert!(!rounds(&mut steadiness, again, again + GRACE_US - 1), "it was stopped");
        assert!(rounds(&mut steadiness, again + GRACE_US, again + 8 * SECOND));
        assert!(!steadiness.round(BEGIN), "a clock set back");
    }

    #[test]
    fn a_late_round_calls_nobody_gone_and_the_next_one_does() {
        let (late, every) = (LATE.as_micros() as i64, ROUND.as_micros() as i64);
        let mut steadiness = Steadiness::default();
        assert!(rounds(&mut steadiness, BEGIN, BEGIN + 8 * SECOND));
        assert!(steadiness.round(BEGIN + 8 * SECOND + late - 1), "a little late");
        let at = BEGIN + 8 * SECOND + 2 * late;
        assert!(!steadiness.round(at), "what came meanwhile may not have been heard");
        assert!(steadiness.round(at + every));
        // Where all rounds take long, every second one counts.
        assert!(!steadiness.round(at + every + late));
        assert!(steadiness.round(at + every + 2 * late));
    }
}
