//! A key on other nodes. Routes each signature request to the nearest node; retries and hedges within the deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use keys::{Deadline, KeyType, Scheme, SignError, Signer};

use super::attempt::{Attempt, Path, RequestContext};
use super::error::{PeerError, RouteError};
use super::holders::Holders;
use super::options::TRIES_MAX;
use super::peer::Peer;
use super::router::Router;
use crate::limits::NODE_PER_TENANT_MAX;
use crate::native::proto::{SignRequest, sign_request};
use crate::native::proto_scheme;
use crate::wire::Ski;

/// A key on other nodes, identified by its public key.
#[derive(Clone, Debug)]
pub struct RoutedKey {
    router: Router,
    holders: Arc<Holders>,
    ski: Ski,
    kind: KeyType,
    spki: Box<[u8]>,
}

impl Router {
    /// Returns the key with this public key (DER SubjectPublicKeyInfo) on `holders`. `None` if signatures with the key type are not
    /// supported.
    #[must_use]
    pub fn key(&self, holders: &Arc<Holders>, spki: &[u8]) -> Option<RoutedKey> {
        RoutedKey::new(self.clone(), Arc::clone(holders), spki)
    }
}

impl RoutedKey {
    fn new(router: Router, holders: Arc<Holders>, spki: &[u8]) -> Option<Self> {
        let kind = KeyType::of_spki(spki).filter(|kind| Scheme::of(*kind).is_some())?;
        Some(Self { router, holders, ski: Ski::of_spki(spki), kind, spki: spki.into() })
    }

    /// Returns the 99th percentile of the reply time of the slowest eligible node; `None` until it is known for all of them. A
    /// timeout counts as a reply after the waited time, so that the value grows when nodes become slower.
    pub(crate) fn usual_duration(&self) -> Option<Duration> {
        let nearest = self.holders.nearest();
        let usual_duration: Option<Vec<Duration>> =
            nearest.iter().map(|peer| peer.usual_duration()).collect();
        usual_duration?.into_iter().max()
    }

    /// Routes a request to the nearest node. Retries on a second and third node if the first is down, late or overloaded. Hedges if
    /// a reply takes longer than 95 % of the node's replies. At most a tenth of all requests is retried or hedged; attempts that
    /// did no work are not counted. The first reply wins, and the other attempts are cancelled.
    ///
    /// # Errors
    /// [`RouteError`], at the latest shortly after the deadline.
    ///
    /// # Cancellation
    /// Dropping the future cancels the attempts in flight.
    pub(crate) async fn request(
        &self,
        scheme: Scheme,
        input: &[u8],
        context: &RequestContext<'_>,
    ) -> Result<Vec<u8>, RouteError> {
        let inner = &self.router.0;
        inner.budget.earn();
        let nearest = self.nearest(context.deadline).await?;
        let request = SignRequest {
            key: Some(sign_request::Key::Ski(self.ski.0.to_vec())),
            scheme: proto_scheme(scheme).into(),
            input: input.to_vec(),
            traceparent: context.trace.map(|trace| trace.to_string()).unwrap_or_default(),
            tenant: context.tenant.to_owned(),
            policy: context.policy.to_owned(),
            ..SignRequest::default()
        };
        let mut attempts = FuturesUnordered::new();
        let mut candidates =
            Candidates { rest: nearest.into(), failures: Failures::default(), path_retries: TRIES_MAX };
        let Some(first) = candidates.rest.pop_front() else { return Err(RouteError::NoNode) };
        let mut hedge_after = first.hedge_after();
        self.check_distance(&first, context.deadline)?;
        attempts.push(self.attempt(first, &request, context, "first"));
        loop {
            tokio::select! {
                Some(attempt) = attempts.next() => match self.next_step(attempt, &mut candidates, context, attempts.is_empty()).await? {
                    NextStep::Signed(signature) => return Ok(signature),
                    NextStep::Attempt(next, why) => attempts.push(self.attempt(next, &request, context, why)),
                    NextStep::Wait => {}
                },
                () = tokio::time::sleep(hedge_after), if !candidates.rest.is_empty() => {
                    if let Some(next) = self.next_candidate(&mut candidates.rest, context.deadline, Some("hedged"), false) {
                        hedge_after = next.hedge_after();
                        attempts.push(self.attempt(next, &request, context, "hedged"));
                    } else {
                        hedge_after *= 2;
                    }
                }
            }
        }
    }

    /// Chooses the next step after an attempt. `is_last`: no other attempt is in flight.
    async fn next_step(
        &self,
        attempt: Attempt,
        candidates: &mut Candidates,
        context: &RequestContext<'_>,
        is_last: bool,
    ) -> Result<NextStep, RouteError> {
        if attempt.has_another_path() && is_last && candidates.rest.is_empty() && candidates.path_retries > 0
        {
            // Only a lost connection uses up one of these attempts. An overloaded node does not.
            candidates.path_retries -= 1;
            candidates.rest = self.nearest(context.deadline).await?.into();
        }
        let Attempt { peer, reply, .. } = attempt;
        let error = match reply {
            Ok(signature) => return Ok(NextStep::Signed(signature)),
            Err(error) if error.may_go_elsewhere() => error,
            Err(PeerError::Answered(status)) => {
                return Err(RouteError::Refused { node: peer.member().name.clone(), status });
            }
            Err(error) => error,
        };
        if error.lacks_key() {
            self.holders.lacks(peer.member().id);
        }
        let why = if error.did_no_work() { None } else { Some("retried") };
        // A lost node does no more work, so another attempt adds no load.
        let is_free = matches!(error, PeerError::Lost) && is_last;
        candidates.failures.note(&peer, error);
        match self.next_candidate(&mut candidates.rest, context.deadline, why, is_free) {
            Some(next) => Ok(NextStep::Attempt(next, why.unwrap_or("next"))),
            None if is_last => Err(std::mem::take(&mut candidates.failures).into_error()),
            None => Ok(NextStep::Wait),
        }
    }

    /// Returns the nearest connected nodes. Waits until the deadline for a first connection.
    async fn nearest(&self, deadline: Deadline) -> Result<Vec<Arc<Peer>>, RouteError> {
        let changed = &self.router.0.changed;
        loop {
            // Subscribe before the check, so that no change is missed.
            let mut word = std::pin::pin!(changed.notified());
            word.as_mut().enable();
            let nearest = self.holders.nearest();
            if !nearest.is_empty() {
                return Ok(nearest);
            }
            if !self.holders.may_come() || tokio::time::timeout_at(deadline.into(), word).await.is_err() {
                return Err(RouteError::NoNode);
            }
        }
    }

    fn check_distance(&self, peer: &Peer, deadline: Deadline) -> Result<(), RouteError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let required_time = self.required_time(peer);
        if left > required_time {
            return Ok(());
        }
        Err(RouteError::TooFar {
            node: peer.member().name.clone(),
            round_trip_ms: required_time.as_millis() as u64,
            left_ms: left.as_millis() as u64,
        })
    }

    /// Returns the round-trip time of a request to the node, including the reserved margins but not the time for signing.
    fn required_time(&self, peer: &Peer) -> Duration {
        // A relay also reserves a margin.
        let hops = if peer.is_relayed() { 2 } else { 1 };
        peer.round_trip().unwrap_or_default() + self.router.0.options.margin * hops
    }

    /// Returns the next node that is near enough, if the retry budget permits another attempt. `why` is the reason for the retry;
    /// `None` for an attempt that is not a retry. With `is_free`, the attempt uses no budget.
    fn next_candidate(
        &self,
        rest: &mut VecDeque<Arc<Peer>>,
        deadline: Deadline,
        why: Option<&'static str>,
        is_free: bool,
    ) -> Option<Arc<Peer>> {
        rest.retain(|peer| self.check_distance(peer, deadline).is_ok());
        rest.front()?;
        let Some(why) = why else { return rest.pop_front() };
        if !is_free && !self.router.0.budget.spend() {
            self.router.0.metrics.second_try("out-of-budget");
            return None;
        }
        self.router.0.metrics.second_try(why);
        rest.pop_front().inspect(|peer| peer.metrics.second_try(why))
    }

    async fn attempt(
        &self,
        peer: Arc<Peer>,
        request: &SignRequest,
        context: &RequestContext<'_>,
        why: &'static str,
    ) -> Attempt {
        let request = context.peer_request(request.clone(), self.router.0.options.margin);
        let attempt = Attempt::run(peer, request, Path::Shortest, context, why).await;
        if let Some(relay) = attempt.lost_relay() {
            self.router.0.record_lost_path(relay, attempt.peer.member().id);
        }
        attempt
    }
}

/// The nodes that may still receive a signature request, and the errors of the nodes that failed.
struct Candidates {
    rest: VecDeque<Arc<Peer>>,
    failures: Failures,
    /// Remaining attempts over another path, for a request whose connection broke before its response.
    path_retries: usize,
}

/// The step after an attempt.
enum NextStep {
    Signed(Vec<u8>),
    /// Send the request to this node, for this reason.
    Attempt(Arc<Peer>, &'static str),
    /// Send nothing: other attempts are in flight.
    Wait,
}

/// Errors of the failed nodes.
#[derive(Default)]
struct Failures {
    messages: Vec<String>,
    /// Whether any failure was neither overload nor a timeout.
    others: bool,
    /// Number of timeouts.
    late: usize,
    /// Number of overloaded nodes.
    full: usize,
}

impl Failures {
    fn note(&mut self, peer: &Peer, error: PeerError) {
        let code = match &error {
            PeerError::Answered(status) => Some(status.code()),
            _ => None,
        };
        match (&error, code) {
            (PeerError::Late, _) | (_, Some(tonic::Code::DeadlineExceeded)) => self.late += 1,
            (PeerError::Full, _) | (_, Some(tonic::Code::ResourceExhausted)) => self.full += 1,
            _ => self.others = true,
        }
        self.messages.push(format!("{}: {error}", peer.member().name));
    }

    fn into_error(self) -> RouteError {
        let messages = self.messages.join("; ");
        match self {
            Self { others: false, full: 0, .. } => RouteError::Late(messages),
            Self { others: false, late: 0, .. } => RouteError::Overloaded(messages),
            _ => RouteError::Unavailable(messages),
        }
    }
}

impl Signer for RoutedKey {
    fn key_type(&self) -> KeyType {
        self.kind
    }

    fn spki(&self) -> &[u8] {
        &self.spki
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        let (tenant, most) = (crate::tenant::DEFAULT, NODE_PER_TENANT_MAX);
        let context = RequestContext { tenant, most, policy: "", trace: None, hops: None, deadline };
        Box::pin(async move { Ok(self.request(scheme, input, &context).await?) })
    }
}
