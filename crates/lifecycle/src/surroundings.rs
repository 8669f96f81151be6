//! Interfaces to the issuers and the internal CA.

use std::sync::Arc;

use authority::Authority;
use authority::profile::ProfileError;
use authority::revoke::{RevokeError, Selection};
use authority::teams::TeamDirectory;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use issuers::{Issuer, IssuerError, Issuers, Limits};
use store::{Store, StoreError};
use x509::Fingerprint;
use x509::crl::Reason;

use crate::error::DataError;
use crate::ledger::transaction;
use crate::managed::INTERNAL_ISSUER;
use crate::tables::managed::issued_ids_of;

/// Default number of concurrent orders at the internal CA. The number is large, because the CA signs in batches.
const INTERNAL_ORDERS_MAX: usize = 128;
/// Maximum ids revoked in one call.
const REVOKE_IDS_MAX: usize = authority::revoke::IDS_MAX;

/// Source of the issuers, by name. The returned issuers already enforce their own limits.
pub trait IssuerSource: Send + Sync {
    /// Returns the issuer with this name, including [`crate::managed::INTERNAL_ISSUER`].
    ///
    /// # Errors
    /// [`IssuerError`] if the issuer does not exist or its configuration is invalid.
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>>;

    /// Returns the maximum concurrent orders at an issuer from this process.
    fn concurrency<'a>(&'a self, name: &'a str) -> BoxFuture<'a, usize>;
}

/// Settings of a profile that affect the lifecycle of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProfileFacts {
    /// Whether a second person must approve.
    pub requires_approval: bool,
    /// Fraction of the lifetime after which a certificate is renewed.
    pub renew_at: f64,
}

/// Reason why the internal CA did not revoke a certificate.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The issuer failed.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

/// Interface of the lifecycle to the internal CA.
pub trait InternalAuthority: Send + Sync {
    /// Returns the settings of a profile. `None` if the profile does not exist.
    ///
    /// # Errors
    /// [`DataError`] if the profile cannot be read.
    fn profile<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, DataError>>;

    /// Returns the team directory of the CA. `None` if it has none; the directory is then read from the database.
    fn teams(&self) -> Option<TeamDirectory> {
        None
    }

    /// Revokes certificates of the internal CA by their fingerprints, in one call. Certificates that are already revoked are not
    /// changed. Returns the number of certificates that the CA issued.
    ///
    /// # Errors
    /// [`AuthorityError`]. Some certificates may be revoked already; a retry revokes the rest.
    fn revoke<'a>(
        &'a self,
        certificates: &'a [Fingerprint],
        reason: Reason,
        actor: &'a str,
    ) -> BoxFuture<'a, Result<usize, AuthorityError>>;
}

impl IssuerSource for Issuers {
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>> {
        self.get(name).boxed()
    }

    fn concurrency<'a>(&'a self, name: &'a str) -> BoxFuture<'a, usize> {
        async move {
            // An unreadable configuration causes an error later, when the issuer is used.
            let configured = self.find_named(name).await.ok().flatten();
            let limit = configured.as_ref().and_then(|view| view.config.pointer("/limits/concurrency"));
            match limit.and_then(serde_json::Value::as_u64) {
                Some(limit) => usize::try_from(limit).unwrap_or(1).clamp(1, 1_000),
                None if name == INTERNAL_ISSUER => INTERNAL_ORDERS_MAX,
                None => Limits::default().concurrency as usize,
            }
        }
        .boxed()
    }
}

/// The internal CA, and the database with the certificates it issued.
#[derive(Clone, Debug)]
pub struct LocalAuthority {
    authority: Authority,
    store: AuthorityStore,
}

#[derive(Clone)]
struct AuthorityStore(Store);

impl std::fmt::Debug for AuthorityStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl LocalAuthority {
    /// Creates the internal CA over one database.
    #[must_use]
    pub fn new(authority: Authority, store: Store) -> Self {
        Self { authority, store: AuthorityStore(store) }
    }
}

impl InternalAuthority for LocalAuthority {
    fn teams(&self) -> Option<TeamDirectory> {
        Some(self.authority.teams().clone())
    }

    fn profile<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, DataError>> {
        async move {
            match self.authority.profile(name).await {
                Ok(profile) => Ok(Some(ProfileFacts {
                    requires_approval: profile.requires_approval,
                    renew_at: profile.renew_at,
                })),
                Err(ProfileError::Unknown(_)) => Ok(None),
                Err(ProfileError::Store(error)) => Err(DataError::Store(error)),
                Err(error) => Err(DataError::Profile { name: name.to_owned(), reason: error.to_string() }),
            }
        }
        .boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificates: &'a [Fingerprint],
        reason: Reason,
        actor: &'a str,
    ) -> BoxFuture<'a, Result<usize, AuthorityError>> {
        async move {
            let fingerprints: Vec<[u8; 32]> = certificates.iter().map(|one| *one.as_bytes()).collect();
            let query = transaction(move |tx| async move { issued_ids_of(tx, &fingerprints).await }.boxed());
            let ids = self.store.0.write("issued_ids", query).await.map_err(Arc::new)?;
            for some in ids.chunks(REVOKE_IDS_MAX) {
                let revoked = self.authority.revoke(Selection::Ids(some.to_vec()), reason, None, actor).await;
                revoked.map_err(|error| match error {
                    RevokeError::Store(error) => AuthorityError::Store(error),
                    error => AuthorityError::Issuer(IssuerError::Refused { reason: error.to_string() }),
                })?;
            }
            Ok(ids.len())
        }
        .boxed()
    }
}
