//! The master key's rotation.

use std::sync::Arc;
use std::time::Duration;

use api::master_key::{
    MasterKeyView, MasterKeysView, RotatedColumnView, RotatedView, RotatingView, SealedColumnView,
};
use authority::keystore::{KeyStore, MasterKeyUse, RotateError, Rotated, RotatedColumn};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::access::{Caller, Permission};
use crate::extract::Json;
use crate::problem::Problem;
use crate::rotating::Progress;
use crate::routing::{Api, routes};
use crate::state::{Component, State};

/// Anyone who asks for a rotation waits for its end no longer than this: clients and proxies between wait for a minute or two.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Seconds after which to ask for the rest.
const RETRY_SECONDS: u64 = 10;

pub(crate) fn routes() -> Api {
    Api::area("keys")
        .route(Permission::KeyRotate, routes!(rotate))
        .route(Permission::KeyRotate, routes!(status))
}

fn rotated_view(done: Rotated) -> RotatedView {
    let Rotated { master, rewrapped, failed, remaining, columns } = done;
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

/// Why a rotation ended early.
fn ended_early(error: &Arc<RotateError>) -> Problem {
    match &**error {
        RotateError::Store(_) => Problem::unavailable(
            "the database did not answer: what is wrapped anew stays so, ask for the rest again",
            RETRY_SECONDS,
        ),
        RotateError::Keyring(_) => Problem::internal(Arc::clone(error)),
    }
}

/// Wraps everything sealed again, under the master key that is current.
///
/// First the new key is configured as the current one and the old one as an older one, on every node. A node makes one
/// rotation at a time: a call beside it joins it. After ten seconds the answer is 202 and the rotation goes on;
/// `GET /api/v1/master-key` counts how far it is, and a call within a minute of its end has its report. What was done is
/// not done twice: an interrupted call is simply repeated.
#[utoipa::path(post, path = "/api/v1/master-key/rotate", operation_id = "rotateMasterKey",
    responses((status = 200, body = RotatedView), (status = 202, body = RotatingView)))]
async fn rotate(
    Component(keystore): Component<KeyStore>,
    state: State,
    caller: Caller,
) -> Result<Response, Problem> {
    let joined = state.rotating().join(&keystore, caller.actor(), state.stopping(), ANSWER_WITHIN);
    match joined.await {
        Progress::Ended(Ok(done)) => Ok(Json(rotated_view(done)).into_response()),
        Progress::Ended(Err(error)) => Err(ended_early(&error)),
        Progress::GoesOn => {
            let view = RotatingView { master: keystore.keyring().current().to_string(), rotating: true };
            Ok((StatusCode::ACCEPTED, Json(view)).into_response())
        }
        Progress::Cut => Err(Problem::unavailable(
            "the rotation was cut off: what is wrapped anew stays so, ask for the rest again",
            RETRY_SECONDS,
        )),
    }
}

/// The master keys, and how many values are sealed under each: how far a rotation has come, whichever node makes it.
#[utoipa::path(get, path = "/api/v1/master-key", operation_id = "getMasterKeys",
    responses((status = 200, body = MasterKeysView)))]
async fn status(
    Component(keystore): Component<KeyStore>,
    state: State,
    _: Caller,
) -> Result<Json<MasterKeysView>, Problem> {
    let keys: Vec<MasterKeyView> =
        keystore.masters_in_use().await?.into_iter().map(master_key_view).collect();
    let remaining = keys.iter().filter(|key| !key.current).map(|key| key.values).sum();
    let current = keystore.keyring().current().to_string();
    let rotating = state.rotating().is_under_way();
    Ok(Json(MasterKeysView { current, remaining, rotating, keys }))
}
