//! One-time sign-in links and passwords.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::handle::Access;
use super::identity::{Identity, identity_columns, identity_row};
use super::security_key::{end_key_ceremonies, remove_security_keys};
use super::session::{delete_other_sessions, delete_sessions_of};
use db::{ModuleStatements, Row, StoreError, Tx, Value};

/// Maximum number of unused links of one identity. A further link replaces the oldest.
pub const LINKS_MAX: i64 = 8;

/// A one-time sign-in link as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignInLink {
    /// SHA-256 of the link's secret code.
    pub code_hash: [u8; 32],
    /// Identity that requested the link and gets the session.
    pub identity: Uuid,
    /// Grants that the requesting session derived from the groups of its login, as JSON.
    pub grants: String,
    /// Time at which the requesting session's person last authenticated, µs; `None` without a session.
    pub proved_at_us: Option<i64>,
    /// Expiry of the requesting session, µs; `None` without a session.
    pub session_end_us: Option<i64>,
    /// Client certificates of the request.
    pub chain: Option<Vec<u8>>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Expiry of the link, µs.
    pub expires_at_us: i64,
}

const LINK: &str = concat!(
    "-- access_sign_in_link\nSELECT l.code_hash, l.identity, l.grants, l.proved_at, l.session_end, l.chain, \
     l.created_at, l.expires_at, ",
    identity_columns!("i."),
    " FROM access_sign_in_links l JOIN access_identities i ON i.id = l.identity WHERE l.code_hash = ?1"
);

const INSERT_LINK: &str = "-- access_sign_in_link_insert
INSERT INTO access_sign_in_links (code_hash, identity, grants, proved_at, session_end, chain, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const TRIM_LINKS: &str = "-- access_sign_in_links_trim
DELETE FROM access_sign_in_links WHERE code_hash IN
    (SELECT code_hash FROM access_sign_in_links WHERE identity = ?1 ORDER BY created_at DESC LIMIT ?2 OFFSET ?3)";

const DELETE_LINK: &str = "-- access_sign_in_link_delete
DELETE FROM access_sign_in_links WHERE code_hash = ?1";

const DELETE_LINKS_OF: &str = "-- access_sign_in_links_delete_of
DELETE FROM access_sign_in_links WHERE identity = ?1";

const EXPIRE_LINKS: &str = "-- access_sign_in_links_expire
DELETE FROM access_sign_in_links WHERE expires_at <= ?1";

const PASSWORD: &str = concat!(
    "-- access_password\nSELECT p.hash, ",
    identity_columns!("i."),
    " FROM access_identities i JOIN access_passwords p ON p.identity = i.id WHERE i.kind = 'user' AND i.name = ?1"
);

const PUT_PASSWORD: &str = "-- access_password_put
INSERT INTO access_passwords (identity, hash, set_at, set_by) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (identity) DO UPDATE SET hash = excluded.hash, set_at = excluded.set_at, set_by = excluded.set_by";

const DELETE_PASSWORD: &str = "-- access_password_delete
DELETE FROM access_passwords WHERE identity = ?1";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(
    &[
        LINK,
        INSERT_LINK,
        TRIM_LINKS,
        DELETE_LINK,
        DELETE_LINKS_OF,
        EXPIRE_LINKS,
        PASSWORD,
        PUT_PASSWORD,
        DELETE_PASSWORD,
    ],
    &[],
);

/// Inserts a link. Beyond [`LINKS_MAX`] links of the identity, the oldest end.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_sign_in_link(tx: &mut Tx, new: &SignInLink) -> Result<(), StoreError> {
    let parameters: Vec<Value> = vec![
        new.code_hash.into(),
        new.identity.into(),
        new.grants.as_str().into(),
        new.proved_at_us.into(),
        new.session_end_us.into(),
        new.chain.clone().into(),
        new.created_at_us.into(),
        new.expires_at_us.into(),
    ];
    tx.execute(INSERT_LINK, parameters).await?;
    let trim_parameters = vec![new.identity.into(), i64::from(u32::MAX).into(), LINKS_MAX.into()];
    tx.execute(TRIM_LINKS, trim_parameters).await.map(drop)
}

/// Marks a link as used. Returns false when the link does not exist or was used before. Of several concurrent transactions only
/// one gets true.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn use_sign_in_link(tx: &mut Tx, code_hash: [u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE_LINK, vec![code_hash.into()]).await? == 1)
}

/// Ends every session and ceremony of an identity, and deletes its unused links. Returns the number of sessions.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn sign_out(tx: &mut Tx, identity: Uuid) -> Result<u64, StoreError> {
    end_key_ceremonies(tx, identity).await?;
    tx.execute(DELETE_LINKS_OF, vec![identity.into()]).await?;
    delete_sessions_of(tx, identity).await
}

/// Ends every ceremony of an identity and every session except `keep`, and deletes its unused links. Returns the number of sessions.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn sign_out_others(tx: &mut Tx, identity: Uuid, keep: [u8; 32]) -> Result<u64, StoreError> {
    end_key_ceremonies(tx, identity).await?;
    tx.execute(DELETE_LINKS_OF, vec![identity.into()]).await?;
    delete_other_sessions(tx, identity, keep).await
}

/// A user's new password, as a hash.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NewPassword {
    /// Id of the user.
    pub identity: Uuid,
    /// argon2id hash in PHC string format.
    pub hash: String,
    /// Time when the password was set, µs.
    pub set_at_us: i64,
    /// Actor that set the password, such as `user:alice`.
    pub set_by: String,
    /// Session of the user that stays valid. `None` ends all sessions of the user.
    pub keep: Option<[u8; 32]>,
}

/// Stores a user's password and replaces the previous one. Ends the user's sessions except `keep`, and deletes unused links.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_password(tx: &mut Tx, new: &NewPassword) -> Result<(), StoreError> {
    let parameters: Vec<Value> =
        vec![new.identity.into(), new.hash.as_str().into(), new.set_at_us.into(), new.set_by.as_str().into()];
    tx.execute(PUT_PASSWORD, parameters).await?;
    match new.keep {
        Some(keep) => sign_out_others(tx, new.identity, keep).await.map(drop),
        None => sign_out(tx, new.identity).await.map(drop),
    }
}

/// Deletes the sign-in credentials and the sessions of an identity.
pub(super) async fn remove_sign_in(tx: &mut Tx, identity: Uuid) -> Result<(), StoreError> {
    sign_out(tx, identity).await?;
    remove_security_keys(tx, identity).await?;
    tx.execute(DELETE_PASSWORD, vec![identity.into()]).await.map(drop)
}

impl Access<'_> {
    /// Returns a link and the identity that requested it.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sign_in_link(
        self,
        code_hash: [u8; 32],
    ) -> Result<Option<(SignInLink, Identity)>, StoreError> {
        let found = self.0.row(LINK, vec![code_hash.into()]).await?;
        found.map(|mut row| Ok((link_row(&mut row)?, identity_row(&mut row)?))).transpose()
    }

    /// Returns the password hash and the identity of a user with a password, by name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn password(self, name: &str) -> Result<Option<(String, Identity)>, StoreError> {
        let found = self.0.row(PASSWORD, vec![name.into()]).await?;
        found.map(|mut row| Ok((row.text()?, identity_row(&mut row)?))).transpose()
    }

    /// Deletes links that expired by `now_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn expire_sign_in_links(self, now_us: i64) -> Result<u64, StoreError> {
        self.0.execute(EXPIRE_LINKS, vec![now_us.into()]).await
    }
}

fn link_row(row: &mut Row) -> Result<SignInLink, StoreError> {
    Ok(SignInLink {
        code_hash: row.hash()?,
        identity: row.uuid()?,
        grants: row.text()?,
        proved_at_us: row.maybe_int()?,
        session_end_us: row.maybe_int()?,
        chain: row.maybe_blob()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
    })
}
