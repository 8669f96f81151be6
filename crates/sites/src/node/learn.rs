//! What is new of policies and sealed keys: written down, then used.

use std::sync::Arc;
use std::time::Duration;

use enrollment::client::{REQUEST, backoff};
use keys::sealed::NodeKey;

use super::folder::PageLog;
use super::sealed::{KeyToOpen, OpenedKey, Unwrapped, WrapToOpen};
use super::{KeyNode, NodeError};
use crate::work::News;

/// Asked for in any case: should a word be lost.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// Between two tries that failed, at most.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Opened before they sign, 0.4 ms each: who waits for the first does not wait for the last.
const BATCH: usize = 250;
/// Bytes of the log of changes at which it may be compacted, if it is also twice as long as after the last compaction.
const PAGES_MIN: u64 = 1 << 20;

impl KeyNode {
    /// Learns for ever.
    pub(super) async fn learn(&self) {
        let written = self.aside(|folder| Ok(folder.pages().octets())).await;
        let (mut failures, mut written) = (0_u32, written.unwrap_or_default());
        loop {
            match self.ask(&mut written).await {
                Ok(()) => {
                    failures = 0;
                    let _ = tokio::time::timeout(ASK_EVERY, self.news.notified()).await;
                }
                Err(error) => {
                    // A control plane that is away is told by the beats.
                    if failures == 0 && !matches!(&error, NodeError::Join(error) if error.is_away()) {
                        tracing::error!(%error, "what is new of sealed keys is not learned");
                    }
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(backoff(failures, None).min(PAUSE_MAX)).await;
                }
            }
        }
    }

    /// Everything that is new.
    async fn ask(&self, written: &mut u64) -> Result<(), NodeError> {
        loop {
            let after = self.known.lock().sealed.next().to_string();
            let query = [("after", after.as_str())];
            let page: News = self.api().get("/api/v1/key-nodes/self/state", &query, REQUEST).await?;
            let (more, is_news) = (page.more, is_news(&page));
            // Kept first: what signs is known after a crash.
            let page = self.aside(move |folder| keep(&folder.pages(), page)).await?;
            {
                let known = &mut *self.known.lock();
                known.sealed.take(page, &known.members);
            }
            if is_news {
                self.open_all().await;
            }
            if !more {
                return self.compact(written).await;
            }
        }
    }

    /// Writes what is known as one page, once changes have made it twice as long.
    async fn compact(&self, written: &mut u64) -> Result<(), NodeError> {
        let octets = self.aside(|folder| Ok(folder.pages().octets())).await?;
        if octets > PAGES_MIN.max(2 * *written) {
            let whole = self.known.lock().sealed.whole();
            *written = self
                .aside(move |folder| {
                    folder.pages().replace(&whole)?;
                    Ok(folder.pages().octets())
                })
                .await?;
        }
        Ok(())
    }

    /// Opens what can be opened, away from those who wait, and has it sign batch by batch.
    pub(super) async fn open_all(&self) {
        let (kem, wraps) = {
            let known = self.known.lock();
            (known.sealed.kem(), known.sealed.to_unwrap())
        };
        if !wraps.is_empty() {
            let unwrapped = tokio::task::spawn_blocking(move || unwrap_all(&kem, wraps)).await;
            self.known.lock().sealed.note_unwrapped(unwrapped.unwrap_or_default());
        }
        loop {
            let batch = self.known.lock().sealed.to_open(BATCH);
            if batch.is_empty() {
                break;
            }
            let opened = tokio::task::spawn_blocking(move || open_all(batch)).await;
            let Ok(opened) = opened else { break };
            self.known.lock().sealed.note_opened(opened);
            self.put_keys();
        }
        self.known.lock().sealed.route_the_rest();
        self.put_keys();
    }
}

/// Writes a page down, where there is anything in it.
fn keep(log: &PageLog, page: News) -> Result<News, NodeError> {
    if page.anew {
        log.replace(&page)?;
    } else if is_news(&page) {
        log.append(&page)?;
    }
    Ok(page)
}

/// Whether there is anything in it.
fn is_news(page: &News) -> bool {
    page.anew || !(page.policies.is_empty() && page.wraps.is_empty() && page.keys.is_empty())
}

fn unwrap_all(kem: &NodeKey, wraps: Vec<WrapToOpen>) -> Unwrapped {
    let unwrap = |WrapToOpen { which, wrap, context }| match kem.unwrap_seed(&wrap, &context) {
        Ok(key) => (which, Some(Arc::new(key))),
        Err(error) => {
            let (policy, generation) = which;
            tracing::error!(%policy, generation, %error, "a policy's key does not open here");
            (which, None)
        }
    };
    wraps.into_iter().map(unwrap).collect()
}

fn open_all(batch: Vec<KeyToOpen>) -> Vec<OpenedKey> {
    let open = |KeyToOpen { which, by, blob, context }: KeyToOpen| {
        let opened = by.open_key(&blob, &context);
        OpenedKey { which, of: (context.policy, context.generation), opened }
    };
    batch.into_iter().map(open).collect()
}
