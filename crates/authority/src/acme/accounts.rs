//! Cache of ACME accounts with their parsed keys.

use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use http::StatusCode;
use store::Store;
use uuid::Uuid;

use super::jose::AccountKey;
use super::problem::Problem;
use crate::tables;
use crate::tables::acme::{AcmeAccount, AcmeAccountStatus};

/// Maximum number of cached accounts, about 2 KB each.
const ACCOUNTS_MAX: u64 = 20_000;
/// Lifetime of a cache entry. A change by another node takes effect on this node after this time at the latest.
const CACHE_LIFETIME: Duration = Duration::from_secs(2);

/// An account with its parsed key.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) row: AcmeAccount,
    pub(crate) key: AccountKey,
}

/// Reason why an account is not available.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missing {
    /// The row does not exist.
    Unknown,
    /// The database is temporarily unavailable.
    Busy,
    /// The database row cannot be parsed.
    Broken,
}

pub(crate) struct Accounts(Cache<Uuid, Arc<Account>, Missing>);

impl Accounts {
    pub(crate) fn new() -> Self {
        Self(Cache::with_entries_max(ACCOUNTS_MAX))
    }

    /// Returns an account from the cache or the database.
    pub(crate) async fn get(&self, store: &Store, id: Uuid) -> Result<Arc<Account>, Missing> {
        let store = store.clone();
        self.0.fetch(&id, move || read(store, id)).await
    }

    /// Reads an account from the database, even if it is cached.
    pub(crate) async fn reload(&self, store: &Store, id: Uuid) -> Result<Arc<Account>, Missing> {
        self.forget(id);
        self.get(store, id).await
    }

    /// Removes an account from the cache after a change.
    pub(crate) fn forget(&self, id: Uuid) {
        self.0.invalidate(&id);
    }
}

async fn read(store: Store, id: Uuid) -> Result<Fresh<Arc<Account>>, Failed<Missing>> {
    let failed = |error, lifetime| Err(Failed { error, lifetime });
    match tables::Acme::of(&store).account(id).await {
        Ok(Some(row)) => match AccountKey::from_canonical(&row.jwk) {
            Ok(key) => Ok(Fresh { value: Arc::new(Account { row, key }), lifetime: CACHE_LIFETIME }),
            Err(error) => {
                tracing::error!(account = %id, %error, "cannot open the key of an ACME account");
                failed(Missing::Broken, CACHE_LIFETIME)
            }
        },
        Ok(None) => failed(Missing::Unknown, CACHE_LIFETIME),
        Err(error) => {
            tracing::error!(%error, "cannot read an ACME account");
            failed(if error.is_transient() { Missing::Busy } else { Missing::Broken }, Duration::ZERO)
        }
    }
}

impl Account {
    /// Checks that the account is valid (RFC 8555 section 7.3.6).
    pub(crate) fn check(&self) -> Result<(), Problem> {
        check(&self.row)
    }

    /// Returns the name of the account in the audit log.
    pub(crate) fn actor(&self) -> String {
        actor(self.row.id)
    }
}

pub(crate) fn check(account: &AcmeAccount) -> Result<(), Problem> {
    let refused = |detail: &str| Err(Problem::unauthorized(detail).status(StatusCode::UNAUTHORIZED));
    match account.status {
        AcmeAccountStatus::Valid if account.external_key_active => Ok(()),
        AcmeAccountStatus::Valid => refused("the external account key of this account is revoked"),
        AcmeAccountStatus::Deactivated => refused("this account is deactivated"),
        AcmeAccountStatus::Revoked => refused("this account has been revoked"),
    }
}

/// Returns the name of an account in the audit log and in the records of certificates.
pub(crate) fn actor(account: Uuid) -> String {
    format!("acme:{account}")
}
