//! Long polls of agents that wait for jobs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use uuid::Uuid;

/// Waiting polls by agent. The listener's limit on connections also bounds the number of entries.
#[derive(Default)]
pub(super) struct WaitingPolls(Mutex<HashMap<Uuid, Arc<Notify>>>);

/// A poll in progress.
pub(super) struct Waiter<'w> {
    waiting: &'w WaitingPolls,
    agent: Uuid,
    notify: Arc<Notify>,
}

impl WaitingPolls {
    pub(super) fn register(&self, agent: Uuid) -> Waiter<'_> {
        let notify = Arc::clone(self.0.lock().entry(agent).or_default());
        Waiter { waiting: self, agent, notify }
    }

    pub(super) fn wake(&self, agent: Uuid) {
        let notify = self.0.lock().get(&agent).cloned();
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        self.0.lock().values().for_each(|notify| notify.notify_waiters());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Waiter<'_> {
    /// Returns a future that is ready on the agent's next wakeup. Call it before checking for work, so that no wakeup is missed.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut all = self.waiting.0.lock();
        // One reference is this waiter's, one the map's: no other poll waits.
        if Arc::strong_count(&self.notify) <= 2 {
            all.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wake_between_registering_and_waiting_is_not_lost() {
        let waiting = WaitingPolls::default();
        let agent = Uuid::now_v7();
        let waiter = waiting.register(agent);
        let woken = waiter.woken();
        waiting.wake(agent);
        woken.await;
        drop(waiter);
        assert!(waiting.is_empty());
    }

    #[tokio::test]
    async fn concurrent_polls_of_one_agent_wake_together_and_are_removed() {
        let waiting = WaitingPolls::default();
        let agent = Uuid::now_v7();
        let (first, second) = (waiting.register(agent), waiting.register(agent));
        let (one, two) = (first.woken(), second.woken());
        waiting.wake(Uuid::now_v7());
        waiting.wake(agent);
        tokio::join!(one, two);
        drop(first);
        assert!(!waiting.is_empty());
        drop(second);
        assert!(waiting.is_empty());
    }
}
