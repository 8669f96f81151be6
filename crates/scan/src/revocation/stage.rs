//! Adds revocation verdicts to observations, between the scan and its reader.
//!
//! A probe ends and releases its permit before its certificates are checked. Each observation waits here only for its own verdicts;
//! when too many wait, the scan slows down, and nothing is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use x509::{Certificate, Finding, Fingerprint, UnixTime};

use super::{Cause, RevocationChecker, Verdict};
use crate::judge::FINDINGS_MAX;
use crate::observation::Observation;
use crate::rules;

/// Maximum observations that wait for verdicts; about 5 KB each. Enough for two seconds of the fastest scan, so that a CRL that
/// takes that long causes no delay.
const WAITING_MAX: usize = 4_096;
/// Maximum certificates of one chain that are checked, leaf first. Real chains have two or three.
const CHECKED_MAX: usize = 8;

/// The verdicts about one chain.
type Verdicts = Vec<(Fingerprint, Verdict)>;

/// Observations buffered for the reader: as many as between the scan and this stage.
const OBSERVATIONS_IN_CHANNEL: usize = 256;

/// Adds revocation verdicts by `checker` to the observations of `from`. `issuers` finds the issuer of a certificate among the roots
/// and the certificates that were sent with it. Without a checker, returns `from` itself.
///
/// # Cancellation
/// When `stop` is cancelled the returned channel closes; observations that wait for verdicts are dropped.
pub fn with_verdicts(
    from: mpsc::Receiver<Observation>,
    checker: Option<RevocationChecker>,
    issuers: impl Fn(&Certificate, &[Arc<Certificate>]) -> Option<Arc<Certificate>>
    + Send
    + Sync
    + Clone
    + 'static,
    stop: &CancellationToken,
) -> mpsc::Receiver<Observation> {
    let Some(checker) = checker else { return from };
    let (out, joined) = mpsc::channel(OBSERVATIONS_IN_CHANNEL);
    let (guard, stop) = (telemetry::tasks::guard("scan-revocation-stage"), stop.clone());
    tokio::spawn(async move {
        let _guard = guard;
        join(from, out, checker, issuers, stop).await;
    });
    joined
}

/// Forwards observations from `from` to `to` with their verdicts, until `from` closes or `stop` is cancelled.
async fn join(
    mut from: mpsc::Receiver<Observation>,
    to: mpsc::Sender<Observation>,
    checker: RevocationChecker,
    issuers: impl Fn(&Certificate, &[Arc<Certificate>]) -> Option<Arc<Certificate>>
    + Send
    + Sync
    + Clone
    + 'static,
    stop: CancellationToken,
) {
    let mut checking: JoinSet<Verdicts> = JoinSet::new();
    let mut waiting: HashMap<Id, Observation> = HashMap::new();
    let mut open = true;
    while open || !checking.is_empty() {
        let ready = tokio::select! {
            () = stop.cancelled() => break,
            Some(done) = checking.join_next_with_id() => joined(&mut waiting, done),
            next = from.recv(), if open && waiting.len() < WAITING_MAX => match next {
                None => {
                    open = false;
                    None
                }
                Some(observation) if observation.chain.is_empty() => Some(observation),
                Some(observation) => {
                    let (checker, issuers) = (checker.clone(), issuers.clone());
                    let check_of_chain = ChainCheck::of(&observation);
                    let guard = telemetry::tasks::guard("scan-revocation");
                    let check = checking.spawn(async move {
                        let _guard = guard;
                        check_of_chain.verdicts(&checker, issuers).await
                    });
                    waiting.insert(check.id(), observation);
                    None
                }
            },
        };
        if let Some(observation) = ready {
            tokio::select! {
                () = stop.cancelled() => break,
                // The receiver is dropped only when the scan is stopped.
                _ = to.send(observation) => {}
            }
        }
    }
    checking.shutdown().await;
}

fn joined(
    waiting: &mut HashMap<Id, Observation>,
    done: Result<(Id, Verdicts), JoinError>,
) -> Option<Observation> {
    let (id, verdicts) = match done {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(%error, "a revocation check ended abnormally");
            (error.id(), Vec::new())
        }
    };
    let mut observation = waiting.remove(&id)?;
    if let (true, Some(leaf)) = (verdicts.is_empty(), observation.leaf()) {
        observation.revocation = vec![(leaf.fingerprint, Verdict::Unknown { cause: Cause::Abnormal })];
        return Some(observation);
    }
    observation.revocation = verdicts;
    judge(&mut observation);
    Some(observation)
}

/// Adds a finding if a revoked certificate is still served or stored.
fn judge(observation: &mut Observation) {
    let revoked =
        observation.revocation.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Revoked { .. }));
    let findings: Vec<_> = revoked
        .map(|(certificate, verdict)| Finding {
            rule: &rules::REVOKED,
            evidence: verdict.to_string(),
            certificate: Some(*certificate),
        })
        .collect();
    if findings.is_empty() {
        return;
    }
    observation.findings.extend(findings);
    observation.findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
    observation.findings.truncate(FINDINGS_MAX);
}

/// The chain of an observation to check.
struct ChainCheck {
    chain: Vec<Arc<Certificate>>,
    /// The certificates on the path to a trusted root; empty when there is no such path.
    trusted: Vec<Fingerprint>,
    staple: Option<Vec<u8>>,
    now: UnixTime,
}

impl ChainCheck {
    fn of(observation: &Observation) -> Self {
        let staple = observation.session.as_ref().and_then(|session| session.ocsp_staple.clone());
        let trusted = observation.trust.as_ref().map_or_else(Vec::new, |trust| trust.path.clone());
        Self { chain: observation.chain.clone(), trusted, staple, now: observation.at() }
    }

    async fn verdicts(
        &self,
        checker: &RevocationChecker,
        issuers: impl Fn(&Certificate, &[Arc<Certificate>]) -> Option<Arc<Certificate>>,
    ) -> Verdicts {
        let mut verdicts = Vec::with_capacity(self.chain.len());
        for (index, certificate) in self.chain.iter().take(CHECKED_MAX).enumerate() {
            // The stapled response is about the leaf (RFC 6066 section 8).
            let staple = self.staple.as_deref().filter(|_| index == 0);
            let verdict = match issuers(certificate, &self.chain) {
                Some(issuer) if self.trusted.contains(&certificate.fingerprint) => {
                    checker.check(certificate, &issuer, staple, self.now).await
                }
                Some(issuer) => checker.check_untrusted(certificate, &issuer, staple, self.now),
                None => {
                    let verdict = Verdict::for_unknown_issuer(certificate, self.now);
                    checker.count(&verdict);
                    verdict
                }
            };
            verdicts.push((certificate.fingerprint, verdict));
        }
        verdicts
    }
}
