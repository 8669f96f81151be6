//! Rotation of the master key.

use std::sync::Arc;
use std::time::Duration;

use api::master_key::{
    MasterKeyView, MasterKeysView, RotatedColumnView, RotatedView, RotatingView, SealedColumnView,
};
use authority::keystore::{KeyStore, MasterKeyUse, RotateError, RotatedColumn, RotationResult};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::access::{Caller, Permission};
use crate::extract::Json;
use crate::problem::Problem;
use crate::rotating::Progress;
use crate::routing::{Api, routes};
use crate::state::{Component, State};

/// Maximum time that a request waits for the end of a rotation. Clients and proxies time out after a minute or two.
const ROTATION_WAIT_MAX: Duration = Duration::from_secs(10);
/// `Retry-After` in seconds while the rotation is in progress.
const RETRY_SECONDS: u64 = 10;

pub(crate) fn routes() -> Api {
    Api::area("keys")
        .route(Permission::KeyRotate, routes!(rotate))
        .route(Permission::KeyRotate, routes!(status))
}

fn rotated_view(done: RotationResult) -> RotatedView {
    let RotationResult { master, rewrapped, failed, remaining, columns } = done;
    let view = |one: RotatedColumn| {
        let RotatedColumn { column, rewrapped, remaining } = one;
        RotatedColumnView { column, rewrapped, remaining }
    };
    let columns = columns.into_iter().map(view).collect();
    RotatedView { master: master.to_string(), rewrapped, failed, remaining, columns }
}

fn master_key_view(one: MasterKeyUse) -> MasterKeyView {
    let values = one.total();
    let columns = one.values.into_iter().map(|(column, values)| SealedColumnView { column, values });
    MasterKeyView {
        id: one.id.to_string(),
        current: one.current,
        configured: one.configured,
        values,
        columns: columns.collect(),
    }
}

/// Returns the problem for a rotation that ended early.
fn rotation_failed_problem(error: &Arc<RotateError>) -> Problem {
    match &**error {
        RotateError::Store(_) => Problem::unavailable(
            "the database did not answer: values re-wrapped so far stay re-wrapped; start the rotation again for the rest",
            RETRY_SECONDS,
        ),
        RotateError::Keyring(_) => Problem::internal(Arc::clone(error)),
    }
}

/// Re-encrypts all encrypted values under the current master key.
///
/// First configure the new key as the current one and the old key as an older one, on every node. A node runs one rotation at a
/// time, and concurrent requests join it. After ten seconds the response is 202 and the rotation continues in the background. `GET
/// /api/v1/master-key` shows the progress. A request within a minute of the end of the rotation returns the report. To continue an
/// interrupted rotation, repeat the request: completed values are skipped.
#[utoipa::path(post, path = "/api/v1/master-key/rotate", operation_id = "rotateMasterKey",
    responses((status = 200, body = RotatedView), (status = 202, body = RotatingView)))]
async fn rotate(
    Component(keystore): Component<KeyStore>,
    state: State,
    caller: Caller,
) -> Result<Response, Problem> {
    let joined = state.rotating().join(&keystore, caller.actor(), state.stopping(), ROTATION_WAIT_MAX);
    match joined.await {
        Progress::Ended(Ok(done)) => Ok(Json(rotated_view(done)).into_response()),
        Progress::Ended(Err(error)) => Err(rotation_failed_problem(&error)),
        Progress::UnderWay => {
            let view = RotatingView { master: keystore.keyring().current().to_string(), rotating: true };
            Ok((StatusCode::ACCEPTED, Json(view)).into_response())
        }
        Progress::Interrupted => Err(Problem::unavailable(
            "the rotation was interrupted: values re-wrapped so far stay re-wrapped; start the rotation again for the rest",
            RETRY_SECONDS,
        )),
    }
}

/// Lists the master keys with the number of values encrypted under each. This shows the progress of a rotation on any node.
#[utoipa::path(get, path = "/api/v1/master-key", operation_id = "getMasterKeys",
    responses((status = 200, body = MasterKeysView)))]
async fn status(
    Component(keystore): Component<KeyStore>,
    state: State,
    _: Caller,
) -> Result<Json<MasterKeysView>, Problem> {
    let keys: Vec<MasterKeyView> =
        keystore.master_keys_in_use().await?.into_iter().map(master_key_view).collect();
    let remaining = keys.iter().filter(|key| !key.current).map(|key| key.values).sum();
    let current = keystore.keyring().current().to_string();
    let rotating = state.rotating().is_under_way();
    Ok(Json(MasterKeysView { current, remaining, rotating, keys }))
}
