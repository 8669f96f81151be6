//! Storage of ACME accounts and their earlier keys.

use std::collections::HashSet;

use coded::coded;
use uuid::Uuid;

use super::external_keys;
use super::handle::Acme;
use super::lines::{from_lines, lines};
use super::position::{position, position_of};
use db::{BulkStatement, Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};

coded! {
    /// Status of an ACME account (RFC 8555 section 7.1.2). Only `valid` accounts can place orders.
    pub enum AcmeAccountStatus: "ACME account status" {
        /// The account is active and can place orders.
        Valid = 0 => "valid",
        /// Deactivated by its owner (RFC 8555 section 7.3.6).
        Deactivated = 1 => "deactivated",
        /// Revoked by the operator.
        Revoked = 2 => "revoked",
    }
}

/// An account, with the restrictions of its external key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeAccount {
    /// Identifier of the account, part of its URL.
    pub id: Uuid,
    /// Thumbprint of the account key (RFC 7638).
    pub thumbprint: [u8; 32],
    /// Public key as canonical JSON.
    pub jwk: String,
    /// State of the account. Only a valid account is accepted as the signer of requests.
    pub status: AcmeAccountStatus,
    /// Contacts, as `mailto:` URLs.
    pub contacts: Vec<String>,
    /// Whether the account agreed to the terms of service.
    pub terms_agreed: bool,
    /// External key with which the account was bound.
    pub external_key: Option<Uuid>,
    /// Profile of the ACME directory at which the account was created.
    pub profile: String,
    /// Network address from which the account was created.
    pub address: String,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Time of the last change in microseconds.
    pub updated_at_us: i64,
    /// Latest expiry of pre-authorizations of the account, in microseconds.
    pub preauthorized_until_us: Option<i64>,
    /// Whether the external key is enabled; true without one.
    pub external_key_active: bool,
    /// Profiles that the external key allows. An empty list allows any.
    pub allowed_profiles: Vec<String>,
    /// Names that the external key allows, by suffix. An empty list allows any.
    pub allowed_names: Vec<String>,
    /// Team to which the external key binds the account.
    pub team: Option<String>,
}

/// A new account, to be stored by [`insert_acme_account`].
#[derive(Clone, Debug)]
pub struct NewAcmeAccount {
    /// Identifier of the account, part of its URL.
    pub id: Uuid,
    /// Thumbprint of the account key (RFC 7638).
    pub thumbprint: [u8; 32],
    /// Public key as canonical JSON.
    pub jwk: String,
    /// Contacts, as `mailto:` URLs.
    pub contacts: Vec<String>,
    /// Whether the account agreed to the terms of service.
    pub terms_agreed: bool,
    /// External key with which the account is bound.
    pub external_key: Option<Uuid>,
    /// Profile of the ACME directory at which the account is created.
    pub profile: String,
    /// Network address from which the account is created.
    pub address: String,
    /// Creation time in microseconds.
    pub created_at_us: i64,
}

/// Result of the creation of an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewAcmeAccountOutcome {
    /// The account was created.
    Made,
    /// An account with this key exists.
    KeyInUse,
    /// The external key is deleted, disabled, expired or already used by another account. Nothing was stored.
    ExternalKeySpent,
}

macro_rules! columns {
    () => {
        "SELECT a.id, a.thumbprint, a.jwk, a.status, a.contacts, a.terms_agreed, a.external_key, a.profile, a.address, \
         a.created_at, a.updated_at, a.preauthorized_until, e.profiles, e.names, e.disabled_at, e.id, e.team \
         FROM acme_accounts a LEFT JOIN acme_external_keys e ON e.id = a.external_key"
    };
}

pub(super) const ACCOUNT: &str = concat!("-- acme_account\n", columns!(), " WHERE a.id = ?1");

pub(super) const ACCOUNT_BY_KEY: &str =
    concat!("-- acme_account_by_key\n", columns!(), " WHERE a.thumbprint = ?1");

/// Selects the given key thumbprints that belong to an account.
pub(super) const KEYS_IN_USE: BulkStatement = db::bulk! {
    "-- acme_keys_taken
SELECT thumbprint FROM acme_accounts
WHERE thumbprint {among ?1 bytea}"
};

/// Selects accounts, newest first.
pub(super) const ACCOUNTS: &str =
    concat!("-- acme_accounts\n", columns!(), " WHERE a.id < ?1 ORDER BY a.id DESC LIMIT ?2");

pub(super) const INSERT: &str = "-- acme_account_insert
INSERT INTO acme_accounts (id, thumbprint, jwk, status, contacts, terms_agreed, external_key, profile, address,
                           created_at, updated_at)
VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?9) ON CONFLICT (thumbprint) DO NOTHING";

pub(super) const UNDO: &str = "-- acme_account_undo
DELETE FROM acme_accounts WHERE id = ?1";

/// Updates an account that is valid. If ?3 is NULL, the contacts do not change. An earlier agreement to the terms is kept.
pub(super) const SET: &str = db::with_codes!([AcmeAccountStatus::{Valid}] "-- acme_account_set
UPDATE acme_accounts SET status = ?2, contacts = COALESCE(?3, contacts), updated_at = ?5,
                         terms_agreed = CASE WHEN CAST(?4 AS BIGINT) = 1 THEN 1 ELSE terms_agreed END
WHERE id = ?1 AND status = {AcmeAccountStatus::Valid}");

pub(super) const CHANGE_KEY: &str = db::with_codes!([AcmeAccountStatus::{Valid}] "-- acme_account_change_key
UPDATE acme_accounts SET thumbprint = ?3, jwk = ?4, updated_at = ?5
WHERE id = ?1 AND thumbprint = ?2 AND status = {AcmeAccountStatus::Valid}
  AND NOT EXISTS (SELECT 1 FROM acme_accounts o WHERE o.thumbprint = ?3)");

pub(super) const KEEP_KEY: &str = "-- acme_account_keep_key
INSERT INTO acme_account_keys (account, thumbprint, replaced_at) VALUES (?1, ?2, ?3)
ON CONFLICT (account, thumbprint) DO UPDATE SET replaced_at = excluded.replaced_at";

pub(super) const PREAUTHORIZED: &str = "-- acme_account_preauthorized
UPDATE acme_accounts SET preauthorized_until = ?2
WHERE id = ?1 AND (preauthorized_until IS NULL OR preauthorized_until < ?2)";

pub(super) const EARLIER_KEYS: &str = "-- acme_account_earlier_keys
SELECT thumbprint FROM acme_account_keys WHERE account = ?1 ORDER BY replaced_at DESC LIMIT ?2";

/// Creates an account. An external key that is not reusable is used up.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn insert_acme_account(
    tx: &mut Tx,
    new: &NewAcmeAccount,
) -> Result<NewAcmeAccountOutcome, StoreError> {
    let parameters = vec![
        new.id.into(),
        new.thumbprint.into(),
        new.jwk.as_str().into(),
        lines(&new.contacts).into(),
        new.terms_agreed.into(),
        new.external_key.into(),
        new.profile.as_str().into(),
        new.address.as_str().into(),
        new.created_at_us.into(),
    ];
    if tx.execute(INSERT, parameters).await? == 0 {
        return Ok(NewAcmeAccountOutcome::KeyInUse);
    }
    let Some(external_key) = new.external_key else { return Ok(NewAcmeAccountOutcome::Made) };
    if external_keys::spend(tx, external_key, new.created_at_us).await? {
        return Ok(NewAcmeAccountOutcome::Made);
    }
    tx.execute(UNDO, vec![new.id.into()]).await?;
    Ok(NewAcmeAccountOutcome::ExternalKeySpent)
}

/// New values for an account, to be stored by [`set_acme_account`].
#[derive(Clone, Debug)]
pub struct AcmeAccountChange {
    /// New status, stored only if the account is valid.
    pub status: AcmeAccountStatus,
    /// New contacts; `None` keeps the old ones.
    pub contacts: Option<Vec<String>>,
    /// Whether the account now agrees to the terms of service. An earlier agreement is kept.
    pub terms_agreed: bool,
}

/// Changes a valid account. Returns false if the account is not valid.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn set_acme_account(
    tx: &mut Tx,
    id: Uuid,
    change: AcmeAccountChange,
    now_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![
        id.into(),
        change.status.code().into(),
        change.contacts.map(|contacts| lines(&contacts)).into(),
        change.terms_agreed.into(),
        now_us.into(),
    ];
    Ok(tx.execute(SET, parameters).await? == 1)
}

/// Replaces the key of a valid account, and stores the old thumbprint. Returns false if the account is not valid, if its key has
/// changed in the meantime, or if the new key belongs to an account.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn change_acme_account_key(
    tx: &mut Tx,
    id: Uuid,
    old: [u8; 32],
    new: [u8; 32],
    jwk: &str,
    now_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), old.into(), new.into(), jwk.into(), now_us.into()];
    if tx.execute(CHANGE_KEY, parameters).await? == 0 {
        return Ok(false);
    }
    tx.execute(KEEP_KEY, vec![id.into(), old.into(), now_us.into()]).await?;
    Ok(true)
}

/// Records that an account has pre-authorizations, which expire at `until_us` at the latest.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn note_acme_preauthorization(tx: &mut Tx, id: Uuid, until_us: i64) -> Result<(), StoreError> {
    tx.execute(PREAUTHORIZED, vec![id.into(), until_us.into()]).await.map(drop)
}

impl Acme<'_> {
    /// Returns the account with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn account(self, id: Uuid) -> Result<Option<AcmeAccount>, StoreError> {
        self.0.row(ACCOUNT, vec![id.into()]).await?.map(account).transpose()
    }

    /// Returns the account whose current key has this thumbprint; `None` if there is no such account.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn account_by_key(self, thumbprint: &[u8; 32]) -> Result<Option<AcmeAccount>, StoreError> {
        self.0.row(ACCOUNT_BY_KEY, vec![(*thumbprint).into()]).await?.map(account).transpose()
    }

    /// Returns the subset of these thumbprints that are in use as the current key of an account. Runs a single statement.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn thumbprints_in_use(self, thumbprints: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let rows = self.0.among(&KEYS_IN_USE, thumbprints.iter().map(|one| db::hex(one))).await?;
        rows.into_iter().map(|mut row| row.hash()).collect()
    }

    /// Returns a page of accounts, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn accounts(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeAccount>, StoreError> {
        let position = position(after, "acme-accounts")?;
        let (limit, row_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, ACCOUNTS, vec![position, row_limit.into()]).await?;
        page(rows, limit, "acme-accounts", |row| {
            let account = account(row)?;
            let position = position_of(account.id);
            Ok((account, position))
        })
    }

    /// Returns the thumbprints of the earlier keys of an account, latest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn earlier_keys(self, account: Uuid, limit: usize) -> Result<Vec<[u8; 32]>, StoreError> {
        let limit = Value::Int(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = self.0.rows(Cost::Point, EARLIER_KEYS, vec![account.into(), limit]).await?;
        rows.into_iter().map(|mut row| row.hash()).collect()
    }
}

fn account(mut row: Row) -> Result<AcmeAccount, StoreError> {
    let mut account = AcmeAccount {
        id: row.uuid()?,
        thumbprint: row.hash()?,
        jwk: row.text()?,
        status: row.coded("acme_accounts.status")?,
        contacts: from_lines(&row.text()?),
        terms_agreed: row.flag()?,
        external_key: row.maybe_uuid()?,
        profile: row.text()?,
        address: row.text()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
        preauthorized_until_us: row.maybe_int()?,
        external_key_active: true,
        allowed_profiles: Vec::new(),
        allowed_names: Vec::new(),
        team: None,
    };
    if account.external_key.is_none() {
        return Ok(account);
    }
    account.allowed_profiles = from_lines(&row.maybe_text()?.unwrap_or_default());
    account.allowed_names = from_lines(&row.maybe_text()?.unwrap_or_default());
    // A deleted external key allows nothing. An expired one only binds no new accounts.
    let (disabled_at_us, key) = (row.maybe_int()?, row.maybe_uuid()?);
    account.external_key_active = disabled_at_us.is_none() && key.is_some();
    account.team = row.maybe_text()?;
    Ok(account)
}
