//! OCSP responses for the presented chains (RFC 6960). A background task fetches them from the responders that the certificates
//! name, checks them and stores them in a folder. It refreshes each response at half of its validity.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http_relay::clock::now;
use outbound::{Deadline, http};
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use x509::ocsp::{CertificateId, OcspHash, Request, Status, checked};
use x509::{Fingerprint, UnixTime};

use super::certificate::{CertificateFile, STAPLE_MAX, Staple, read_at_most};
use super::metrics::EdgeMetrics;

/// Maximum concurrent requests to OCSP responders. Each response has at most 16 KB.
const IN_FLIGHT: usize = 16;
/// Maximum OCSP responses per batch. A batch is fetched completely before its responses are stapled.
const BATCH_MAX: usize = 256;
/// Timeout of a request, including the connection.
const WITHIN: Duration = Duration::from_secs(10);
/// Maximum responders of one certificate that are tried in turn.
const RESPONDERS_MAX: usize = 2;
/// Seconds before the expiry of the operator's response (`NAME.ocsp`) at which the terminator starts to fetch its own.
const OWN_ENDS_S: i64 = 3_600;
/// Tolerated difference between clocks, in seconds.
const SKEW_S: i64 = 300;
/// First pause after a failure, in seconds; it doubles with each failure.
const RETRY_MIN_S: i64 = 60;
/// Maximum pause after a failure, in seconds.
const RETRY_MAX_S: i64 = 3_600;
/// Maximum pause between checks, in seconds, because the clock may be set meanwhile.
const PAUSE_MAX_S: i64 = 3_600;
/// File extension of stored responses.
const FILE_EXTENSION: &str = "ocsp";

/// Options for fetching OCSP responses to staple.
#[derive(Clone, Debug)]
pub struct StapleOptions {
    /// Folder for the responses, one file for each certificate. It is created if missing. If it is not writable, responses are
    /// stored in memory only.
    pub folder: PathBuf,
    /// Options of the HTTP client for requests to responders.
    pub http: http::Options,
}

/// The fetched OCSP responses. Clones share them.
#[derive(Clone)]
pub(super) struct Staples(Arc<Shared>);

struct Shared {
    options: Option<StapleOptions>,
    /// Fetched responses by leaf certificate: at most one for each chain.
    fetched: RwLock<HashMap<Fingerprint, Fetched>>,
    has_news: AtomicBool,
    /// Chains with an OCSP responder.
    presented: watch::Sender<Vec<Arc<CertificateFile>>>,
}

#[derive(Clone)]
struct Fetched {
    staple: Staple,
    /// Time of the next request.
    refresh_at: UnixTime,
}

/// Reason why an OCSP response is not stapled.
#[derive(Debug, thiserror::Error)]
enum StaplingError {
    /// The responder returned no response.
    #[error("{0}")]
    Unanswered(String),
    /// The response failed verification.
    #[error("{0}")]
    Unusable(String),
    /// The certificate is revoked: earlier responses are discarded.
    #[error("the certificate is revoked")]
    Revoked,
}

impl StaplingError {
    const fn name(&self) -> &'static str {
        match self {
            Self::Unanswered(_) => "unanswered",
            Self::Unusable(_) => "unusable",
            Self::Revoked => "revoked",
        }
    }
}

/// Failures in a row to fetch the OCSP response of one certificate, and the time of the next attempt.
#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    retry_at: UnixTime,
}

impl Staples {
    pub(super) fn new(options: Option<StapleOptions>) -> Self {
        Self(Arc::new(Shared {
            options,
            fetched: RwLock::default(),
            has_news: AtomicBool::new(false),
            presented: watch::Sender::default(),
        }))
    }

    /// Returns the OCSP response to staple at `now`: the response from the file or, without one, the fetched response.
    pub(super) fn of(&self, file: &CertificateFile, now: UnixTime) -> Option<Arc<[u8]>> {
        if let Some(own) = file.staple.as_ref().filter(|own| own.is_current(now)) {
            return Some(Arc::clone(&own.der));
        }
        let fetched = self.0.fetched.read();
        let staple = &fetched.get(&file.leaf.fingerprint)?.staple;
        staple.is_current(now).then(|| Arc::clone(&staple.der))
    }

    /// Returns the end of validity of the fetched response of a chain.
    pub(super) fn until(&self, file: &CertificateFile) -> Option<UnixTime> {
        self.0.fetched.read().get(&file.leaf.fingerprint)?.staple.until
    }

    /// Returns whether the responses have changed since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.0.has_news.swap(false, Relaxed)
    }

    /// Sets the presented chains. Reads their stored responses on the current thread, and removes the responses of all other chains
    /// from memory and from the folder.
    pub(super) fn set_presented(&self, files: &[Arc<CertificateFile>], now: UnixTime) {
        let Some(options) = &self.0.options else { return };
        let presented: Vec<_> =
            files.iter().filter(|file| file.issuer.is_some() && file.not_after > now).cloned().collect();
        let leaves: HashSet<Fingerprint> = presented.iter().map(|file| file.leaf.fingerprint).collect();
        let known: HashSet<Fingerprint> = self.0.fetched.read().keys().copied().collect();
        let mut read = Vec::new();
        for file in &presented {
            let leaf = file.leaf.fingerprint;
            if !known.contains(&leaf)
                && let Ok(der) = read_at_most(&staple_path(&options.folder, leaf), STAPLE_MAX)
                && let Ok(fetched) = Fetched::read(&der, file, now)
            {
                read.push((leaf, fetched));
            }
        }
        // A response that was fetched meanwhile is newer than the stored one.
        let mut fetched = self.0.fetched.write();
        fetched.retain(|leaf, _| leaves.contains(leaf));
        for (leaf, stored) in read {
            fetched.entry(leaf).or_insert(stored);
        }
        drop(fetched);
        forget_others(&options.folder, &leaves);
        self.0.presented.send_replace(presented);
    }

    /// Fetches due OCSP responses until stopped. Notifies `reload_signal` when responses are new or removed, so that the certificates are
    /// checked again.
    pub(super) async fn fetch(
        self,
        http: http::Client,
        metrics: EdgeMetrics,
        reload_signal: Arc<Notify>,
        stop: CancellationToken,
    ) {
        let _live = telemetry::tasks::guard("edge-staples");
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.fetch_forever(&http, &metrics, &reload_signal) => {}
        }
    }

    async fn fetch_forever(&self, http: &http::Client, metrics: &EdgeMetrics, reload_signal: &Notify) {
        let mut presented = self.0.presented.subscribe();
        let mut failures = HashMap::new();
        loop {
            let files = presented.borrow_and_update().clone();
            let leaves: HashSet<Fingerprint> = files.iter().map(|file| file.leaf.fingerprint).collect();
            failures.retain(|leaf, _| leaves.contains(leaf));
            let now_is = now();
            let mut due: Vec<_> =
                files.iter().map(|file| (self.due_at(file, &failures, now_is), file)).collect();
            due.sort_by_key(|(at, _)| *at);
            let next_s = due.first().map_or(PAUSE_MAX_S, |(at, _)| at.since(now_is).min(PAUSE_MAX_S));
            if let Ok(pause_s @ 1..) = u64::try_from(next_s) {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(pause_s)) => {}
                    // Never an error: `self` owns the sender.
                    _ = presented.changed() => {}
                }
                continue;
            }
            let due = due.into_iter().filter(|(at, _)| *at <= now_is).take(BATCH_MAX);
            let due: Vec<_> = due.map(|(_, file)| Arc::clone(file)).collect();
            let fetches = stream::iter(due).map(|file| async move {
                let answer = request_staple(http, &file).await;
                (file, answer)
            });
            let mut answers = pin!(fetches.buffer_unordered(IN_FLIGHT).ready_chunks(IN_FLIGHT));
            // Process results in the order of arrival: a slow responder must not delay the others.
            while let Some(some) = answers.next().await {
                let mut stored = Vec::new();
                for (file, answer) in some {
                    metrics.staple_fetched(answer.as_ref().map_or_else(StaplingError::name, |_| "read"));
                    stored.extend(self.take(&file, answer, &mut failures));
                }
                if !stored.is_empty() {
                    self.0.has_news.store(true, Relaxed);
                    reload_signal.notify_one();
                    self.keep(stored).await;
                }
            }
        }
    }

    /// Returns the time of the next request. If the file has a valid response, this time is shortly before the response expires.
    fn due_at(
        &self,
        file: &CertificateFile,
        failures: &HashMap<Fingerprint, Failures>,
        now: UnixTime,
    ) -> UnixTime {
        if let Some(own) = file.staple.as_ref().filter(|own| own.is_current(now)) {
            let before_its_end = own.until.unwrap_or(file.not_after).plus(-OWN_ENDS_S);
            if before_its_end > now {
                return before_its_end;
            }
        }
        let leaf = file.leaf.fingerprint;
        let failed = failures.get(&leaf).map(|failures| failures.retry_at);
        let refresh = || self.0.fetched.read().get(&leaf).map(|fetched| fetched.refresh_at);
        failed.or_else(refresh).unwrap_or(now)
    }

    /// Updates the fetched responses with the result of a request. Returns the change to the folder: a response to store, or a leaf
    /// without response to delete its stored response. `None` if the folder does not change.
    fn take(
        &self,
        file: &CertificateFile,
        answer: Result<Fetched, StaplingError>,
        failures: &mut HashMap<Fingerprint, Failures>,
    ) -> Option<(Fingerprint, Option<Arc<[u8]>>)> {
        let leaf = file.leaf.fingerprint;
        let error = match answer {
            Ok(fetched) => {
                failures.remove(&leaf);
                let der = Arc::clone(&fetched.staple.der);
                self.0.fetched.write().insert(leaf, fetched);
                return Some((leaf, Some(der)));
            }
            Err(error) => error,
        };
        let count = failures.get(&leaf).map_or(0, |failures| failures.count);
        if count == 0 {
            tracing::warn!(name = file.name, %error, "cannot fetch an OCSP staple; will retry");
        } else {
            tracing::debug!(name = file.name, %error, "cannot fetch an OCSP staple in a retry");
        }
        let retry_at = now().plus(retry_delay_s(count));
        failures.insert(leaf, Failures { count: count.saturating_add(1), retry_at });
        let is_revoked = matches!(error, StaplingError::Revoked);
        let had = is_revoked && self.0.fetched.write().remove(&leaf).is_some();
        had.then_some((leaf, None))
    }

    /// Stores responses on disk for the next start.
    async fn keep(&self, all: Vec<(Fingerprint, Option<Arc<[u8]>>)>) {
        let Some(folder) = self.0.options.as_ref().map(|options| options.folder.clone()) else { return };
        let stored = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&folder)?;
            // Attempt every file, even if one fails.
            let written: Vec<_> = all
                .into_iter()
                .map(|(leaf, der)| write(&staple_path(&folder, leaf), der.as_deref()))
                .collect();
            written.into_iter().collect::<io::Result<()>>()
        });
        if let Ok(Err(error)) = stored.await {
            tracing::warn!(%error, "cannot save OCSP staples for the next start");
        }
    }
}

impl Fetched {
    /// Parses an OCSP response for the chain's leaf and verifies it (RFC 6960 section 3.2).
    fn read(der: &[u8], file: &CertificateFile, now: UnixTime) -> Result<Self, StaplingError> {
        let unusable = |why: &str| StaplingError::Unusable(why.to_owned());
        let issuer = file.issuer.as_ref().ok_or_else(|| unusable("the chain has no issuer certificate"))?;
        let answer = checked(der, &file.leaf, issuer, now)
            .map_err(|error| StaplingError::Unusable(error.to_string()))?;
        match answer.status {
            Status::Good => {}
            Status::Revoked { .. } => return Err(StaplingError::Revoked),
            Status::Unknown => return Err(unusable("the OCSP responder does not know the certificate")),
        }
        let from = answer.this_update;
        if from > now.plus(SKEW_S) {
            return Err(unusable("the thisUpdate of the OCSP response is in the future"));
        }
        let until = answer.next_update.ok_or_else(|| unusable("the OCSP response has no nextUpdate"))?;
        if until <= now {
            return Err(unusable("the OCSP response is past its nextUpdate"));
        }
        let staple = Staple { der: der.into(), serial: file.leaf.serial.clone(), until: Some(until) };
        Ok(Self { staple, refresh_at: refresh_at(from, until, now, chance()) })
    }
}

/// Returns the time of the next request: after half of the validity, plus up to a tenth of it by `chance`, so that requests are
/// spread. A response that is already old (from a cache) is refreshed at half of its remaining validity.
fn refresh_at(from: UnixTime, until: UnixTime, now: UnixTime, chance: f64) -> UnixTime {
    let half = from.plus(until.since(from) / 2);
    let from = if half > now { half } else { now.plus(until.since(now) / 2) };
    let spread = (until.since(from) as f64 / 5.0 * chance) as i64;
    from.plus(spread).max(now.plus(RETRY_MIN_S))
}

const fn retry_delay_s(failures: u32) -> i64 {
    let shift = if failures > 6 { 6 } else { failures };
    let after = RETRY_MIN_S << shift;
    if after > RETRY_MAX_S { RETRY_MAX_S } else { after }
}

/// Returns a random number from 0 to 1.
fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() % 1_000) as f64 / 1_000.0
}

/// Requests a response from the certificate's responders. Uses GET without a nonce, so that caches can respond.
async fn request_staple(http: &http::Client, file: &CertificateFile) -> Result<Fetched, StaplingError> {
    let mut last = StaplingError::Unusable("the chain has no issuer certificate".to_owned());
    let Some(issuer) = &file.issuer else { return Err(last) };
    // SHA-1 only identifies the issuer and protects nothing; all responders support it (RFC 9654 section 2.1).
    let id = CertificateId::of(issuer, file.leaf.serial.clone(), OcspHash::Sha1);
    let request = Request { certificates: vec![id], nonce: None };
    for url in file.leaf.ocsp_urls.iter().take(RESPONDERS_MAX) {
        let got =
            http.get(&request.url_for_get(url), &[], STAPLE_MAX as usize, Deadline::within(WITHIN)).await;
        last = match got {
            Ok(reply) if reply.status == 200 => match Fetched::read(&reply.body, file, now()) {
                Err(StaplingError::Unusable(why)) => StaplingError::Unusable(why),
                result => return result,
            },
            Ok(reply) => {
                StaplingError::Unanswered(format!("the OCSP responder returned status {}", reply.status))
            }
            Err(error) => StaplingError::Unanswered(error.to_string()),
        };
    }
    Err(last)
}

fn staple_path(folder: &Path, leaf: Fingerprint) -> PathBuf {
    folder.join(format!("{leaf}.{FILE_EXTENSION}"))
}

/// Writes a temporary file and renames it, so that readers never see a partial file.
fn write(path: &Path, der: Option<&[u8]>) -> io::Result<()> {
    let Some(der) = der else {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let new = path.with_extension("new");
    std::fs::write(&new, der)?;
    std::fs::rename(new, path)
}

/// Removes stored responses of certificates that are no longer presented. A failed removal is retried the next time.
fn forget_others(folder: &Path, leaves: &HashSet<Fingerprint>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let of = path.file_stem().and_then(|stem| stem.to_str()?.parse::<Fingerprint>().ok());
        let is_ours = path.extension().is_some_and(|ending| ending == FILE_EXTENSION);
        if is_ours && of.is_some_and(|leaf| !leaves.contains(&leaf)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;

    #[test]
    fn ocsp_staple_is_refreshed_at_half_of_its_validity_with_jitter() {
        let (from, until) = (UnixTime(1_000_000), UnixTime(1_000_000 + 4 * DAY_S));
        let at = |now: i64, chance| refresh_at(from, until, UnixTime(now), chance).since(from);
        assert_eq!(at(1_000_000, 0.0), 2 * DAY_S);
        assert_eq!(at(1_000_000, 1.0), 2 * DAY_S + 2 * DAY_S / 5);
        // A response from a cache, with half of its validity already over.
        assert_eq!(at(1_000_000 + 3 * DAY_S, 0.0), 3 * DAY_S + DAY_S / 2);
        assert!(refresh_at(from, until, until.plus(-1), 1.0) >= until.plus(RETRY_MIN_S - 1), "no hurry");
    }

    #[test]
    fn retry_delay_doubles_per_failure_up_to_the_maximum() {
        let waits: Vec<i64> = (0..8).map(retry_delay_s).collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        assert_eq!(retry_delay_s(u32::MAX), RETRY_MAX_S);
    }
}
