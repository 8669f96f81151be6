//! Keys by which certificates under management are served, as long as these hold.

use uuid::Uuid;

use super::handle::Managed;
use db::{Cost, Row, StoreError, limit_of};

/// A key, and the certificate it is of.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SigningKeyRow {
    /// The key's row in `keys`.
    pub key: Uuid,
    /// The certificate's name.
    pub certificate: String,
}

/// What pages of them go by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SigningKeysBy {
    /// Certificates, each with all its versions.
    Certificate,
    /// Versions after the last known one.
    Version,
}

/// Some of them, in the order of what they were asked by.
#[derive(Clone, Debug, Default)]
pub struct SigningKeyPage {
    /// Of versions that hold, whose keys are held here or by a provider and are not blocked.
    pub keys: Vec<SigningKeyRow>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<i64>,
}

/// All versions of so many certificates, as every one of them may still be served somewhere.
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
    /// Keys of what comes after the row `after`; `limit` certificates or versions a page, in one statement.
    ///
    /// # Errors
    /// Those of the database.
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

    /// The row of the version added last; 0 before the first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn newest_version(self) -> Result<i64, StoreError> {
        self.0.row(NEWEST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }
}

fn signing_key(row: &mut Row) -> Result<Option<SigningKeyRow>, StoreError> {
    let (certificate, key) = (row.maybe_text()?, row.maybe_uuid()?);
    Ok(certificate.zip(key).map(|(certificate, key)| SigningKeyRow { key, certificate }))
}
