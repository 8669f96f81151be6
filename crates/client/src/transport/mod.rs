//! Requests: one pool of connections, deadlines, tries within a budget, bodies read whole within a bound.

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
pub(crate) use pool::{Endpoint, Pool, StoreRequest, StoreResponse, is_passing, wiped};
pub use socket::check_socket;

/// Of a request, the first try included.
const TRIES_MAX: u32 = 4;
/// A try takes one part in so many of the deadline, at most.
const TRY_PARTS: u32 = 2;
/// For what is sent once and passed on. Writes wait for locks and keys; one that is cut off is made all the same, and
/// anyone who asked does not know it.
const PASS_WITHIN: Duration = Duration::from_secs(120);
/// Before the second try, at most; doubled before each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// How long the store is left alone after it did not answer: the first time, and doubled up to the most.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The store did not answer.
struct Away {
    until: Instant,
    pause: Duration,
    why: String,
}

pub(crate) struct Transport {
    pool: Arc<Pool>,
    login: Login,
    deadline: Duration,
    budget: Budget,
    away: Mutex<Option<Away>>,
    pub(crate) counters: Arc<Counters>,
}

/// How to reach the store.
pub(crate) struct TransportOptions {
    pub(crate) place: Endpoint,
    /// PEM; the system's where there are none.
    pub(crate) roots: Option<Vec<u8>>,
    /// A certificate with its key, PEM.
    pub(crate) identity: Option<Zeroizing<Vec<u8>>>,
    pub(crate) login: Login,
    /// For one question, tries and all.
    pub(crate) deadline: Duration,
}

impl Transport {
    /// Creates the transport without connecting.
    pub(crate) fn new(reach: TransportOptions) -> Result<Self, Error> {
        let counters = Arc::<Counters>::default();
        let (roots, identity) = (reach.roots.as_deref(), reach.identity.as_ref().map(|pem| pem.as_slice()));
        let pool = Pool::new(&reach.place, roots, identity, Arc::clone(&counters))?;
        Ok(Self {
            pool: Arc::new(pool),
            login: reach.login,
            deadline: reach.deadline,
            budget: Budget::default(),
            away: Mutex::new(None),
            counters,
        })
    }

    /// The answer, whatever its status; what passes is tried again, within the deadline and the budget.
    pub(crate) async fn request(&self, request: &StoreRequest) -> Result<StoreResponse, Error> {
        let most =
            if request.once && request.passed { PASS_WITHIN.max(self.deadline) } else { self.deadline };
        let until = Instant::now() + most;
        self.budget.request();
        let mut tries = 0;
        let outcome = loop {
            let left = until.saturating_duration_since(Instant::now());
            tries += 1;
            // What has one try has all of the time for it.
            let most = if request.once { left } else { left.min(self.deadline / TRY_PARTS) };
            let late = |_| Err(Error::Unavailable(format!("no answer within {most:?}")));
            let outcome = timeout(most, self.attempt(request)).await.unwrap_or_else(late);
            let passing = match &outcome {
                Ok(answer) => is_passing(answer.status),
                Err(error) => error.is_unavailable(),
            };
            let backoff = jitter(BACKOFF * 2_u32.pow(tries - 1), 1.0);
            let again = passing && !request.once && tries < TRIES_MAX && Instant::now() + backoff < until;
            if !again || !self.budget.retry() {
                break outcome;
            }
            self.counters.retries.add();
            tokio::time::sleep(backoff).await;
        };
        self.note(&outcome, request.passed);
        outcome
    }

    /// One try; a token that has ended is asked for again, once.
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

    /// Begins an answer that has no end of its own.
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
                Ok(_) => Err(Error::Unavailable("it answered nothing".to_owned())),
                Err(error) => Err(error),
            }
        };
        let late = || Error::Unavailable(format!("no answer within {:?}", self.deadline));
        timeout(self.deadline, begin).await.unwrap_or_else(|_| Err(late()))
    }

    /// Why the store is taken to be away, and whether it is time to look again.
    pub(crate) fn away(&self) -> Option<(Error, bool)> {
        let away = self.away.lock();
        away.as_ref().map(|away| (Error::Unavailable(away.why.clone()), Instant::now() >= away.until))
    }

    fn note(&self, outcome: &Result<StoreResponse, Error>, passed: bool) {
        let why = match outcome {
            // A store that only reads refuses what writes, and answers others.
            Ok(answer) if passed && !answer.status.is_success() => return,
            Ok(answer) if is_passing(answer.status) => {
                format!("{}: {}", answer.status, answer.refusal().1)
            }
            Err(Error::Unavailable(why)) => why.clone(),
            _ => {
                *self.away.lock() = None;
                return;
            }
        };
        let mut away = self.away.lock();
        let pause = away.as_ref().map_or(PAUSE, |away| (away.pause * 2).min(PAUSE_MAX));
        *away = Some(Away { until: Instant::now() + jitter(pause, 0.5), pause, why });
    }
}
