//! The master key's rotation.

use authority::keystore::{KeyStore, MasterKeyUse, RotateError, Rotated, RotatedColumn};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::access::{Caller, Permission};
use crate::api::Api;
use crate::extract::Json;
use crate::problem::Problem;
use crate::state::State;

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

/// The master keys, and how many values are sealed under each: how far a rotation has come, whichever node makes it.
#[utoipa::path(get, path = "/api/v1/master-key", operation_id = "getMasterKeys",
    responses((status = 200, body = MasterKeysView)))]
async fn status(state: State, _: Caller) -> Result<Json<MasterKeysView>, Problem> {
    let keystore = state.room::<KeyStore>()?;
    let keys: Vec<MasterKeyView> =
        keystore.masters_in_use().await?.into_iter().map(MasterKeyView::from).collect();
    let remaining = keys.iter().filter(|key| !key.current).map(|key| key.values).sum();
    let current = keystore.keyring().current().to_string();
    Ok(Json(MasterKeysView { current, remaining, keys }))
}
