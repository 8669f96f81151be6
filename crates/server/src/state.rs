//! What every route can reach.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use authority::Authority;
use axum::extract::FromRequestParts;
use http::request::Parts;
use store::{Clock, Store};
use tokio_util::sync::CancellationToken;

use crate::access::{AccessControl, Authenticate, Authentication, Authenticators, SessionOptions};
use crate::events::Events;
use crate::limit::{LimitOptions, Limits};
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::rotating::Rotating;

/// Seconds after which to ask a server again that does not (yet) run what was asked for.
const ROOM_RETRY_SECONDS: u64 = 10;

/// What every route can reach: the store, the metrics, and a handle of every other room that this process runs.
///
/// Cheap to clone. Handlers take it as an argument: `state: State`.
#[derive(Clone)]
pub struct State(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Clock,
    metrics: Metrics,
    access: AccessControl,
    authentication: Authentication,
    limits: Limits,
    events: Events,
    rotating: Rotating,
    stopping: CancellationToken,
    rooms: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// Gathers what a [`State`] holds.
pub struct StateBuilder {
    store: Store,
    clock: Clock,
    sessions: SessionOptions,
    limits: LimitOptions,
    authenticators: Authenticators,
    rooms: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl StateBuilder {
    /// How long sessions live.
    #[must_use]
    pub fn sessions(mut self, options: SessionOptions) -> Self {
        self.sessions = options;
        self
    }

    /// How often one may ask.
    #[must_use]
    pub fn limits(mut self, options: LimitOptions) -> Self {
        self.limits = options;
        self
    }

    /// Accepts another room's bearer tokens (agents').
    #[must_use]
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticate>) -> Self {
        self.authenticators.push(authenticator);
        self
    }

    /// Adds a handle: `.with(authority)`, found again by `state.room::<Authority>()`. One a type; the last stays.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, room: T) -> Self {
        self.rooms.insert(TypeId::of::<T>(), Box::new(room));
        self
    }

    /// Done.
    #[must_use]
    pub fn build(self) -> State {
        let access = AccessControl::new(self.store.clone(), self.clock.clone(), self.sessions);
        let authority =
            self.rooms.get(&TypeId::of::<Authority>()).and_then(|room| room.downcast_ref()).cloned();
        State(Arc::new(Inner {
            store: self.store,
            clock: self.clock,
            metrics: Metrics::default(),
            authentication: Authentication::new(access.clone(), self.authenticators, authority),
            access,
            limits: Limits::new(&self.limits),
            events: Events::default(),
            rotating: Rotating::default(),
            stopping: CancellationToken::new(),
            rooms: self.rooms,
        }))
    }
}

impl State {
    /// Begins with what every server has.
    #[must_use]
    pub fn builder(store: Store, clock: Clock) -> StateBuilder {
        StateBuilder {
            store,
            clock,
            sessions: SessionOptions::default(),
            limits: LimitOptions::default(),
            authenticators: Vec::new(),
            rooms: HashMap::new(),
        }
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The metrics; other rooms register theirs in them.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Who is let in.
    #[must_use]
    pub fn access(&self) -> &AccessControl {
        &self.0.access
    }

    /// Cancelled once the server is to stop: what runs long ends then.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    pub(crate) fn authentication(&self) -> &Authentication {
        &self.0.authentication
    }

    pub(crate) fn events(&self) -> &Events {
        &self.0.events
    }

    /// The master key's rotation of this node.
    pub(crate) fn rotating(&self) -> &Rotating {
        &self.0.rotating
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// A handle that [`StateBuilder::with`] added.
    ///
    /// # Errors
    /// 503 when this process does not run it.
    pub fn room<T: Any + Send + Sync>(&self) -> Result<&T, Problem> {
        self.try_room().ok_or_else(|| {
            Problem::unavailable("this server does not run what was asked for", ROOM_RETRY_SECONDS)
        })
    }

    /// [`State::room`], if this process runs it.
    #[must_use]
    pub fn try_room<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.rooms.get(&TypeId::of::<T>()).and_then(|room| room.downcast_ref())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl FromRequestParts<Self> for State {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &Self) -> Result<Self, Infallible> {
        Ok(state.clone())
    }
}
