//! Components that read and write gates: objects that decide whether issuance requires approval.

use agent::Agents;
use authority::Authority;
use axum::extract::FromRef;
use issuers::Issuers;
use lifecycle::Lifecycle;

use crate::access::AccessControl;
use crate::problem::Problem;
use crate::state::State;

/// `Retry-After` in seconds for components that this server does not run.
const RETRY_SECONDS: u64 = 10;

/// Returns the error for a gate whose component this server does not run.
pub(super) fn component_not_running() -> Problem {
    Problem::unavailable("this server does not run the requested component", RETRY_SECONDS)
}

/// The components for reading and writing gates.
#[derive(Clone)]
pub(crate) struct Gates {
    pub(super) access: AccessControl,
    /// Whether users can sign in through an OIDC issuer.
    pub(super) logins: bool,
    pub(super) authority: Option<Authority>,
    pub(super) issuers: Option<Issuers>,
    pub(super) agents: Option<Agents>,
    pub(super) lifecycle: Option<Lifecycle>,
}

impl FromRef<State> for Gates {
    fn from_ref(state: &State) -> Self {
        Self {
            access: AccessControl::from_ref(state),
            logins: state.components().oidc.is_some(),
            authority: Option::from_ref(state),
            issuers: Option::from_ref(state),
            agents: Option::from_ref(state),
            lifecycle: Option::from_ref(state),
        }
    }
}
