//! Converts cloud certificates to observations, like observations of endpoints and files.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clouds::{Chain, CloudCertificate, CloudResource, CloudSource, Event, Listed, State, Tags};
use scan::ProbeOutcome;
use scan::judge::{ChainPosition, Judge};
use scan::observation::{CloudEntry, Observation, Use};
use scan::revocation::{RevocationChecker, with_verdicts};
use scan::target::Target;
use scan::{Run, ScanOptions, Trusted};
use store::{Clock, Store, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use x509::{Certificate, Fingerprint};

use crate::tables;

/// Maximum observations buffered for the reader. The number is small, so that a slow writer slows the listing immediately.
const OBSERVATIONS_IN_CHANNEL: usize = 256;

/// Reason why certificates could not be converted to observations.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The inventory, which contains the unchanged certificates, could not be read.
    #[error("cannot read the unchanged certificates of the source from the inventory")]
    Inventory(#[from] StoreError),
}

/// An observer that judges cloud certificates. Create it once: it caches intermediates and verified signatures.
pub struct Observer {
    judge: Arc<Judge>,
    revocation: Option<RevocationChecker>,
    store: Option<Store>,
}

impl Observer {
    /// Creates an observer that judges certificates by `options` and `trust`. It reads unchanged certificates from `store`.
    /// Without a store, use empty states, so that no certificate is unchanged. If `options` enable revocation checks, [`observe`]
    /// runs them during the listing.
    #[must_use]
    pub fn new(options: &ScanOptions, trust: Trusted, store: Option<Store>) -> Self {
        let (judge, revocation) = (Arc::new(Judge::new(options, trust)), options.revocation.clone());
        Self { judge, revocation, store }
    }

    /// Returns one observation for each certificate, in the same order. Also returns the resources whose certificate is unchanged
    /// but not in the inventory: call [`State::forget`] for them.
    ///
    /// # Errors
    /// [`ObserveError`].
    #[crate::boxed]
    pub async fn observe(
        &self,
        source: &Arc<str>,
        certificates: Vec<CloudCertificate>,
    ) -> Result<(Vec<Observation>, Vec<CloudResource>), ObserveError> {
        let known = self.known(&certificates).await?;
        let mut missing = Vec::new();
        let observations = certificates.into_iter().map(|certificate| {
            let resource = certificate.resource.clone();
            let observation = self.one(source, certificate, &known);
            if observation.outcome == ProbeOutcome::Unknown {
                missing.push(resource);
            }
            observation
        });
        let observations = observations.collect();
        Ok((observations, missing))
    }

    /// Returns the observation of a resource that no longer exists.
    #[must_use]
    pub fn removed(&self, source: &Arc<str>, resource: &CloudResource) -> Observation {
        let detail = format!("{source} no longer lists the resource");
        observation(source, resource, ProbeOutcome::Gone, Some(detail))
    }

    /// Reads the unchanged certificates of a batch in one query.
    async fn known(&self, batch: &[CloudCertificate]) -> Result<HashMap<[u8; 32], Arc<[u8]>>, ObserveError> {
        let mut wanted: Vec<[u8; 32]> = batch
            .iter()
            .filter_map(|certificate| match &certificate.chain {
                Chain::Unchanged(chain) => Some(chain),
                Chain::Read(_) | Chain::None(_) => None,
            })
            .flatten()
            .map(|fingerprint| *fingerprint.as_bytes())
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        match &self.store {
            Some(store) if !wanted.is_empty() => Ok(tables::Sources::of(store).ders(&wanted).await?),
            _ => Ok(HashMap::new()),
        }
    }

    fn one(
        &self,
        source: &Arc<str>,
        certificate: CloudCertificate,
        known: &HashMap<[u8; 32], Arc<[u8]>>,
    ) -> Observation {
        let CloudCertificate { resource, chain, used_by, tags, .. } = certificate;
        let tags = tags.unwrap_or_default();
        let unchanged = matches!(chain, Chain::Unchanged(_));
        let ders: Vec<Arc<[u8]>> = match chain {
            Chain::None(why) => {
                let mut seen = observation(source, &resource, ProbeOutcome::NotIssued, Some(why));
                keep(&mut seen, used_by, tags, false);
                return seen;
            }
            Chain::Read(ders) => ders.into_iter().map(Arc::from).collect(),
            Chain::Unchanged(chain) => {
                let of = |fingerprint: &Fingerprint| known.get(fingerprint.as_bytes()).cloned();
                match chain.iter().map(of).collect() {
                    Some(ders) => ders,
                    None => {
                        let why = "the source reports the certificate as unchanged, but the inventory does not have it; the next \
                             run reads it again";
                        return observation(source, &resource, ProbeOutcome::Unknown, Some(why.to_owned()));
                    }
                }
            }
        };
        let mut seen = observation(source, &resource, ProbeOutcome::Answered, None);
        keep(&mut seen, used_by, tags, unchanged);
        for (index, der) in ders.iter().enumerate() {
            match self.judge.parse(der, ChainPosition::at(index)) {
                Ok(certificate) => seen.chain.push(certificate),
                Err(error) => seen.unparsed.push(format!("certificate {index}: {error}")),
            }
            if seen.chain.is_empty() {
                // If the leaf is unreadable, its issuer must not be judged as the leaf.
                break;
            }
        }
        if resource.store.provides_chains() {
            self.judge.judge_file(&mut seen);
        } else {
            self.judge.judge_leaf(&mut seen);
        }
        seen
    }
}

/// A running listing, as observations.
pub struct CloudRun {
    /// One observation per certificate, and one per resource that is gone. Closed when all sources have ended.
    pub observations: mpsc::Receiver<Observation>,
    /// The result of each source, available after the last observation. Store the states of the sources only after the
    /// observations.
    pub ended: JoinHandle<Result<Vec<Listed>, ObserveError>>,
}

/// Starts a listing like [`clouds::start`], and converts the certificates to observations.
///
/// # Cancellation
/// See [`clouds::start`]; sources that have not ended are missing from the result.
#[must_use = "the channel is where the results come from"]
pub fn observe(
    sources: Vec<Arc<dyn CloudSource>>,
    states: HashMap<String, State>,
    limit: Duration,
    observer: Observer,
    stop: CancellationToken,
) -> CloudRun {
    let (out, observations) = mpsc::channel(OBSERVATIONS_IN_CHANNEL);
    let (judge, checker) = (observer.judge.clone(), observer.revocation.clone());
    let issuers =
        move |certificate: &Certificate, sent: &[Arc<Certificate>]| judge.issuer_of(certificate, sent);
    let observations = with_verdicts(observations, checker, issuers, &stop);
    let events = clouds::start(sources, states, limit, stop);
    let guard = telemetry::tasks::guard("cloud-observer");
    let ended = tokio::spawn(async move {
        let _guard = guard;
        observe_all(events, &observer, &out).await
    });
    CloudRun { observations, ended }
}

impl CloudRun {
    /// Merges the observations of `run` and of the listing into one channel. Also returns the result of the listing.
    pub fn merge_with(self, run: Run) -> (Run, JoinHandle<Result<Vec<Listed>, ObserveError>>) {
        let (out, both) = mpsc::channel(OBSERVATIONS_IN_CHANNEL);
        let Run { observations, refused, progress } = run;
        for from in [observations, self.observations] {
            tokio::spawn(forward(from, out.clone(), telemetry::tasks::guard("cloud-observer")));
        }
        (Run { observations: both, refused, progress }, self.ended)
    }
}

/// Forwards observations until the source ends or the reader was dropped.
async fn forward(
    mut from: mpsc::Receiver<Observation>,
    to: mpsc::Sender<Observation>,
    _live: telemetry::tasks::TaskGuard,
) {
    while let Some(observation) = from.recv().await {
        if to.send(observation).await.is_err() {
            return;
        }
    }
}

async fn observe_all(
    mut events: mpsc::Receiver<Event>,
    observer: &Observer,
    out: &mpsc::Sender<Observation>,
) -> Result<Vec<Listed>, ObserveError> {
    let (mut ended, mut forgotten) = (Vec::new(), Vec::new());
    while let Some(event) = events.recv().await {
        let observations = match event {
            Event::Certificates { source, certificates } => {
                let (observations, missing) = observer.observe(&source, certificates).await?;
                forgotten.extend(missing.into_iter().map(|resource| (source.clone(), resource)));
                observations
            }
            Event::Ended(mut listed) => {
                forgotten.retain(|(source, resource)| {
                    let other = *source != listed.source;
                    if !other {
                        listed.state.forget(resource);
                    }
                    other
                });
                let removed = listed
                    .removed
                    .iter()
                    .map(|resource| observer.removed(&listed.source, resource))
                    .collect();
                ended.push(*listed);
                removed
            }
        };
        for observation in observations {
            if out.send(observation).await.is_err() {
                // The reader was dropped: unread observations must not count as stored.
                return Ok(Vec::new());
            }
        }
    }
    Ok(ended)
}

fn observation(
    source: &Arc<str>,
    resource: &CloudResource,
    outcome: ProbeOutcome,
    detail: Option<String>,
) -> Observation {
    let target = Arc::new(Target::resource(resource.store, resource.name.clone()));
    let mut observation = Observation::ended(target, Clock::system().now_us(), outcome, detail);
    observation.kept = Some(Box::new(CloudEntry { source: source.clone(), ..CloudEntry::default() }));
    observation
}

fn keep(observation: &mut Observation, used_by: Vec<Use>, tags: Tags, unchanged: bool) {
    if let Some(kept) = &mut observation.kept {
        kept.used_by = used_by;
        kept.tags = tags;
        kept.unchanged = unchanged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clouds::CloudStore;

    use crate::record::endpoint_key;

    fn certificate(chain: Chain) -> CloudCertificate {
        let resource = CloudResource {
            store: CloudStore::GcpCompute,
            name: "projects/p/global/sslCertificates/c".into(),
        };
        CloudCertificate {
            resource,
            chain,
            not_after: None,
            used_by: Vec::new(),
            tags: None,
            marker: "1".into(),
        }
    }

    fn chain() -> Vec<Vec<u8>> {
        let pem = include_bytes!("../../../scan/tests/fixtures/chain.pem");
        x509::pem::certificates(pem).map(|(_, der)| der).collect()
    }

    #[tokio::test]
    async fn read_chains_are_judged_and_unknown_ones_reported_missing() {
        let observer = Observer::new(&ScanOptions::default(), Trusted::trusting_none(), None);
        let source: Arc<str> = "gcp/p".into();
        let elsewhere = vec![Fingerprint::of(b"elsewhere")];
        let batch = vec![
            certificate(Chain::Read(chain())),
            certificate(Chain::None("being issued".into())),
            certificate(Chain::Unchanged(elsewhere)),
            certificate(Chain::Read(vec![vec![0x30, 0]])),
        ];
        let (seen, missing) = observer.observe(&source, batch).await.unwrap();
        let outcomes: Vec<_> = seen.iter().map(|seen| seen.outcome.name()).collect();
        assert_eq!(outcomes, ["answered", "not-issued", "unknown", "answered"]);
        assert_eq!(missing.len(), 1);
        assert!(seen[0].leaf().is_some());
        assert!(seen[3].leaf().is_none() && !seen[3].findings.is_empty(), "an unreadable one is a finding");
        let key = endpoint_key(&seen[0]);
        assert_eq!((key.protocol.as_str(), key.port), ("gcp-compute", 0));
        assert_eq!(key.host, "projects/p/global/sslCertificates/c");
        assert_eq!(seen[0].label(), "gcp-compute:projects/p/global/sslCertificates/c");
    }
}
