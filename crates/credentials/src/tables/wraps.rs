//! Single-use values. Only the hash of their token is stored.

use uuid::Uuid;

use super::handle::Credentials;
use db::{BulkStatement, ModuleStatements, StoreError, Tx};
use store::states::CredentialKind;
use store::{SealedColumn, sealed_column};

/// Maximum unread values of one creator.
pub const WRAPS_OF_ONE_MAX: i64 = 1_000;

/// The column with the encrypted values, for the rotation of the master key.
pub const SEALED_WRAPS: SealedColumn = sealed_column!("credential_wraps", "uuid" Uuid "uuid", "sealed");

/// A single-use value that has not been read.
#[derive(Clone)]
pub struct NewWrap {
    /// SHA-256 of the token.
    pub token_hash: [u8; 32],
    /// Id of the value. The encryption of the value is bound to this id.
    pub id: Uuid,
    /// The credential's name.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Id of the version.
    pub version: Uuid,
    /// The encrypted value.
    pub sealed: Vec<u8>,
    /// Creation time, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// Actor that created the token.
    pub by: String,
    /// Expiry of the token, µs since 1970-01-01 UTC.
    pub expires_at_us: i64,
}

/// Result of using a single-use token.
#[derive(Clone, Eq, PartialEq)]
pub enum Unwrapped {
    /// The first use. The value is returned here and deleted from the database.
    First {
        /// See [`NewWrap::id`].
        id: Uuid,
        /// See [`NewWrap::name`].
        name: String,
        /// See [`NewWrap::kind`].
        kind: CredentialKind,
        /// See [`NewWrap::version`].
        version: Uuid,
        /// See [`NewWrap::sealed`].
        sealed: Vec<u8>,
        /// See [`NewWrap::by`].
        by: String,
    },
    /// The value was read before.
    Read {
        /// Name of the credential.
        name: String,
        /// Time of the first read, µs since 1970-01-01 UTC.
        at_us: i64,
        /// Actor of the first read.
        by: String,
        /// Whether this is the first repeated use.
        first_reuse: bool,
    },
    /// The token does not exist or has expired.
    Unknown,
}

const INSERT: BulkStatement = db::bulk! {
    "-- credential_wrap_insert
INSERT INTO credential_wraps (token_hash, uuid, name, kind, version, sealed, created_at, created_by, expires_at)
SELECT ?1{|::bytea}, ?2{|::uuid}, ?3{|::text}, ?4{|::text}, ?5{|::uuid}, ?6{|::bytea}, ?7{|::bigint}, ?8{|::text},
  ?9{|::bigint}
WHERE (SELECT count(*) FROM (SELECT 1 FROM credential_wraps w WHERE w.created_by = ?8 AND w.expires_at > ?7
                             LIMIT 1000) AS waiting) < 1000"
};

/// Removes the value from the table and returns it, so that only one of two concurrent callers gets it.
const TAKE: &str = "-- credential_wrap_take
DELETE FROM credential_wraps WHERE token_hash = ?1 AND expires_at > ?2
RETURNING uuid, name, kind, version, sealed, created_by";
const NOTE: &str = "-- credential_unwrap_note
INSERT INTO credential_unwraps (token_hash, name, read_at, read_by) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (token_hash) DO NOTHING";
const NOTED: &str = "-- credential_unwrap_noted
SELECT name, read_at, read_by FROM credential_unwraps WHERE token_hash = ?1";
const NOTE_REUSE: &str = "-- credential_unwrap_note_again
UPDATE credential_unwraps SET again_at = ?2 WHERE token_hash = ?1 AND again_at IS NULL";
const FORGET: &str = "-- credential_wrap_forget
DELETE FROM credential_wraps WHERE token_hash = ?1";
const TIDY: &str = "-- credential_wraps_tidy
DELETE FROM credential_wraps WHERE expires_at <= ?1";
const TIDY_READ: &str = "-- credential_unwraps_tidy
DELETE FROM credential_unwraps WHERE read_at < ?1";

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[
        TAKE,
        NOTE,
        NOTED,
        NOTE_REUSE,
        FORGET,
        TIDY,
        TIDY_READ,
        SEALED_WRAPS.page,
        SEALED_WRAPS.count,
        SEALED_WRAPS.heads,
    ],
    sqlite: &[],
    postgres: &[],
    bulks: &[&INSERT, &SEALED_WRAPS.replace],
    composed: Vec::new,
};

/// Stores a value until it is read. Returns false when its creator has [`WRAPS_OF_ONE_MAX`] unread values.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn insert_wrap(tx: &mut Tx, wrap: &NewWrap) -> Result<bool, StoreError> {
    let parameters = vec![
        wrap.token_hash.into(),
        wrap.id.into(),
        wrap.name.as_str().into(),
        wrap.kind.name().into(),
        wrap.version.into(),
        wrap.sealed.as_slice().into(),
        wrap.at_us.into(),
        wrap.by.as_str().into(),
        wrap.expires_at_us.into(),
    ];
    let text = tx.text_of(&INSERT);
    Ok(tx.execute(text, parameters).await? == 1)
}

/// Removes and returns the value of a token (its SHA-256), once.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn unwrap(
    tx: &mut Tx,
    token_hash: [u8; 32],
    at_us: i64,
    by: &str,
) -> Result<Unwrapped, StoreError> {
    if let Some(mut row) = tx.row(TAKE, vec![token_hash.into(), at_us.into()]).await? {
        let (id, name) = (row.uuid()?, row.text()?);
        let note = vec![token_hash.into(), name.as_str().into(), at_us.into(), by.into()];
        tx.execute(NOTE, note).await?;
        return Ok(Unwrapped::First {
            id,
            name,
            kind: row.named("credential_wraps.kind")?,
            version: row.uuid()?,
            sealed: row.blob()?,
            by: row.text()?,
        });
    }
    let Some(mut row) = tx.row(NOTED, vec![token_hash.into()]).await? else { return Ok(Unwrapped::Unknown) };
    let first_reuse = tx.execute(NOTE_REUSE, vec![token_hash.into(), at_us.into()]).await? == 1;
    Ok(Unwrapped::Read { name: row.text()?, at_us: row.int()?, by: row.text()?, first_reuse })
}

impl Credentials<'_> {
    /// Deletes the unread value of a token (its SHA-256).
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn delete_wrap(self, token_hash: [u8; 32]) -> Result<(), StoreError> {
        self.0.execute(FORGET, vec![token_hash.into()]).await.map(drop)
    }

    /// Deletes expired unread values, and records of reads before `read_before_us`.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn tidy_wraps(self, now_us: i64, read_before_us: i64) -> Result<u64, StoreError> {
        let ended = self.0.execute(TIDY, vec![now_us.into()]).await?;
        Ok(ended + self.0.execute(TIDY_READ, vec![read_before_us.into()]).await?)
    }
}
