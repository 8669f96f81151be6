//! Revoked login tokens.

use uuid::Uuid;

use super::handle::Credentials;
use db::StoreError;

pub(super) const END: &str = "-- credential_token_end
INSERT INTO credential_tokens_ended (id, expires_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
pub(super) const ENDED: &str = "-- credential_token_ended
SELECT 1 FROM credential_tokens_ended WHERE id = ?1";
pub(super) const TIDY: &str = "-- credential_tokens_tidy
DELETE FROM credential_tokens_ended WHERE expires_at < ?1";

impl Credentials<'_> {
    /// Revokes a token that expires at this time, µs since 1970-01-01 UTC. A revoked token stays revoked.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn end_token(self, id: Uuid, expires_at_us: i64) -> Result<(), StoreError> {
        self.0.execute(END, vec![id.as_bytes().as_slice().into(), expires_at_us.into()]).await.map(drop)
    }

    /// Returns whether a token was revoked.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn is_token_revoked(self, id: Uuid) -> Result<bool, StoreError> {
        Ok(self.0.row(ENDED, vec![id.as_bytes().as_slice().into()]).await?.is_some())
    }

    /// Deletes the records of revoked tokens that expired before this time, µs since 1970-01-01 UTC.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn delete_expired_tokens(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TIDY, vec![before_us.into()]).await
    }
}
