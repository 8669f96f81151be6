//! Tags of certificates, which AWS tells of one certificate at a time.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use outbound::pool::Verdict;

use clouds::bounded;
use clouds::{CloudResource, Sink, SourceError, Tags};

/// The tags of one part of an account. They are asked for only of what is new or changed, and no more in this listing once
/// AWS has said that nobody may, or does not answer: no certificate waits for them twice.
pub(super) struct Tagging {
    part: String,
    over: AtomicBool,
}

impl Tagging {
    pub(super) fn new(part: String) -> Self {
        Self { part, over: AtomicBool::new(false) }
    }

    /// The tags of a place, by `ask` where they are not known; `None` when they cannot be had, which is said once. The
    /// next listing asks again.
    pub(super) async fn of<K, V, F>(
        &self,
        sink: &Sink,
        place: &CloudResource,
        marker: &str,
        ask: impl FnOnce() -> F,
    ) -> Option<Tags>
    where
        K: Into<String>,
        V: Into<String>,
        F: Future<Output = Result<Vec<(K, V)>, SourceError>>,
    {
        if let Some(known) = sink.known_tags(place, marker) {
            return Some(known);
        }
        if self.over.load(Relaxed) {
            return None;
        }
        match ask().await {
            Ok(tags) => Some(bounded(tags)),
            Err(error) => {
                // What is wrong with one certificate, deleted since it was listed, says nothing of the others.
                let of_one =
                    matches!(&error, SourceError::Failed { answer, .. } if answer.verdict == Verdict::Final);
                self.over.fetch_or(!of_one, Relaxed);
                sink.remark(self.part.clone(), error);
                None
            }
        }
    }
}
