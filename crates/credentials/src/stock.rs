//! RSA keys ready to be used: finding one takes 50 to 500 ms of a processor, which no request shall wait for.

use std::sync::Arc;
use std::time::Duration;

use keys::{KeyError, KeyType, PrivateKey};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Keys of 2,048 bits kept ready: some 2 KiB each.
const READY_MAX: usize = 64;

/// After a failure, before the next try.
const PAUSE: Duration = Duration::from_secs(5);

/// Keys of 2,048 bits, made while nobody waits. One thread makes them, so that others find a processor free.
#[derive(Clone, Default)]
pub struct RsaStock(Arc<StockState>);

#[derive(Default)]
struct StockState {
    ready: Mutex<Vec<PrivateKey>>,
    taken: Notify,
}

impl RsaStock {
    /// A key of this kind: from the stock when it has one, made now when not.
    ///
    /// # Errors
    /// As [`PrivateKey::generate`].
    #[crate::boxed]
    pub async fn take(&self, kind: KeyType) -> Result<PrivateKey, KeyError> {
        if kind == KeyType::Rsa2048 {
            let ready = self.0.ready.lock().pop();
            self.0.taken.notify_one();
            if let Some(key) = ready {
                return Ok(key);
            }
        }
        PrivateKey::generate_aside(kind).await
    }

    /// Keys that are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.0.ready.lock().len()
    }

    /// Keeps the stock full until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-rsa-stock");
        loop {
            while self.ready() < READY_MAX && !stop.is_cancelled() {
                match PrivateKey::generate_aside(KeyType::Rsa2048).await {
                    Ok(key) => self.0.ready.lock().push(key),
                    Err(error) => {
                        tracing::warn!(%error, "no RSA key for the stock");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.taken.notified() => {}
            }
        }
    }
}

impl std::fmt::Debug for RsaStock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RsaStock").field("ready", &self.ready()).finish()
    }
}
