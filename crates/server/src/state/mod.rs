//! The state that all routes share.

mod components;
mod extract;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use authority::ClientCertificates;
use authority::teams::TeamDirectory;
use axum::extract::FromRequestParts;
use http::request::Parts;
use parking_lot::Mutex;
use shared::Shared;
use store::{Clock, Store};
use tokio_util::sync::CancellationToken;

use crate::access::{AccessControl, Authenticate, Authentication, Authenticators, SessionOptions};
use crate::events::Events;
use crate::limit::{LimitOptions, Limits};
use crate::metrics::Metrics;
use crate::rotating::Rotating;
use crate::upkeep::BackgroundTasks;

pub use components::{Components, Issuance, KeyNodes};
pub use extract::Component;

/// The state that all routes share: the parts that every server has, and the [`Components`] that this process runs.
///
/// Cheap to clone. Handlers take the parts that they need as arguments: `With(store): With<Store>` for a part that every server
/// has, `Component(lifecycle): Component<Lifecycle>` for a component.
#[derive(Clone)]
pub struct State(Shared<StateParts>);

struct StateParts {
    store: Store,
    clock: Clock,
    metrics: Metrics,
    access: AccessControl,
    authentication: Authentication,
    limits: Arc<Limits>,
    /// The background tasks, taken by the server that starts them.
    upkeep: Mutex<Option<BackgroundTasks>>,
    events: Events,
    rotating: Rotating,
    stopping: CancellationToken,
    signed_approvals: bool,
    components: Components,
}

/// A builder for [`State`].
pub struct StateBuilder {
    store: Store,
    clock: Clock,
    sessions: SessionOptions,
    limits: LimitOptions,
    authenticators: Authenticators,
    signed_approvals: bool,
    components: Components,
}

impl StateBuilder {
    /// Sets the lifetimes of sessions; `SessionOptions::default()` unless set.
    #[must_use]
    pub fn sessions(mut self, options: SessionOptions) -> Self {
        self.sessions = options;
        self
    }

    /// Sets the rate limits; `LimitOptions::default()` unless set.
    #[must_use]
    pub fn limits(mut self, options: LimitOptions) -> Self {
        self.limits = options;
        self
    }

    /// Adds an authenticator for the bearer tokens of another component.
    #[must_use]
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticate>) -> Self {
        self.authenticators.push(authenticator);
        self
    }

    /// Sets whether approvers must sign the plan with a security key; false unless set.
    #[must_use]
    pub fn signed_approvals(mut self, required: bool) -> Self {
        self.signed_approvals = required;
        self
    }

    /// Sets the components that this process runs; none unless set.
    #[must_use]
    pub fn components(mut self, components: Components) -> Self {
        self.components = components;
        self
    }

    /// Creates the state. Background tasks are not started.
    #[must_use]
    pub fn build(self) -> State {
        let teams = match &self.components.issuance {
            Some(issuance) => issuance.authority.teams().clone(),
            None => TeamDirectory::new(self.store.clone()),
        };
        let access = AccessControl::with_teams(self.store.clone(), self.clock.clone(), self.sessions, teams);
        let clients = match &self.components.issuance {
            Some(issuance) => issuance.authority.client_certificates(),
            None => ClientCertificates::without_authority(self.clock.clone()),
        };
        let limits = Arc::new(Limits::new(&self.limits));
        let events = Events::default();
        let stopping = CancellationToken::new();
        let upkeep = BackgroundTasks {
            access: access.clone(),
            events: events.clone(),
            limits: Arc::clone(&limits),
            store: self.store.clone(),
            clock: self.clock.clone(),
            stopping: stopping.clone(),
        };
        State(Shared::new(StateParts {
            store: self.store,
            clock: self.clock,
            metrics: Metrics::default(),
            authentication: Authentication::new(access.clone(), self.authenticators, clients),
            access,
            limits,
            upkeep: Mutex::new(Some(upkeep)),
            events,
            rotating: Rotating::default(),
            stopping,
            signed_approvals: self.signed_approvals,
            components: self.components,
        }))
    }
}

impl State {
    /// Creates a builder with the parts that every server has.
    #[must_use]
    pub fn builder(store: Store, clock: Clock) -> StateBuilder {
        StateBuilder {
            store,
            clock,
            sessions: SessionOptions::default(),
            limits: LimitOptions::default(),
            authenticators: Vec::new(),
            signed_approvals: false,
            components: Components::default(),
        }
    }

    /// Returns the database that all components of this server share.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns the clock: the time of all requests and background tasks.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Returns the metrics, in which other components register theirs.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns the authentication and authorization of callers.
    #[must_use]
    pub fn access(&self) -> &AccessControl {
        &self.0.access
    }

    /// Returns a token that is canceled when shutdown begins, to end long-running work.
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

    /// Returns the master key rotation of this node.
    pub(crate) fn rotating(&self) -> &Rotating {
        &self.0.rotating
    }

    /// Returns the background tasks for the one server that runs them; `None` once they are taken.
    pub(crate) fn take_background_tasks(&self) -> Option<BackgroundTasks> {
        self.0.upkeep.lock().take()
    }

    /// Returns whether approvers must sign the plan with a security key.
    pub(crate) fn signed_approvals(&self) -> bool {
        self.0.signed_approvals
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Returns the components that this process runs.
    #[must_use]
    pub fn components(&self) -> &Components {
        &self.0.components
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

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreUrl;

    #[tokio::test]
    async fn background_tasks_can_be_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let state = State::builder(store, Clock::system()).build();
        assert!(state.take_background_tasks().is_some());
        assert!(state.clone().take_background_tasks().is_none(), "a second server would run them twice");
    }
}
