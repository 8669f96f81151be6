//! Requests to the store: one connection pool, deadlines, retries within a budget, bodies read completely up to a limit.

mod budget;
mod counting;
mod pool;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::Error;
use crate::login::Login;
use crate::stats::Counters;
use budget::Budget;
use pool::read;

pub(crate) use budget::jitter;
pub(crate) use pool::{Endpoint, Pool, StoreRequest, StoreResponse, is_transient, wiped};
pub use socket::check_socket;

/// Maximum attempts of a request, including the first one.
const TRIES_MAX: u32 = 4;
/// An attempt takes at most 1/`TRY_PARTS` (half) of the deadline.
const TRY_PARTS: u32 = 2;
/// Deadline of forwarded requests, which are sent only once. Writes may wait for locks and keys. If the deadline passes, the store
/// completes the request, but the client does not learn the result.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum delay before the second attempt; doubled before each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// First pause after a failure, in which no request is sent to the store. The pause doubles up to a maximum.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// State of an unavailable store.
struct Outage {
    until: Instant,
    pause: Duration,
    why: String,
}

pub(crate) struct Transport {
    pool: Arc<Pool>,
    login: Login,
    deadline: Duration,
    budget: Budget,
    outage: Mutex<Option<Outage>>,
    pub(crate) counters: Arc<Counters>,
}

/// Connection options of the store.
pub(crate) struct TransportOptions {
    pub(crate) endpoint: Endpoint,
    /// Trusted roots, PEM; `None`: the system's.
    pub(crate) roots: Option<Vec<u8>>,
    /// A client certificate with its key, PEM.
    pub(crate) identity: Option<Zeroizing<Vec<u8>>>,
    pub(crate) login: Login,
    /// Deadline of one request, including retries.
    pub(crate) deadline: Duration,
}

impl Transport {
    /// Creates the transport without connecting.
    pub(crate) fn new(options: TransportOptions) -> Result<Self, Error> {
        let counters = Arc::<Counters>::default();
        let (roots, identity) =
            (options.roots.as_deref(), options.identity.as_ref().map(|pem| pem.as_slice()));
        let pool = Pool::new(&options.endpoint, roots, identity, Arc::clone(&counters))?;
        Ok(Self {
            pool: Arc::new(pool),
            login: options.login,
            deadline: options.deadline,
            budget: Budget::default(),
            outage: Mutex::new(None),
            counters,
        })
    }

    /// Sends a request. Returns the response with any status. Temporary errors are retried, within the deadline and the budget.
    pub(crate) async fn request(&self, request: &StoreRequest) -> Result<StoreResponse, Error> {
        let most = if request.single_attempt && request.forwarded {
            FORWARD_TIMEOUT.max(self.deadline)
        } else {
            self.deadline
        };
        let until = Instant::now() + most;
        self.budget.request();
        let mut tries = 0;
        let outcome = loop {
            let left = until.saturating_duration_since(Instant::now());
            tries += 1;
            // A request with a single attempt may use the whole deadline.
            let most = if request.single_attempt { left } else { left.min(self.deadline / TRY_PARTS) };
            let timeout_error = |_| Err(Error::Unavailable(format!("no response within {most:?}")));
            let outcome = timeout(most, self.attempt(request)).await.unwrap_or_else(timeout_error);
            let passing = match &outcome {
                Ok(answer) => is_transient(answer.status),
                Err(error) => error.is_unavailable(),
            };
            let backoff = jitter(BACKOFF * 2_u32.pow(tries - 1), 1.0);
            let will_retry =
                passing && !request.single_attempt && tries < TRIES_MAX && Instant::now() + backoff < until;
            if !will_retry || !self.budget.retry() {
                break outcome;
            }
            self.counters.retries.add();
            tokio::time::sleep(backoff).await;
        };
        self.record_outcome(&outcome, request.forwarded);
        outcome
    }

    /// Makes one attempt. If the token has expired, gets a new one and repeats once.
    async fn attempt(&self, request: &StoreRequest) -> Result<StoreResponse, Error> {
        let token = self.login.token(&self.pool).await?;
        let answer = self.pool.exchange(request, token.as_deref()).await?;
        if answer.status != StatusCode::UNAUTHORIZED || !self.login.ended(token.as_ref(), &answer.refusal().0)
        {
            return Ok(answer);
        }
        let token = self.login.token(&self.pool).await?;
        self.pool.exchange(request, token.as_deref()).await
    }

    /// Opens a response that is a stream without an end.
    pub(crate) async fn open(&self, request: &StoreRequest) -> Result<reqwest::Response, Error> {
        let begin = async {
            let token = self.login.token(&self.pool).await?;
            let response = self.pool.send(request, token.as_deref()).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let answer = read(response).await?;
            self.login.ended(token.as_ref(), &answer.refusal().0);
            match answer.checked() {
                Ok(_) => Err(Error::Unavailable("the response is empty".to_owned())),
                Err(error) => Err(error),
            }
        };
        let timeout_error = || Error::Unavailable(format!("no response within {:?}", self.deadline));
        timeout(self.deadline, begin).await.unwrap_or_else(|_| Err(timeout_error()))
    }

    /// Returns the reason why the store counts as unavailable, and whether a new attempt is due. `None` if it is available.
    pub(crate) fn outage(&self) -> Option<(Error, bool)> {
        let outage = self.outage.lock();
        outage.as_ref().map(|outage| (Error::Unavailable(outage.why.clone()), Instant::now() >= outage.until))
    }

    fn record_outcome(&self, outcome: &Result<StoreResponse, Error>, forwarded: bool) {
        let why = match outcome {
            // A read-only store rejects writes, but serves other requests.
            Ok(answer) if forwarded && !answer.status.is_success() => return,
            Ok(answer) if is_transient(answer.status) => {
                format!("{}: {}", answer.status, answer.refusal().1)
            }
            Err(Error::Unavailable(why)) => why.clone(),
            _ => {
                *self.outage.lock() = None;
                return;
            }
        };
        let mut outage = self.outage.lock();
        let pause = outage.as_ref().map_or(PAUSE, |outage| (outage.pause * 2).min(PAUSE_MAX));
        *outage = Some(Outage { until: Instant::now() + jitter(pause, 0.5), pause, why });
    }
}
