//! Whether certificates were revoked: staples first, then CRLs, OCSP last and only where it is switched on.
//!
//! All beside the handshakes: nothing here is waited for by a look. A CRL is asked for once for all certificates that
//! name it, however many ask at once; it is kept packed, without its octets, until its nextUpdate or [`KEEP_MAX`],
//! whichever comes first, and then asked for on condition that it has changed. Failures are remembered for a shorter
//! time of their own. What lists and responses mean is decided by functions of values (`list`, `answer`, `verdict`);
//! `fetch` gets them.
//!
//! Redirects of CRLs are followed, three at most, each through the guard. Not followed: those of OCSP responders, indirect
//! CRLs, URLs other than HTTP's, and delta CRLs that only the certificate names.
//! Whether an OCSP responder's own certificate was revoked is not asked.

mod answer;
mod fetch;
mod list;
mod serials;
mod stage;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use flight::Cache;
use futures_util::StreamExt;
use outbound::Deadline;
use outbound::http::Client;
use parking_lot::Mutex;
use x509::crl::Crl;
use x509::{Certificate, SerialNumber, SpkiHash, UnixTime};

use answer::Answer;
use list::{List, Word};

pub use fetch::{DEFECT_KEPT, FAILURE_KEPT, KEEP_MAX};
pub use stage::with_verdicts;
pub use verdict::{Cause, Source, Verdict, Why};

/// CRL and OCSP URLs of one certificate that are tried. Certificates name one, some a second for the same list.
const URLS_TRIED_MAX: usize = 4;
/// Checks under way at once in [`RevocationChecker::check_all`]: more than there are CRLs under way, so that one that
/// does not answer holds up only those who need it.
const CHECKS_IN_FLIGHT: usize = 4_096;
/// Octets of memory for OCSP answers and failures: 50,000 of them, about.
const ANSWERS_OCTETS_MAX: u64 = 32 * 1024 * 1024;
/// Octets that an OCSP answer or a remembered failure takes beside its URL and serial number, about.
const ENTRY_OCTETS: usize = 512;
/// Octets of the longest URL asked.
const URL_MAX: usize = 2_048;

/// How certificates are checked.
#[derive(Clone, Copy, Debug)]
pub struct RevocationOptions {
    /// Ask OCSP responders, where no staple and no CRL could tell. It tells the responder who looks at what.
    pub ocsp: bool,
    /// For one certificate, all its sources together.
    pub limit: Duration,
    /// Octets of the longest CRL read, at most [`Crl::DER_MAX`].
    pub list_octets_max: usize,
    /// Octets of memory for all lists kept; 22 for an entry of a serial number of 16 octets.
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

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fetched {
    /// A CRL.
    Crl,
    /// An OCSP response.
    Ocsp,
}

impl Fetched {
    /// A stable word: `crl`, `ocsp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crl => "crl",
            Self::Ocsp => "ocsp",
        }
    }
}

/// Upper ends of the ages that are told apart, seconds: an hour, six, a day, two, a week (the longest that a CRL may hold for
/// subscribers' certificates is ten days, Baseline Requirements section 4.9.7); older ones are behind the last.
pub const LIST_AGES_S: [u64; 5] = [3_600, 6 * 3_600, 86_400, 2 * 86_400, 7 * 86_400];

/// What was asked and is kept.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RevocationCounts {
    /// Verdicts given, by their word.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// CRLs and OCSP responses fetched, by what it came to: `read`, `not-modified`, `older` than the one at hand, else the
    /// word of the cause.
    pub fetches: BTreeMap<(Fetched, &'static str), u64>,
    /// CRLs taken from memory, remembered failures included.
    pub lists_at_hand: u64,
    /// OCSP answers taken from memory, remembered failures included.
    pub answers_at_hand: u64,
    /// How old CRLs were when they gave a verdict, since their thisUpdate: verdicts by [`LIST_AGES_S`], then those older.
    pub list_ages: [u64; LIST_AGES_S.len() + 1],
    /// Seconds of all these ages together.
    pub list_ages_sum_s: u64,
    /// HTTP requests sent, CRLs and OCSP, conditional ones included; redirects are not counted anew.
    pub requests: u64,
    /// Conditional requests answered by "not modified".
    pub not_modified: u64,
    /// CRLs read whole.
    pub lists_read: u64,
    /// Entries in them.
    pub entries_read: u64,
    /// Octets of memory of the lists read, before any was let go.
    pub octets_packed: u64,
}

/// One certificate to be checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Which.
    pub certificate: Arc<Certificate>,
    /// Whoever signed it.
    pub issuer: Arc<Certificate>,
    /// The OCSP response of the handshake.
    pub staple: Option<Arc<[u8]>>,
}

/// Tells whether certificates were revoked. Built once; clones share connections and everything kept.
#[derive(Clone)]
pub struct RevocationChecker(Arc<Inner>);

impl fmt::Debug for RevocationChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationChecker").field("options", &self.0.options).finish_non_exhaustive()
    }
}

struct Inner {
    options: RevocationOptions,
    http: Client,
    lists: Cache<ListKey, Arc<List>, Cause>,
    answers: Cache<AnswerKey, Answer, Cause>,
    room: fetch::Room,
    counters: Counters,
}

/// A list as one issuer's key signs it: a stranger's certificate that names somebody's CRL gets no say in what is
/// kept for that somebody.
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

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    not_modified: AtomicU64,
    lists_read: AtomicU64,
    entries_read: AtomicU64,
    octets_packed: AtomicU64,
    /// Four words at most.
    verdicts: Mutex<BTreeMap<&'static str, u64>>,
    /// The words of causes and three more, twice.
    fetches: Mutex<BTreeMap<(Fetched, &'static str), u64>>,
    list_ages: [AtomicU64; LIST_AGES_S.len() + 1],
    list_ages_sum_s: AtomicU64,
}

impl Counters {
    fn fetched(&self, what: Fetched, outcome: &'static str) {
        *self.fetches.lock().entry((what, outcome)).or_insert(0) += 1;
    }

    fn told_by(&self, list: &List, now: UnixTime) {
        let age_s = u64::try_from(now.since(list.this_update())).unwrap_or(0);
        let of = LIST_AGES_S.iter().position(|end| age_s <= *end).unwrap_or(LIST_AGES_S.len());
        self.list_ages[of].fetch_add(1, Relaxed);
        self.list_ages_sum_s.fetch_add(age_s, Relaxed);
    }
}

impl RevocationChecker {
    /// A checker that asks over `http`, whose guard says which URLs are refused.
    #[must_use]
    pub fn new(http: Client, options: RevocationOptions) -> Self {
        let weigh = |key: &ListKey, outcome: &Result<Arc<List>, Cause>| {
            let octets = outcome.as_ref().map_or(ENTRY_OCTETS, |list| list.octets());
            u32::try_from(key.url.len() + octets).unwrap_or(u32::MAX)
        };
        let weigh_answer = |key: &AnswerKey, _: &Result<Answer, Cause>| {
            let octets = key.url.len() + key.serial.content().len() + ENTRY_OCTETS;
            u32::try_from(octets).unwrap_or(u32::MAX)
        };
        Self(Arc::new(Inner {
            http,
            lists: Cache::with_weight(options.memory_octets_max, weigh),
            answers: Cache::with_weight(ANSWERS_OCTETS_MAX, weigh_answer),
            room: fetch::Room::default(),
            counters: Counters::default(),
            options: RevocationOptions {
                list_octets_max: options.list_octets_max.min(Crl::DER_MAX),
                ..options
            },
        }))
    }

    /// What is known of `certificate` by `issuer` at `now`. `staple` is the OCSP response of the handshake, as sent.
    /// Waits [`RevocationOptions::limit`] at most. Whatever goes wrong is a verdict, [`Verdict::Unknown`].
    ///
    /// # Cancellation
    /// Dropping the future gives up what nobody else waits for.
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

    /// Counts a verdict that was given without asking, too.
    pub(crate) fn count(&self, verdict: &Verdict) {
        *self.0.counters.verdicts.lock().entry(verdict.code()).or_insert(0) += 1;
    }

    async fn verdict_on(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        if let Some(why) = Why::of(certificate, now) {
            return Verdict::NotApplicable { why };
        }
        let mut stapled = None;
        if let Some(staple) = staple {
            let answer = Answer::read(staple, certificate, issuer, now);
            match answer.and_then(|answer| answer.verdict(Source::Staple, now)) {
                Ok(verdict) => return verdict,
                Err(cause) => stapled = Some(cause),
            }
        }
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

    /// What was asked so far.
    #[must_use]
    pub fn counts(&self) -> RevocationCounts {
        let counters = &self.0.counters;
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
        self.0.counters.told_by(delta.as_deref().unwrap_or(&list), now);
        let source = Source::Crl { url, delta: delta.is_some() };
        Ok(match word {
            Word::Good { until } => Verdict::Good { source, until },
            Word::Revoked(entry) => Verdict::Revoked { at: entry.at, reason: entry.reason, source },
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
        let fetching = (self.0.clone(), url.clone(), issuer.clone(), held);
        self.0
            .lists
            .fetch(&key, move || {
                let (inner, url, issuer, held) = fetching;
                fetch::list(inner, url, issuer, held, now)
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
        let fetching = (self.0.clone(), url.clone(), certificate.clone(), issuer.clone());
        let answer = self.0.answers.fetch(&key, move || {
            let (inner, url, certificate, issuer) = fetching;
            fetch::answer(inner, url, certificate, issuer, now)
        });
        answer.await?.verdict(Source::Ocsp { url }, now)
    }
}

/// What is asked and remembered by must not be of any length.
fn bounded(url: &str) -> Result<Arc<str>, Cause> {
    if url.len() > URL_MAX {
        return Err(Cause::Refused(format!("a URL of {} octets", url.len())));
    }
    Ok(url.into())
}
