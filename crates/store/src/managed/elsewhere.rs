//! Managed certificates that were revoked at the authority by themselves: by serial, by filter, by a blocked key.

use uuid::Uuid;

use crate::error::StoreError;
use crate::store::{Cost, Store};
use crate::value::Row;

/// From the revocations, which are few and found by their time, to the certificates whose newest version they concern.
/// 6 is a hold and 8 its end (RFC 5280 section 5.3.1): neither is for good.
pub(super) const REVOKED_ELSEWHERE: &str = "-- managed_revoked_elsewhere
SELECT m.uuid, r.reason, r.recorded_at
FROM revocations r
JOIN certificates c ON c.id = r.certificate_id
JOIN managed_versions v ON v.fingerprint = c.sha256
JOIN managed_certificates m ON m.id = v.certificate_id AND m.version_id = v.id
WHERE r.recorded_at > ?1 AND r.reason NOT IN (6, 8) AND m.revoked = 0
ORDER BY r.recorded_at, m.id LIMIT ?2";

/// A managed certificate whose newest version the authority has revoked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RevokedElsewhere {
    /// Which.
    pub certificate: Uuid,
    /// The CRLReason's number.
    pub reason: i64,
    /// When the authority was told, µs.
    pub recorded_at_us: i64,
}

impl Store {
    /// Managed certificates whose newest version was revoked at the authority after a time, and that do not know it yet;
    /// the earliest revocations first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn managed_revoked_elsewhere(
        &self,
        after_us: i64,
        limit: i64,
    ) -> Result<Vec<RevokedElsewhere>, StoreError> {
        let rows = self.rows(Cost::Walk, REVOKED_ELSEWHERE, vec![after_us.into(), limit.into()]).await?;
        let revoked = |mut row: Row| {
            Ok(RevokedElsewhere { certificate: row.uuid()?, reason: row.int()?, recorded_at_us: row.int()? })
        };
        rows.into_iter().map(revoked).collect()
    }
}
