//! What every route can reach.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use store::{Clock, Store};

use crate::metrics::Metrics;
use crate::problem::Problem;

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
    rooms: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// Gathers what a [`State`] holds.
pub struct StateBuilder(Inner);

impl StateBuilder {
    /// Adds a handle: `.with(authority)`, found again by `state.room::<Authority>()`. One a type; the last stays.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, room: T) -> Self {
        self.0.rooms.insert(TypeId::of::<T>(), Box::new(room));
        self
    }

    /// Done.
    #[must_use]
    pub fn build(self) -> State {
        State(Arc::new(self.0))
    }
}

impl State {
    /// Begins with what every server has.
    #[must_use]
    pub fn builder(store: Store, clock: Clock) -> StateBuilder {
        StateBuilder(Inner { store, clock, metrics: Metrics::default(), rooms: HashMap::new() })
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
