//! Storage of rate limit overrides for single accounts, networks and names.

use uuid::Uuid;

use coded::named;

use super::handle::Acme;
use db::{Cost, Row, StoreError, Tx, Value};

/// Maximum number of overrides to read; operators have only a few.
const OVERRIDES_MAX: i64 = 10_000;

named! {
    /// Kind of rate limit for ACME clients. Each can be overridden for single subjects.
    pub enum AcmeLimit: "ACME limit" {
        /// Limits the new accounts per network.
        NewAccounts => "new_accounts",
        /// Limits the new orders per account.
        Orders => "orders",
        /// Limits the failed validations per account and name.
        FailedValidations => "failed_validations",
        /// Limits the certificates for the same set of names, over all accounts.
        DuplicateCertificates => "duplicate_certificates",
    }
}

/// A limit for one subject that replaces the general limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeLimitOverride {
    /// Identifier of the override, with which it can be deleted.
    pub id: Uuid,
    /// Limit that is overridden.
    pub kind: AcmeLimit,
    /// Subject of the limit: the identifier of an account, a network, or a name.
    pub subject: String,
    /// Number of events allowed in each period of `seconds`; `None` for no limit.
    pub allowed: Option<u32>,
    /// Length of the period in seconds.
    pub seconds: u32,
    /// Reason for the override.
    pub note: String,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Actor that created the override.
    pub created_by: String,
}

pub(super) const OVERRIDES: &str = "-- acme_limit_overrides
SELECT id, kind, subject, allowed, seconds, note, created_at, created_by FROM acme_limit_overrides ORDER BY id LIMIT ?1";

pub(super) const PUT: &str = "-- acme_limit_override_put
INSERT INTO acme_limit_overrides (id, kind, subject, allowed, seconds, note, created_at, created_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (kind, subject) DO UPDATE SET allowed = excluded.allowed, seconds = excluded.seconds, note = excluded.note,
    created_at = excluded.created_at, created_by = excluded.created_by
RETURNING id";

pub(super) const DELETE: &str = "-- acme_limit_override_delete
DELETE FROM acme_limit_overrides WHERE id = ?1";

/// Stores an override, which replaces the one for the same limit and subject. Returns the identifier of the stored override.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn put_acme_limit_override(tx: &mut Tx, new: &AcmeLimitOverride) -> Result<Uuid, StoreError> {
    let parameters: Vec<Value> = vec![
        new.id.into(),
        new.kind.name().into(),
        new.subject.as_str().into(),
        new.allowed.into(),
        new.seconds.into(),
        new.note.as_str().into(),
        new.created_at_us.into(),
        new.created_by.as_str().into(),
    ];
    let stored = tx.row(PUT, parameters).await?;
    stored.ok_or_else(|| StoreError::Corrupt("an override was not stored".to_owned()))?.uuid()
}

/// Deletes an override. Returns false if it does not exist.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn delete_acme_limit_override(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

impl Acme<'_> {
    /// Returns all overrides, oldest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn limit_overrides(self) -> Result<Vec<AcmeLimitOverride>, StoreError> {
        let rows = self.0.rows(Cost::Point, OVERRIDES, vec![OVERRIDES_MAX.into()]).await?;
        rows.into_iter().map(override_of).collect()
    }
}

fn override_of(mut row: Row) -> Result<AcmeLimitOverride, StoreError> {
    Ok(AcmeLimitOverride {
        id: row.uuid()?,
        kind: row.named("acme_limit_overrides.kind")?,
        subject: row.text()?,
        allowed: row.maybe_number()?,
        seconds: row.number()?,
        note: row.text()?,
        created_at_us: row.int()?,
        created_by: row.text()?,
    })
}
