//! Private keys of the valid versions of managed certificates.

use uuid::Uuid;

use super::handle::Managed;
use db::{Cost, Row, StoreError, limit_of};

/// A private key, and the certificate it belongs to.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SigningKeyRow {
    /// Id of the key in the table `keys`.
    pub key: Uuid,
    /// Name of the certificate.
    pub certificate: String,
}

/// Kind of row by which signing keys are paged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SigningKeysBy {
    /// Pages of certificates, each with the keys of all its valid versions.
    Certificate,
    /// Pages of versions, starting after the last version that was read.
    Version,
}

/// A page of signing keys.
#[derive(Clone, Debug, Default)]
pub struct SigningKeyPage {
    /// Keys of valid versions. Each key is stored in this server or at a provider, and is not blocked.
    pub keys: Vec<SigningKeyRow>,
    /// Start of the next page; `None` after the last one.
    pub next: Option<i64>,
}

/// Keys of all versions of a page of certificates, because each version may still be served somewhere.
pub(super) const PAGE: &str = "-- managed_signing_keys
SELECT m.id, m.name, k.id
FROM (SELECT id, name FROM managed_certificates WHERE id > ?1 ORDER BY id LIMIT ?2) m
LEFT JOIN managed_versions v ON v.certificate_id = m.id AND v.not_after > ?3 AND v.revoked_at IS NULL
LEFT JOIN keys k ON k.id = v.key_id AND k.blocked_at IS NULL
ORDER BY m.id";

pub(super) const SINCE: &str = "-- managed_signing_keys_since
SELECT v.id, m.name, k.id
FROM (SELECT id, certificate_id, key_id, not_after, revoked_at FROM managed_versions WHERE id > ?1 ORDER BY id LIMIT ?2) v
LEFT JOIN managed_certificates m ON m.id = v.certificate_id
LEFT JOIN keys k ON k.id = v.key_id AND k.blocked_at IS NULL AND v.not_after > ?3 AND v.revoked_at IS NULL
ORDER BY v.id";

pub(super) const NEWEST: &str = "-- managed_version_newest
SELECT COALESCE(MAX(id), 0) FROM managed_versions";

impl Managed<'_> {
    /// Returns the keys of `limit` certificates or versions after row `after`, in a single statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn signing_keys(
        self,
        by: SigningKeysBy,
        after: i64,
        limit: usize,
        now_us: i64,
    ) -> Result<SigningKeyPage, StoreError> {
        let statement = match by {
            SigningKeysBy::Certificate => PAGE,
            SigningKeysBy::Version => SINCE,
        };
        let (limit, _) = limit_of(limit);
        let parameters = vec![after.into(), (limit as i64).into(), now_us.into()];
        let rows = self.0.rows(Cost::Walk, statement, parameters).await?;
        let mut page = SigningKeyPage::default();
        for mut row in rows {
            page.next = Some(row.int()?);
            page.keys.extend(signing_key(&mut row)?);
        }
        Ok(page)
    }

    /// Returns the row id of the newest version; 0 if there is none.
    ///
    /// # Errors
    /// Database errors.
    pub async fn newest_version(self) -> Result<i64, StoreError> {
        self.0.row(NEWEST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }
}

fn signing_key(row: &mut Row) -> Result<Option<SigningKeyRow>, StoreError> {
    let (certificate, key) = (row.maybe_text()?, row.maybe_uuid()?);
    Ok(certificate.zip(key).map(|(certificate, key)| SigningKeyRow { key, certificate }))
}
