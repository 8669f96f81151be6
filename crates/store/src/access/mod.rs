//! Who may ask: identities, sessions, roles of one's own, and answers kept for repeated requests.

mod handle;
mod idempotency;
mod identity;
mod role;
mod session;

pub use handle::Access;
pub use idempotency::{Begun, StoredResponse};
pub use identity::{
    AccessChange, Identity, IdentityKind, IdentitySettings, NewIdentity, insert_identity, rekey_identity,
    update_identity,
};
pub use role::{Role, RoleChange, delete_role, put_role};
pub use session::{NewSession, Session, delete_session, delete_sessions_of, insert_session};

use uuid::Uuid;

use db::{Bulk, StoreError, Tx};

/// Statements of both databases, the modules' one after the other.
pub(crate) const ALL: &[&str] = &{
    const PARTS: [&[&str]; 4] = [identity::ALL, session::ALL, role::ALL, idempotency::ALL];
    const COUNT: usize = PARTS[0].len() + PARTS[1].len() + PARTS[2].len() + PARTS[3].len();
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

/// Removes an identity and its sessions if it still has `revision`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_identity(tx: &mut Tx, id: Uuid, revision: i64) -> Result<AccessChange, StoreError> {
    let change = identity::remove(tx, id, revision).await?;
    if change == AccessChange::Done {
        delete_sessions_of(tx, id).await?;
    }
    Ok(change)
}
