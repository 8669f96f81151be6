//! Permission for leaves, requested from an external service of the operator before any lookup or minting.
//!
//! Denied names never reach the second level, so the service also protects the second level. Decisions are cached for a time, and
//! concurrent identical requests share one. Requests are limited in number, and for each client by rate. If there is no response,
//! [`OutagePolicy`] decides.

mod metrics;
mod options;
mod question;
mod question_slots;
mod service;
mod silence;

pub(crate) use metrics::PermissionMetrics;
pub use options::{
    ANSWERS_MAX, BadPermission, NO_FOR, Options, OutagePolicy, QUESTIONS_MAX, TIMEOUT, Token, YES_FOR,
};
pub(crate) use question::{Identity, LeafRequester};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use outbound::resolve::Resolver;
use tokio::time::Instant;

use crate::certificate_store::{LOOKUPS_PER_NAME, NewNameLimit, RateLimitKey, TooManyNames};
use question::{Question, Unanswered};
use question_slots::QuestionSlots;
use service::{DecisionError, PermissionService};
use silence::CircuitBreaker;
use x509::HostOrIp;

/// Time for which a missing response is cached.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// Reason why the permission service does not permit a leaf certificate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum NotPermitted {
    /// The permission service denies the name.
    #[error("the permission service denies the name")]
    No,
    /// The service did not respond, and [`OutagePolicy::Refuse`] denies the leaf.
    #[error("the permission service did not decide: {0}")]
    Unknown(Arc<str>),
    /// The client has exceeded its rate limit of new names.
    #[error(transparent)]
    TooMany(#[from] TooManyNames),
    /// Too many permission requests are in progress.
    #[error("too many concurrent requests to the permission service")]
    Busy,
}

impl NotPermitted {
    /// Returns the name of the reason in metrics and in the access log.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::No => "not-permitted",
            Self::Unknown(_) => "permission-unknown",
            Self::TooMany(_) => "too-many-names",
            Self::Busy => "permission-busy",
        }
    }
}

/// The permission check before a leaf is minted. Clones share the cache.
#[derive(Clone, Default)]
pub(crate) struct Permission(Option<Arc<PermissionState>>);

struct PermissionState {
    service: PermissionService,
    answers: Cache<Question, bool, Unanswered>,
    /// Rate limit of requests about new names, which clients choose.
    name_limit: NewNameLimit,
    slots: QuestionSlots,
    silence: CircuitBreaker,
    yes_for: Duration,
    no_for: Duration,
    when_away: OutagePolicy,
    names_clients: bool,
    /// Whether the permission service answered the last request.
    is_available: AtomicBool,
    metrics: PermissionMetrics,
}

impl Permission {
    /// Creates a permission check. Without options, everything is permitted. Each client may cause ten times as many permission
    /// requests as it may mint new names (`per_minute`, `burst`).
    pub(crate) fn new(
        options: Option<&Options>,
        resolver: &Resolver,
        per_minute: u32,
        burst: u32,
        metrics: &PermissionMetrics,
    ) -> Result<Self, BadPermission> {
        let Some(options) = options else { return Ok(Self::default()) };
        let lookups = |names: u32| names.saturating_mul(LOOKUPS_PER_NAME);
        let answers = Cache::with_entries_max(options.answers_max);
        metrics.watch(answers.clone());
        Ok(Self(Some(Arc::new(PermissionState {
            service: PermissionService::new(options, resolver)?,
            answers,
            name_limit: NewNameLimit::new(lookups(per_minute), lookups(burst)),
            slots: QuestionSlots::new(options.questions_max),
            silence: CircuitBreaker::default(),
            yes_for: options.yes_for,
            no_for: options.no_for,
            when_away: options.when_away,
            names_clients: options.names_clients,
            is_available: AtomicBool::new(true),
            metrics: metrics.clone(),
        }))))
    }

    /// Returns whether `requester` may get a leaf for `name`. Immediate if the decision is cached. Otherwise it takes at most four
    /// times the timeout of a request: waiting for a slot and the response, and once more if another client's identical request
    /// found no slot.
    ///
    /// # Cancellation
    /// Dropping the future does not affect callers that share the request. The request is cancelled when no caller waits for it.
    pub(crate) async fn check(
        &self,
        requester: LeafRequester<'_>,
        name: &HostOrIp,
    ) -> Result<(), NotPermitted> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let charged = requester.charged();
        let question = Question::new(name, requester, inner.names_clients);
        let (began, max_wait) = (Instant::now(), 2 * inner.service.timeout());
        let answer = loop {
            let (this, requested, charged_for_it) = (Arc::clone(inner), question.clone(), charged.clone());
            let making = move || async move { this.put(&requested, charged_for_it).await };
            match inner.answers.fetch(&question, making).await {
                // The shared request failed at the limit of another client: start again.
                Err(Unanswered::TooMany(TooManyNames { client, .. }) | Unanswered::Busy(client))
                    if client != charged =>
                {
                    if began.elapsed() >= max_wait {
                        break Err(Unanswered::Busy(charged));
                    }
                }
                answer => break answer,
            }
        };
        let refused = match answer {
            Ok(true) => return Ok(()),
            Ok(false) => NotPermitted::No,
            Err(Unanswered::NoAnswer(_)) if inner.when_away == OutagePolicy::Allow => {
                inner.metrics.allowed_unanswered();
                return Ok(());
            }
            Err(Unanswered::NoAnswer(why) | Unanswered::NotPut(why)) => NotPermitted::Unknown(why),
            Err(Unanswered::TooMany(refused)) => NotPermitted::TooMany(refused),
            Err(Unanswered::Busy(_)) => NotPermitted::Busy,
        };
        inner.metrics.refused(refused.name());
        Err(refused)
    }
}

impl PermissionState {
    /// Sends the request to the service, once for all callers that wait.
    async fn put(
        &self,
        question: &Question,
        charged: RateLimitKey,
    ) -> Result<Fresh<bool>, Failed<Unanswered>> {
        // Not cached: the error does not depend on the name, and the next client may be within its limits.
        let ours = |error| Failed { error, lifetime: Duration::ZERO };
        let admitted = self.name_limit.admit(&charged, &question.name);
        admitted.map_err(|refused| ours(Unanswered::TooMany(refused)))?;
        // While the service is unavailable, requests fail without using a slot or time.
        if !self.silence.allows_request() {
            let why =
                "the permission service did not answer the last requests; it is retried once per second"
                    .into();
            return Err(Failed { error: Unanswered::NoAnswer(why), lifetime: FAILURE_LIFE });
        }
        let slot = self.slots.enter(&charged, self.service.timeout()).await;
        let _slot = slot.ok_or_else(|| ours(Unanswered::Busy(charged)))?;
        let began = Instant::now();
        let answer = self.service.put(question).await;
        self.metrics.requested(answer.as_ref().ok().copied(), began.elapsed());
        self.note(&answer);
        match answer {
            Ok(true) => Ok(Fresh { value: true, lifetime: self.yes_for }),
            Ok(false) => {
                tracing::debug!(name = %question.name, "the permission service denied a name");
                Ok(Fresh { value: false, lifetime: self.no_for })
            }
            Err(DecisionError::Silent(why)) => {
                Err(Failed { error: Unanswered::NoAnswer(why.into()), lifetime: FAILURE_LIFE })
            }
            Err(DecisionError::NotPut(why)) => {
                Err(Failed { error: Unanswered::NotPut(why.into()), lifetime: FAILURE_LIFE })
            }
        }
    }

    /// Logs only the first failure of an outage, because every request fails while the service is unavailable.
    fn note(&self, answer: &Result<bool, DecisionError>) {
        match answer {
            Ok(_) => {
                self.silence.record_success();
                if !self.is_available.swap(true, Relaxed) {
                    tracing::warn!("the permission service answers again");
                }
            }
            Err(DecisionError::Silent(why)) => {
                self.silence.record_failure();
                let when_away = self.when_away;
                match self.is_available.swap(false, Relaxed) {
                    true => tracing::error!(why, ?when_away, "the permission service does not answer"),
                    false => tracing::debug!(why, "the permission service does not answer"),
                }
            }
            Err(DecisionError::NotPut(why)) => {
                tracing::error!(why, "cannot send a request to the permission service")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_permission_depends_on_client_user_and_consumer() {
        let name = HostOrIp::parse("a.example").unwrap();
        let requester =
            |address: &str, user| LeafRequester { address: address.parse().unwrap(), user, consumer: None };
        let one = requester("192.0.2.1", Some("alice"));
        let long = "é".repeat(1_024);
        let (longer, other_longer) = (format!("{long}a"), format!("{long}b"));
        let others = [
            requester("192.0.2.2", Some("alice")),
            requester("192.0.2.1", Some("bob")),
            requester("192.0.2.1", Some(&longer)),
            requester("192.0.2.1", None),
        ];
        for other in others {
            assert_ne!(Question::new(&name, one, true), Question::new(&name, other, true));
            assert_eq!(Question::new(&name, one, false), Question::new(&name, other, false));
        }
        // Requests of consumers, which receive keys, are always distinguished.
        let identity = |whole: &str| {
            Arc::new(Identity { whole: whole.into(), subject: "CN=envoy".to_owned(), names: Vec::new() })
        };
        let (envoy, another) = (identity("CN=envoy a"), identity("CN=envoy b"));
        let consumer = |of| LeafRequester { consumer: Some(of), ..one };
        assert_ne!(Question::new(&name, one, false), Question::new(&name, consumer(&envoy), false));
        assert_ne!(
            Question::new(&name, consumer(&envoy), false),
            Question::new(&name, consumer(&another), false)
        );
        // Users are distinguished, even if only part of a name is sent.
        let user = |user| LeafRequester { user: Some(user), ..one };
        assert_ne!(
            Question::new(&name, user(&longer), true),
            Question::new(&name, user(&other_longer), true)
        );
    }

    #[test]
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", Token::new("hunter2".into())).contains("hunter2"));
    }
}
