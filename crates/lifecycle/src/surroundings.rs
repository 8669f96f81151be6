//! Interfaces to the rooms that a lifecycle needs.

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
use crate::ledger::on;
use crate::managed::INTERNAL_ISSUER;
use crate::tables::managed::issued_ids_of;

/// Orders our own CA gets at once when nothing else is configured: it signs in groups, so few would be slow.
const OWN_PLACES: usize = 128;
/// Identities revoked in one call.
const REVOKE_IDS_MAX: usize = authority::revoke::IDS_MAX;

/// Issuers by name. What it gives is held to its limits already.
pub trait IssuerSource: Send + Sync {
    /// The issuer of this name, [`crate::managed::INTERNAL_ISSUER`] included.
    ///
    /// # Errors
    /// [`IssuerError`] when there is none, or its configuration does not work.
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>>;

    /// Orders it may have under way at once from this process.
    fn places<'a>(&'a self, name: &'a str) -> BoxFuture<'a, usize>;
}

/// What a profile says that matters to the life of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProfileFacts {
    /// Whether a second person must agree.
    pub requires_approval: bool,
    /// The part of its life after which a certificate is renewed.
    pub renew_at: f64,
}

/// Why our own CA revoked nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The issuer failed.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

/// Our own CA, as far as a lifecycle needs to know it.
pub trait OwnAuthority: Send + Sync {
    /// What a profile says; `None` when there is no such profile.
    ///
    /// # Errors
    /// [`DataError`] when it cannot be read.
    fn profile<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, DataError>>;

    /// What it knows of teams; `None` when it knows nothing of them, and the database alone does.
    fn teams(&self) -> Option<TeamDirectory> {
        None
    }

    /// Revokes certificates of ours by their fingerprints, all in one. Those that are revoked already
    /// stay as they are. Answers how many are known to be ours.
    ///
    /// # Errors
    /// [`AuthorityError`]; none is revoked then, or calling again does the rest.
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

    fn places<'a>(&'a self, name: &'a str) -> BoxFuture<'a, usize> {
        async move {
            // What cannot be read now is found out when the issuer is asked.
            let configured = self.find_named(name).await.ok().flatten();
            let limit = configured.as_ref().and_then(|view| view.config.pointer("/limits/concurrency"));
            match limit.and_then(serde_json::Value::as_u64) {
                Some(limit) => usize::try_from(limit).unwrap_or(1).clamp(1, 1_000),
                None if name == INTERNAL_ISSUER => OWN_PLACES,
                None => Limits::default().concurrency as usize,
            }
        }
        .boxed()
    }
}

/// Our own CA, with the database in which it finds what it issued.
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
    /// Creates the parts over one database.
    #[must_use]
    pub fn new(authority: Authority, store: Store) -> Self {
        Self { authority, store: AuthorityStore(store) }
    }
}

impl OwnAuthority for LocalAuthority {
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
            let look = on(move |tx| async move { issued_ids_of(tx, &fingerprints).await }.boxed());
            let ids = self.store.0.write("issued_ids", look).await.map_err(Arc::new)?;
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
