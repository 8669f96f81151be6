//! A key that other nodes hold: the nearest is asked, then the next, within the caller's deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use keys::{Deadline, KeyType, Scheme, SignError, Signer};

use super::attempt::{Asking, attempted};
use super::error::{PeerError, RouteError};
use super::holders::Holders;
use super::options::TRIES_MAX;
use super::peer::{Asked, Peer};
use super::router::Router;
use crate::limits::NODE_PER_TENANT_MAX;
use crate::native::named;
use crate::native::proto::{SignRequest, sign_request};
use crate::wire::Ski;

/// A key held by other nodes, known by its public half.
#[derive(Clone, Debug)]
pub struct RoutedKey {
    router: Router,
    holders: Arc<Holders>,
    ski: Ski,
    kind: KeyType,
    spki: Box<[u8]>,
}

/// A try that ended.
struct Tried {
    peer: Arc<Peer>,
    done: Result<Vec<u8>, PeerError>,
    /// Another of the pod passed it on.
    is_relayed: bool,
}

impl Tried {
    /// The way ended at the one that passed requests on: whoever was asked may be asked by another way.
    fn has_another_way(&self) -> bool {
        self.is_relayed && matches!(self.done, Err(PeerError::Lost | PeerError::Unsent))
    }
}

impl Router {
    /// A key held by these, by its public half (DER SubjectPublicKeyInfo). `None` for a kind that signs for nobody.
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

    /// What all but a hundredth of the replies take, of the slowest of those that may be asked; `None` while that is not known of
    /// each of them. What came too late counts as what it took until then, so that this grows where they grow slower.
    pub(crate) fn usual(&self) -> Option<Duration> {
        let nearest = self.holders.nearest();
        let usual: Option<Vec<Duration>> = nearest.iter().map(|peer| peer.usual()).collect();
        usual?.into_iter().max()
    }

    /// Asks the nearest node. A second and a third one when that is gone, late or has too much to do, and when it takes
    /// longer than nineteen of twenty replies of it; for a tenth of all requests at most, those aside that did no work there. The first answer counts, and the
    /// other tries are taken back.
    ///
    /// # Errors
    /// [`RouteError`], never later than shortly after the deadline.
    ///
    /// # Cancellation
    /// Dropping the future takes back what is under way.
    pub(crate) async fn ask(
        &self,
        scheme: Scheme,
        input: &[u8],
        asking: &Asking<'_>,
    ) -> Result<Vec<u8>, RouteError> {
        let inner = &self.router.0;
        inner.budget.earn();
        let nearest = self.nearest(asking.deadline).await?;
        let request = SignRequest {
            key: Some(sign_request::Key::Ski(self.ski.0.to_vec())),
            scheme: named(scheme).into(),
            input: input.to_vec(),
            traceparent: asking.trace.map(|trace| trace.to_string()).unwrap_or_default(),
            tenant: asking.tenant.to_owned(),
            policy: asking.policy.to_owned(),
            ..SignRequest::default()
        };
        let mut tries = FuturesUnordered::new();
        let mut round = Round { rest: nearest.into(), failures: Failures::default(), other_ways: TRIES_MAX };
        let Some(first) = round.rest.pop_front() else { return Err(RouteError::Nobody) };
        let mut hedge_after = first.hedge_after();
        self.check_distance(&first, asking.deadline)?;
        tries.push(self.attempt(first, &request, asking, "first"));
        loop {
            tokio::select! {
                Some(tried) = tries.next() => match self.after(tried, &mut round, asking, tries.is_empty()).await? {
                    After::Signed(signature) => return Ok(signature),
                    After::Ask(next, why) => tries.push(self.attempt(next, &request, asking, why)),
                    After::Wait => {}
                },
                () = tokio::time::sleep(hedge_after), if !round.rest.is_empty() => {
                    if let Some(next) = self.another(&mut round.rest, asking.deadline, Some("hedged"), false) {
                        hedge_after = next.hedge_after();
                        tries.push(self.attempt(next, &request, asking, "hedged"));
                    } else {
                        hedge_after *= 2;
                    }
                }
            }
        }
    }

    /// What is done after a try, which may have been the last under way.
    async fn after(
        &self,
        tried: Tried,
        round: &mut Round,
        asking: &Asking<'_>,
        is_last: bool,
    ) -> Result<After, RouteError> {
        if tried.has_another_way() && is_last && round.rest.is_empty() && round.other_ways > 0 {
            round.other_ways -= 1;
            round.rest = self.nearest(asking.deadline).await?.into();
        }
        let Tried { peer, done, .. } = tried;
        let error = match done {
            Ok(signature) => return Ok(After::Signed(signature)),
            Err(error) if error.may_go_elsewhere() => error,
            Err(PeerError::Answered(status)) => {
                return Err(RouteError::Refused { node: peer.member().name.clone(), status });
            }
            Err(error) => error,
        };
        if error.is_lack() {
            self.holders.lacks(peer.member().id);
        }
        let why = if error.was_free() { None } else { Some("retried") };
        // What went with its node is no load there any more: to ask another once is none on top of the first.
        let is_free = matches!(error, PeerError::Lost) && is_last;
        round.failures.note(&peer, error);
        match self.another(&mut round.rest, asking.deadline, why, is_free) {
            Some(next) => Ok(After::Ask(next, why.unwrap_or("next"))),
            None if is_last => Err(std::mem::take(&mut round.failures).told()),
            None => Ok(After::Wait),
        }
    }

    /// Those that can be asked; waits for a first connection, never longer than the deadline.
    async fn nearest(&self, deadline: Deadline) -> Result<Vec<Arc<Peer>>, RouteError> {
        let changed = &self.router.0.changed;
        loop {
            // Listens before it looks, so that no change is missed.
            let mut word = std::pin::pin!(changed.notified());
            word.as_mut().enable();
            let nearest = self.holders.nearest();
            if !nearest.is_empty() {
                return Ok(nearest);
            }
            if !self.holders.may_come() || tokio::time::timeout_at(deadline.into(), word).await.is_err() {
                return Err(RouteError::Nobody);
            }
        }
    }

    fn check_distance(&self, peer: &Peer, deadline: Deadline) -> Result<(), RouteError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let way = self.way(peer);
        if left > way {
            return Ok(());
        }
        Err(RouteError::TooFar {
            node: peer.member().name.clone(),
            way_ms: way.as_millis() as u64,
            left_ms: left.as_millis() as u64,
        })
    }

    /// What a request takes there and back beside its work.
    fn way(&self, peer: &Peer) -> Duration {
        // Whoever passes it on keeps something, too.
        let hops = if peer.is_relayed() { 2 } else { 1 };
        peer.round_trip().unwrap_or_default() + self.router.0.options.margin * hops
    }

    /// The next one, if it is near enough and the budget has a second try left or it is free; none is counted where there is no
    /// reason.
    fn another(
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
        asking: &Asking<'_>,
        why: &'static str,
    ) -> Tried {
        let request = asking.outgoing(request.clone(), self.router.0.options.margin);
        let patience = request.patience;
        let asked = peer.ask(request);
        let through = asked.as_ref().ok().and_then(Asked::through).map(|member| member.id);
        let is_relayed = asked.is_err() || through.is_some();
        let done = attempted(&peer, asked, asking, why, patience).await;
        if let (Some(through), Err(PeerError::Unsent | PeerError::Lost)) = (through, &done) {
            self.router.0.lost_way(through, peer.member().id);
        }
        Tried { peer, done, is_relayed }
    }
}

/// Who may be asked still for one signature, and what those said that were.
struct Round {
    rest: VecDeque<Arc<Peer>>,
    failures: Failures,
    /// How often somebody may be asked again whose way ended under way.
    other_ways: usize,
}

enum After {
    Signed(Vec<u8>),
    /// This one, for this reason.
    Ask(Arc<Peer>, &'static str),
    /// Others are asked still.
    Wait,
}

/// What those said who could not.
#[derive(Default)]
struct Failures {
    said: Vec<String>,
    /// All so far had too much to do; all so far were late.
    others: bool,
    late: usize,
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
        self.said.push(format!("{}: {error}", peer.member().name));
    }

    fn told(self) -> RouteError {
        let said = self.said.join("; ");
        match self {
            Self { others: false, full: 0, .. } => RouteError::Late(said),
            Self { others: false, late: 0, .. } => RouteError::Overloaded(said),
            _ => RouteError::Unavailable(said),
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
        let asking = Asking { tenant, most, policy: "", trace: None, hops: None, deadline };
        Box::pin(async move { Ok(self.ask(scheme, input, &asking).await?) })
    }
}
