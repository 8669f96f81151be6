//! The master key's rotation.

use std::sync::Arc;
use std::time::Duration;

use authority::keystore::{KeyStore, MasterKeyUse, RotateError, Rotated, RotatedColumn};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::extract::Json;
use crate::problem::Problem;
use crate::rotating::Progress;
use crate::state::{Component, State};

/// Whoever asks for a rotation waits for its end no longer than this: clients and proxies between wait for a minute or two.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Seconds after which to ask for the rest.
const RETRY_SECONDS: u64 = 10;

pub(crate) fn routes() -> Api {
    Api::area("keys")
        .route(Permission::KeyRotate, routes!(rotate))
        .route(Permission::KeyRotate, routes!(status))
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
    /// The same by column.
    columns: Vec<RotatedColumnView>,
}

/// A rotation that takes longer than one waits for an answer.
#[derive(Serialize, ToSchema)]
struct RotatingView {
    /// The id of the master key that is current on this node.
    master: String,
    /// Always true: this node wraps anew, and `GET /api/v1/master-key` counts how far it is.
    rotating: bool,
}

/// What a rotation did to one column.
#[derive(Serialize, ToSchema)]
struct RotatedColumnView {
    /// `credential_versions.sealed`.
    column: String,
    /// Values wrapped anew.
    rewrapped: u64,
    /// Values still under another master key.
    remaining: u64,
}

impl From<Rotated> for RotatedView {
    fn from(done: Rotated) -> Self {
        let Rotated { master, rewrapped, failed, remaining, columns } = done;
        let view = |one: RotatedColumn| {
            let RotatedColumn { column, rewrapped, remaining } = one;
            RotatedColumnView { column, rewrapped, remaining }
        };
        let columns = columns.into_iter().map(view).collect();
        Self { master: master.to_string(), rewrapped, failed, remaining, columns }
    }
}

/// The master keys and what is sealed under each.
#[derive(Serialize, ToSchema)]
struct MasterKeysView {
    /// The id of the master key that is current on this node.
    current: String,
    /// Values that are not under it. While there are any, the older keys stay configured.
    remaining: u64,
    /// Whether this node wraps anew now.
    rotating: bool,
    /// Every master key that this node has, that the database knows, or that something is sealed under.
    keys: Vec<MasterKeyView>,
}

/// A master key.
#[derive(Serialize, ToSchema)]
struct MasterKeyView {
    /// Its id.
    id: String,
    /// Whether it is the current one on this node.
    current: bool,
    /// Whether this node has it. What is sealed under one that it does not have opens nowhere here.
    configured: bool,
    /// Values sealed under it.
    values: u64,
    /// The same by column.
    columns: Vec<SealedColumnView>,
}

/// Values of one column.
#[derive(Serialize, ToSchema)]
struct SealedColumnView {
    /// `credential_versions.sealed`.
    column: String,
    /// How many.
    values: u64,
}

impl From<MasterKeyUse> for MasterKeyView {
    fn from(one: MasterKeyUse) -> Self {
        let values = one.total();
        let columns = one.values.into_iter().map(|(column, values)| SealedColumnView { column, values });
        Self {
            id: one.id.to_string(),
            current: one.current,
            configured: one.configured,
            values,
            columns: columns.collect(),
        }
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

/// Wraps everything sealed anew, under the master key that is current.
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
        Progress::Ended(Ok(done)) => Ok(Json(RotatedView::from(done)).into_response()),
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
        keystore.masters_in_use().await?.into_iter().map(MasterKeyView::from).collect();
    let remaining = keys.iter().filter(|key| !key.current).map(|key| key.values).sum();
    let current = keystore.keyring().current().to_string();
    let rotating = state.rotating().is_under_way();
    Ok(Json(MasterKeysView { current, remaining, rotating, keys }))
}
