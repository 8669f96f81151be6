//! Search services, queried by registered domain with a cursor, never by certificate.
//!
//! Each service has its own rate limit, which adapts when requests are throttled, and its own concurrency limit; a slow or failing
//! service does not delay the others. An error contains the time of the next attempt. This module does not retry, so that the
//! caller always stores the cursor together with its results.

mod answer;
mod cert_spotter;
mod crt_sh;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;
use outbound::Deadline;
use outbound::http::{Client, Reply};
use outbound::rate::{Pace, PacerCounts, Rate};
use serde::{Deserialize, Serialize};
use store::Clock;
use tokio::sync::mpsc;

use super::gate::Gate;
use super::issuance::Issuance;

pub use answer::{InvalidResponse, IssuancesFound};
pub use cert_spotter::read as read_cert_spotter;
pub use crt_sh::read as read_crt_sh;

/// Longest accepted response in bytes. A page of Cert Spotter has a few hundred certificates of 2 kB; crt.sh returns everything in
/// one response, 400 bytes per row.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum pages of one search for a domain: a million issuances, at a hundred per page.
pub const PAGES_MAX: usize = 10_000;
/// Number of consecutive empty responses to a first query before the result is accepted as empty: an overloaded service returns
/// `[]` even if it has results.
pub const EMPTY_RESPONSES_MIN: u8 = 3;
/// Delay after an empty response that is not accepted yet.
const EMPTY_RETRY: Duration = Duration::from_secs(120);
/// Interval between queries if the service does not set one: an hour, the time in which log entries reach the services.
const POLL_AFTER: Duration = Duration::from_secs(3_600);
/// Minimum interval, even if the service requests a shorter one.
const POLL_AFTER_MIN: Duration = Duration::from_secs(60);

/// API type of a search service: Cert Spotter or crt.sh.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// SSLMate's CT Search API v1, `/v1/issuances`.
    CertSpotter,
    /// crt.sh's JSON, `/?q=…&output=json`.
    CrtSh,
}

/// Name, API type, URL, token and limits of a search service.
#[derive(Clone)]
pub struct SearchOptions {
    /// Name under which cursors are stored.
    pub name: String,
    /// API type of the service.
    pub dialect: Dialect,
    /// Base URL without path: `https://api.certspotter.com`.
    pub url: String,
    /// Bearer token, if the service requires one.
    pub token: Option<String>,
    /// Rate limit of requests.
    pub pace: Pace,
    /// Maximum concurrent requests.
    pub in_flight: usize,
    /// Timeout of one response.
    pub answer_limit: Duration,
    /// Longest wait for the rate limit. A request that would wait longer fails instead.
    pub wait_max: Duration,
}

impl SearchOptions {
    /// Returns the options of Cert Spotter. Its hourly limits depend on the plan. A large installation must expect 429 responses
    /// with Retry-After on its first day. One request a second is acceptable to the service.
    #[must_use]
    pub fn cert_spotter(token: Option<String>) -> Self {
        Self {
            name: "certspotter".to_owned(),
            dialect: Dialect::CertSpotter,
            url: "https://api.certspotter.com".to_owned(),
            token,
            pace: Pace {
                per_second: Some(Rate::per_second(1).with_burst(5)),
                per_minute: Some(Rate::per_minute(30).with_burst(5)),
            },
            in_flight: 4,
            answer_limit: Duration::from_secs(60),
            wait_max: Duration::from_secs(60),
        }
    }

    /// Returns the options of crt.sh. Its operator allows 60 requests a minute; in practice about five succeed.
    #[must_use]
    pub fn crt_sh() -> Self {
        Self {
            name: "crt.sh".to_owned(),
            dialect: Dialect::CrtSh,
            url: "https://crt.sh".to_owned(),
            token: None,
            pace: Pace { per_second: None, per_minute: Some(Rate::per_minute(5)) },
            in_flight: 2,
            // Responses for large domains take minutes.
            answer_limit: Duration::from_secs(180),
            wait_max: Duration::from_secs(300),
        }
    }
}

impl fmt::Debug for SearchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("SearchOptions")
            .field("name", &self.name)
            .field("url", &self.url)
            .field("token", &token)
            .finish_non_exhaustive()
    }
}

/// Position of a search. Valid for one service and one domain; a new search starts with `Default`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SearchCursor {
    /// The last id returned, in the service's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// Latest expiry among the returned certificates, seconds since 1970-01-01 UTC. Before this time, an empty response cannot be
    /// correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest_end: Option<i64>,
    /// Number of consecutive empty responses to the first query.
    #[serde(default)]
    empties: u8,
}

/// One page of search results.
#[derive(Clone, Debug)]
pub struct SearchPage {
    /// Issuances in the order of the service; may include issuances returned before.
    pub issuances: Vec<Issuance>,
    /// Cursor for the next query; must be stored together with the issuances.
    pub cursor: SearchCursor,
    /// Whether the next query can be sent immediately.
    pub more: bool,
    /// Time until the next query if `more` is false.
    pub poll_after: Duration,
    /// Whether the page is empty and not yet accepted as correct.
    pub doubtful: bool,
}

/// Reason why a query of a search service failed. The cursor is unchanged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The service throttled the request, or the wait for the rate limit would exceed the maximum.
    #[error("{service} rate-limits requests: no request for {} s", retry_after.as_secs())]
    Throttled {
        /// Name of the service.
        service: String,
        /// Time until the next attempt.
        retry_after: Duration,
    },
    /// There was no response, or an invalid one.
    #[error("{service}: {reason}")]
    Failing {
        /// Name of the service.
        service: String,
        /// Description of the failure.
        reason: String,
        /// Time until the next attempt.
        retry_after: Duration,
    },
    /// The response was empty although the service must have results.
    #[error(
        "{service} returned no certificates for {domain}, but an earlier response has certificates that are still valid"
    )]
    SuspiciousEmpty {
        /// Name of the service.
        service: String,
        /// The domain searched for.
        domain: String,
        /// Time until the next attempt.
        retry_after: Duration,
    },
    /// The service rejected the request. Operator: correct the token or the domain. A retry does not help.
    #[error("{service} rejects the request: {reason}")]
    Refused {
        /// Name of the service.
        service: String,
        /// The error message of the service.
        reason: String,
    },
}

impl SearchError {
    /// Returns the time until the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Throttled { retry_after, .. }
            | Self::Failing { retry_after, .. }
            | Self::SuspiciousEmpty { retry_after, .. } => *retry_after,
            Self::Refused { .. } => POLL_AFTER,
        }
    }
}

/// Client of a search service. Create one instance for each service.
#[derive(Debug)]
pub struct SearchService {
    options: SearchOptions,
    http: Client,
    gate: Gate,
    clock: Clock,
}

impl SearchService {
    /// Creates a client that sends requests through `http`.
    #[must_use]
    pub fn new(options: SearchOptions, http: Client, clock: Clock) -> Self {
        let gate = Gate::new(options.pace, options.in_flight, options.wait_max);
        Self { options, http, gate, clock }
    }

    /// Returns the name under which cursors are stored.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the maximum of concurrent requests.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.options.in_flight.max(1)
    }

    /// Returns counters of requests and throttling, and the request rate that the rate limiter has learned.
    #[must_use]
    pub fn pacer_counts(&self) -> PacerCounts {
        self.gate.pacer_counts()
    }

    /// Fetches one page of the certificates issued at and below `domain` (a registered domain), starting at `cursor`.
    ///
    /// # Errors
    /// [`SearchError`]; the cursor stays valid.
    ///
    /// # Cancellation
    /// Dropping the future aborts the request; nothing is lost.
    #[crate::boxed]
    pub async fn issuances_since(
        &self,
        domain: &str,
        cursor: &SearchCursor,
    ) -> Result<SearchPage, SearchError> {
        let service = || self.options.name.clone();
        let permit = self
            .gate
            .enter()
            .await
            .map_err(|retry_after| SearchError::Throttled { service: service(), retry_after })?;
        let failing = |reason, retry_after| SearchError::Failing { service: service(), reason, retry_after };
        let reply = match self.request(domain, cursor).await {
            Ok(reply) => reply,
            Err(error) => return Err(failing(error.to_string(), permit.failed(None))),
        };
        let now = self.clock.now_seconds();
        let requested_delay = reply.retry_after(now);
        match reply.status {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => {
                let retry_after = permit.throttled(requested_delay);
                return Err(SearchError::Throttled { service: service(), retry_after });
            }
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                permit.answered();
                let reason = format!("{}: {}", reply.status, reply.excerpt());
                return Err(SearchError::Refused { service: service(), reason });
            }
            status => {
                return Err(failing(
                    format!("{status}: {}", reply.excerpt()),
                    permit.failed(requested_delay),
                ));
            }
        }
        let read = match self.options.dialect {
            Dialect::CertSpotter => cert_spotter::read(&reply.body),
            Dialect::CrtSh => crt_sh::read(&reply.body, domain, cursor.after.as_deref()),
        };
        let found = match read {
            Ok(found) => found,
            Err(error) => return Err(failing(error.to_string(), permit.failed(None))),
        };
        if found.issuances.is_empty() && self.is_empty_implausible(cursor, now, &found) {
            let (service, domain) = (service(), domain.to_owned());
            return Err(SearchError::SuspiciousEmpty { service, domain, retry_after: permit.failed(None) });
        }
        permit.answered();
        Ok(self.page(found, cursor, requested_delay))
    }

    async fn request(&self, domain: &str, cursor: &SearchCursor) -> Result<Reply, outbound::http::HttpError> {
        let base = self.options.url.trim_end_matches('/');
        let url = match self.options.dialect {
            Dialect::CertSpotter => cert_spotter::url(base, domain, cursor.after.as_deref()),
            Dialect::CrtSh => crt_sh::url(base, domain),
        };
        let bearer = self.options.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = vec![("accept", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let deadline = Deadline::within(self.options.answer_limit);
        self.http.get(&url, &headers, ANSWER_BYTES_MAX, deadline).await
    }

    /// Returns whether an empty response cannot be correct. crt.sh always returns all valid certificates, so a response cannot be
    /// empty while a certificate of an earlier response is still valid.
    fn is_empty_implausible(&self, cursor: &SearchCursor, now: i64, found: &IssuancesFound) -> bool {
        let whole = self.options.dialect == Dialect::CrtSh;
        whole && found.after.is_none() && cursor.newest_end.is_some_and(|end| end > now)
    }

    fn page(
        &self,
        found: IssuancesFound,
        cursor: &SearchCursor,
        requested_delay: Option<Duration>,
    ) -> SearchPage {
        let first = cursor.after.is_none();
        let empty = found.issuances.is_empty() && found.after.is_none();
        let empties = if first && empty { cursor.empties.saturating_add(1) } else { 0 };
        let doubtful = first && empty && empties < EMPTY_RESPONSES_MIN;
        let newest = found.issuances.iter().map(|one| one.not_after.0).max();
        let more = self.options.dialect == Dialect::CertSpotter && !empty;
        let poll_after = if doubtful { EMPTY_RETRY } else { requested_delay.unwrap_or(POLL_AFTER) };
        SearchPage {
            cursor: SearchCursor {
                after: found.after.or_else(|| cursor.after.clone()),
                newest_end: newest.max(cursor.newest_end),
                empties,
            },
            issuances: found.issuances,
            more,
            poll_after: poll_after.max(POLL_AFTER_MIN),
            doubtful,
        }
    }
}

/// A search for the certificates of one domain, at one service.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// Registered domain to search for.
    pub domain: String,
    /// The cursor after the last page.
    pub cursor: SearchCursor,
}

/// Result of a query: one of its pages, or an error.
#[derive(Debug)]
pub struct SearchOutcome {
    /// Name of the service ([`SearchService::name`]).
    pub service: String,
    /// The domain searched for.
    pub domain: String,
    /// One page of results, or the error of the query.
    pub result: Result<SearchPage, SearchError>,
}

/// Runs the queries of all services concurrently. Each service has its own concurrency limit, and each domain is read page after page. Ends
/// when all queries are done, or when the receiver was dropped.
///
/// # Cancellation
/// Dropping the future aborts the requests in progress; results already sent are valid.
#[crate::boxed]
pub async fn poll(work: Vec<(Arc<SearchService>, Vec<SearchQuery>)>, answers: mpsc::Sender<SearchOutcome>) {
    let services = work.into_iter().map(|(service, queries)| {
        let answers = answers.clone();
        async move {
            let in_flight = service.in_flight();
            futures_util::stream::iter(queries)
                .for_each_concurrent(in_flight, |query| pages(&service, query, &answers))
                .await;
        }
    });
    futures_util::future::join_all(services).await;
}

async fn pages(service: &SearchService, query: SearchQuery, answers: &mpsc::Sender<SearchOutcome>) {
    let mut cursor = query.cursor;
    for _ in 0..PAGES_MAX {
        let result = service.issuances_since(&query.domain, &cursor).await;
        let more = result.as_ref().is_ok_and(|page| page.more);
        if let Ok(page) = &result {
            cursor = page.cursor.clone();
        }
        let service = service.name().to_owned();
        let answer = SearchOutcome { service, domain: query.domain.clone(), result };
        if answers.send(answer).await.is_err() || !more {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use outbound::http::percent_encoded;

    use super::answer::time;
    use super::*;
    use crate::issuance::NAMES_MAX;

    #[test]
    fn timestamps_of_both_services_are_parsed() {
        for (text, seconds) in [
            ("2016-06-16T00:00:00-00:00", 1_466_035_200),
            ("2020-12-02T12:00:00Z", 1_606_910_400),
            ("2020-11-07T15:46:43", 1_604_764_003),
            ("2020-11-07T15:46:43.456", 1_604_764_003),
            ("", 0),
            ("soon", 0),
        ] {
            assert_eq!(time(text).0, seconds, "{text:?}");
        }
    }

    #[test]
    fn query_parameters_are_percent_encoded() {
        assert_eq!(percent_encoded("a-b.example").to_string(), "a-b.example");
        assert_eq!(percent_encoded("a&output=html#%ü").to_string(), "a%26output%3Dhtml%23%25%C3%BC");
    }

    proptest! {
        #[test]
        fn arbitrary_responses_yield_a_bounded_number_of_names(bytes: Vec<u8>, id: u64, text: String, many in 0_usize..5_000) {
            let names: Vec<String> = (0..many).map(|n| format!("{n}.example.com")).collect();
            let made = serde_json::json!([{
                "id": id.to_string(), "dns_names": names, "cert_der": text, "not_before": text, "tbs_sha256": text,
            }]).to_string();
            let rows = serde_json::json!([{
                "id": id, "name_value": names.join("\n"), "common_name": text, "issuer_name": text,
                "serial_number": text, "not_after": text,
            }]).to_string();
            for body in [&bytes[..], made.as_bytes(), rows.as_bytes()] {
                let read = [read_cert_spotter(body), read_crt_sh(body, "example.com", Some(&text))];
                for issuance in read.into_iter().flatten().flat_map(|found| found.issuances) {
                    prop_assert!(issuance.names.len() <= NAMES_MAX);
                }
            }
        }
    }
}
