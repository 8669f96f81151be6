//! Tags of certificates. AWS returns the tags of one certificate per call.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use outbound::pool::Verdict;

use clouds::bounded;
use clouds::{CloudResource, Sink, SourceError, Tags};

/// A reader of tags for one part of an account, for new or changed certificates only. If AWS denies the call or does not respond,
/// this listing requests no further tags.
pub(super) struct TagReader {
    part: String,
    tags_unavailable: AtomicBool,
}

impl TagReader {
    pub(super) fn new(part: String) -> Self {
        Self { part, tags_unavailable: AtomicBool::new(false) }
    }

    /// Returns the tags of a certificate, calling `fetch` if they are not known. Returns `None` and adds a remark if they cannot be
    /// read; the next listing tries again.
    pub(super) async fn of<K, V, F>(
        &self,
        sink: &Sink,
        resource: &CloudResource,
        marker: &str,
        fetch: impl FnOnce() -> F,
    ) -> Option<Tags>
    where
        K: Into<String>,
        V: Into<String>,
        F: Future<Output = Result<Vec<(K, V)>, SourceError>>,
    {
        if let Some(known) = sink.known_tags(resource, marker) {
            return Some(known);
        }
        if self.tags_unavailable.load(Relaxed) {
            return None;
        }
        match fetch().await {
            Ok(tags) => Some(bounded(tags)),
            Err(error) => {
                // An error about one certificate, such as one deleted since it was listed, does not affect the others.
                let of_one =
                    matches!(&error, SourceError::Failed { answer, .. } if answer.verdict == Verdict::Final);
                self.tags_unavailable.fetch_or(!of_one, Relaxed);
                sink.remark(self.part.clone(), error);
                None
            }
        }
    }
}
