//! Search services: asked by registered domain, with a cursor, never per certificate.
//!
//! A service has its own pace, which learns from being throttled, and its own number of requests under way; a slow or angry one holds up nobody else. A failure is a value with the moment to come back: nothing is retried behind
//! the caller's back, so that the cursor and what it stands for are always stored together.

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
use outbound::rate::{Pace, Paced, Rate};
use serde::{Deserialize, Serialize};
use store::Clock;
use tokio::sync::mpsc;

use super::gate::Gate;
use super::issuance::Issuance;

pub use answer::{BadAnswer, IssuancesFound};
pub use cert_spotter::read as read_cert_spotter;
pub use crt_sh::read as read_crt_sh;

/// Bytes of the longest answer read. A page of Cert Spotter's has some hundreds of certificates of 2 kB; crt.sh gives
/// everything at once, 400 bytes a row.
pub const ANSWER_OCTETS_MAX: usize = 64 * 1024 * 1024;
/// Pages read for one domain in one go: a hundred issuances each, that is a million.
pub const PAGES_MAX: usize = 10_000;
/// Empty answers to a first question, one after the other, until it is believed that there is nothing: an overloaded
/// service says `[]` for what it has.
pub const EMPTIES_BELIEVED: u8 = 3;
/// When to ask again after an empty answer that is not believed.
const EMPTY_RETRY: Duration = Duration::from_secs(120);
/// When to ask again where the service does not say: an hour, in which a log's entries reach the services.
const POLL_AFTER: Duration = Duration::from_secs(3_600);
/// Soonest, whatever the service says.
const POLL_AFTER_MIN: Duration = Duration::from_secs(60);

/// API of a search service.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// SSLMate's CT Search API v1, `/v1/issuances`.
    CertSpotter,
    /// crt.sh's JSON, `/?q=…&output=json`.
    CrtSh,
}

/// Options of a search service.
#[derive(Clone)]
pub struct SearchOptions {
    /// What its cursors are stored under.
    pub name: String,
    /// In whose words.
    pub dialect: Dialect,
    /// Without path: `https://api.certspotter.com`.
    pub url: String,
    /// Sent as a bearer token, where there is one.
    pub token: Option<String>,
    /// How often, at most.
    pub pace: Pace,
    /// Requests under way at once.
    pub in_flight: usize,
    /// For one answer.
    pub answer_limit: Duration,
    /// A wait for the bucket that is longer is told instead.
    pub patience: Duration,
}

impl SearchOptions {
    /// Cert Spotter. Its limits depend on the plan and are hourly, so that 429 with Retry-After is the rule for an
    /// estate's first day; until then a request a second bothers nobody.
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
            patience: Duration::from_secs(60),
        }
    }

    /// crt.sh. Its operator allows 60 requests a minute; users sustain about five.
    #[must_use]
    pub fn crt_sh() -> Self {
        Self {
            name: "crt.sh".to_owned(),
            dialect: Dialect::CrtSh,
            url: "https://crt.sh".to_owned(),
            token: None,
            pace: Pace { per_second: None, per_minute: Some(Rate::per_minute(5)) },
            in_flight: 2,
            // Large domains take it minutes.
            answer_limit: Duration::from_secs(180),
            patience: Duration::from_secs(300),
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

/// Where a service was left for a domain. Belongs to that service and domain; the start is its `Default`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SearchCursor {
    /// The last id given, as the service writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// The latest end of validity among what was given, seconds since 1970 UTC: until then an answer without anything
    /// is not true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest_end: Option<i64>,
    /// Empty answers in a row to the first question.
    #[serde(default)]
    empties: u8,
}

/// One page of what a service knows.
#[derive(Clone, Debug)]
pub struct SearchPage {
    /// In the service's order; an issuance that was given before may come again.
    pub issuances: Vec<Issuance>,
    /// Where to go on: to be stored with the issuances.
    pub cursor: SearchCursor,
    /// Whether there is more to be asked at once.
    pub more: bool,
    /// When to ask again, otherwise.
    pub poll_after: Duration,
    /// It is empty, and that is not yet believed.
    pub doubtful: bool,
}

/// Why there is no page. The cursor stays what it was.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The service says so, or its bucket is empty for longer than the patience.
    #[error("{service} sent a rate limit: no request for {} s", retry_after.as_secs())]
    Throttled {
        /// Which.
        service: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// No answer, or none that can be read.
    #[error("{service}: {reason}")]
    Failing {
        /// Which.
        service: String,
        /// The failure.
        reason: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// An empty answer where there must be something.
    #[error("{service} has nothing for {domain}, where it had certificates that are still valid")]
    SuspiciousEmpty {
        /// Which.
        service: String,
        /// The requester.
        domain: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// Operator: the token or the domain is wrong. Asking again cannot help.
    #[error("{service} refuses: {reason}")]
    Refused {
        /// Which.
        service: String,
        /// The error.
        reason: String,
    },
}

impl SearchError {
    /// When to ask again.
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

/// A service. Build it once.
#[derive(Debug)]
pub struct SearchService {
    options: SearchOptions,
    http: Client,
    gate: Gate,
    clock: Clock,
}

impl SearchService {
    /// A service, requested over `http`.
    #[must_use]
    pub fn new(options: SearchOptions, http: Client, clock: Clock) -> Self {
        let gate = Gate::new(options.pace, options.in_flight, options.patience);
        Self { options, http, gate, clock }
    }

    /// What its cursors are stored under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Requests under way at once, at most.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.options.in_flight.max(1)
    }

    /// Counters of requests and throttling, and the learnt rate.
    #[must_use]
    pub fn paced(&self) -> Paced {
        self.gate.paced()
    }

    /// One page of what was issued at and below `domain` (a registered domain), from `cursor` on.
    ///
    /// # Errors
    /// [`SearchError`]; the cursor holds.
    ///
    /// # Cancellation
    /// Dropping the future gives up the request; nothing is lost.
    #[crate::boxed]
    pub async fn issuances_since(
        &self,
        domain: &str,
        cursor: &SearchCursor,
    ) -> Result<SearchPage, SearchError> {
        let service = || self.options.name.clone();
        let turn = self
            .gate
            .enter()
            .await
            .map_err(|retry_after| SearchError::Throttled { service: service(), retry_after })?;
        let failing = |reason, retry_after| SearchError::Failing { service: service(), reason, retry_after };
        let reply = match self.ask(domain, cursor).await {
            Ok(reply) => reply,
            Err(error) => return Err(failing(error.to_string(), turn.failed(None))),
        };
        let now = self.clock.now_seconds();
        let told = reply.retry_after(now);
        match reply.status {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => {
                let retry_after = turn.throttled(told);
                return Err(SearchError::Throttled { service: service(), retry_after });
            }
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                turn.answered();
                let reason = format!("{}: {}", reply.status, reply.excerpt());
                return Err(SearchError::Refused { service: service(), reason });
            }
            status => {
                return Err(failing(format!("{status}: {}", reply.excerpt()), turn.failed(told)));
            }
        }
        let read = match self.options.dialect {
            Dialect::CertSpotter => cert_spotter::read(&reply.body),
            Dialect::CrtSh => crt_sh::read(&reply.body, domain, cursor.after.as_deref()),
        };
        let found = match read {
            Ok(found) => found,
            Err(error) => return Err(failing(error.to_string(), turn.failed(None))),
        };
        if found.issuances.is_empty() && self.must_have(cursor, now, &found) {
            let (service, domain) = (service(), domain.to_owned());
            return Err(SearchError::SuspiciousEmpty { service, domain, retry_after: turn.failed(None) });
        }
        turn.answered();
        Ok(self.page(found, cursor, told))
    }

    async fn ask(&self, domain: &str, cursor: &SearchCursor) -> Result<Reply, outbound::http::HttpError> {
        let base = self.options.url.trim_end_matches('/');
        let url = match self.options.dialect {
            Dialect::CertSpotter => cert_spotter::url(base, domain, cursor.after.as_deref()),
            Dialect::CrtSh => crt_sh::url(base, domain),
        };
        let bearer = self.options.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = vec![("accept", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let deadline = Deadline::within(self.options.answer_limit);
        self.http.get(&url, &headers, ANSWER_OCTETS_MAX, deadline).await
    }

    /// Whether an empty answer cannot be true: crt.sh gives everything each time, and what it gave is still valid.
    fn must_have(&self, cursor: &SearchCursor, now: i64, found: &IssuancesFound) -> bool {
        let whole = self.options.dialect == Dialect::CrtSh;
        whole && found.after.is_none() && cursor.newest_end.is_some_and(|end| end > now)
    }

    fn page(&self, found: IssuancesFound, cursor: &SearchCursor, told: Option<Duration>) -> SearchPage {
        let first = cursor.after.is_none();
        let empty = found.issuances.is_empty() && found.after.is_none();
        let empties = if first && empty { cursor.empties.saturating_add(1) } else { 0 };
        let doubtful = first && empty && empties < EMPTIES_BELIEVED;
        let newest = found.issuances.iter().map(|one| one.not_after.0).max();
        let more = self.options.dialect == Dialect::CertSpotter && !empty;
        let poll_after = if doubtful { EMPTY_RETRY } else { told.unwrap_or(POLL_AFTER) };
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

/// A query to a service.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// A registered domain.
    pub domain: String,
    /// The cursor after the last page.
    pub cursor: SearchCursor,
}

/// What came of a question: a page, of which there may be several, or why there is none.
#[derive(Debug)]
pub struct SearchOutcome {
    /// [`SearchService::name`].
    pub service: String,
    /// Which domain.
    pub domain: String,
    /// The page, or why there is none.
    pub result: Result<SearchPage, SearchError>,
}

/// Asks each service its questions, all services at once, each with as many requests under way as it allows, and every
/// domain page after page. Ends when all is answered, or when nobody takes answers any more.
///
/// # Cancellation
/// Dropping the future gives up what is under way; answers already sent are good.
#[crate::boxed]
pub async fn poll(work: Vec<(Arc<SearchService>, Vec<SearchQuery>)>, answers: mpsc::Sender<SearchOutcome>) {
    let services = work.into_iter().map(|(service, questions)| {
        let answers = answers.clone();
        async move {
            let in_flight = service.in_flight();
            futures_util::stream::iter(questions)
                .for_each_concurrent(in_flight, |question| pages(&service, question, &answers))
                .await;
        }
    });
    futures_util::future::join_all(services).await;
}

async fn pages(service: &SearchService, question: SearchQuery, answers: &mpsc::Sender<SearchOutcome>) {
    let mut cursor = question.cursor;
    for _ in 0..PAGES_MAX {
        let result = service.issuances_since(&question.domain, &cursor).await;
        let more = result.as_ref().is_ok_and(|page| page.more);
        if let Ok(page) = &result {
            cursor = page.cursor.clone();
        }
        let service = service.name().to_owned();
        let answer = SearchOutcome { service, domain: question.domain.clone(), result };
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
    fn times_of_both_services() {
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
    fn a_name_cannot_leave_its_place_in_a_query() {
        assert_eq!(percent_encoded("a-b.example").to_string(), "a-b.example");
        assert_eq!(percent_encoded("a&output=html#%ü").to_string(), "a%26output%3Dhtml%23%25%C3%BC");
    }

    proptest! {
        #[test]
        fn any_answer_is_refused_or_read_within_bounds(octets: Vec<u8>, id: u64, text: String, many in 0_usize..5_000) {
            let names: Vec<String> = (0..many).map(|n| format!("{n}.example.com")).collect();
            let made = serde_json::json!([{
                "id": id.to_string(), "dns_names": names, "cert_der": text, "not_before": text, "tbs_sha256": text,
            }]).to_string();
            let rows = serde_json::json!([{
                "id": id, "name_value": names.join("\n"), "common_name": text, "issuer_name": text,
                "serial_number": text, "not_after": text,
            }]).to_string();
            for body in [&octets[..], made.as_bytes(), rows.as_bytes()] {
                let read = [read_cert_spotter(body), read_crt_sh(body, "example.com", Some(&text))];
                for issuance in read.into_iter().flatten().flat_map(|found| found.issuances) {
                    prop_assert!(issuance.names.len() <= NAMES_MAX);
                }
            }
        }
    }
}
