//! Judges observations: parses and verifies the chain, and checks it against the rules.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use x509::lint::LintContext;
use x509::verify::{self, MemorySignatureCache, SignatureCache, Verdict};
use x509::{
    Certificate, Finding, Fingerprint, HostName, NameMatch, ReferenceName, Rule, UnixTime, matches_name,
};

use crate::observation::{Observation, Trust};
use crate::options::ScanOptions;
use crate::rules;
use crate::tls;
use crate::trusted::{TrustAnchors, Trusted};

/// Maximum cached certificates, mostly intermediates that many endpoints send. About 4 KB each.
const CERTIFICATES_CACHED_MAX: usize = 1_024;
/// Maximum cached signature checks; 64 bytes each.
const SIGNATURES_CACHED_MAX: usize = 16_384;
/// Maximum findings per endpoint, worst first. Real endpoints have less than ten.
pub(crate) const FINDINGS_MAX: usize = 64;

/// The position of a certificate in a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChainPosition {
    /// The first certificate.
    Leaf,
    /// A certificate above the leaf.
    Issuer,
}

impl ChainPosition {
    /// Returns the position of the certificate at `index` of a chain, leaf first.
    #[must_use]
    pub fn at(index: usize) -> Self {
        if index == 0 { Self::Leaf } else { Self::Issuer }
    }
}

/// A judge of observations: verifies their paths, and applies the rules. Pure except for its caches.
pub struct Judge {
    trust: Trusted,
    expiring_within_days: u32,
    expiring_fraction: f64,
    parsed: Mutex<HashMap<Fingerprint, Arc<Certificate>>>,
    signatures: MemorySignatureCache,
}

impl Judge {
    /// Creates a judge with the thresholds of `options` and the roots of `trust`.
    #[must_use]
    pub fn new(options: &ScanOptions, trust: Trusted) -> Self {
        Self {
            trust,
            expiring_within_days: options.expiring_within_days,
            expiring_fraction: options.expiring_fraction,
            parsed: Mutex::new(HashMap::new()),
            signatures: MemorySignatureCache::bounded(SIGNATURES_CACHED_MAX),
        }
    }

    /// Sets the chain, the trust and the findings of the observation from the session's evidence.
    pub(crate) fn judge(&self, observation: &mut Observation, plaintext_injected: bool) {
        let Some(mut session) = observation.session.take() else { return };
        self.read_chain(&session, observation);
        let mut findings = Findings::default();
        if plaintext_injected {
            findings.add(&rules::PLAINTEXT_INJECTED, "plain text followed the server's STARTTLS reply");
        }
        judge_session(&session, observation, &mut findings);
        self.judge_chain(observation, &mut findings);
        judge_staple(&session, observation, &mut findings);
        // The observation's certificates already contain these bytes.
        session.chain = Vec::new();
        observation.session = Some(session);
        observation.findings = findings.sorted_by_severity();
    }

    /// Judges certificates from a file, without a handshake. A CA certificate is judged by itself, because it is not meant for a
    /// server.
    pub fn judge_file(&self, observation: &mut Observation) {
        let mut findings = Findings::default();
        match observation.leaf().cloned() {
            Some(leaf) if leaf.basic_constraints.is_some_and(|b| b.ca) => {
                let context = self.context(false, false, observation.at());
                findings.extend(x509::lint::lint(&leaf, &context));
            }
            _ => self.judge_chain(observation, &mut findings),
        }
        observation.findings = findings.sorted_by_severity();
    }

    /// Judges a leaf whose chain cannot be read: there are no findings about the chain.
    pub fn judge_leaf(&self, observation: &mut Observation) {
        let mut findings = Findings::default();
        for fault in &observation.unparsed {
            findings.add(&rules::UNREADABLE, fault);
        }
        if let Some(leaf) = observation.leaf() {
            let context = self.context(true, false, observation.at());
            findings.extend(x509::lint::lint(leaf, &context));
        }
        observation.findings = findings.sorted_by_severity();
    }

    fn read_chain(&self, session: &tls::Evidence, observation: &mut Observation) {
        for (index, der) in session.chain.iter().enumerate() {
            match self.parse(der, ChainPosition::at(index)) {
                Ok(certificate) => observation.chain.push(certificate),
                Err(error) => observation.unparsed.push(format!("certificate {index}: {error}")),
            }
            if observation.chain.is_empty() {
                // If the leaf does not parse, the next certificate must not be judged instead.
                return;
            }
        }
    }

    /// Parses a certificate. Only issuer certificates are cached: many endpoints send the same few, while most leaves are seen
    /// once.
    ///
    /// # Errors
    /// [`x509::ParseError`].
    pub fn parse(&self, der: &[u8], position: ChainPosition) -> Result<Arc<Certificate>, x509::ParseError> {
        if position == ChainPosition::Leaf {
            return Certificate::parse(der).map(Arc::new);
        }
        let fingerprint = Fingerprint::of(der);
        if let Some(known) = self.parsed.lock().get(&fingerprint) {
            return Ok(known.clone());
        }
        let certificate = Arc::new(Certificate::parse(der)?);
        let mut parsed = self.parsed.lock();
        if parsed.len() >= CERTIFICATES_CACHED_MAX {
            // Rare, so clearing the cache is cheaper than maintaining an eviction order.
            parsed.clear();
        }
        parsed.insert(fingerprint, certificate.clone());
        Ok(certificate)
    }

    fn judge_chain(&self, observation: &mut Observation, findings: &mut Findings) {
        let now = observation.at();
        for fault in &observation.unparsed {
            findings.add(&rules::UNREADABLE, fault);
        }
        let Some(leaf) = observation.leaf().cloned() else { return };
        let sent = &observation.chain[1..];
        let verdict = verify::verify_chain(&leaf, sent, &self.trust.all, now, &self.signatures);
        let trust = self.evaluate_trust(&leaf, sent, now, &verdict);
        // For violations by the leaf itself, the lints have more specific findings.
        let violation = violation(&verdict).filter(|_| !verdict.is_reported_by_lint(&leaf));
        if let Some((rule, evidence)) = violation {
            findings.add_for(rule, evidence, leaf.fingerprint);
        }
        judge_order(&leaf, sent, findings);
        self.lint(&leaf, sent, trust.public, now, findings);
        judge_name(observation, &leaf, trust.public, findings);
        observation.trust = Some(trust);
    }

    /// Returns the certificate that signed `certificate`: a certificate sent with it, or a root.
    #[must_use]
    pub fn issuer_of(
        &self,
        certificate: &Certificate,
        sent: &[Arc<Certificate>],
    ) -> Option<Arc<Certificate>> {
        let sent = sent.iter().filter(|above| above.subject.matches(&certificate.issuer));
        let known = self.trust.all.named(&certificate.issuer);
        sent.chain(known).find(|issuer| self.has_signed(issuer, certificate)).cloned()
    }

    fn has_signed(&self, issuer: &Certificate, certificate: &Certificate) -> bool {
        let (key, fingerprint) = (&issuer.public_key.spki_sha256, &certificate.fingerprint);
        self.signatures.get(key, fingerprint).unwrap_or_else(|| {
            let signed = certificate.signed_by(&issuer.public_key).is_ok();
            self.signatures.put(key, fingerprint, signed);
            signed
        })
    }

    fn evaluate_trust(
        &self,
        leaf: &Arc<Certificate>,
        sent: &[Arc<Certificate>],
        now: UnixTime,
        verdict: &Verdict,
    ) -> Trust {
        let (verdict_code, reason) = match verdict {
            Verdict::Trusted { .. } => ("trusted", String::new()),
            other => (other.code(), other.to_string()),
        };
        let path = match verdict {
            Verdict::Trusted { path } => path.clone(),
            _ => Vec::new(),
        };
        let mut anchors = path.last().map_or_else(Vec::new, |root| self.trust.trusting_stores(root));
        let mut public = anchors.contains(&TrustAnchors::Mozilla);
        // A cross-signed chain may have a second path. The search is short if the issuer has no public root.
        if verdict.is_trusted() && !public && !self.trust.public().is_empty() {
            public =
                verify::verify_chain(leaf, sent, self.trust.public(), now, &self.signatures).is_trusted();
            if public {
                anchors.insert(0, TrustAnchors::Mozilla);
            }
        }
        let path = path.iter().map(|c| c.fingerprint).collect();
        Trust { verdict: verdict_code, reason, path, public, anchors }
    }

    fn context(&self, leaf: bool, publicly_trusted: bool, now: UnixTime) -> LintContext {
        LintContext {
            now,
            leaf,
            expiring_within_days: self.expiring_within_days,
            expiring_fraction: self.expiring_fraction,
            publicly_trusted,
        }
    }

    fn lint(
        &self,
        leaf: &Certificate,
        sent: &[Arc<Certificate>],
        public: bool,
        now: UnixTime,
        findings: &mut Findings,
    ) {
        findings.extend(x509::lint::lint(leaf, &self.context(true, public, now)));
        for above in sent {
            // A trust anchor is trusted regardless of its content; validity dates above the leaf are checked with the path.
            if !self.trust.all.contains(above) {
                let dated = [
                    "certificate.expired",
                    "certificate.not-yet-valid",
                    "certificate.expiring",
                    "certificate.expiring-fraction",
                ];
                findings.extend(
                    x509::lint::lint(above, &self.context(false, public, now))
                        .into_iter()
                        .filter(|finding| !dated.contains(&finding.rule.code)),
                );
            }
        }
    }
}

fn judge_session(session: &tls::Evidence, observation: &Observation, findings: &mut Findings) {
    if let tls::Proof::Invalid(reason) = &session.proof {
        findings.add(&rules::KEY_NOT_PROVEN, reason);
    }
    if let Some(version) = session.version.filter(|v| *v < 0x0303) {
        findings.add(&rules::OBSOLETE_PROTOCOL, tls::names::version(version));
    }
    if observation.profile == Some(tls::Profile::Legacy.name()) {
        findings.add(&rules::VERSION_INTOLERANT, "the server answered only an older ClientHello");
    }
    let Some(chosen) = session.cipher else { return };
    let mut known = tls::weaknesses(chosen);
    for weakness in &known {
        findings.add(rule_of(*weakness), tls::names::cipher_suite(chosen));
    }
    let Some(accepted) = &observation.accepted else { return };
    let newest = session.version.filter(|version| *version >= 0x0303);
    if let (Some(old), Some(newest)) = (accepted.obsolete_version, newest) {
        let (old, newest) = (tls::names::version(old), tls::names::version(newest));
        findings.add(
            &rules::OBSOLETE_PROTOCOL,
            format!("accepts {old}; negotiates {newest} with a client that offers all versions"),
        );
    }
    for suite in &accepted.weak_suites {
        for weakness in tls::weaknesses(*suite) {
            if !known.contains(&weakness) {
                known.push(weakness);
                let (weak, chosen) = (tls::names::cipher_suite(*suite), tls::names::cipher_suite(chosen));
                let evidence =
                    format!("accepts {weak}; selects {chosen} for a client that offers all cipher suites");
                findings.add(rule_of(weakness), evidence);
            }
        }
    }
}

fn rule_of(weakness: tls::Weakness) -> &'static Rule {
    match weakness {
        tls::Weakness::Broken => &rules::WEAK_CIPHER,
        tls::Weakness::NoForwardSecrecy => &rules::NO_FORWARD_SECRECY,
    }
}

fn judge_order(leaf: &Arc<Certificate>, sent: &[Arc<Certificate>], findings: &mut Findings) {
    let order = verify::chain_order(leaf, sent);
    if order.misordered {
        findings.add_for(&rules::MISORDERED, "a certificate is not followed by its issuer", leaf.fingerprint);
    }
    for stray in &order.strays {
        findings.add_for(
            &rules::STRAY,
            format!("{} is not on any path", stray.subject.text),
            stray.fingerprint,
        );
    }
}

/// Compares the certificate with the requested name. An address from a range has no name to compare.
fn judge_name(observation: &Observation, leaf: &Certificate, public: bool, findings: &mut Findings) {
    let Some(name) = observation.target.sni().and_then(|name| HostName::parse(name).ok()) else {
        return;
    };
    let name = ReferenceName::Host(name);
    let why = match matches_name(leaf, &name) {
        NameMatch::SubjectAlternativeName => return,
        // Clients of private PKIs may accept a common name; `certificate.common-name-only` reports it.
        NameMatch::CommonNameOnly if !public => return,
        NameMatch::CommonNameOnly => {
            format!("only the common name is {name}; clients ignore the common name")
        }
        NameMatch::None => format!("{name} is not among {}", names_of(leaf)),
    };
    findings.add_for(&rules::NAME_MISMATCH, why, leaf.fingerprint);
}

/// Returns the first five of the certificate's names as text, and the number of further ones.
fn names_of(leaf: &Certificate) -> String {
    const SHOWN: usize = 5;
    let names = leaf.names();
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "no names at all".to_owned(),
        count if count > SHOWN => format!("{shown} and {} more", count - SHOWN),
        _ => shown,
    }
}

fn judge_staple(session: &tls::Evidence, observation: &Observation, findings: &mut Findings) {
    let Some(leaf) = observation.leaf() else { return };
    let Some(staple) = &session.ocsp_staple else {
        if leaf.must_staple {
            findings.add_for(&rules::STAPLE_MISSING, "no OCSP staple in the handshake", leaf.fingerprint);
        }
        return;
    };
    let Ok(response) = x509::ocsp::parse_response(staple) else { return };
    if response.is_revoked() {
        findings.add_for(&rules::STAPLE_REVOKED, response.to_string(), leaf.fingerprint);
    }
    if response.next_update.is_some_and(|next| observation.at() > next) {
        findings.add_for(&rules::STAPLE_STALE, response.to_string(), leaf.fingerprint);
    }
}

/// Returns the rule that a verdict violates, if any.
fn violation(verdict: &Verdict) -> Option<(&'static Rule, String)> {
    let rule = match verdict.code() {
        "trusted" => return None,
        "self-signed" => &rules::SELF_SIGNED,
        "untrusted" => &rules::UNTRUSTED,
        "incomplete" => &rules::INCOMPLETE,
        "expired-intermediate" => &rules::EXPIRED_INTERMEDIATE,
        _ => &rules::INVALID,
    };
    Some((rule, verdict.to_string()))
}

/// The findings of one endpoint, limited in number.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, rule: &'static Rule, evidence: impl AsRef<str>) {
        self.0.push(Finding { rule, evidence: evidence.as_ref().to_owned(), certificate: None });
    }

    fn add_for(&mut self, rule: &'static Rule, evidence: impl Into<String>, certificate: Fingerprint) {
        self.0.push(Finding { rule, evidence: evidence.into(), certificate: Some(certificate) });
    }

    fn extend(&mut self, more: impl IntoIterator<Item = Finding>) {
        self.0.extend(more);
    }

    fn sorted_by_severity(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
        self.0.truncate(FINDINGS_MAX);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use events::ProbeOutcome;

    #[test]
    fn only_a_root_program_makes_a_chain_publicly_trusted() {
        let pem = include_bytes!("../tests/fixtures/chain.pem");
        let (_, der) = x509::pem::certificates(pem).next().expect("a certificate");
        let certificate = Arc::new(Certificate::parse(&der).unwrap());
        let judged = |trusted: Trusted| {
            let mut observation = Observation::ended(
                Arc::new(Target::file(std::path::Path::new("/leaf"))),
                certificate.not_before.0 * 1_000_000,
                ProbeOutcome::Answered,
                None,
            );
            observation.chain = vec![certificate.clone()];
            Judge::new(&ScanOptions::default(), trusted)
                .judge_chain(&mut observation, &mut Findings::default());
            let trust = observation.trust.expect("judged");
            (trust.verdict, trust.public, trust.anchors)
        };
        let mut system = Trusted::trusting_none();
        system.add_to_system(certificate.clone());
        assert_eq!(judged(system), ("trusted", false, vec![TrustAnchors::System]));
        let mut given = Trusted::trusting_none();
        given.add(certificate.clone());
        assert_eq!(judged(given), ("trusted", false, vec![TrustAnchors::Given]));
        let mut public = Trusted::trusting_none();
        public.add_to_mozilla(certificate.clone());
        assert_eq!(judged(public), ("trusted", true, vec![TrustAnchors::Mozilla]));
        assert!(Trusted::system().public().len() > 100);
    }

    #[test]
    fn issuer_certificate_never_replaces_an_unreadable_leaf() {
        let pem = include_bytes!("../tests/fixtures/chain.pem");
        let (_, above) = x509::pem::certificates(pem).next().expect("a certificate");
        let judge = Judge::new(&ScanOptions::default(), Trusted::trusting_none());
        let target = Arc::new(Target::file(std::path::Path::new("/leaf")));
        for (chain, read) in [(vec![vec![0x30, 0x00], above.clone()], 0), (vec![above.clone(), above], 2)] {
            let mut observation = Observation::ended(target.clone(), 0, ProbeOutcome::Answered, None);
            observation.session = Some(Box::new(tls::Evidence { chain, ..tls::Evidence::default() }));
            judge.judge(&mut observation, false);
            assert_eq!(observation.chain.len(), read);
            let unreadable = observation.findings.iter().any(|f| f.rule.code == rules::UNREADABLE.code);
            assert_eq!(unreadable, read == 0);
            assert_eq!(observation.trust.is_some(), read > 0);
        }
    }
}
