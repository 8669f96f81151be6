//! Checks the revocation of certificates: first with stapled OCSP responses, then with CRLs, then with OCSP if enabled.
//!
//! The checks run concurrently with the scan: no probe waits for them. A CRL is fetched once for all certificates that name it,
//! even by concurrent checks. It is cached in packed form until its nextUpdate or [`KEEP_MAX`], whichever comes first; then a
//! conditional request is sent. Failures are cached for a shorter time. Pure functions evaluate CRLs and responses (`list`,
//! `answer`, `verdict`); `fetch` gets them.
//!
//! Redirects of CRLs are followed, three at most, each checked by the guard. Not supported: redirects of OCSP responders, indirect
//! CRLs, URLs other than HTTP, and delta CRLs that only the certificate names. The revocation of an OCSP responder's own
//! certificate is not checked.

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

pub use counters::{FetchKind, LIST_AGES_S, RevocationCounts};
pub use fetch::{DEFECT_LIFETIME, FAILURE_LIFETIME, KEEP_MAX};
pub use stage::with_verdicts;
pub use verdict::{Cause, NoCheckReason, Source, Verdict};

/// Maximum CRL and OCSP URLs of one certificate that are tried. Certificates have one, some a second for the same CRL.
const URLS_TRIED_MAX: usize = 4;
/// Maximum concurrent checks in [`RevocationChecker::check_all`]. The maximum of concurrent CRL fetches is lower, so a slow CRL
/// delays only the checks that need it.
const CHECKS_IN_FLIGHT: usize = 4_096;
/// Maximum memory for cached OCSP responses and failures in bytes: about 50,000 entries.
const ANSWERS_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Approximate bytes of a cached OCSP response or failure, in addition to its URL and serial number.
const ENTRY_BYTES: usize = 512;

/// Options of revocation checks: OCSP, time limit, and limits of size and memory.
#[derive(Clone, Copy, Debug)]
pub struct RevocationOptions {
    /// Whether to query OCSP responders if neither a stapled response nor a CRL has the status. The responder learns which
    /// certificates are checked.
    pub ocsp: bool,
    /// Time limit for one certificate, all sources together.
    pub limit: Duration,
    /// Longest accepted CRL in bytes, at most [`Crl::DER_MAX`].
    pub list_bytes_max: usize,
    /// Memory for all cached CRLs in bytes; an entry with a serial number of 16 bytes takes 22.
    pub memory_bytes_max: u64,
}

impl Default for RevocationOptions {
    fn default() -> Self {
        Self {
            ocsp: false,
            limit: Duration::from_secs(30),
            // 1.6 million entries. Public partitioned CRLs have hundreds of kilobytes.
            list_bytes_max: Crl::DER_MAX,
            // Twelve million entries.
            memory_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// A certificate to check, with its issuer and its stapled OCSP response.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The certificate to check.
    pub certificate: Arc<Certificate>,
    /// The issuer's certificate, whose key verifies CRLs and OCSP responses.
    pub issuer: Arc<Certificate>,
    /// The stapled OCSP response of the handshake.
    pub staple: Option<Arc<[u8]>>,
}

/// A checker of certificate revocation. Create it once; clones share connections and caches.
#[derive(Clone)]
pub struct RevocationChecker(Arc<Caches>);

impl fmt::Debug for RevocationChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationChecker").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// The caches of a checker, and the fetcher that fills them.
struct Caches {
    options: RevocationOptions,
    lists: Cache<CrlCacheKey, Arc<List>, Cause>,
    answers: Cache<OcspCacheKey, OcspAnswer, Cause>,
    fetcher: Arc<Fetcher>,
}

/// Cache key of a CRL. Includes the issuer's key, so that a certificate of another issuer with the same CRL URL cannot affect the
/// cached CRL.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct CrlCacheKey {
    url: Arc<str>,
    issuer: SpkiHash,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct OcspCacheKey {
    url: Arc<str>,
    issuer: SpkiHash,
    serial: SerialNumber,
}

impl RevocationChecker {
    /// Creates a checker that sends requests through `http`, whose guard rejects unwanted URLs.
    #[must_use]
    pub fn new(http: Client, options: RevocationOptions) -> Self {
        let weigh = |key: &CrlCacheKey, outcome: &Result<Arc<List>, Cause>| {
            let memory_bytes = outcome.as_ref().map_or(ENTRY_BYTES, |list| list.memory_bytes());
            u32::try_from(key.url.len() + memory_bytes).unwrap_or(u32::MAX)
        };
        let weigh_answer = |key: &OcspCacheKey, _: &Result<OcspAnswer, Cause>| {
            let memory_bytes = key.url.len() + key.serial.content().len() + ENTRY_BYTES;
            u32::try_from(memory_bytes).unwrap_or(u32::MAX)
        };
        let list_bytes_max = options.list_bytes_max.min(Crl::DER_MAX);
        Self(Arc::new(Caches {
            fetcher: Arc::new(Fetcher::new(http, list_bytes_max)),
            lists: Cache::with_weight_max(options.memory_bytes_max, weigh),
            answers: Cache::with_weight_max(ANSWERS_BYTES_MAX, weigh_answer),
            options: RevocationOptions { list_bytes_max, ..options },
        }))
    }

    /// Returns the revocation status of `certificate` by `issuer` at `now`. `staple` is the stapled OCSP response of the handshake.
    /// Takes [`RevocationOptions::limit`] at most. After an error the verdict is [`Verdict::Unknown`].
    ///
    /// # Cancellation
    /// Dropping the future cancels fetches without other waiters.
    #[crate::boxed]
    pub async fn check(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let verdict = self.revocation_verdict(certificate, issuer, staple, now).await;
        self.count(&verdict);
        verdict
    }

    /// Returns the status of a certificate without a path to a trusted root. Its URLs are not fetched, because an attacker could
    /// choose them. A stapled response still counts.
    pub(crate) fn check_untrusted(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let verdict = match Self::status_without_request(certificate, issuer, staple, now) {
            Ok(verdict) => verdict,
            Err(stapled) => Verdict::Unknown { cause: stapled.unwrap_or(Cause::Untrusted) },
        };
        self.count(&verdict);
        verdict
    }

    /// Returns the status without a request, or the error of the stapled response, if any.
    fn status_without_request(
        certificate: &Certificate,
        issuer: &Certificate,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Result<Verdict, Option<Cause>> {
        if let Some(why) = NoCheckReason::of(certificate, now) {
            return Ok(Verdict::NotApplicable { why });
        }
        let Some(staple) = staple else { return Err(None) };
        let answer = OcspAnswer::read(staple, certificate, issuer, now);
        answer.and_then(|answer| answer.verdict(Source::Staple, now)).map_err(Some)
    }

    fn counters(&self) -> &Counters {
        self.0.fetcher.counters()
    }

    /// Counts a verdict, also one given without a request.
    pub(crate) fn count(&self, verdict: &Verdict) {
        *self.counters().verdicts.lock().entry(verdict.code()).or_insert(0) += 1;
    }

    async fn revocation_verdict(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        staple: Option<&[u8]>,
        now: UnixTime,
    ) -> Verdict {
        let stapled = match Self::status_without_request(certificate, issuer, staple, now) {
            Ok(verdict) => return verdict,
            Err(stapled) => stapled,
        };
        let result =
            Deadline::within(self.0.options.limit).bound(self.query_sources(certificate, issuer, now)).await;
        match result.unwrap_or(Err(Cause::TimedOut)) {
            Ok(verdict) => verdict,
            // The error of the stapled response is more useful than the absence of other sources.
            Err(Cause::NoSource | Cause::OcspOff) if stapled.is_some() => {
                Verdict::Unknown { cause: stapled.unwrap_or(Cause::NoSource) }
            }
            Err(cause) => Verdict::Unknown { cause },
        }
    }

    /// Like [`Self::check`] for many certificates; returns the verdicts in their order. A CRL is fetched once for all certificates
    /// that name it.
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

    /// Returns the counters of verdicts, requests and cache lookups, since the checker was created.
    #[must_use]
    pub fn counts(&self) -> RevocationCounts {
        let counters = self.counters();
        RevocationCounts {
            verdicts: counters.verdicts.lock().clone(),
            fetches: counters.fetches.lock().clone(),
            crl_cache_hits: self.0.lists.counts().hits,
            ocsp_cache_hits: self.0.answers.counts().hits,
            list_ages: std::array::from_fn(|of| counters.list_ages[of].load(Relaxed)),
            list_ages_sum_s: counters.list_ages_sum_s.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            not_modified: counters.not_modified.load(Relaxed),
            lists_read: counters.lists_read.load(Relaxed),
            entries_read: counters.entries_read.load(Relaxed),
            packed_bytes: counters.packed_bytes.load(Relaxed),
        }
    }

    /// Queries the sources that the certificate names until one has the status; otherwise returns the first error.
    async fn query_sources(
        &self,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Verdict, Cause> {
        let mut first_error = None;
        for url in certificate.crl_urls.iter().take(URLS_TRIED_MAX) {
            match self.verdict_by_crl(url, certificate, issuer, now).await {
                Ok(verdict) => return Ok(verdict),
                Err(cause) => first_error = first_error.or(Some(cause)),
            }
        }
        if !self.0.options.ocsp {
            let none = if certificate.ocsp_urls.is_empty() { Cause::NoSource } else { Cause::OcspOff };
            return Err(first_error.unwrap_or(none));
        }
        for url in certificate.ocsp_urls.iter().take(URLS_TRIED_MAX) {
            match self.verdict_by_ocsp(url, certificate, issuer, now).await {
                Ok(verdict) => return Ok(verdict),
                Err(cause) => first_error = first_error.or(Some(cause)),
            }
        }
        Err(first_error.unwrap_or(Cause::NoSource))
    }

    async fn verdict_by_crl(
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
            // Without its delta CRL, a complete CRL is valid until its nextUpdate (RFC 5280 section 5.2.4).
            if let Ok(found) = self.list(url, issuer, now).await {
                delta = Some(found);
                break;
            }
        }
        let status = list.certificate_status(certificate, issuer, delta.as_deref(), now)?;
        self.counters().record_list_age(delta.as_deref().unwrap_or(&list), now);
        let source = Source::Crl { url, delta: delta.is_some() };
        Ok(match status {
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
        let key = CrlCacheKey { url: url.clone(), issuer: issuer.public_key.spki_sha256 };
        if let Some(cached) = self.0.lists.get(&key) {
            return cached.outcome.clone();
        }
        let previous = self.0.lists.get_stale(&key).and_then(|cached| cached.outcome.clone().ok());
        let fetching = (self.0.fetcher.clone(), url.clone(), issuer.clone(), previous);
        self.0
            .lists
            .fetch(&key, move || {
                let (fetcher, url, issuer, previous) = fetching;
                fetch::list(fetcher, url, issuer, previous, now)
            })
            .await
    }

    async fn verdict_by_ocsp(
        &self,
        url: &str,
        certificate: &Certificate,
        issuer: &Arc<Certificate>,
        now: UnixTime,
    ) -> Result<Verdict, Cause> {
        let url = bounded(url)?;
        let key = OcspCacheKey {
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
