//! RSA keys that are ready before a request needs one: generating a key takes 50 to 500 ms of processor time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{KeyError, KeyType, PrivateKey};

/// Pause after a failure to generate a key.
const PAUSE: Duration = Duration::from_secs(5);

/// RSA-2048 keys, generated in the background by [`RsaStock::keep`]. Each key is given out once. Clones share one stock.
#[derive(Clone, Debug)]
pub struct RsaStock(Arc<StockState>);

#[derive(Debug)]
struct StockState {
    size: usize,
    ready: Mutex<Vec<PrivateKey>>,
    taken: Notify,
}

impl RsaStock {
    /// Creates an empty stock with room for `size` keys of about 2 KiB each.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self(Arc::new(StockState { size, ready: Mutex::default(), taken: Notify::new() }))
    }

    /// Takes a key; `None` while the stock is empty.
    #[must_use]
    pub fn take(&self) -> Option<PrivateKey> {
        let key = self.0.ready.lock().pop();
        self.0.taken.notify_one();
        key
    }

    /// Takes a key of type `kind` from the stock, or generates one if the stock has none.
    ///
    /// # Errors
    /// As [`PrivateKey::generate`].
    pub async fn take_or_generate(&self, kind: KeyType) -> Result<PrivateKey, KeyError> {
        let ready = if kind == KeyType::Rsa2048 { self.take() } else { None };
        match ready {
            Some(key) => Ok(key),
            None => PrivateKey::generate_in_background(kind).await,
        }
    }

    /// Returns the number of keys that are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.0.ready.lock().len()
    }

    /// Waits until a key is requested for the first time. Filling the stock earlier would waste processor time.
    pub async fn wanted(&self) {
        self.0.taken.notified().await;
    }

    /// Keeps the stock full, one key after another, until the future is dropped.
    pub async fn keep(&self) {
        loop {
            while self.ready() < self.0.size {
                match PrivateKey::generate_in_background(KeyType::Rsa2048).await {
                    Ok(key) => self.0.ready.lock().push(key),
                    Err(error) => {
                        tracing::warn!(%error, "cannot generate an RSA key in advance");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            self.0.taken.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::Signer as _;

    #[tokio::test]
    async fn key_stock_fills_after_first_use_and_returns_each_key_once() {
        let stock = RsaStock::new(2);
        assert!(stock.wanted().now_or_never().is_none(), "no key was wanted");
        assert!(stock.take().is_none());
        assert!(stock.wanted().now_or_never().is_some());
        let keeping = tokio::spawn({
            let stock = stock.clone();
            async move { stock.keep().await }
        });
        while stock.ready() < 2 {
            tokio::task::yield_now().await;
        }
        let ec = stock.take_or_generate(KeyType::P256).await.unwrap();
        assert_eq!(
            (ec.key_type(), stock.ready()),
            (KeyType::P256, 2),
            "other kinds take no key of the stock"
        );
        let first = stock.take_or_generate(KeyType::Rsa2048).await.unwrap();
        let second = stock.take_or_generate(KeyType::Rsa2048).await.unwrap();
        assert_eq!(first.key_type(), KeyType::Rsa2048);
        assert_ne!(first.spki(), second.spki());
        keeping.abort();
    }
}
