//! Routes: protocols.

use axum::Router;

use crate::state::State;

/// Over TLS: ACME, EST, SCEP, and CRLs and OCSP too.
pub(crate) fn secure(_: &State) -> Router<State> {
    Router::new()
}

/// Without TLS: CRLs, OCSP, http-01 answers.
pub(crate) fn public(_: &State) -> Router<State> {
    Router::new()
}
