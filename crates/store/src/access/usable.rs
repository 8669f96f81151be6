//! Enabled and unexpired identities, for transactions that must not remove the last identity with access.

use uuid::Uuid;

use super::identity::{Identity, identity_columns, identity_row};
use db::{ModuleStatements, StoreError, Tx};

/// Number of identities in one page.
const PAGE_ROWS: i64 = 200;

/// Key of the advisory lock: "access" in ASCII, far from the keys of other locks.
const LOCK_KEY: i64 = 0x6163_6365_7373;

/// Serializes changes of access. Without this lock, two concurrent transactions could each remove the access of one of the last
/// two identities.
const LOCK: &str = "-- access_lock
SELECT pg_advisory_xact_lock(?1)";

const USABLE: &str = concat!(
    "-- access_identities_usable\nSELECT (SELECT count(*) FROM access_passwords p WHERE p.identity = i.id), ",
    identity_columns!("i."),
    " FROM access_identities i WHERE i.id > ?1 AND i.enabled <> 0 AND (i.expires_at IS NULL OR i.expires_at > ?2)
ORDER BY i.id LIMIT ?3"
);

pub(crate) const SENDS: ModuleStatements =
    ModuleStatements { postgres: &[LOCK], ..ModuleStatements::of(&[USABLE], &[]) };

/// An identity that is enabled and has not expired.
#[derive(Clone, Debug)]
pub struct UsableIdentity {
    /// Row of the identity in the database.
    pub identity: Identity,
    /// Whether the identity has a password.
    pub has_password: bool,
}

/// Locks changes of access until the transaction ends. Waits for other transactions that have this lock. Does nothing on SQLite,
/// which has only one writer.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn lock_access(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.is_postgres() {
        tx.execute(LOCK, vec![LOCK_KEY.into()]).await?;
    }
    Ok(())
}

/// Returns a page of identities that are enabled and not expired at `now_us`, sorted by id, starting after the id `after`. The last
/// page is empty.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn usable_identities(
    tx: &mut Tx,
    after: Uuid,
    now_us: i64,
) -> Result<Vec<UsableIdentity>, StoreError> {
    let rows = tx.rows(USABLE, vec![after.into(), now_us.into(), PAGE_ROWS.into()]).await?;
    let read = rows.into_iter().map(|mut row| {
        let has_password = row.flag()?;
        Ok(UsableIdentity { identity: identity_row(&mut row)?, has_password })
    });
    read.collect()
}
