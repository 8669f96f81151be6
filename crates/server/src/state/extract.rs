//! Extractors for parts of the server's state.

use std::sync::Arc;

use agent::Agents;
use alerts::Alerts;
use api::limits::LimitView;
use audit::AuditLog;
use authority::Authority;
use authority::acme::Acme;
use authority::est::Est;
use authority::keystore::KeyStore;
use authority::publish::Publications;
use authority::scep::Scep;
use axum::extract::{FromRef, FromRequestParts};
use ct::Monitor;
use http::request::Parts;
use inventory::history::History;
use inventory::ownership::Ownership;
use inventory::watch::Watches;
use issuers::Issuers;
use lifecycle::Lifecycle;
use sites::Sites;
use sites::policies::KeyPolicies;
use store::{Clock, Store};

use super::State;
use crate::access::AccessControl;
use crate::access::oidc::Oidc;
use crate::key_services::KeyServices;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::proxy_requests::ProxyRequests;

/// `Retry-After` in seconds for a component that this server does not run, or not yet.
const COMPONENT_RETRY_SECONDS: u64 = 10;

/// A component as a handler's argument. Responds 503 when this process does not run the component.
#[derive(Clone, Copy, Debug)]
pub struct Component<T>(pub T);

impl<T> FromRequestParts<State> for Component<T>
where
    Option<T>: FromRef<State>,
{
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, state: &State) -> Result<Self, Problem> {
        Option::<T>::from_ref(state).map(Self).ok_or_else(|| {
            Problem::unavailable("this server does not run the requested component", COMPONENT_RETRY_SECONDS)
        })
    }
}

impl FromRef<State> for Option<Authority> {
    fn from_ref(state: &State) -> Self {
        state.components().issuance.as_ref().map(|issuance| issuance.authority.clone())
    }
}

impl FromRef<State> for Option<Publications> {
    fn from_ref(state: &State) -> Self {
        state.components().issuance.as_ref().map(|issuance| issuance.publications.clone())
    }
}

impl FromRef<State> for Option<Acme> {
    fn from_ref(state: &State) -> Self {
        state.components().issuance.as_ref().map(|issuance| issuance.acme.clone())
    }
}

impl FromRef<State> for Option<Est> {
    fn from_ref(state: &State) -> Self {
        state.components().issuance.as_ref().map(|issuance| issuance.est.clone())
    }
}

impl FromRef<State> for Option<Scep> {
    fn from_ref(state: &State) -> Self {
        state.components().issuance.as_ref().map(|issuance| issuance.scep.clone())
    }
}

impl FromRef<State> for Option<Lifecycle> {
    fn from_ref(state: &State) -> Self {
        state.components().certificates.clone()
    }
}

impl FromRef<State> for Option<Issuers> {
    fn from_ref(state: &State) -> Self {
        state.components().issuers.clone()
    }
}

impl FromRef<State> for Option<Agents> {
    fn from_ref(state: &State) -> Self {
        state.components().agents.clone()
    }
}

impl FromRef<State> for Option<Sites> {
    fn from_ref(state: &State) -> Self {
        state.components().key_nodes.as_ref().map(|nodes| nodes.places.clone())
    }
}

impl FromRef<State> for Option<KeyPolicies> {
    fn from_ref(state: &State) -> Self {
        state.components().key_nodes.as_ref().map(|nodes| nodes.policies.clone())
    }
}

impl FromRef<State> for Option<Arc<dyn KeyServices>> {
    fn from_ref(state: &State) -> Self {
        state.components().key_services.clone()
    }
}

impl FromRef<State> for Option<Arc<dyn ProxyRequests>> {
    fn from_ref(state: &State) -> Self {
        state.components().proxy.clone()
    }
}

impl FromRef<State> for Option<Arc<[LimitView]>> {
    fn from_ref(state: &State) -> Self {
        state.components().limits.clone()
    }
}

impl FromRef<State> for Option<KeyStore> {
    fn from_ref(state: &State) -> Self {
        state.components().keystore.clone()
    }
}

impl FromRef<State> for Option<Alerts> {
    fn from_ref(state: &State) -> Self {
        state.components().alerts.clone()
    }
}

impl FromRef<State> for Option<Monitor> {
    fn from_ref(state: &State) -> Self {
        state.components().transparency.clone()
    }
}

impl FromRef<State> for Option<Watches> {
    fn from_ref(state: &State) -> Self {
        state.components().watches.clone()
    }
}

impl FromRef<State> for Option<Ownership> {
    fn from_ref(state: &State) -> Self {
        state.components().ownership.clone()
    }
}

impl FromRef<State> for Option<History> {
    fn from_ref(state: &State) -> Self {
        state.components().history.clone()
    }
}

impl FromRef<State> for Option<AuditLog> {
    fn from_ref(state: &State) -> Self {
        state.components().audit.clone()
    }
}

impl FromRef<State> for Option<Oidc> {
    fn from_ref(state: &State) -> Self {
        state.components().oidc.clone()
    }
}

impl FromRef<State> for Store {
    fn from_ref(state: &State) -> Self {
        state.store().clone()
    }
}

impl FromRef<State> for Clock {
    fn from_ref(state: &State) -> Self {
        state.clock().clone()
    }
}

impl FromRef<State> for Metrics {
    fn from_ref(state: &State) -> Self {
        state.metrics().clone()
    }
}

impl FromRef<State> for AccessControl {
    fn from_ref(state: &State) -> Self {
        state.access().clone()
    }
}
