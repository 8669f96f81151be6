//! Fetches CRLs and OCSP responses, with limits of size, time and concurrency.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flight::{Failed, Fresh};
use http::StatusCode;
use outbound::Deadline;
use outbound::http::{Client, HttpError, Reply};
use tokio::sync::Semaphore;
use x509::ocsp::{CertificateId, OcspHash, RESPONSE_MAX, Request};
use x509::{Certificate, UnixTime};

use super::answer::OcspAnswer;
use super::counters::{Counters, FetchKind};
use super::list::List;
use super::verdict::Cause;

/// Longest time for which a CRL or OCSP response is cached without a conditional request, whatever its nextUpdate. CAs publish a
/// revocation within a day (Baseline Requirements section 4.9.7), and most within hours.
pub const KEEP_MAX: Duration = Duration::from_secs(4 * 3_600);
/// Shortest cache time, so that a CRL that is about to expire is not fetched for every certificate.
const KEEP_MIN: Duration = Duration::from_secs(60);
/// Time for which a temporary failure is cached: no response, or an HTTP status.
pub const FAILURE_LIFETIME: Duration = Duration::from_secs(300);
/// Time for which a defect of the CRL itself is cached: an invalid signature, not a CRL, too long.
pub const DEFECT_LIFETIME: Duration = Duration::from_secs(3_600);

/// Longest response in bytes that is read with high concurrency. Public partitioned CRLs are smaller.
const SMALL_BYTES: usize = 1024 * 1024;
/// Maximum small responses in memory at a time: 32 MB in total.
const SMALL_IN_FLIGHT: usize = 32;
/// Timeout of a small response, including the connection.
const SMALL_LIMIT: Duration = Duration::from_secs(10);
/// Maximum concurrent large CRLs, including parsing: four times 64 MB at most.
const LARGE_IN_FLIGHT: usize = 2;
/// Timeout of a large CRL.
const LARGE_LIMIT: Duration = Duration::from_secs(60);
/// Maximum CRLs parsed concurrently during a scan; a million entries take about a second of one core.
const READING_MAX: usize = 2;
/// Longest stored ETag or Last-Modified in bytes.
const VALIDATOR_MAX: usize = 256;
/// Maximum characters of a server's text in a cause.
const EXCERPT_MAX: usize = 200;

/// Permits for concurrent requests and for parsing CRLs.
struct Permits {
    small: Semaphore,
    large: Semaphore,
    reading: Arc<Semaphore>,
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            small: Semaphore::new(SMALL_IN_FLIGHT),
            large: Semaphore::new(LARGE_IN_FLIGHT),
            reading: Arc::new(Semaphore::new(READING_MAX)),
        }
    }
}

/// A client that fetches CRLs and OCSP responses, and counts the requests.
pub(super) struct Fetcher {
    http: Client,
    list_bytes_max: usize,
    permits: Permits,
    counters: Counters,
}

impl Fetcher {
    pub(super) fn new(http: Client, list_bytes_max: usize) -> Self {
        Self { http, list_bytes_max, permits: Permits::default(), counters: Counters::default() }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Fetches the CRL at `url` and verifies the signature by `issuer`. If a CRL is cached (`previous`), sends a conditional request; if
/// that fails, the cached CRL stays in use while it is valid.
pub(super) async fn list(
    fetcher: Arc<Fetcher>,
    url: Arc<str>,
    issuer: Arc<Certificate>,
    previous: Option<Arc<List>>,
    now: UnixTime,
) -> Result<Fresh<Arc<List>>, Failed<Cause>> {
    let newer = newer_list(&fetcher, &url, &issuer, previous.as_ref()).await;
    fetcher.counters.fetched(FetchKind::Crl, outcome_of(&newer, |(_, outcome)| outcome));
    match newer.map(|(list, _)| list) {
        Ok(list) => {
            let lifetime = list.next_update().map_or(KEEP_MIN, |due| lifetime(due, now));
            Ok(Fresh { value: list, lifetime })
        }
        Err(cause) => match previous.filter(|list| list.check_validity(now).is_ok()) {
            Some(list) => Ok(Fresh { value: list, lifetime: FAILURE_LIFETIME }),
            None => Err(failed(cause)),
        },
    }
}

async fn newer_list(
    fetcher: &Arc<Fetcher>,
    url: &str,
    issuer: &Arc<Certificate>,
    previous: Option<&Arc<List>>,
) -> Result<(Arc<List>, &'static str), Cause> {
    let mut conditions = Vec::new();
    if let Some(list) = previous {
        conditions.extend(list.etag.as_deref().map(|tag| ("if-none-match", tag)));
        conditions.extend(list.last_modified.as_deref().map(|date| ("if-modified-since", date)));
    }
    let reply = get_list(fetcher, url, &conditions).await?;
    match (reply.status, previous) {
        (StatusCode::NOT_MODIFIED, Some(list)) => {
            fetcher.counters.not_modified.fetch_add(1, Relaxed);
            Ok((list.clone(), "not-modified"))
        }
        (StatusCode::OK, _) => {
            let list = read(fetcher, reply, issuer.clone()).await?;
            Ok(match previous {
                Some(previous) if list.is_older_than(previous) => (previous.clone(), "older"),
                _ => (Arc::new(list), "read"),
            })
        }
        (status, _) => Err(Cause::Status(status.as_u16())),
    }
}

/// Fetches a CRL as a small response; if it turns out to be large, fetches it again with lower concurrency.
async fn get_list(fetcher: &Fetcher, url: &str, conditions: &[(&'static str, &str)]) -> Result<Reply, Cause> {
    let most = fetcher.list_bytes_max;
    let small = {
        let _permit = fetcher.permits.small.acquire().await;
        get(fetcher, url, conditions, SMALL_BYTES.min(most), SMALL_LIMIT, RedirectPolicy::Redirects).await
    };
    match small {
        Err(Cause::TooLarge { limit }) if limit < most => {
            let _permit = fetcher.permits.large.acquire().await;
            get(fetcher, url, conditions, most, LARGE_LIMIT, RedirectPolicy::Redirects).await
        }
        other => other,
    }
}

/// Parses a CRL on a blocking thread.
async fn read(fetcher: &Fetcher, reply: Reply, issuer: Arc<Certificate>) -> Result<List, Cause> {
    let permit = fetcher.permits.reading.clone().acquire_owned().await;
    let validator = |name| reply.header(name).filter(|text| text.len() <= VALIDATOR_MAX).map(str::to_owned);
    let (etag, last_modified) = (validator("etag"), validator("last-modified"));
    let body = reply.body;
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        List::read(&body, &issuer)
    });
    let mut list = reading.await.map_err(|_| Cause::Abnormal)??;
    (list.etag, list.last_modified) = (etag, last_modified);
    fetcher.counters.lists_read.fetch_add(1, Relaxed);
    fetcher.counters.entries_read.fetch_add(list.len() as u64, Relaxed);
    fetcher.counters.packed_bytes.fetch_add(list.memory_bytes() as u64, Relaxed);
    Ok(list)
}

/// Fetches the response of the OCSP responder at `url`, with GET (RFC 6960 appendix A.1) and without a nonce, so that caches can
/// serve it.
pub(super) async fn answer(
    fetcher: Arc<Fetcher>,
    url: Arc<str>,
    certificate: Certificate,
    issuer: Arc<Certificate>,
    now: UnixTime,
) -> Result<Fresh<OcspAnswer>, Failed<Cause>> {
    let answer = ocsp_query(&fetcher, &url, &certificate, &issuer, now).await;
    fetcher.counters.fetched(FetchKind::Ocsp, outcome_of(&answer, |_| "read"));
    let answer = answer.map_err(failed)?;
    Ok(Fresh { value: answer, lifetime: lifetime(answer.until, now) })
}

async fn ocsp_query(
    fetcher: &Fetcher,
    url: &str,
    certificate: &Certificate,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<OcspAnswer, Cause> {
    // SHA-1 only identifies the issuer here, without a security function; all responders support it (RFC 9654 section 2.1).
    let id = CertificateId::of(issuer, certificate.serial.clone(), OcspHash::Sha1);
    let ocsp_query = Request { certificates: vec![id], nonce: None }.url_for_get(url);
    let reply = {
        let _permit = fetcher.permits.small.acquire().await;
        get(fetcher, &ocsp_query, &[], RESPONSE_MAX, SMALL_LIMIT, RedirectPolicy::Nothing).await?
    };
    if reply.status != StatusCode::OK {
        return Err(Cause::Status(reply.status.as_u16()));
    }
    OcspAnswer::read(&reply.body, certificate, issuer, now)
}

/// Returns the stable name of a fetch's result: the name of the cause if it failed.
fn outcome_of<T>(fetched: &Result<T, Cause>, good: impl Fn(&T) -> &'static str) -> &'static str {
    fetched.as_ref().map_or_else(Cause::code, good)
}

/// Whether redirects are followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RedirectPolicy {
    /// Redirects are followed, up to a limit: CAs move their CRLs to other hosts.
    Redirects,
    /// Redirects are refused: an OCSP request is part of the URL, so a redirect would forward it.
    Nothing,
}

async fn get(
    fetcher: &Fetcher,
    url: &str,
    headers: &[(&'static str, &str)],
    bytes_max: usize,
    limit: Duration,
    follow: RedirectPolicy,
) -> Result<Reply, Cause> {
    fetcher.counters.requests.fetch_add(1, Relaxed);
    let deadline = Deadline::within(limit);
    let result = match follow {
        RedirectPolicy::Redirects => fetcher.http.get_with_redirects(url, headers, bytes_max, deadline).await,
        RedirectPolicy::Nothing => fetcher.http.get(url, headers, bytes_max, deadline).await,
    };
    result.map_err(|error| match error {
        HttpError::Refused(refused) => Cause::Refused(excerpt(&refused.to_string())),
        HttpError::Header(_) => Cause::Refused(error.to_string()),
        HttpError::Redirected { .. } => Cause::Redirected(excerpt(&error.to_string())),
        HttpError::TimedOut { .. } => Cause::TimedOut,
        HttpError::Unreachable { reason, .. } => Cause::Unreachable(excerpt(&reason)),
        HttpError::TooLong { limit, .. } => Cause::TooLarge { limit },
    })
}

fn failed(cause: Cause) -> Failed<Cause> {
    let lifetime = if cause.is_transient() { FAILURE_LIFETIME } else { DEFECT_LIFETIME };
    Failed { error: cause, lifetime }
}

fn lifetime(until: UnixTime, now: UnixTime) -> Duration {
    let left = Duration::from_secs(u64::try_from(until.since(now)).unwrap_or(0));
    left.clamp(KEEP_MIN, KEEP_MAX)
}

fn excerpt(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_MAX).collect()
}
