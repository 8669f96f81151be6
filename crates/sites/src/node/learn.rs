//! Updates of policies and sealed keys: stored first, then used.

use std::sync::Arc;
use std::time::Duration;

use enrollment::client::{REQUEST_TIMEOUT, backoff};
use keys::sealed::NodeKey;

use super::folder::JsonLinesLog;
use super::sealed::{KeyToOpen, OpenedKey, Unwrapped, WrapToOpen};
use super::{KeyNode, NodeError};
use crate::work::News;

/// Interval between two requests if no notification arrives, because a notification may be lost.
const REQUEST_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum pause between two failed requests to the control plane.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Number of keys that are opened together, at 0.4 ms each. The first keys can sign before the last are opened.
const BATCH: usize = 250;
/// Size of the change log in bytes from which it may be compacted, if it has also doubled since the last compaction.
const PAGES_MIN: u64 = 1 << 20;

impl KeyNode {
    /// Receives updates forever.
    pub(super) async fn learn(&self) {
        let written = self.run_blocking(|folder| Ok(folder.pages().bytes())).await;
        let (mut failures, mut written) = (0_u32, written.unwrap_or_default());
        loop {
            match self.request_updates(&mut written).await {
                Ok(()) => {
                    failures = 0;
                    let _ = tokio::time::timeout(REQUEST_INTERVAL, self.news.notified()).await;
                }
                Err(error) => {
                    // Heartbeats already report an unreachable control plane.
                    if failures == 0 && !matches!(&error, NodeError::Join(error) if error.is_unavailable()) {
                        tracing::error!(%error, "changes to sealed keys could not be fetched");
                    }
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(backoff(failures, None).min(PAUSE_MAX)).await;
                }
            }
        }
    }

    /// Requests all updates.
    async fn request_updates(&self, written: &mut u64) -> Result<(), NodeError> {
        loop {
            let after = self.known.lock().sealed.next().to_string();
            let query = [("after", after.as_str())];
            let page: News = self.api().get("/api/v1/key-nodes/self/state", &query, REQUEST_TIMEOUT).await?;
            let (more, has_changes) = (page.more, has_changes(&page));
            // Store the page first: after a crash, every key that signs is known.
            let page = self.run_blocking(move |folder| append_page(&folder.pages(), page)).await?;
            {
                let known = &mut *self.known.lock();
                known.sealed.take(page, &known.members);
            }
            if has_changes {
                self.open_all().await;
            }
            if !more {
                return self.compact(written).await;
            }
        }
    }

    /// Rewrites the log as one page, once the size of the log has doubled.
    async fn compact(&self, written: &mut u64) -> Result<(), NodeError> {
        let bytes = self.run_blocking(|folder| Ok(folder.pages().bytes())).await?;
        if bytes > PAGES_MIN.max(2 * *written) {
            let snapshot = self.known.lock().sealed.snapshot();
            *written = self
                .run_blocking(move |folder| {
                    folder.pages().replace(&snapshot)?;
                    Ok(folder.pages().bytes())
                })
                .await?;
        }
        Ok(())
    }

    /// Opens all keys that can be opened, on a blocking thread, and activates them batch by batch.
    pub(super) async fn open_all(&self) {
        let (kem, wraps) = {
            let known = self.known.lock();
            (known.sealed.kem(), known.sealed.to_unwrap())
        };
        if !wraps.is_empty() {
            let unwrapped = tokio::task::spawn_blocking(move || unwrap_all(&kem, wraps)).await;
            self.known.lock().sealed.apply_unwrapped(unwrapped.unwrap_or_default());
        }
        loop {
            let batch = self.known.lock().sealed.to_open(BATCH);
            if batch.is_empty() {
                break;
            }
            let opened = tokio::task::spawn_blocking(move || open_all(batch)).await;
            let Ok(opened) = opened else { break };
            self.known.lock().sealed.apply_opened(opened);
            self.put_keys();
        }
        self.known.lock().sealed.delegate_unopened_keys();
        self.put_keys();
    }
}

/// Stores a page, unless it is empty.
fn append_page(log: &JsonLinesLog, page: News) -> Result<News, NodeError> {
    if page.anew {
        log.replace(&page)?;
    } else if has_changes(&page) {
        log.append(&page)?;
    }
    Ok(page)
}

/// Returns whether the page contains anything.
fn has_changes(page: &News) -> bool {
    page.anew || !(page.policies.is_empty() && page.wraps.is_empty() && page.keys.is_empty())
}

fn unwrap_all(kem: &NodeKey, wraps: Vec<WrapToOpen>) -> Unwrapped {
    let unwrap = |WrapToOpen { which, wrap, context }| match kem.unwrap_seed(&wrap, &context) {
        Ok(key) => (which, Some(Arc::new(key))),
        Err(error) => {
            let (policy, generation) = which;
            tracing::error!(%policy, generation, %error, "the key of a policy cannot be unwrapped on this node");
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
