//! All held requests of a proxy, and the remembered approvals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::request::{HeldRequest, HoldKey};

/// Maximum held requests of a proxy.
pub const HELD_MAX: usize = 1_000;
/// Maximum held requests of one client.
pub const HELD_PER_CLIENT_MAX: usize = 20;
/// Maximum approvals that are remembered. Beyond the maximum, the approval that expires first is removed.
pub const APPROVALS_MAX: usize = 10_000;
/// Maximum time for which an approval is remembered.
pub const APPROVAL_FOR_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Maximum queued notifications of a slow reader. Beyond the maximum, the oldest notifications are lost.
const NEWS_MAX: usize = HELD_MAX;
/// Number of random bytes in the id of a held request.
const ID_BYTES: usize = 5;

/// The held requests of a proxy, and the remembered approvals, in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct Holds(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    held_events: broadcast::Sender<HeldRequest>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Arc<str>, Waiting>,
    approvals: HashMap<HoldKey, RememberedApproval>,
}

#[derive(Debug)]
struct Waiting {
    request: HeldRequest,
    key: HoldKey,
    answer: oneshot::Sender<Answer>,
}

#[derive(Clone, Debug)]
struct RememberedApproval {
    until: Instant,
    hold: Arc<str>,
    by: Arc<str>,
}

/// A person's decision about a held request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// The request may be sent.
    Approved {
        /// The person who approved the request.
        by: Arc<str>,
    },
    /// The request is refused.
    Rejected {
        /// The person who rejected the request.
        by: Arc<str>,
        /// The reason that the client gets.
        reason: Option<String>,
    },
}

/// Data about a held request for the audit log.
#[derive(Clone, Debug)]
pub(crate) struct HoldRecord {
    /// Id of the held request.
    pub(crate) hold: Arc<str>,
    /// Id of the request in the audit log; `None` if an approval of an earlier request applies.
    pub(crate) request: Option<Arc<str>>,
    /// Name of the person who approved or rejected the request; `None` without a decision.
    pub(crate) by: Option<Arc<str>>,
}

/// An approval of a request by a person.
#[derive(Clone, Debug)]
pub(crate) struct Approval {
    /// The rule that held the request.
    pub(crate) rule: Option<Arc<str>>,
    pub(crate) record: HoldRecord,
}

/// No request with this id is held.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "no request with the id {0} is held: it was decided, its deadline has passed, or its client has closed the connection"
)]
pub struct NoSuchHold(pub String);

/// Reason why an approval fails.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ApprovalError {
    /// No request with this id is held.
    #[error(transparent)]
    NoSuchHold(#[from] NoSuchHold),
    /// The time for which to remember the approval is shorter than 1 s, or longer than [`APPROVAL_FOR_MAX`].
    #[error("the duration of an approval must be 1 s to 24 h")]
    Duration,
}

/// The limit of held requests is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum TooManyHeld {
    #[error("{HELD_PER_CLIENT_MAX} requests of this client are held already")]
    OfClient,
    #[error("{HELD_MAX} requests are held already")]
    All,
}

impl Default for Holds {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), held_events: broadcast::Sender::new(NEWS_MAX) }))
    }
}

impl Holds {
    /// Returns the held requests, longest held first.
    #[must_use]
    pub fn list(&self) -> Vec<HeldRequest> {
        let mut all: Vec<_> = self.0.state.lock().held.values().map(|one| one.request.clone()).collect();
        all.sort_by(|one, other| (one.since, &one.id).cmp(&(other.since, &other.id)));
        all
    }

    /// Returns a receiver of the requests that are held from now on.
    #[must_use]
    pub fn held_events(&self) -> broadcast::Receiver<HeldRequest> {
        self.0.held_events.subscribe()
    }

    /// Approves a held request as the person `by`: once, or with `remember` also equal requests within this time. Equal requests
    /// have the same client, user, rule, method, scheme, host, port and path. Returns the request, and the number of requests that
    /// are sent now.
    ///
    /// # Errors
    /// [`ApprovalError`]
    pub fn approve(
        &self,
        id: &str,
        remember: Option<Duration>,
        by: &str,
    ) -> Result<(HeldRequest, usize), ApprovalError> {
        if remember.is_some_and(|time| !(Duration::from_secs(1)..=APPROVAL_FOR_MAX).contains(&time)) {
            return Err(ApprovalError::Duration);
        }
        let by: Arc<str> = by.into();
        let mut state = self.0.state.lock();
        let Waiting { request, key, answer } = state.take(id)?;
        let mut answers = vec![answer];
        if let Some(time) = remember {
            state.remember(
                key,
                RememberedApproval { until: Instant::now() + time, hold: id.into(), by: Arc::clone(&by) },
            );
            let equal = state.held.extract_if(|_, one| one.key == key);
            answers.extend(equal.map(|(_, one)| one.answer));
        }
        drop(state);
        let sent = answers.into_iter().map(|answer| answer.send(Answer::Approved { by: Arc::clone(&by) }));
        // Requests whose client disconnected in the meantime are not counted.
        let sent = sent.filter(Result::is_ok).count();
        match sent {
            0 => Err(NoSuchHold(id.to_owned()).into()),
            sent => Ok((request, sent)),
        }
    }

    /// Rejects a held request as the person `by`. The client gets the reason.
    ///
    /// # Errors
    /// [`NoSuchHold`]
    pub fn reject(&self, id: &str, reason: Option<String>, by: &str) -> Result<HeldRequest, NoSuchHold> {
        let Waiting { request, answer, .. } = self.0.state.lock().take(id)?;
        let rejected = Answer::Rejected { by: by.into(), reason };
        answer.send(rejected).map_err(|_| NoSuchHold(id.to_owned()))?;
        Ok(request)
    }

    /// Returns the remembered approval of a request.
    pub(crate) fn remembered(&self, key: &HoldKey) -> Option<HoldRecord> {
        let state = self.0.state.lock();
        let found = state.approvals.get(key).filter(|one| one.until > Instant::now())?;
        Some(HoldRecord { hold: Arc::clone(&found.hold), request: None, by: Some(Arc::clone(&found.by)) })
    }

    /// Holds a request, and sets its id.
    ///
    /// # Errors
    /// [`TooManyHeld`]
    pub(crate) fn hold(&self, key: HoldKey, mut request: HeldRequest) -> Result<Hold, TooManyHeld> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.0.state.lock();
        if state.held.len() >= HELD_MAX {
            return Err(TooManyHeld::All);
        }
        let of_client = state.held.values().filter(|one| one.request.client == request.client).count();
        if of_client >= HELD_PER_CLIENT_MAX {
            return Err(TooManyHeld::OfClient);
        }
        let id = state.new_id();
        request.id = id.to_string();
        state.held.insert(Arc::clone(&id), Waiting { request, key, answer });
        Ok(Hold { holds: self.clone(), id, answer: receiver })
    }
}

impl State {
    fn take(&mut self, id: &str) -> Result<Waiting, NoSuchHold> {
        self.held.remove(id).ok_or_else(|| NoSuchHold(id.to_owned()))
    }

    fn new_id(&self) -> Arc<str> {
        loop {
            let id: Arc<str> = HEXLOWER.encode(&Uuid::new_v4().as_bytes()[..ID_BYTES]).into();
            if !self.held.contains_key(&id) {
                return id;
            }
        }
    }

    fn remember(&mut self, key: HoldKey, approval: RememberedApproval) {
        if self.approvals.len() >= APPROVALS_MAX && !self.approvals.contains_key(&key) {
            let now = Instant::now();
            self.approvals.retain(|_, one| one.until > now);
        }
        if self.approvals.len() >= APPROVALS_MAX && !self.approvals.contains_key(&key) {
            let first = self.approvals.iter().min_by_key(|(_, one)| one.until).map(|(key, _)| *key);
            first.and_then(|first| self.approvals.remove(&first));
        }
        self.approvals.insert(key, approval);
    }
}

/// A held request. Dropping the value ends the hold.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Holds,
    id: Arc<str>,
    answer: oneshot::Receiver<Answer>,
}

impl Hold {
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Notifies readers of the held request.
    pub(crate) fn announce(&self) {
        let request = self.holds.0.state.lock().held.get(&self.id).map(|one| one.request.clone());
        if let Some(request) = request {
            // Fails if there is no reader, which is not an error.
            let _ = self.holds.0.held_events.send(request);
        }
    }

    /// Waits for the decision of a person.
    pub(crate) async fn answered(&mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }

    /// Ends the hold. Returns the decision if a person has made one.
    pub(crate) fn end(mut self) -> Option<Answer> {
        self.holds.0.state.lock().held.remove(&self.id);
        self.answer.try_recv().ok()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let removed = self.holds.0.state.lock().held.remove(&self.id);
        // Dropped outside of the lock.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn request(client: &str) -> HeldRequest {
        HeldRequest {
            id: String::new(),
            client: client.into(),
            identity: None,
            user: None,
            method: "GET".into(),
            url: "https://a.example/".into(),
            host: "a.example".into(),
            port: 443,
            path: "/".into(),
            rule: "r".into(),
            credentials: Vec::new(),
            since: Timestamp::UNIX_EPOCH,
            deadline: Timestamp::UNIX_EPOCH,
        }
    }

    fn hold(holds: &Holds, client: &str) -> Result<Hold, TooManyHeld> {
        holds.hold(HoldKey::new((client, None), "r", "GET", "https://a.example/"), request(client))
    }

    #[tokio::test]
    async fn held_requests_of_a_client_and_of_the_proxy_are_limited() {
        let holds = Holds::default();
        let mut all: Vec<_> = (0..HELD_PER_CLIENT_MAX).map(|_| hold(&holds, "a").unwrap()).collect();
        assert_eq!(hold(&holds, "a").unwrap_err(), TooManyHeld::OfClient);
        all.pop();
        all.push(hold(&holds, "a").unwrap());
        all.extend((HELD_PER_CLIENT_MAX..HELD_MAX).map(|number| hold(&holds, &number.to_string()).unwrap()));
        assert_eq!(hold(&holds, "b").unwrap_err(), TooManyHeld::All);
        assert_eq!(holds.list().len(), HELD_MAX);
        drop(all);
        assert!(holds.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn remembered_approval_answers_equal_requests_until_it_expires() {
        let holds = Holds::default();
        let (mut first, mut second) = (hold(&holds, "a").unwrap(), hold(&holds, "a").unwrap());
        let other = hold(&holds, "b").unwrap();
        let hour = Duration::from_secs(3_600);
        let (_, sent) = holds.approve(first.id(), Some(hour), "alice").unwrap();
        assert_eq!(sent, 2);
        let approved = Some(Answer::Approved { by: "alice".into() });
        assert_eq!((first.answered().await, second.answered().await), (approved.clone(), approved));
        assert_eq!(holds.list().len(), 1);
        let key = |client| HoldKey::new((client, None), "r", "GET", "https://a.example/");
        assert_eq!(holds.remembered(&key("a")).unwrap().hold, *first.id());
        assert!(holds.remembered(&key("b")).is_none());
        // A decision at the same moment as the deadline takes effect.
        holds.reject(other.id(), Some("no".into()), "bob").unwrap();
        assert!(matches!(other.end(), Some(Answer::Rejected { .. })));
        tokio::time::advance(hour).await;
        assert!(holds.remembered(&key("a")).is_none());
        assert!(holds.approve(first.id(), None, "alice").is_err(), "it is decided");
        let long = holds.approve("x", Some(APPROVAL_FOR_MAX + Duration::from_secs(1)), "alice");
        assert_eq!(long, Err(ApprovalError::Duration));
    }

    #[tokio::test(start_paused = true)]
    async fn approval_of_one_user_of_an_identity_does_not_count_for_another() {
        let holds = Holds::default();
        let key = |user| HoldKey::new(("identity:ci", Some(user)), "r", "GET", "https://a.example/");
        let bobs = holds.hold(key("bob"), request("identity:ci")).unwrap();
        let _anns = holds.hold(key("ann"), request("identity:ci")).unwrap();
        let hour = Duration::from_secs(3_600);
        assert_eq!(holds.approve(bobs.id(), Some(hour), "user:ann").unwrap().1, 1, "only bob's is sent");
        assert!(holds.remembered(&key("bob")).is_some());
        assert!(holds.remembered(&key("ann")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn approval_that_expires_first_is_forgotten_first() {
        let mut state = State::default();
        let key = |number: usize| HoldKey::new((&number.to_string(), None), "", "", "");
        for number in 0..=APPROVALS_MAX {
            let until = Instant::now() + Duration::from_secs(60 + number as u64);
            state.remember(key(number), RememberedApproval { until, hold: "".into(), by: "".into() });
        }
        assert_eq!(state.approvals.len(), APPROVALS_MAX);
        assert!(!state.approvals.contains_key(&key(0)) && state.approvals.contains_key(&key(1)));
    }
}
