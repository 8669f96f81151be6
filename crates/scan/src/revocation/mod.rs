//! Whether certificates were revoked: staples first, then CRLs, OCSP last and only where it is switched on.
//!
//! All beside the handshakes: nothing here is waited for by a look. A CRL is asked for once for all certificates that
//! name it, however many ask at once; it is kept packed, without its bytes, until its nextUpdate or [`KEEP_MAX`],
//! whichever comes first, and then asked for on condition that it has changed. Failures are remembered for a shorter
//! time of their own. What lists and responses mean is decided by functions of values (`list`, `answer`, `verdict`);
//! `fetch` gets them.
//!
//! Redirects of CRLs are followed, three at most, each through the guard. Not followed: those of OCSP responders, indirect
//! CRLs, URLs other than HTTP's, and delta CRLs that only the certificate names.
//! Whether an OCSP responder's own certificate was revoked is not asked.

mod answer;
mod counters;
mod fetch;
mod list;
mod serials;
mod stage;
mod url;
mod verdict;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flight::Cache;
use futures_util::StreamExt;
use outbound::Deadline;
use outbound::http::Client;
use x509::crl::Crl;
use x509::{Certificate, SerialNumber, SpkiHash, UnixTime};

use answer::OcspAnswer;
use counters::Counters;
use fetch::Fetcher;
use list::{List, ListStatus};
use url::bounded;

pub use counters::{Fetched, LIST_AGES_S, RevocationCounts};
pub use fetch::{DEFECT_KEPT, FAILURE_KEPT, KEEP_MAX};
pub use stage::with_verdicts;
pub use verdict::{Cause, Source, Verdict, Why};

/// CRL and OCSP URLs of one certificate that are tried. Certificates name one, some a second for the same list.
const URLS_TRIED_MAX: usize = 4;
/// Checks under way at once in [`RevocationChecker::check_all`]: more than there are CRLs under way, so that one that
/// does not answer holds up only those who need it.
const CHECKS_IN_FLIGHT: usize = 4_096;
/// Bytes of memory for OCSP answers and failures: 50,000 of them, about.
const ANSWERS_OCTETS_MAX: u64 = 32 * 1024 * 1024;
/// Bytes that an OCSP answer or a remembered failure takes beside its URL and serial number, about.
const ENTRY_OCTETS: usize = 512;

/// How certificates are checked.
#[derive(Clone, Copy, Debug)]
pub struct RevocationOptions {
    /// Whether to query OCSP responders if no staple or CRL has the status. The responder learns which certificates are
    /// checked.
    pub ocsp: bool,
    /// For one certificate, all its sources together.
    pub limit: Duration,
    /// Bytes of the longest CRL read, at most [`Crl::DER_MAX`].
    pub list_octets_max: usize,
    /// Bytes of memory for all lists kept; 22 for an entry of a serial number of 16 bytes.
    pub memory_octets_max: u64,
}

impl Default for RevocationOptions {
    fn default() -> Self {
        Self {
            ocsp: false,
            limit: Duration::from_secs(30),
            // 1.6 million entries. Public CRLs in parts have hundreds of kilobytes.
            list_octets_max: Crl::DER_MAX,
            // Twelve million entries.
            memory_octets_max: 256 * 1024 * 1024,
        }
    }
}

/// One certificate to be checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Which.
    pub certificate: Arc<Certificate>,
    /// The certificate of the issuer.
    pub issuer: Arc<Certificate>,
    /// The OCSP response of the handshake.
    pub staple: Option<Arc<[u8]>>,
}

/// Tells whether certificates were revoked. Built once; clones share connections and everything kept.
#[derive(Clone)]
pub struct RevocationChecker(Arc<Caches>);

impl fmt::Debug for RevocationChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationChecker").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// The caches of a checker, and what fills them.
struct Caches {
    options: RevocationOptions,
    lists: Cache<ListKey, Arc<List>, Cause>,
    answers: Cache<AnswerKey, OcspAnswer, Cause>,
    fetcher: Arc<Fetcher>,
}

/// A list, by its issuer's key: a certificate of another issuer with the same CRL URL cannot affect the cached list.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct ListKey {
    url: Arc<str>,
    issuer: SpkiHash,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct AnswerKey {
    url: Arc<str>,
    issuer: SpkiHash,
    serial: SerialNumber,
}

impl RevocationChecker {
    /// A checker that asks over `http`, whose guard says which URLs are refused.
    #[must_use]
    pub fn new(http: Client, options: RevocationOptions) -> Self {
        let weigh = |key: &ListKey, outcome: &Result<Arc<List>, Cause>| {
            let octets = outcome.as_ref().map_or(ENTRY_OCTETS, |list| list.octets());
            u32::try_from(key.url.len() + octets).unwrap_or(u32::MAX)
        };
        let weigh_answer = |key: &AnswerKey, _: &Result<OcspAnswer, Cause>| {
            let octets = key.url.len() + key.serial.content().len() + ENTRY_OCTETS;
            u32::try_from(octets).unwrap_or(u32::MAX)
        };
        let list_octets_max = options.list_octets_max.min(Crl::DER_MAX);
        Self(Arc::new(Caches {
            fetcher: Arc::new(Fetcher::new(http, list_octets_max)),
            lists: Cache::with_weight(options.memory_octets_max, weigh),
            answers: Cache::with_weight(ANSWERS_OCTETS_MAX, weigh_answer),
            options: RevocationOptions { list_octets_max, ..options },
        }))
    }

    /// What is known of `certificate` by `issuer` at `now`. `staple` is the OCSP response of the handshake, as sent.
    /// Waits [`RevocationOptions::limit`] at most. Whatever goes wrong is a verdict, [`Verdict::Unknown`].
    ///
    /// # Cancellation
    /// Dropping the future gives up what nobody else waits for.
    #[crate::boxed]
    pub async fn check(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let verdict = self.verdict_on(certificate, issuer, staple, now).await;
        self.count(&verdict);
        verdict
    }

    /// The same of a certificate that no path to a trusted root leads through. What it names is not fetched: a stranger would
    /// choose what this host connects to. A staple still counts.
    pub(crate) fn check_untrusted(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let verdict = match Self::at_hand(certificate, issuer, staple, now) {
            Ok(verdict) => verdict,
            Err(stapled) => Verdict::Unknown { cause: stapled.unwrap_or(Cause::Untrusted) },
        };
        self.count(&verdict);
        verdict
    }

    /// The status without a request; otherwise the error of the staple, if there is one.
    fn at_hand(
        certificate: &Certificate,
        issuer: &Certificate,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Result<Verdict, Option<Cause>> {
        if let Some(why) = Why::of(certificate, now) {
            return Ok(Verdict::NotApplicable { why });
        }
        let Some(staple) = staple else { return Err(None) };
        let answer = OcspAnswer::read(staple, certificate, issuer, now);
        answer.and_then(|answer| answer.verdict(Source::Staple, now)).map_err(Some)
    }

    fn counters(&self) -> &Counters {
        self.0.fetcher.counters()
    }

    /// Counts a verdict that was given without asking, too.
    pub(crate) fn count(&self, verdict: &Verdict) {
        *self.counters().verdicts.lock().entry(verdict.code()).or_insert(0) += 1;
    }

    async fn verdict_on(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let stapled = match Self::at_hand(certificate, issuer, staple, now) {
            Ok(verdict) => return verdict,
            Err(stapled) => stapled,
        };
        let asked = Deadline::within(self.0.options.limit).bound(self.ask(certificate, issuer, now)).await;
        match asked.unwrap_or(Err(Cause::TimedOut)) {
            Ok(verdict) => verdict,
            // That nobody is to be asked tells less than why the staple did not count.
            Err(Cause::NoSource | Cause::OcspOff) if stapled.is_some() => {
                Verdict::Unknown { cause: stapled.unwrap_or(Cause::NoSource) }
            }
            Err(cause) => Verdict::Unknown { cause },
        }
    }

    /// [`Self::check`] for many, in their order. A CRL is asked for once for all that name it.
    pub async fn check_all(&self, subjects: &[Subject], now: UnixTime) -> Vec<Verdict> {
        let checks = subjects.iter().enumerate().map(|(index, subject)| async move {
            let staple = subject.staple.as_deref();
            (index, self.check(&subject.certificate, &subject.issuer, staple, now).await)
        });
        let mut verdicts: Vec<_> =
            futures_util::stream::iter(checks).buffer_unordered(CHECKS_IN_FLIGHT).collect().await;
        verdicts.sort_unstable_by_key(|(index, _)| *index);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> RevocationCounts {
        let counters = self.counters();
        RevocationCounts {
            verdicts: counters.verdicts.lock().clone(),
            fetches: counters.fetches.lock().clone(),
            lists_at_hand: self.0.lists.counts().hits,
            answers_at_hand: self.0.answers.counts().hits,
            list_ages: std::array::from_fn(|of| counters.list_ages[of].load(Relaxed)),
            list_ages_sum_s: counters.list_ages_sum_s.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            not_modified: counters.not_modified.load(Relaxed),
            lists_read: counters.lists_read.load(Relaxed),
            entries_read: counters.entries_read.load(Relaxed),
            octets_packed: counters.octets_packed.load(Relaxed),
        }
    }

    /// Asks the sources that the certificate names, until one can tell; the first one's trouble otherwise.
    async fn ask(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Verdict, Cause> {
        let mut trouble = None;
        for url in certificate.crl_urls.iter().take(URLS_TRIED_MAX) {
            match self.by_list(url, certificate, issuer, now).await {
                Ok(verdict) => return Ok(verdict),
                Err(cause) => trouble = trouble.or(Some(cause)),
            }
        }
        if !self.0.options.ocsp {
            let none = if certificate.ocsp_urls.is_empty() { Cause::NoSource } else { Cause::OcspOff };
            return Err(trouble.unwrap_or(none));
        }
        for url in certificate.ocsp_urls.iter().take(URLS_TRIED_MAX) {
            match self.by_responder(url, certificate, issuer, now).await {
                Ok(verdict) => return Ok(verdict),
                Err(cause) => trouble = trouble.or(Some(cause)),
            }
        }
        Err(trouble.unwrap_or(Cause::NoSource))
    }

    async fn by_list(
        &self,
        url: &str,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Verdict, Cause> {
        let url = bounded(url)?;
        let list = self.list(&url, issuer, now).await?;
        let mut delta = None;
        for url in list.freshest() {
            // Without its delta a complete list holds as long as it says (RFC 5280 section 5.2.4).
            if let Ok(found) = self.list(url, issuer, now).await {
                delta = Some(found);
                break;
            }
        }
        let word = list.word_on(certificate, issuer, delta.as_deref(), now)?;
        self.counters().told_by(delta.as_deref().unwrap_or(&list), now);
        let source = Source::Crl { url, delta: delta.is_some() };
        Ok(match word {
            ListStatus::Good { until } => Verdict::Good { source, until },
            ListStatus::Revoked(entry) => Verdict::Revoked { at: entry.at, reason: entry.reason, source },
        })
    }

    async fn list(
        &self,
        url: &Arc<str>,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Arc<List>, Cause> {
        let key = ListKey { url: url.clone(), issuer: issuer.public_key.spki_sha256 };
        if let Some(cached) = self.0.lists.get(&key) {
            return cached.outcome.clone();
        }
        let held = self.0.lists.get_stale(&key).and_then(|cached| cached.outcome.clone().ok());
        let fetching = (self.0.fetcher.clone(), url.clone(), issuer.clone(), held);
        self.0
            .lists
            .fetch(&key, move || {
                let (fetcher, url, issuer, held) = fetching;
                fetch::list(fetcher, url, issuer, held, now)
            })
            .await
    }

    async fn by_responder(
        &self,
        url: &str,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Verdict, Cause> {
        let url = bounded(url)?;
        let key = AnswerKey {
            url: url.clone(),
            issuer: issuer.public_key.spki_sha256,
            serial: certificate.serial.clone(),
        };
        if let Some(cached) = self.0.answers.get(&key) {
            return cached.outcome.clone()?.verdict(Source::Ocsp { url }, now);
        }
        let fetching = (self.0.fetcher.clone(), url.clone(), certificate.clone(), issuer.clone());
        let answer = self.0.answers.fetch(&key, move || {
            let (fetcher, url, certificate, issuer) = fetching;
            fetch::answer(fetcher, url, certificate, issuer, now)
        });
        answer.await?.verdict(Source::Ocsp { url }, now)
    }
}
