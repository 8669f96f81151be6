//! Rotation of the master key on this node. At most one rotation runs at a time; concurrent requests join the running rotation.

use std::sync::Arc;
use std::time::Duration;

use authority::keystore::{KeyStore, RotateError, RotationResult};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Time for which the result of a rotation is kept for callers whose wait timed out.
const RESULT_RETENTION: Duration = Duration::from_secs(60);

type Ended = Result<RotationResult, Arc<RotateError>>;

/// The result of the rotation, for all waiting callers; `None` while the rotation is in progress.
type ResultReceiver = watch::Receiver<Option<(Instant, Ended)>>;

/// The rotation in progress, or the last one.
#[derive(Clone, Default)]
pub(crate) struct Rotating(Arc<Mutex<Option<ResultReceiver>>>);

/// State of a rotation after a bounded wait.
pub(crate) enum Progress {
    /// The rotation has ended, with this result.
    Ended(Ended),
    /// The wait timed out; the rotation continues in the background.
    UnderWay,
    /// The rotation was interrupted: the server shut down, or the task failed. Completed steps remain.
    Interrupted,
}

impl Rotating {
    /// Re-encrypts all values of `keystore` under the current master key on behalf of `actor`, or joins a rotation in progress.
    /// Waits at most `max_wait`. After that, the rotation continues in the background until it ends or `stopping` is canceled.
    pub(crate) async fn join(
        &self,
        keystore: &KeyStore,
        actor: &str,
        stopping: &CancellationToken,
        max_wait: Duration,
    ) -> Progress {
        let (keystore, actor) = (keystore.clone(), actor.to_owned());
        let work = async move {
            let rotation = keystore.rewrap_all(&actor, |progress| {
                let (column, done, total) = (&progress.column, progress.done, progress.total);
                tracing::info!(%column, done, total, "re-encrypting values under the current master key");
            });
            rotation.await
        };
        self.join_or_start(work, stopping, max_wait).await
    }

    /// Joins the rotation in progress. If there is none, starts one with `work`.
    async fn join_or_start<W>(&self, work: W, stopping: &CancellationToken, max_wait: Duration) -> Progress
    where
        W: Future<Output = Result<RotationResult, RotateError>> + Send + 'static,
    {
        let mut receiver = self.start(work, stopping);
        match timeout(max_wait, receiver.wait_for(Option::is_some)).await {
            Err(_) => Progress::UnderWay,
            Ok(Err(_)) => Progress::Interrupted,
            Ok(Ok(ended)) => {
                let ended = ended.as_ref().map(|(_, ended)| ended.clone());
                self.mark_delivered();
                ended.map_or(Progress::Interrupted, Progress::Ended)
            }
        }
    }

    /// Returns whether a rotation is in progress on this node.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.lock().as_ref().is_some_and(is_running)
    }

    fn start<W>(&self, work: W, stopping: &CancellationToken) -> ResultReceiver
    where
        W: Future<Output = Result<RotationResult, RotateError>> + Send + 'static,
    {
        let mut last = self.0.lock();
        if let Some(receiver) = last.as_ref()
            && (is_running(receiver) || is_retained(receiver))
        {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(None);
        let stopping = stopping.clone();
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard("master-key-rotation");
            if let Some(ended) = stopping.run_until_cancelled(work).await {
                // Logged once at this point, because none or several of the callers may fetch the report.
                match &ended {
                    Ok(done) if done.failed.is_empty() => {}
                    Ok(done) => tracing::warn!(
                        failed = done.failed.len(),
                        "some sealed values cannot be decrypted: keep the old master key"
                    ),
                    Err(error) => tracing::warn!(%error, "the rotation of the master key ended early"),
                }
                sender.send_replace(Some((Instant::now(), ended.map_err(Arc::new))));
            }
        });
        *last = Some(receiver.clone());
        receiver
    }

    /// Marks the result as delivered: the next request starts a new rotation.
    fn mark_delivered(&self) {
        let mut last = self.0.lock();
        if last.as_ref().is_some_and(|receiver| !is_running(receiver)) {
            *last = None;
        }
    }
}

/// Returns whether the rotation is in progress: neither ended nor interrupted.
fn is_running(receiver: &ResultReceiver) -> bool {
    receiver.borrow().is_none() && receiver.has_changed().is_ok()
}

fn is_retained(receiver: &ResultReceiver) -> bool {
    receiver.borrow().as_ref().is_some_and(|(at, _)| at.elapsed() < RESULT_RETENTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::{KeyType, Keyring, KeyringConfig, MasterKeySource};
    use store::{Clock, Store, StoreUrl};
    use tokio::sync::Notify;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns a key store with one value under an old master key.
    async fn one_to_wrap(folder: &tempfile::TempDir) -> KeyStore {
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let file = |name: &str| MasterKeySource::File { path: folder.path().join(name), create: true };
        let ring = |current: &str, older: Vec<MasterKeySource>| {
            Keyring::open(&KeyringConfig { current: file(current), older }).unwrap()
        };
        let before = KeyStore::new(store.clone(), ring("old", Vec::new()), Clock::system());
        before.generate(KeyType::P256, "a", "user:a").await.unwrap();
        KeyStore::new(store, ring("new", vec![file("old")]), Clock::system())
    }

    fn rewrapped(progress: &Progress) -> Option<u64> {
        match progress {
            Progress::Ended(Ok(done)) => Some(done.rewrapped),
            _ => None,
        }
    }

    /// Re-encrypts after `may` is notified, so that the test controls the duration of the rotation.
    async fn rewrap_when_notified(
        keystore: KeyStore,
        may: Arc<Notify>,
    ) -> Result<RotationResult, RotateError> {
        may.notified().await;
        keystore.rewrap_all("user:a", |_| {}).await
    }

    #[tokio::test]
    async fn concurrent_rotation_calls_share_one_run_and_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let keystore = one_to_wrap(&folder).await;
        let (rotating, stopping) = (Rotating::default(), CancellationToken::new());
        let may = Arc::new(Notify::new());
        let join = |max_wait| {
            rotating.join_or_start(rewrap_when_notified(keystore.clone(), may.clone()), &stopping, max_wait)
        };
        assert!(matches!(join(Duration::ZERO).await, Progress::UnderWay));
        assert!(rotating.is_under_way());
        may.notify_one();
        let (one, other) = tokio::join!(join(LONG), join(LONG));
        assert_eq!((rewrapped(&one), rewrapped(&other)), (Some(1), Some(1)), "one rotation, told to both");
        assert!(!rotating.is_under_way());
        may.notify_one();
        assert_eq!(rewrapped(&join(LONG).await), Some(0), "the report is had: another begins");
        assert!(matches!(join(Duration::ZERO).await, Progress::UnderWay));
        may.notify_one();
        let began = Instant::now();
        while rotating.is_under_way() {
            assert!(began.elapsed() < LONG, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(rewrapped(&join(Duration::ZERO).await), Some(0), "kept for who was told that it goes on");
    }

    #[tokio::test]
    async fn server_shutdown_cancels_a_running_key_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let keystore = one_to_wrap(&folder).await;
        let (rotating, stopping) = (Rotating::default(), CancellationToken::new());
        stopping.cancel();
        let cut = rotating.join(&keystore, "user:a", &stopping, LONG).await;
        assert!(matches!(cut, Progress::Interrupted));
        assert!(!rotating.is_under_way());
    }
}
