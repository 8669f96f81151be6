//! Whether there may be a leaf at all, asked of a service of the operator's before anything is looked up or minted.
//!
//! Whose names are refused never reach the store behind memory: the permission protects it too. An answer counts for the same
//! question and for its time; one question is asked for all who wait for the same. Questions are bounded at once,
//! and by client in a time; silence is no answer, and [`WhenAway`] says what becomes of it.

mod metrics;
mod options;
mod question;
mod question_slots;
mod service;
mod silence;

pub(crate) use metrics::PermissionMetrics;
pub use options::{
    ANSWERS_MAX, BadPermission, NO_FOR, Options, QUESTIONS_MAX, TIMEOUT, Token, WhenAway, YES_FOR,
};
pub(crate) use question::{Asker, Identity};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use outbound::resolve::Resolver;
use tokio::time::Instant;

use crate::certificate_store::{LOOKS_PER_NAME, NewNameLimit, RateLimitKey, TooManyNames};
use question::{Question, Unanswered};
use question_slots::QuestionSlots;
use service::{AskError, PermissionService};
use silence::Silence;
use x509::HostOrIp;

/// How long it stands for the same question that there was no answer.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// Why there may be no leaf.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum NotPermitted {
    /// The answer is no.
    #[error("it is not permitted here")]
    No,
    /// There is no answer, and by [`WhenAway::Refuse`] no leaf.
    #[error("the permission service did not decide: {0}")]
    Unknown(Arc<str>),
    /// The client has had too many names asked for.
    #[error(transparent)]
    TooMany(#[from] TooManyNames),
    /// Too many questions are under way.
    #[error("too many questions for permission are under way")]
    Busy,
}

impl NotPermitted {
    /// As figures and the access log call it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::No => "not-permitted",
            Self::Unknown(_) => "permission-unknown",
            Self::TooMany(_) => "too-many-names",
            Self::Busy => "permission-busy",
        }
    }
}

/// Tells whether there may be a leaf. Cheap to clone; clones share what is remembered.
#[derive(Clone, Default)]
pub(crate) struct Permission(Option<Arc<PermissionState>>);

struct PermissionState {
    asking: PermissionService,
    answers: Cache<Question, bool, Unanswered>,
    /// Limits questions about new names, which clients choose.
    newcomers: NewNameLimit,
    places: QuestionSlots,
    silence: Silence,
    yes_for: Duration,
    no_for: Duration,
    when_away: WhenAway,
    names_clients: bool,
    /// Whether the last question got an answer.
    answers_now: AtomicBool,
    metrics: PermissionMetrics,
}

impl Permission {
    /// By `options`; everything is permitted without. Of each client, ten times as many names are asked for as it may have
    /// minted again (`per_minute`, `burst`).
    pub(crate) fn new(
        options: Option<&Options>,
        resolver: &Resolver,
        per_minute: u32,
        burst: u32,
        metrics: &PermissionMetrics,
    ) -> Result<Self, BadPermission> {
        let Some(options) = options else { return Ok(Self::default()) };
        let looks = |names: u32| names.saturating_mul(LOOKS_PER_NAME);
        let answers = Cache::with_entries(options.answers_max);
        metrics.watch(answers.clone());
        Ok(Self(Some(Arc::new(PermissionState {
            asking: PermissionService::new(options, resolver)?,
            answers,
            newcomers: NewNameLimit::new(looks(per_minute), looks(burst)),
            places: QuestionSlots::new(options.questions_max),
            silence: Silence::default(),
            yes_for: options.yes_for,
            no_for: options.no_for,
            when_away: options.when_away,
            names_clients: options.names_clients,
            answers_now: AtomicBool::new(true),
            metrics: metrics.clone(),
        }))))
    }

    /// Whether `asker` may have a leaf for `name`. Takes the question's time four times at most, and none where the answer
    /// is known: a place of its own client's, and the answer; once more where others who asked the same had no place.
    ///
    /// # Cancellation
    /// Dropping the future cancels nothing for others; with the last of them the question is given up.
    pub(crate) async fn ask(&self, asker: Asker<'_>, name: &HostOrIp) -> Result<(), NotPermitted> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let charged = asker.charged();
        let question = Question::new(name, asker, inner.names_clients);
        let (began, patience) = (Instant::now(), 2 * inner.asking.timeout());
        let answer = loop {
            let (this, asked, charged_for_it) = (Arc::clone(inner), question.clone(), charged.clone());
            let making = move || async move { this.put(&asked, charged_for_it).await };
            match inner.answers.fetch(&question, making).await {
                // Of another client who asks the same: this one begins again.
                Err(Unanswered::TooMany(TooManyNames { client, .. }) | Unanswered::Busy(client))
                    if client != charged =>
                {
                    if began.elapsed() >= patience {
                        break Err(Unanswered::Busy(charged));
                    }
                }
                answer => break answer,
            }
        };
        let refused = match answer {
            Ok(true) => return Ok(()),
            Ok(false) => NotPermitted::No,
            Err(Unanswered::NoAnswer(_)) if inner.when_away == WhenAway::Allow => {
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
    /// Puts the question, once for all who wait for it.
    async fn put(
        &self,
        question: &Question,
        charged: RateLimitKey,
    ) -> Result<Fresh<bool>, Failed<Unanswered>> {
        // Not remembered: it says nothing of the name, and the next client may.
        let ours = |error| Failed { error, lifetime: Duration::ZERO };
        let admitted = self.newcomers.admit(&charged, &question.name);
        admitted.map_err(|refused| ours(Unanswered::TooMany(refused)))?;
        // Who waits for nobody takes no place and no time.
        if !self.silence.lets_through() {
            let why = "who is asked has not answered the last questions; one a second is put".into();
            return Err(Failed { error: Unanswered::NoAnswer(why), lifetime: FAILURE_LIFE });
        }
        let place = self.places.enter(&charged, self.asking.timeout()).await;
        let _place = place.ok_or_else(|| ours(Unanswered::Busy(charged)))?;
        let began = Instant::now();
        let answer = self.asking.put(question).await;
        self.metrics.asked(answer.as_ref().ok().copied(), began.elapsed());
        self.note(&answer);
        match answer {
            Ok(true) => Ok(Fresh { value: true, lifetime: self.yes_for }),
            Ok(false) => {
                tracing::debug!(name = %question.name, "a name is not permitted");
                Ok(Fresh { value: false, lifetime: self.no_for })
            }
            Err(AskError::Silent(why)) => {
                Err(Failed { error: Unanswered::NoAnswer(why.into()), lifetime: FAILURE_LIFE })
            }
            Err(AskError::NotPut(why)) => {
                Err(Failed { error: Unanswered::NotPut(why.into()), lifetime: FAILURE_LIFE })
            }
        }
    }

    /// Once, until there is an answer again: while it is away it is every question.
    fn note(&self, answer: &Result<bool, AskError>) {
        match answer {
            Ok(_) => {
                self.silence.over();
                if !self.answers_now.swap(true, Relaxed) {
                    tracing::warn!("who is asked for permission answers again");
                }
            }
            Err(AskError::Silent(why)) => {
                self.silence.goes_on();
                let when_away = self.when_away;
                match self.answers_now.swap(false, Relaxed) {
                    true => tracing::error!(why, ?when_away, "who is asked for permission does not answer"),
                    false => tracing::debug!(why, "who is asked for permission does not answer"),
                }
            }
            Err(AskError::NotPut(why)) => tracing::error!(why, "a question for permission cannot be put"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_what_was_asked_and_for_nobody_else() {
        let name = HostOrIp::parse("a.example").unwrap();
        let asker = |address: &str, user| Asker { address: address.parse().unwrap(), user, consumer: None };
        let one = asker("192.0.2.1", Some("alice"));
        let long = "é".repeat(1_024);
        let (longer, other_longer) = (format!("{long}a"), format!("{long}b"));
        let others = [
            asker("192.0.2.2", Some("alice")),
            asker("192.0.2.1", Some("bob")),
            asker("192.0.2.1", Some(&longer)),
            asker("192.0.2.1", None),
        ];
        for other in others {
            assert_ne!(Question::new(&name, one, true), Question::new(&name, other, true));
            assert_eq!(Question::new(&name, one, false), Question::new(&name, other, false));
        }
        // A consumer gets keys: it is always told apart.
        let identity = |whole: &str| {
            Arc::new(Identity { whole: whole.into(), subject: "CN=envoy".to_owned(), names: Vec::new() })
        };
        let (envoy, another) = (identity("CN=envoy a"), identity("CN=envoy b"));
        let consumer = |of| Asker { consumer: Some(of), ..one };
        assert_ne!(Question::new(&name, one, false), Question::new(&name, consumer(&envoy), false));
        assert_ne!(
            Question::new(&name, consumer(&envoy), false),
            Question::new(&name, consumer(&another), false)
        );
        // However much of it they have in common, and whatever of it is told.
        let user = |user| Asker { user: Some(user), ..one };
        assert_ne!(
            Question::new(&name, user(&longer), true),
            Question::new(&name, user(&other_longer), true)
        );
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Token::new("hunter2".into())).contains("hunter2"));
    }
}
