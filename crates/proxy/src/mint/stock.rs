//! RSA keys that are ready before anybody needs one.

use std::sync::Arc;
use std::time::Duration;

use keys::{KeyType, PrivateKey};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::key::{LeafKey, LeafKeyKind};

/// Keys kept ready, some 4 KiB and 70 ms of a processor each: one is of one user or consumer for as long as a leaf key counts, so
/// that so many of them may begin at once.
pub const RSA_STOCK: usize = 16;
/// After a failure, before the next try.
const PAUSE: Duration = Duration::from_secs(5);

/// RSA-2048 keys from the system's generator, each given to one owner. Anyone who finds none left has none: none is made while
/// anybody waits. Clones are one stock.
#[derive(Clone, Debug, Default)]
pub struct RsaStock(Arc<StockState>);

#[derive(Debug, Default)]
struct StockState {
    ready: Mutex<Vec<LeafKey>>,
    taken: Notify,
}

impl RsaStock {
    /// Takes an unused key.
    pub(super) fn take(&self) -> Option<LeafKey> {
        let key = self.0.ready.lock().pop();
        self.0.taken.notify_one();
        key
    }

    /// Keys that are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.0.ready.lock().len()
    }

    /// Keeps [`RSA_STOCK`] keys ready until `stop`, made one after another.
    pub async fn keep(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("leaf-rsa-stock");
        let filling = async {
            loop {
                while self.ready() < RSA_STOCK {
                    let made = PrivateKey::generate_aside(KeyType::Rsa2048).await;
                    match made.and_then(|key| LeafKey::of(LeafKeyKind::Rsa2048, &key)) {
                        Ok(key) => self.0.ready.lock().push(key),
                        Err(error) => {
                            tracing::warn!(%error, "no RSA key for the stock");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
                self.0.taken.notified().await;
            }
        };
        stop.run_until_cancelled(filling).await;
    }
}
