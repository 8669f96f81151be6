//! Who may ask: identities, sessions, roles of one's own, and answers kept for repeated requests.

mod handle;
mod idempotency;
mod identity;
mod role;
mod session;
mod sign_in;

pub use handle::Access;
pub use idempotency::{Begun, StoredResponse};
pub use identity::{
    AccessChange, Identity, IdentityKind, IdentitySettings, NewIdentity, insert_identity, update_identity,
};
pub use role::{Role, RoleChange, delete_role, put_role};
pub use session::{
    NewSession, SESSIONS_MAX, Session, SignInMethod, delete_other_sessions, delete_session,
    delete_sessions_of, insert_session, prove_session,
};
pub use sign_in::{
    LINKS_MAX, NewPassword, SignInLink, insert_sign_in_link, put_password, sign_out, use_sign_in_link,
};

use uuid::Uuid;

use db::{Bulk, StoreError, Tx};

/// Statements of both databases, the modules' one after the other.
pub(crate) const ALL: &[&str] = &{
    const PARTS: [&[&str]; 5] = [identity::ALL, session::ALL, sign_in::ALL, role::ALL, idempotency::ALL];
    const COUNT: usize = PARTS[0].len() + PARTS[1].len() + PARTS[2].len() + PARTS[3].len() + PARTS[4].len();
    let mut all = [""; COUNT];
    let (mut at, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut own = 0;
        while own < PARTS[part].len() {
            all[at] = PARTS[part][own];
            at += 1;
            own += 1;
        }
        part += 1;
    }
    all
};

pub(crate) const BULKS: &[&Bulk] = &[&identity::USED, &session::SEEN];

/// Removes an identity, its sessions, and what it signs in with, if it still has `revision`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_identity(tx: &mut Tx, id: Uuid, revision: i64) -> Result<AccessChange, StoreError> {
    let change = identity::remove(tx, id, revision).await?;
    if change == AccessChange::Done {
        sign_in::remove_sign_in(tx, id).await?;
    }
    Ok(change)
}

/// Gives an identity another key: a token's new secret. The sessions and sign-in links that it asked for end: whoever had the
/// old secret may have them.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn rekey_identity(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    key_hash: [u8; 32],
    label: &str,
) -> Result<AccessChange, StoreError> {
    let change = identity::rekey(tx, id, revision, key_hash, label).await?;
    if change == AccessChange::Done {
        sign_in::sign_out(tx, id).await?;
    }
    Ok(change)
}
