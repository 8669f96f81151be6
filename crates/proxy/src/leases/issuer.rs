//! Interface of the store that creates, renews and revokes leases.

use std::fmt;
use std::pin::Pin;

use jiff::Timestamp;
use keys::Secret;
use uuid::Uuid;

/// Future of a call to a [`LeaseIssuer`].
pub type Issuing<'a, T> = Pin<Box<dyn Future<Output = Result<T, LeaseError>> + Send + 'a>>;

/// A new lease: a user with a password and an expiry.
#[derive(Clone, Debug)]
pub struct NewLease {
    /// ID of the lease, for its renewal and revocation.
    pub id: Uuid,
    /// Name of the database user that was created for the lease.
    pub username: Secret,
    /// Password of the new user.
    pub password: Secret,
    /// Creation time, by the clock of the store.
    pub created_at: Timestamp,
    /// Expiry, by the clock of the store.
    pub expires_at: Timestamp,
}

/// Creates, renews and revokes leases. Implementations have timeouts. A call is not cancelled: its result is always awaited.
pub trait LeaseIssuer: fmt::Debug + Send + Sync {
    /// Creates a lease: a new database user with the rights of `role`.
    fn create<'a>(&'a self, role: &'a str) -> Issuing<'a, NewLease>;

    /// Renews a lease, at most to the maximum lifetime of its role. Returns the new expiry.
    fn renew(&self, lease: Uuid) -> Issuing<'_, Timestamp>;

    /// Revokes a lease: its user is dropped, and the user's sessions end.
    fn revoke(&self, lease: Uuid) -> Issuing<'_, ()>;
}

/// Error of a call to the store of leases. Contains no part of a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeaseError {
    /// The store does not respond. A retry is safe.
    #[error("the store of dynamic credentials does not answer: {0}")]
    StoreUnavailable(String),
    /// The store does not accept the proxy's token, or the token has lost its permission.
    #[error("{0}")]
    Denied(String),
    /// The role or the lease does not exist, or may not be used.
    #[error("{0}")]
    Refused(String),
}
