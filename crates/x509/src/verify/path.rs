//! Depth-first search for a path from a leaf to a trust anchor.

use std::sync::Arc;

use super::constraints::{self, ComparisonBudget};
use super::{Distrust, SignatureCache, TrustStore, Verdict};
use crate::{Certificate, KeyUsage, SignatureError, UnixTime, oid};

/// Maximum signature checks for one chain, including cached ones. Real chains need one to four; a hostile set of cross-signed
/// certificates has exponentially many paths.
pub const CHECKS_MAX: usize = 100;

/// Maximum certificates in a path, including leaf and root. The longest public paths have five.
pub const PATH_MAX: usize = 8;

/// State of the path search for one chain.
pub(super) struct Search<'a, C> {
    sent: &'a [Arc<Certificate>],
    store: &'a TrustStore,
    now: UnixTime,
    cache: &'a C,
    checks_left: usize,
    comparisons: ComparisonBudget,
    best: Option<FailedPath>,
}

/// A failed path, and how close it came to a trusted root.
struct FailedPath {
    progress: PathProgress,
    verdict: Verdict,
}

/// Progress of a failed path, worst first. Of several failed paths, the one with the most progress is reported, because its fault
/// must be corrected.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum PathProgress {
    /// The path ended at the leaf, whose issuer is missing.
    Incomplete,
    /// The path ended at an untrusted root, and broke a rule.
    UnknownRootAndBroken,
    /// The path ended at a root that is not a trust anchor.
    UnknownRoot,
    /// The issuer was found, but its key does not match the signature.
    BadSignature,
    /// The path reached a trusted root, and broke a rule.
    Broken,
    /// The limit of signature checks or path length was reached.
    Budget,
}

/// A partial path: its certificates from the leaf on, and the first rule it breaks.
struct Path<'a> {
    certificates: Vec<&'a Arc<Certificate>>,
    fault: Option<Distrust>,
}

impl<'a, C: SignatureCache> Search<'a, C> {
    pub(super) fn new(
        sent: &'a [Arc<Certificate>],
        store: &'a TrustStore,
        now: UnixTime,
        cache: &'a C,
    ) -> Self {
        Self {
            sent,
            store,
            now,
            cache,
            checks_left: CHECKS_MAX,
            comparisons: ComparisonBudget::default(),
            best: None,
        }
    }

    pub(super) fn judge(mut self, leaf: &'a Arc<Certificate>) -> Verdict {
        if self.store.contains_exactly(&leaf.fingerprint) {
            return Verdict::Trusted { path: vec![leaf.clone()] };
        }
        if self.is_self_signed(leaf) {
            return Verdict::SelfSigned;
        }
        let mut path = Path { certificates: vec![leaf], fault: leaf_fault(leaf) };
        if let Some(path) = self.extend_path(&mut path) {
            return Verdict::Trusted { path };
        }
        self.best.map_or(Verdict::Untrusted { reason: Distrust::Budget }, |failed| failed.verdict)
    }

    /// Returns whether the certificate is self-issued and, as far as can be checked, signed by its own key.
    fn is_self_signed(&mut self, certificate: &Certificate) -> bool {
        certificate.is_self_issued()
            && !matches!(self.signed(certificate, certificate), Some(Err(SignatureError::Invalid)))
    }

    /// Tries every issuer of the path's last certificate. The recursion depth is at most [`PATH_MAX`].
    fn extend_path(&mut self, path: &mut Path<'a>) -> Option<Vec<Arc<Certificate>>> {
        let below = *path.certificates.last()?;
        let candidates = self.candidates(below, path);
        let mut issuer_found = false;
        for Candidate { issuer, anchor, likely } in candidates {
            match self.signed(below, issuer) {
                None => {
                    self.record_failure(PathProgress::Budget, Distrust::Budget);
                    return None;
                }
                Some(Err(SignatureError::Invalid)) => {
                    // The key identifiers differ, so this certificate with the same name is not the issuer.
                    if likely {
                        issuer_found = true;
                        let (which, name) = fingerprint_and_subject(below);
                        self.record_failure(
                            PathProgress::BadSignature,
                            Distrust::BadSignature { which, name },
                        );
                    }
                    continue;
                }
                Some(outcome) => {
                    issuer_found = true;
                    let fault_before = path.fault.clone();
                    self.step(path, issuer, outcome.err());
                    let found = self.finish_or_extend_path(path, anchor);
                    path.certificates.pop();
                    path.fault = fault_before;
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        if !issuer_found {
            self.give_up(path);
        }
        None
    }

    /// Extends the path by `issuer`, and records the first rule that the extended path breaks, if any.
    fn step(&mut self, path: &mut Path<'a>, issuer: &'a Arc<Certificate>, unchecked: Option<SignatureError>) {
        if path.fault.is_none() {
            path.fault = match (unchecked, path.certificates.last()) {
                (Some(SignatureError::Unsupported(why)), Some(below)) => {
                    Some(Distrust::UnsupportedSignature { which: below.fingerprint, why })
                }
                _ => self.issuer_fault(path, issuer),
            };
        }
        path.certificates.push(issuer);
    }

    fn finish_or_extend_path(&mut self, path: &mut Path<'a>, anchor: bool) -> Option<Vec<Arc<Certificate>>> {
        let top = *path.certificates.last()?;
        if anchor {
            let Some(fault) = path.fault.clone() else {
                return Some(path.certificates.iter().map(|&c| c.clone()).collect());
            };
            self.record_failure(PathProgress::Broken, fault);
            return None;
        }
        if self.is_self_signed(top) {
            let (root, name) = fingerprint_and_subject(top);
            match path.fault.clone() {
                Some(fault) => self.record_failure(PathProgress::UnknownRootAndBroken, fault),
                None => self.record_failure(
                    PathProgress::UnknownRoot,
                    Distrust::SelfSignedRootNotTrusted { root, name },
                ),
            }
            return None;
        }
        if path.certificates.len() >= PATH_MAX {
            self.record_failure(PathProgress::Budget, Distrust::Budget);
            return None;
        }
        self.extend_path(path)
    }

    /// Returns certificates that could have issued `below`. Certificates whose key identifier differs from the one in `below` come
    /// last. They are also tried, because RFC 5280 section 4.2.1.1 calls the identifier only an aid. Within both groups, trusted
    /// certificates come first, because they end the path.
    fn candidates(&self, below: &Certificate, path: &Path<'a>) -> Vec<Candidate<'a>> {
        let anchors = self.store.named(&below.issuer).map(|issuer| (issuer, true));
        let sent = self.sent.iter().filter(|c| c.subject.matches(&below.issuer));
        let is_not_on_path = |issuer: &Certificate| {
            // A name and key that are already on the path would form a loop.
            !path.certificates.iter().any(|on_path| {
                on_path.public_key.spki_sha256 == issuer.public_key.spki_sha256
                    && on_path.subject.matches(&issuer.subject)
            })
        };
        let mut candidates: Vec<Candidate<'a>> = Vec::new();
        for (issuer, anchor) in anchors.chain(sent.map(|issuer| (issuer, false))) {
            let known = candidates.iter().any(|c| c.issuer.fingerprint == issuer.fingerprint);
            if !known && is_not_on_path(issuer) {
                let likely = match (&below.authority_key_id, &issuer.subject_key_id) {
                    (Some(wanted), Some(has)) => wanted == has,
                    _ => true,
                };
                candidates.push(Candidate { issuer, anchor, likely });
            }
        }
        candidates.sort_by_key(|c| (!c.likely, !c.anchor));
        candidates
    }

    /// Returns whether `issuer`'s key signed `certificate`; `None` if the limit of checks is reached.
    fn signed(
        &mut self,
        certificate: &Certificate,
        issuer: &Certificate,
    ) -> Option<Result<(), SignatureError>> {
        self.checks_left = self.checks_left.checked_sub(1)?;
        let (key, fingerprint) = (&issuer.public_key, &certificate.fingerprint);
        if let Some(signed) = self.cache.get(&key.spki_sha256, fingerprint) {
            return Some(if signed { Ok(()) } else { Err(SignatureError::Invalid) });
        }
        let outcome = certificate.signed_by(key);
        if !matches!(outcome, Err(SignatureError::Unsupported(_))) {
            self.cache.put(&key.spki_sha256, fingerprint, outcome.is_ok());
        }
        Some(outcome)
    }

    /// Returns the first rule that `issuer` breaks as the next certificate of `path` (RFC 5280 section 6.1.4).
    fn issuer_fault(&mut self, path: &Path<'a>, issuer: &Certificate) -> Option<Distrust> {
        let (which, name) = fingerprint_and_subject(issuer);
        if self.now > issuer.not_after {
            return Some(Distrust::Expired { which, name, not_after: issuer.not_after });
        }
        if self.now < issuer.not_before {
            return Some(Distrust::NotYetValid { which, name, not_before: issuer.not_before });
        }
        if let Some(extension) = unknown_critical(issuer) {
            return Some(Distrust::UnknownCritical { which, extension });
        }
        // Before version 3, certificates could not be marked as a CA. Such a root is accepted if it is in the store.
        let old_root = issuer.version < 3 && self.store.contains_exactly(&which);
        if !issuer.is_ca() && !old_root {
            return Some(Distrust::NotCa { which, name });
        }
        if issuer.key_usage.is_some_and(|usage| !usage.allows(KeyUsage::KEY_CERT_SIGN)) {
            return Some(Distrust::NoCertSign { which, name });
        }
        let path_len = issuer.basic_constraints.and_then(|constraints| constraints.path_len);
        if path_len.is_some_and(|allowed| intermediates(path) > allowed as usize) {
            return Some(Distrust::PathLength { which, name });
        }
        if !is_for_servers(issuer) {
            return Some(Distrust::NotForServers { which, name });
        }
        let constraints = issuer.name_constraints.as_ref()?;
        for (index, below) in path.certificates.iter().enumerate() {
            // RFC 5280 section 6.1.3 (b): self-issued intermediates are exempt, the leaf is not.
            if index > 0 && below.is_self_issued() {
                continue;
            }
            match constraints::find_violation(constraints, below, &mut self.comparisons) {
                Ok(None) => {}
                Ok(Some(name)) => return Some(Distrust::NameConstraint { which, name }),
                Err(constraints::ComparisonsExhausted) => return Some(Distrust::Budget),
            }
        }
        None
    }

    /// Ends a path whose last certificate has no known issuer.
    fn give_up(&mut self, path: &Path<'a>) {
        let Some(&below) = path.certificates.last() else { return };
        if path.certificates.len() > 1 {
            let (which, name) = (below.fingerprint, below.issuer.text.clone());
            return match path.fault.clone() {
                Some(fault) => self.record_failure(PathProgress::UnknownRootAndBroken, fault),
                None => {
                    self.record_failure(PathProgress::UnknownRoot, Distrust::RootNotTrusted { which, name })
                }
            };
        }
        let verdict = Verdict::Incomplete {
            missing: below.issuer.text.clone(),
            issuer_url: below.issuer_urls.first().cloned(),
        };
        self.keep_best(FailedPath { progress: PathProgress::Incomplete, verdict });
    }

    fn record_failure(&mut self, progress: PathProgress, reason: Distrust) {
        self.keep_best(FailedPath { progress, verdict: Verdict::Untrusted { reason } });
    }

    fn keep_best(&mut self, failed: FailedPath) {
        if self.best.as_ref().is_none_or(|best| failed.progress > best.progress) {
            self.best = Some(failed);
        }
    }
}

struct Candidate<'a> {
    issuer: &'a Arc<Certificate>,
    /// Whether the certificate is itself a trust anchor.
    anchor: bool,
    /// Whether the key identifiers permit this issuer.
    likely: bool,
}

fn fingerprint_and_subject(certificate: &Certificate) -> (crate::Fingerprint, String) {
    (certificate.fingerprint, certificate.subject.text.clone())
}

/// Checks the rules of a path that concern the leaf itself.
fn leaf_fault(leaf: &Certificate) -> Option<Distrust> {
    let (which, name) = fingerprint_and_subject(leaf);
    if let Some(extension) = unknown_critical(leaf) {
        return Some(Distrust::UnknownCritical { which, extension });
    }
    (!is_for_servers(leaf)).then_some(Distrust::NotForServers { which, name })
}

fn unknown_critical(certificate: &Certificate) -> Option<String> {
    const POISON: &str = "1.3.6.1.4.1.11129.2.4.3";
    let unknown = certificate.unknown_critical.first().cloned();
    unknown.or_else(|| certificate.precertificate.then(|| POISON.to_owned()))
}

/// Returns the number of intermediates on the path that count for pathLenConstraint: without the leaf and self-issued certificates.
fn intermediates(path: &Path<'_>) -> usize {
    path.certificates.iter().skip(1).filter(|c| !c.is_self_issued()).count()
}

/// Returns whether the extended key usage permits TLS servers, or is absent. In a CA certificate, the extended key usage restricts
/// all certificates below; clients enforce this rule, although RFC 5280 does not require it.
pub(crate) fn is_for_servers(certificate: &Certificate) -> bool {
    let Some(usages) = &certificate.extended_key_usage else {
        return true;
    };
    usages.iter().any(|usage| {
        matches!(usage.as_str(), oid::EKU_ANY | oid::EKU_SERVER)
            || (certificate.is_ca() && oid::EKU_SERVER_GATED.contains(&usage.as_str()))
    })
}
