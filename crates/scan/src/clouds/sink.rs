//! Where a source puts what it lists: batches out, and the state that remains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use x509::Fingerprint;

use super::{Chain, CloudCertificate, Event, KnownCertificate, Listed, Place, SourceError, State};

/// Certificates of one batch: a page of most interfaces.
const BATCH_MAX: usize = 100;
/// Certificates read from one source. AWS allows 2,500 in an account and region, Kubernetes clusters with 90,000 secrets
/// have been met; past this the part is reported as not read to its end.
pub const CERTIFICATES_PER_SOURCE_MAX: usize = 200_000;
/// Certificates of one chain that are kept; longer ones are cut off and would not verify anyway.
pub(super) const CHAIN_MAX: usize = 16;

/// Nobody reads the events any more: stop listing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stopped;

/// Takes what one source lists.
pub struct Sink {
    source: Arc<str>,
    since: State,
    out: mpsc::Sender<Event>,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    batch: Vec<CloudCertificate>,
    seen: BTreeMap<Place, KnownCertificate>,
    listed: BTreeSet<String>,
    failed: Vec<(String, SourceError)>,
    read: u64,
}

impl Sink {
    pub(super) fn new(source: Arc<str>, since: State, out: mpsc::Sender<Event>) -> Self {
        Self { source, since, out, gathered: Mutex::default() }
    }

    /// What was known of a place when it was last listed.
    #[must_use]
    pub fn known(&self, place: &Place) -> Option<&KnownCertificate> {
        self.since.get(place)
    }

    /// The chain of a place that was listed with this marker before: nothing needs to be read. `None`: read it.
    #[must_use]
    pub fn unchanged(&self, place: &Place, marker: &str) -> Option<Chain> {
        let known = self.since.get(place)?;
        (known.marker == marker && !known.chain.is_empty()).then(|| Chain::Unchanged(known.chain.clone()))
    }

    /// Takes a certificate that `part` of the source lists. Waits while the reader is slow.
    ///
    /// # Errors
    /// [`SourceError::TooMany`] past [`CERTIFICATES_PER_SOURCE_MAX`]; [`SourceError::Stopped`] when nobody reads.
    pub async fn seen(&self, part: &str, mut certificate: CloudCertificate) -> Result<(), SourceError> {
        certificate.used_by.sort_unstable();
        certificate.used_by.dedup();
        let full = {
            let mut gathered = self.gathered.lock();
            if gathered.seen.len() >= CERTIFICATES_PER_SOURCE_MAX {
                return Err(SourceError::TooMany { max: CERTIFICATES_PER_SOURCE_MAX });
            }
            gathered.read += u64::from(matches!(certificate.chain, Chain::Read(_)));
            let known = remembered(part, &mut certificate);
            gathered.seen.insert(certificate.place.clone(), known);
            gathered.batch.push(certificate);
            (gathered.batch.len() >= BATCH_MAX).then(|| std::mem::take(&mut gathered.batch))
        };
        match full {
            Some(batch) => Ok(self.send(batch).await?),
            None => Ok(()),
        }
    }

    /// Notes that `part` was listed to its end: what it does not show any more is gone.
    pub fn listed(&self, part: impl Into<String>) {
        self.gathered.lock().listed.insert(part.into());
    }

    /// Notes that `part` could not be listed, or not to its end: what it showed before is taken to be there still.
    pub fn failed(&self, part: impl Into<String>, error: SourceError) {
        self.gathered.lock().failed.push((part.into(), error));
    }

    async fn send(&self, certificates: Vec<CloudCertificate>) -> Result<(), Stopped> {
        let event = Event::Certificates { source: self.source.clone(), certificates };
        self.out.send(event).await.map_err(|_| Stopped)
    }

    /// Sends what is left and says how the listing ended.
    pub(super) async fn end(self, ended: Result<(), SourceError>) {
        let batch = std::mem::take(&mut self.gathered.lock().batch);
        if !batch.is_empty() && self.send(batch).await.is_err() {
            return;
        }
        let Gathered { seen, listed, mut failed, read, .. } = self.gathered.into_inner();
        let whole = ended.is_ok();
        if let Err(error) = ended {
            failed.push((String::new(), error));
        }
        let parts = failed.iter().map(|(part, _)| part.clone()).collect();
        let count = seen.len() as u64;
        let (state, gone) = self.since.after(seen, &listed, &parts, whole);
        let listed = Listed { source: self.source, state, gone, failed, certificates: count, read };
        // The reader is gone only when the listing is being torn down.
        let _ = self.out.send(Event::Ended(Box::new(listed))).await;
    }
}

/// What is kept of a certificate; its chain is cut to [`CHAIN_MAX`].
fn remembered(part: &str, certificate: &mut CloudCertificate) -> KnownCertificate {
    let chain = match &mut certificate.chain {
        Chain::Read(chain) => {
            chain.truncate(CHAIN_MAX);
            chain.iter().map(|der| Fingerprint::of(der)).collect()
        }
        Chain::Unchanged(chain) => chain.clone(),
        Chain::None(_) => Vec::new(),
    };
    let (marker, used_by) = (certificate.marker.clone(), certificate.used_by.clone());
    KnownCertificate { part: part.to_owned(), marker, chain, used_by }
}
