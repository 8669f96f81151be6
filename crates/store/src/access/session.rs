//! Browser sessions of identities, as stored.

use coded::named;
use futures_util::FutureExt;
use uuid::Uuid;

use super::handle::Access;
use super::identity::{Identity, identity_columns, identity_row};
use db::{BulkStatement, Column, Cost, ModuleStatements, Row, StoreError, Tx, Value};

/// Maximum number of a person's sessions in a listing: the newest ones.
const SESSIONS_LISTED_MAX: i64 = 100;

/// Maximum number of sessions of one identity. A further session ends the oldest.
pub const SESSIONS_MAX: i64 = 100;

named! {
    /// How the person of a session authenticated.
    pub enum SignInMethod: "sign-in method" {
        /// Login at an OIDC provider.
        Oidc => "oidc",
        /// A one-time sign-in link.
        Link => "link",
        /// A password.
        Password => "password",
        /// A password, then a security key.
        PasswordAndKey => "password+security-key",
        /// A security key that verified the person, without a password.
        Passkey => "passkey",
    }
}

/// A browser session of an identity, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    /// SHA-256 of the cookie's secret.
    pub token_hash: [u8; 32],
    /// Identity that the session belongs to.
    pub identity: Uuid,
    /// Grants derived from the groups of the login, as JSON: roles with scopes.
    pub grants: String,
    /// IP address of the browser at sign-in.
    pub address: String,
    /// Start time, µs.
    pub created_at_us: i64,
    /// Approximate time of the last request, µs.
    pub last_seen_at_us: i64,
    /// Latest end of the session, µs.
    pub expires_at_us: i64,
    /// Sign-in method. `None` for a session from an older release.
    pub method: Option<SignInMethod>,
    /// Time of the last authentication, µs. `None` when unknown.
    pub proved_at_us: Option<i64>,
    /// Client certificates of the sign-in request. The session is valid only while these certificates are valid.
    pub chain: Option<Vec<u8>>,
}

/// A session to insert, with the same fields as a stored session.
pub type NewSession = Session;

const BY_HASH: &str = concat!(
    "-- access_session\nSELECT s.token_hash, s.identity, s.grants, s.address, s.created_at, s.last_seen_at, \
     s.expires_at, s.method, s.proved_at, s.chain, ",
    identity_columns!("i."),
    " FROM access_sessions s JOIN access_identities i ON i.id = s.identity WHERE s.token_hash = ?1"
);

const OF_IDENTITY: &str = "-- access_sessions_of
SELECT token_hash, identity, grants, address, created_at, last_seen_at, expires_at, method, proved_at, chain
FROM access_sessions
WHERE identity = ?1 ORDER BY created_at DESC LIMIT ?2";

const INSERT: &str = "-- access_session_insert
INSERT INTO access_sessions (token_hash, identity, grants, address, created_at, last_seen_at, expires_at, method, proved_at,
                             chain)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const TRIM: &str = "-- access_sessions_trim
DELETE FROM access_sessions WHERE token_hash IN
    (SELECT token_hash FROM access_sessions WHERE identity = ?1 ORDER BY created_at DESC LIMIT ?2 OFFSET ?3)";

const PROVED: &str = "-- access_session_proved
UPDATE access_sessions SET proved_at = ?2 WHERE token_hash = ?1";

const DELETE: &str = "-- access_session_delete
DELETE FROM access_sessions WHERE token_hash = ?1";

const DELETE_OF: &str = "-- access_sessions_delete_of
DELETE FROM access_sessions WHERE identity = ?1";

const DELETE_OTHERS: &str = "-- access_sessions_delete_others
DELETE FROM access_sessions WHERE identity = ?1 AND token_hash <> ?2";

const EXPIRE: &str = "-- access_sessions_expire
DELETE FROM access_sessions WHERE expires_at <= ?1 OR last_seen_at <= ?2";

pub(crate) const SEEN: BulkStatement = BulkStatement {
    sqlite: "-- access_sessions_seen
UPDATE access_sessions SET last_seen_at = ?2 WHERE token_hash = ?1 AND last_seen_at < ?2",
    postgres: "-- access_sessions_seen
WITH seen AS (
    SELECT s.token_hash, u.at FROM UNNEST(?1::bytea[], ?2::bigint[]) AS u (token_hash, at)
    JOIN access_sessions s ON s.token_hash = u.token_hash AND s.last_seen_at < u.at
    ORDER BY s.token_hash FOR NO KEY UPDATE OF s
)
UPDATE access_sessions s SET last_seen_at = u.at FROM seen u WHERE s.token_hash = u.token_hash",
};

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(
    &[BY_HASH, OF_IDENTITY, INSERT, TRIM, PROVED, DELETE, DELETE_OF, DELETE_OTHERS, EXPIRE],
    &[&SEEN],
);

/// Inserts a session. Beyond [`SESSIONS_MAX`] sessions of the identity, the oldest end.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_session(tx: &mut Tx, new: &NewSession) -> Result<(), StoreError> {
    let parameters: Vec<Value> = vec![
        new.token_hash.into(),
        new.identity.into(),
        new.grants.as_str().into(),
        new.address.as_str().into(),
        new.created_at_us.into(),
        new.last_seen_at_us.into(),
        new.expires_at_us.into(),
        new.method.map(SignInMethod::name).into(),
        new.proved_at_us.into(),
        new.chain.clone().into(),
    ];
    tx.execute(INSERT, parameters).await?;
    let trim_parameters = vec![new.identity.into(), SESSIONS_MAX.into(), SESSIONS_MAX.into()];
    tx.execute(TRIM, trim_parameters).await.map(drop)
}

/// Records that the person of a session has just authenticated again. Returns false when the session does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn prove_session(tx: &mut Tx, token_hash: [u8; 32], at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(PROVED, vec![token_hash.into(), at_us.into()]).await? == 1)
}

/// Ends a session. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_session(tx: &mut Tx, token_hash: [u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![token_hash.into()]).await? == 1)
}

/// Ends every session of an identity except one. Returns the number of ended sessions.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_other_sessions(tx: &mut Tx, identity: Uuid, but: [u8; 32]) -> Result<u64, StoreError> {
    tx.execute(DELETE_OTHERS, vec![identity.into(), but.into()]).await
}

/// Ends every session of an identity. Returns their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_sessions_of(tx: &mut Tx, identity: Uuid) -> Result<u64, StoreError> {
    tx.execute(DELETE_OF, vec![identity.into()]).await
}

impl Access<'_> {
    /// Returns a session and its identity.
    ///
    /// # Errors
    /// Database errors.
    pub async fn session(self, token_hash: [u8; 32]) -> Result<Option<(Session, Identity)>, StoreError> {
        let found = self.0.row(BY_HASH, vec![token_hash.into()]).await?;
        found.map(|mut row| Ok((session_row(&mut row)?, identity_row(&mut row)?))).transpose()
    }

    /// Returns a person's sessions, newest first, at most a hundred.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sessions_of(self, identity: Uuid) -> Result<Vec<Session>, StoreError> {
        let parameters = vec![identity.into(), SESSIONS_LISTED_MAX.into()];
        self.0.rows(Cost::Point, OF_IDENTITY, parameters).await?.iter_mut().map(session_row).collect()
    }

    /// Stores the time of the last request (µs) of each session, in one statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sessions_seen(self, seen: Vec<([u8; 32], i64)>) -> Result<(), StoreError> {
        self.0
            .write("sessions_seen", move |tx| {
                async move {
                    let (hashes, times): (Vec<_>, Vec<_>) =
                        seen.into_iter().map(|(hash, at)| (hash.to_vec(), at)).unzip();
                    tx.bulk(&SEEN, vec![Column::Blob(hashes), Column::Int(times)]).await.map(drop)
                }
                .boxed()
            })
            .await
    }

    /// Deletes sessions that expired by `now_us`, or had no request after `idle_since_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn expire_sessions(self, now_us: i64, idle_since_us: i64) -> Result<u64, StoreError> {
        self.0.execute(EXPIRE, vec![now_us.into(), idle_since_us.into()]).await
    }
}

fn session_row(row: &mut Row) -> Result<Session, StoreError> {
    Ok(Session {
        token_hash: row.hash()?,
        identity: row.uuid()?,
        grants: row.text()?,
        address: row.text()?,
        created_at_us: row.int()?,
        last_seen_at_us: row.int()?,
        expires_at_us: row.int()?,
        method: row.maybe_named("access_sessions.method")?,
        proved_at_us: row.maybe_int()?,
        chain: row.maybe_blob()?,
    })
}
