//! Receives the certificates that a source lists: sends them in batches and builds the next state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use x509::Fingerprint;

use crate::certificate::{Chain, CloudCertificate, CloudResource};
use crate::error::{SourceError, Stopped};
use crate::event::{Event, Listed, Tagged};
use crate::state::{KnownCertificate, State};
use crate::tags::Tags;

/// Maximum number of certificates in one batch: a page of most APIs.
const BATCH_MAX: usize = 100;
/// Maximum certificates read from one source. AWS allows 2,500 per account and region; Kubernetes clusters with 90,000 secrets
/// exist. A part with more is reported as failed.
pub const CERTIFICATES_PER_SOURCE_MAX: usize = 200_000;
/// Maximum stored certificates of one chain. Longer chains are truncated; they would not verify anyway.
pub const CHAIN_MAX: usize = 16;

/// Destination for the certificates of one source.
pub struct Sink {
    source: Arc<str>,
    previous: State,
    out: mpsc::Sender<Event>,
    gathered: Mutex<CollectedCertificates>,
}

#[derive(Default)]
struct CollectedCertificates {
    batch: Vec<CloudCertificate>,
    seen: BTreeMap<CloudResource, KnownCertificate>,
    listed: BTreeSet<String>,
    failed: Vec<(String, SourceError)>,
    remarks: BTreeMap<String, SourceError>,
    read: u64,
}

impl Sink {
    pub(super) fn new(source: Arc<str>, previous: State, out: mpsc::Sender<Event>) -> Self {
        Self { source, previous, out, gathered: Mutex::default() }
    }

    /// Returns the state of a resource at the last listing.
    #[must_use]
    pub fn known(&self, resource: &CloudResource) -> Option<&KnownCertificate> {
        self.previous.get(resource)
    }

    /// Returns the known chain of a resource whose marker is unchanged, so that the chain need not be read. `None`: read it.
    #[must_use]
    pub fn unchanged(&self, resource: &CloudResource, marker: &str) -> Option<Chain> {
        let known = self.previous.get(resource)?;
        (known.marker == marker && !known.chain.is_empty()).then(|| Chain::Unchanged(known.chain.clone()))
    }

    /// Returns the known tags of a resource whose marker is unchanged. `None`: the tags must be read.
    #[must_use]
    pub fn known_tags(&self, resource: &CloudResource, marker: &str) -> Option<Tags> {
        let known = self.previous.get(resource).filter(|known| known.marker == marker)?;
        known.tags.clone()
    }

    /// Records a certificate that `part` of the source lists. Waits while the reader is slow.
    ///
    /// # Errors
    /// [`SourceError::TooMany`] past [`CERTIFICATES_PER_SOURCE_MAX`]; [`SourceError::Stopped`] when the reader was dropped.
    #[crate::boxed]
    pub async fn seen(&self, part: &str, mut certificate: CloudCertificate) -> Result<(), SourceError> {
        certificate.used_by.sort_unstable();
        certificate.used_by.dedup();
        let full = {
            let mut gathered = self.gathered.lock();
            if gathered.seen.len() >= CERTIFICATES_PER_SOURCE_MAX {
                return Err(SourceError::TooMany { what: "certificates", max: CERTIFICATES_PER_SOURCE_MAX });
            }
            gathered.read += u64::from(matches!(certificate.chain, Chain::Read(_)));
            let known = known_certificate(part, &mut certificate);
            gathered.seen.insert(certificate.resource.clone(), known);
            gathered.batch.push(certificate);
            (gathered.batch.len() >= BATCH_MAX).then(|| std::mem::take(&mut gathered.batch))
        };
        match full {
            Some(batch) => Ok(self.send(batch).await?),
            None => Ok(()),
        }
    }

    /// Records that `part` was listed completely: known resources of the part that were not seen are recorded as deleted.
    pub fn listed(&self, part: impl Into<String>) {
        self.gathered.lock().listed.insert(part.into());
    }

    /// Records that `part` was not listed, or only incompletely: its known resources are assumed to exist still.
    pub fn failed(&self, part: impl Into<String>, error: SourceError) {
        self.gathered.lock().failed.push((part.into(), error));
    }

    /// Records that additional data, usually tags, could not be read. Reported once per `part`, regardless of the number of
    /// certificates. No certificate counts as missing because of such an error.
    pub fn remark(&self, part: impl Into<String>, error: SourceError) {
        self.gathered.lock().remarks.entry(part.into()).or_insert(error);
    }

    async fn send(&self, certificates: Vec<CloudCertificate>) -> Result<(), Stopped> {
        let event = Event::Certificates { source: self.source.clone(), certificates };
        self.out.send(event).await.map_err(|_| Stopped)
    }

    /// Sends the remaining certificates and the result of the listing.
    pub(super) async fn end(self, ended: Result<(), SourceError>) {
        let batch = std::mem::take(&mut self.gathered.lock().batch);
        if !batch.is_empty() && self.send(batch).await.is_err() {
            return;
        }
        let CollectedCertificates { seen, listed, mut failed, remarks, read, .. } =
            self.gathered.into_inner();
        let complete = ended.is_ok();
        if let Err(error) = ended {
            failed.push((String::new(), error));
        }
        let parts = failed.iter().map(|(part, _)| part.clone()).collect();
        let count = seen.len() as u64;
        let tagged = seen
            .iter()
            .filter_map(|(resource, now)| tagged(self.previous.get(resource), resource, now))
            .collect();
        let (state, removed) = self.previous.after(seen, &listed, &parts, complete);
        let remarks = remarks.into_iter().collect();
        let listed = Listed {
            source: self.source,
            state,
            removed,
            failed,
            remarks,
            tagged,
            certificates: count,
            read,
        };
        // The receiver is dropped only when the listing is stopped.
        let _ = self.out.send(Event::Ended(Box::new(listed))).await;
    }
}

/// Returns the state to store for a certificate; truncates its chain to [`CHAIN_MAX`].
fn known_certificate(part: &str, certificate: &mut CloudCertificate) -> KnownCertificate {
    let chain = match &mut certificate.chain {
        Chain::Read(chain) => {
            chain.truncate(CHAIN_MAX);
            chain.iter().map(|der| Fingerprint::of(der)).collect()
        }
        Chain::Unchanged(chain) => chain.clone(),
        Chain::None(_) => Vec::new(),
    };
    let (marker, used_by) = (certificate.marker.clone(), certificate.used_by.clone());
    KnownCertificate { part: part.to_owned(), marker, chain, used_by, tags: certificate.tags.clone() }
}

/// Returns the change of a resource's tags; `None` if the tags are unknown or unchanged.
fn tagged(
    before: Option<&KnownCertificate>,
    resource: &CloudResource,
    now: &KnownCertificate,
) -> Option<Tagged> {
    let tags = now.tags.as_ref()?;
    let leaf = now.chain.first();
    // Without a previous state, no tags were reported before.
    let had = before.and_then(|before| before.tags.as_ref());
    let same_tags = had.map_or_else(|| tags.is_empty(), |had| had == tags);
    let same_leaf = before.is_some_and(|before| before.chain.first() == leaf);
    if same_tags && (same_leaf || tags.is_empty()) {
        return None;
    }
    let before = (same_leaf && !same_tags).then(|| had.cloned().unwrap_or_default());
    Some(Tagged { resource: resource.clone(), leaf: leaf.copied(), tags: tags.clone(), before })
}

#[cfg(test)]
mod tests {
    use super::super::CloudStore;
    use super::*;

    fn known(leaf: &str, tags: Option<&[(&str, &str)]>) -> KnownCertificate {
        let tags = tags.map(|tags| {
            tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Tags>()
        });
        KnownCertificate {
            part: "p".to_owned(),
            marker: "m".to_owned(),
            chain: vec![Fingerprint::of(leaf.as_bytes())],
            used_by: Vec::new(),
            tags,
        }
    }

    #[test]
    fn tag_events_report_only_new_or_changed_tags() {
        const PAY: &[(&str, &str)] = &[("team", "pay")];
        const WEB: &[(&str, &str)] = &[("team", "web")];
        let resource = CloudResource { store: CloudStore::AwsAcm, name: "a".into() };
        // Before → now: whether a change is reported, and whether the previous tags are reported with it.
        for (before, now, new) in [
            (None, known("1", Some(PAY)), Some(false)),
            (None, known("1", Some(&[])), None),
            (None, known("1", None), None),
            (Some(known("1", Some(PAY))), known("1", Some(PAY)), None),
            (Some(known("1", Some(PAY))), known("1", Some(WEB)), Some(true)),
            (Some(known("1", Some(PAY))), known("1", Some(&[])), Some(true)),
            (Some(known("1", Some(PAY))), known("1", None), None),
            (Some(known("1", Some(PAY))), known("2", Some(PAY)), Some(false)),
            (Some(known("1", Some(PAY))), known("2", Some(WEB)), Some(false)),
            // The first listing that reads tags.
            (Some(known("1", None)), known("1", Some(PAY)), Some(true)),
            (Some(known("1", None)), known("1", Some(&[])), None),
            (Some(known("1", Some(&[]))), known("2", Some(&[])), None),
        ] {
            let found = tagged(before.as_ref(), &resource, &now).map(|tagged| tagged.before.is_some());
            assert_eq!(found, new, "{before:?} → {now:?}");
        }
    }
}
