//! Accounts and the keys they had.

use std::collections::HashSet;

use coded::coded;
use uuid::Uuid;

use super::external_keys;
use super::handle::Acme;
use super::lines::{from_lines, lines};
use super::place::{place, placed};
use db::{Bulk, Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};

coded! {
    /// State of an account.
    pub enum AcmeAccountStatus: "ACME account status" {
        /// In use.
        Valid = 0 => "valid",
        /// Ended by its owner (RFC 8555 section 7.3.6).
        Deactivated = 1 => "deactivated",
        /// Ended by the operator.
        Revoked = 2 => "revoked",
    }
}

/// An account, with what its external key allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeAccount {
    /// Its identity.
    pub id: Uuid,
    /// RFC 7638, of its key.
    pub thumbprint: [u8; 32],
    /// Its public key as canonical JSON.
    pub jwk: String,
    /// The state.
    pub status: AcmeAccountStatus,
    /// `mailto:` addresses.
    pub contacts: Vec<String>,
    /// Whether it agreed to the terms of service.
    pub terms_agreed: bool,
    /// The external key it was bound with.
    pub external_key: Option<Uuid>,
    /// The profile of the directory it was made at.
    pub profile: String,
    /// The address it was made from.
    pub address: String,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
    /// Until when it may have authorizations made without an order, µs.
    pub preauthorized_until_us: Option<i64>,
    /// Whether the external key is in force; true without one.
    pub external_key_active: bool,
    /// Profiles the external key allows; none: any.
    pub allowed_profiles: Vec<String>,
    /// Names the external key allows, by suffix; none: any.
    pub allowed_names: Vec<String>,
    /// The team that the external key binds it to.
    pub team: Option<String>,
}

/// An account to be made.
#[derive(Clone, Debug)]
pub struct NewAcmeAccount {
    /// Its identity.
    pub id: Uuid,
    /// RFC 7638, of its key.
    pub thumbprint: [u8; 32],
    /// Its public key as canonical JSON.
    pub jwk: String,
    /// `mailto:` addresses.
    pub contacts: Vec<String>,
    /// Whether it agreed to the terms of service.
    pub terms_agreed: bool,
    /// The external key it is bound with.
    pub external_key: Option<Uuid>,
    /// The profile of the directory it is made at.
    pub profile: String,
    /// The address it is made from.
    pub address: String,
    /// Now, µs.
    pub created_at_us: i64,
}

/// How making an account went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewAcmeAccountOutcome {
    /// The account was created.
    Made,
    /// There is one with this key.
    KeyInUse,
    /// The external key is gone, ended, or spent by another account; nothing was stored.
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

/// Which of these keys are accounts'.
pub(super) const KEYS_TAKEN: Bulk = db::bulk! {
    "-- acme_keys_taken
SELECT thumbprint FROM acme_accounts
WHERE thumbprint {among ?1 bytea}"
};

/// Newest first.
pub(super) const ACCOUNTS: &str =
    concat!("-- acme_accounts\n", columns!(), " WHERE a.id < ?1 ORDER BY a.id DESC LIMIT ?2");

pub(super) const INSERT: &str = "-- acme_account_insert
INSERT INTO acme_accounts (id, thumbprint, jwk, status, contacts, terms_agreed, external_key, profile, address,
                           created_at, updated_at)
VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?9) ON CONFLICT (thumbprint) DO NOTHING";

pub(super) const UNDO: &str = "-- acme_account_undo
DELETE FROM acme_accounts WHERE id = ?1";

/// What is NULL stays; the status changes from valid only.
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

/// Makes an account, spending its external key unless that is reusable.
///
/// # Errors
/// Those of the database.
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

/// A change of an account.
#[derive(Clone, Debug)]
pub struct AcmeAccountChange {
    /// The status after the change.
    pub status: AcmeAccountStatus,
    /// The new contacts; `None` keeps the old ones.
    pub contacts: Option<Vec<String>>,
    /// Whether the account agrees to the terms of service now. An earlier agreement stays.
    pub terms_agreed: bool,
}

/// Changes a valid account. Returns false when it is not valid.
///
/// # Errors
/// Those of the database.
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

/// Gives a valid account another key, keeping the old thumbprint. False when the account is not valid or has another
/// key by now, or when the new key is an account's already.
///
/// # Errors
/// Those of the database.
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

/// Notes that an account has an authorization made without an order, until then at the latest.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn note_acme_preauthorization(tx: &mut Tx, id: Uuid, until_us: i64) -> Result<(), StoreError> {
    tx.execute(PREAUTHORIZED, vec![id.into(), until_us.into()]).await.map(drop)
}

impl Acme<'_> {
    /// An account.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn account(self, id: Uuid) -> Result<Option<AcmeAccount>, StoreError> {
        self.0.row(ACCOUNT, vec![id.into()]).await?.map(account).transpose()
    }

    /// The account that has a key now.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn account_by_key(self, thumbprint: &[u8; 32]) -> Result<Option<AcmeAccount>, StoreError> {
        self.0.row(ACCOUNT_BY_KEY, vec![(*thumbprint).into()]).await?.map(account).transpose()
    }

    /// Which of these thumbprints are those of accounts' present keys. One statement, however many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn keys_taken(self, thumbprints: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let rows = self.0.among(&KEYS_TAKEN, thumbprints.iter().map(|one| db::hex(one))).await?;
        rows.into_iter().map(|mut row| row.hash()).collect()
    }

    /// Accounts, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn accounts(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeAccount>, StoreError> {
        let place = place(after, "acme-accounts")?;
        let (limit, asked) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, ACCOUNTS, vec![place, asked.into()]).await?;
        page(rows, limit, "acme-accounts", |row| {
            let account = account(row)?;
            let place = placed(account.id);
            Ok((account, place))
        })
    }

    /// Thumbprints of the keys an account had before, the latest first.
    ///
    /// # Errors
    /// Those of the database.
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
    // A key that was deleted allows nothing; one that has run out only binds no new accounts.
    let (disabled_at_us, key) = (row.maybe_int()?, row.maybe_uuid()?);
    account.external_key_active = disabled_at_us.is_none() && key.is_some();
    account.team = row.maybe_text()?;
    Ok(account)
}
