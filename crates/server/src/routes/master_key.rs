//! The master key's rotation.

use authority::keystore::{KeyStore, RotateError, Rotated};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::access::{Caller, Permission};
use crate::api::Api;
use crate::extract::Json;
use crate::problem::Problem;
use crate::state::State;

pub(crate) fn routes() -> Api {
    Api::area("keys").route(Permission::KeyRotate, routes!(rotate))
}

/// What a rotation did.
#[derive(Serialize, ToSchema)]
struct RotatedView {
    /// The id of the master key that is current on this node.
    master: String,
    /// Values wrapped anew.
    rewrapped: u64,
    /// Values that did not open and stay as they are, `TABLE.COLUMN ID: why`; a hundred are named at most.
    failed: Vec<String>,
    /// Values still under another master key. Only at 0 may the older ones be forgotten.
    remaining: u64,
}

impl From<Rotated> for RotatedView {
    fn from(done: Rotated) -> Self {
        let Rotated { master, rewrapped, failed, remaining } = done;
        Self { master: master.to_string(), rewrapped, failed, remaining }
    }
}

impl From<RotateError> for Problem {
    fn from(error: RotateError) -> Self {
        match error {
            RotateError::Store(error) => error.into(),
            error @ RotateError::Keyring(_) => Self::internal(error),
        }
    }
}

/// Wraps everything sealed anew, under the master key that is current.
///
/// First the new key is configured as the current one and the old one as an older one, on every node. What was done is
/// not done twice: an interrupted call is simply repeated.
#[utoipa::path(post, path = "/api/v1/master-key/rotate", operation_id = "rotateMasterKey",
    responses((status = 200, body = RotatedView)))]
async fn rotate(state: State, caller: Caller) -> Result<Json<RotatedView>, Problem> {
    let keystore = state.room::<KeyStore>()?.clone();
    let actor = caller.actor().to_owned();
    // On its own, so that a client that hangs up does not leave it half done.
    let work = tokio::spawn(async move {
        let done = keystore.rewrap_all(&actor, |progress| {
            tracing::info!(column = %progress.column, done = progress.done, total = progress.total, "wrapping anew");
        });
        done.await
    });
    let done = work.await.map_err(Problem::internal)??;
    if !done.failed.is_empty() {
        tracing::warn!(failed = done.failed.len(), "sealed values did not open: keep the old master key");
    }
    Ok(Json(done.into()))
}
