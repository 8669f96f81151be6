//! All witnesses of a log.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::external::Witness;
use super::file::FileWitness;
use super::options::WitnessOptions;
use super::syslog::SyslogWitness;

/// Pause after the first failure of a witness in µs. The pause doubles with each further failure.
const RETRY_FIRST_US: i64 = 10_000_000;
/// Longest pause between two attempts to reach a witness, in µs.
const RETRY_MAX_US: i64 = 600_000_000;

/// All witnesses, and the times of the next attempts for failing ones.
pub(crate) struct Witnesses {
    pub(crate) all: Vec<Arc<dyn Witness>>,
    retries: Mutex<HashMap<&'static str, Retry>>,
}

#[derive(Clone, Copy)]
struct Retry {
    pause_us: i64,
    at_us: i64,
}

impl Witnesses {
    pub(crate) fn new(options: &WitnessOptions) -> Self {
        let mut all: Vec<Arc<dyn Witness>> = Vec::new();
        if let Some(path) = &options.file {
            all.push(Arc::new(FileWitness::new(path.clone())));
        }
        if let Some(address) = &options.syslog {
            all.push(Arc::new(SyslogWitness::new(address.clone())));
        }
        if let Some(webhook) = &options.webhook {
            all.push(Arc::new(webhook.clone()));
        }
        all.extend(options.other.clone());
        Self { all, retries: Mutex::default() }
    }

    /// Returns whether a witness is due: it did not fail, or its pause has passed.
    pub(crate) async fn is_due(&self, name: &str, now_us: i64) -> bool {
        self.retries.lock().await.get(name).is_none_or(|retry| retry.at_us <= now_us)
    }

    /// Records that a witness accepted a head.
    pub(crate) async fn clear_retry(&self, name: &str) {
        self.retries.lock().await.remove(name);
    }

    /// Records a failure. The witness is retried with exponential backoff.
    pub(crate) async fn failed(&self, name: &'static str, now_us: i64) {
        let mut retries = self.retries.lock().await;
        let pause_us =
            retries.get(name).map_or(RETRY_FIRST_US, |retry| (retry.pause_us * 2).min(RETRY_MAX_US));
        retries.insert(name, Retry { pause_us, at_us: now_us + pause_us });
    }
}
