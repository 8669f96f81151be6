//! Deletion of an identity and replacement of its key, which both end its sessions.

use uuid::Uuid;

use super::identity::{AccessChange, changed};
use super::sign_in::{remove_sign_in, sign_out};
use db::{ModuleStatements, StoreError, Tx};

const REKEY: &str = "-- access_identity_rekey
UPDATE access_identities SET key_hash = ?3, label = ?4, revision = revision + 1 WHERE id = ?1 AND revision = ?2";

const DELETE: &str = "-- access_identity_delete
DELETE FROM access_identities WHERE id = ?1 AND revision = ?2";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(&[REKEY, DELETE], &[]);

/// Deletes an identity with its sessions and sign-in credentials, if it still has `revision`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_identity(tx: &mut Tx, id: Uuid, revision: i64) -> Result<AccessChange, StoreError> {
    let change = changed(tx.execute(DELETE, vec![id.into(), revision.into()]).await?);
    if change == AccessChange::Done {
        remove_sign_in(tx, id).await?;
    }
    Ok(change)
}

/// Replaces the key of an identity, such as a token's secret. Ends all sessions and sign-in links that were requested with the old
/// secret.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn rekey_identity(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    key_hash: [u8; 32],
    label: &str,
) -> Result<AccessChange, StoreError> {
    let parameters = vec![id.into(), revision.into(), key_hash.into(), label.into()];
    let change = changed(tx.execute(REKEY, parameters).await?);
    if change == AccessChange::Done {
        sign_out(tx, id).await?;
    }
    Ok(change)
}
