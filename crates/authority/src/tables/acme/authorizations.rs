//! Authorizations: proofs of control over names, under way and done.

use std::collections::HashMap;

use coded::coded;
use uuid::Uuid;

use super::handle::Acme;
use db::{Bulk, Column, Cost, Row, StoreError, Tx, Value};

coded! {
    /// Where an authorization stands, as stored; that it has expired is for the reader to tell.
    pub enum AcmeAuthorizationStatus: "ACME authorization status" {
        /// Not proven yet.
        Pending = 0 => "pending",
        /// Proven.
        Valid = 1 => "valid",
        /// The proof failed.
        Invalid = 2 => "invalid",
        /// Deactivated by the account.
        Deactivated = 3 => "deactivated",
        /// Taken back by the operator.
        Revoked = 4 => "revoked",
    }
}

coded! {
    /// How a name may be proven: a type of challenge. In the order in which challenges are listed.
    pub enum Method: "ACME challenge type" {
        /// RFC 8555 section 8.3.
        Http01 = 0 => "http-01",
        /// RFC 8555 section 8.4.
        Dns01 = 1 => "dns-01",
        /// RFC 8737.
        TlsAlpn01 = 2 => "tls-alpn-01",
        /// draft-ietf-acme-dns-account-label-03.
        DnsAccount01 = 3 => "dns-account-01",
        /// draft-ietf-acme-dns-persist-02. Offered only where the server's options name CAA identities.
        DnsPersist01 = 4 => "dns-persist-01",
    }
}

impl Method {
    /// This method's bit in a set.
    pub(crate) fn bit(self) -> i64 {
        1 << self.code()
    }

    /// The methods of a set.
    pub(crate) fn of_bits(bits: i64) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |method| bits & method.bit() != 0)
    }
}

/// The code of [`AcmeProof::NotNeeded`].
const NOT_NEEDED: i64 = -1;

/// What an authorization is proven by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcmeProof {
    /// Nothing: the directory trusts its accounts.
    NotNeeded,
    /// The challenge of this type.
    Challenge(Method),
}

impl AcmeProof {
    fn code(self) -> i64 {
        match self {
            Self::NotNeeded => NOT_NEEDED,
            Self::Challenge(method) => method.code(),
        }
    }

    fn read(code: i64) -> Result<Self, StoreError> {
        match code {
            NOT_NEEDED => Ok(Self::NotNeeded),
            code => db::coded(code, "acme_authorizations.method").map(Self::Challenge),
        }
    }
}

/// An authorization.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeAuthorization {
    /// Its identity, a UUIDv7.
    pub id: Uuid,
    /// Whose.
    pub account: Uuid,
    /// Under which profile's rules.
    pub profile: String,
    /// The identifier: `dns:a.example`, `ip:10.0.0.1`.
    pub identifier: String,
    /// Whether for `*.` of that name.
    pub wildcard: bool,
    /// The state.
    pub status: AcmeAuthorizationStatus,
    /// Random bytes of all its challenges.
    pub token: Vec<u8>,
    /// The methods offered, a set of bits.
    pub methods: i64,
    /// What it was answered or proven by; `None`: nothing yet.
    pub proof: Option<AcmeProof>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Expiry, µs.
    pub expires_at_us: i64,
    /// When it was proven, or failed to be, µs.
    pub validated_at_us: Option<i64>,
    /// Until when later orders may use it, µs.
    pub reusable_until_us: Option<i64>,
    /// Why it is invalid, JSON.
    pub error: Option<String>,
    /// End of the claim by the node that validates it, µs.
    pub claimed_until_us: Option<i64>,
}

/// An answer to a challenge: validation is to begin.
#[derive(Clone, Copy, Debug)]
pub struct AcmeAnswer {
    /// The authorization.
    pub id: Uuid,
    /// The method answered.
    pub method: Method,
    /// Until when this node validates it, µs.
    pub claimed_until_us: i64,
}

/// A validation's outcome.
#[derive(Clone, Debug)]
pub struct AcmeValidated {
    /// The authorization.
    pub id: Uuid,
    /// Valid or invalid.
    pub status: AcmeAuthorizationStatus,
    /// When, µs.
    pub at_us: i64,
    /// When it now ends, µs.
    pub expires_at_us: i64,
    /// Until when later orders may use it, µs.
    pub reusable_until_us: Option<i64>,
    /// Why not, JSON.
    pub error: Option<String>,
}

macro_rules! columns {
    () => {
        "SELECT id, account, profile, identifier, wildcard, status, token, methods, method, created_at, expires_at, \
         validated_at, reusable_until, error, claimed_until FROM acme_authorizations"
    };
}

pub(super) const AUTHORIZATION: &str = concat!("-- acme_authorization\n", columns!(), " WHERE id = ?1");

pub(super) const AUTHORIZATIONS: Bulk = db::bulk! {
    concat!("-- acme_authorizations\n", columns!(), " WHERE id {among ?1 uuid}")
};

pub(super) const INSERT: Bulk = db::bulk! {
    (id uuid, account uuid, profile text, identifier text, wildcard bigint, status bigint, token bytea,
     methods bigint, method bigint, created_at bigint, expires_at bigint, validated_at bigint,
     reusable_until bigint)
    "-- acme_authorization_insert
INSERT INTO acme_authorizations (id, account, profile, identifier, wildcard, status, token, methods, method, created_at,
                                 expires_at, validated_at, reusable_until)
VALUES (:id, :account, :profile, :identifier, :wildcard, :status, :token, :methods, :method, :created_at, :expires_at,
  :validated_at, :reusable_until) ON CONFLICT (id) DO NOTHING"
};

/// Starts a validation, if the authorization is pending and unanswered.
pub(super) const BEGIN: Bulk = db::bulk! { (id uuid, method bigint, claimed_until bigint)
    db::with_codes!([AcmeAuthorizationStatus::{Pending}] "-- acme_validation_begin
UPDATE acme_authorizations SET method = :method, claimed_until = :claimed_until
WHERE id = :id AND status = {AcmeAuthorizationStatus::Pending}
  AND method IS NULL
RETURNING id")
};

/// Only what is pending still: the account may have given it up meanwhile.
pub(super) const END: Bulk = db::bulk! {
    (id uuid, status bigint, validated_at bigint, expires_at bigint, reusable_until bigint, error text)
    db::with_codes!([AcmeAuthorizationStatus::{Pending}] "-- acme_validation_end
UPDATE acme_authorizations SET status = :status, validated_at = :validated_at, expires_at = :expires_at,
  reusable_until = :reusable_until, error = :error, claimed_until = NULL
WHERE id = :id AND status = {AcmeAuthorizationStatus::Pending} RETURNING id")
};

/// Only what nobody else has taken over since: a claim is known by its end.
pub(super) const RELEASE: Bulk = db::bulk! { (id uuid, claimed bigint, now bigint)
    "-- acme_validations_release
UPDATE acme_authorizations SET claimed_until = :now WHERE id = :id AND claimed_until = :claimed"
};

/// Only what is pending or valid.
pub(super) const DEACTIVATE: &str = db::with_codes!([AcmeAuthorizationStatus::{Invalid}] "-- acme_authorization_deactivate
UPDATE acme_authorizations SET status = ?3, reusable_until = NULL, claimed_until = NULL
WHERE id = ?1 AND account = ?2 AND status < {AcmeAuthorizationStatus::Invalid}");

pub(super) const CLAIM: Bulk = db::bulk! {
    "-- acme_validations_claim
UPDATE acme_authorizations SET claimed_until = ?2 WHERE id IN
    (SELECT id FROM acme_authorizations WHERE claimed_until IS NOT NULL AND claimed_until <= ?1
     ORDER BY claimed_until LIMIT ?3{| FOR UPDATE SKIP LOCKED})
RETURNING id"
};

pub(super) const TIDY: Bulk = db::bulk! {
    "-- acme_authorizations_tidy
DELETE FROM acme_authorizations WHERE id IN
    (SELECT id FROM acme_authorizations WHERE id < ?1 ORDER BY id LIMIT ?2{| FOR UPDATE SKIP LOCKED})"
};

/// Ids in one statement. A list is filled up to the next of these with its first member, so that few statements exist.
const SIZES: [usize; 5] = [1, 2, 8, 32, 128];

fn those(count: usize, first: usize) -> String {
    let marks: Vec<String> = (first..first + count).map(|number| format!("?{number}")).collect();
    marks.join(", ")
}

fn reusable(count: usize) -> String {
    let names = those(count, 3);
    format!(
        concat!(
            "-- acme_authorizations_reusable_{}\n",
            columns!(),
            " WHERE account = ?1 AND reusable_until > ?2 AND identifier IN ({}) AND status = {}"
        ),
        count,
        names,
        AcmeAuthorizationStatus::Valid.code()
    )
}

fn held(count: usize) -> String {
    format!(
        "-- acme_authorizations_held_{count}\nSELECT DISTINCT identifier, wildcard FROM acme_authorizations \
         WHERE account = ?1 AND expires_at > ?2 AND identifier IN ({}) AND status = {} AND method <> {NOT_NEEDED}",
        those(count, 3),
        AcmeAuthorizationStatus::Valid.code()
    )
}

pub(super) fn composed() -> Vec<String> {
    let forms: [fn(usize) -> String; 2] = [reusable, held];
    forms.into_iter().flat_map(|form| SIZES.into_iter().map(form)).collect()
}

fn padded<T: Clone>(all: &[T]) -> Option<(usize, Vec<T>)> {
    let first = all.first()?;
    let size = SIZES.into_iter().find(|size| *size >= all.len())?;
    let mut padded = all.to_vec();
    padded.resize(size, first.clone());
    Some((size, padded))
}

/// Adds authorizations.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_acme_authorizations(tx: &mut Tx, new: &[AcmeAuthorization]) -> Result<(), StoreError> {
    let column = |of: fn(&AcmeAuthorization) -> i64| Column::Int(new.iter().map(of).collect());
    let maybe = |of: fn(&AcmeAuthorization) -> Option<i64>| Column::MaybeInt(new.iter().map(of).collect());
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.id).collect()),
        Column::Uuid(new.iter().map(|one| one.account).collect()),
        Column::Text(new.iter().map(|one| one.profile.clone()).collect()),
        Column::Text(new.iter().map(|one| one.identifier.clone()).collect()),
        column(|one| one.wildcard.into()),
        column(|one| one.status.code()),
        Column::Blob(new.iter().map(|one| one.token.clone()).collect()),
        column(|one| one.methods),
        maybe(|one| one.proof.map(AcmeProof::code)),
        column(|one| one.created_at_us),
        column(|one| one.expires_at_us),
        maybe(|one| one.validated_at_us),
        maybe(|one| one.reusable_until_us),
    ];
    tx.bulk(&INSERT, columns).await.map(drop)
}

/// Notes that challenges were answered; gives back those authorizations that were waiting for it.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn begin_acme_validations(tx: &mut Tx, answers: &[AcmeAnswer]) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(answers.iter().map(|one| one.id).collect()),
        Column::Int(answers.iter().map(|one| one.method.code()).collect()),
        Column::Int(answers.iter().map(|one| one.claimed_until_us).collect()),
    ];
    ids(tx.bulk(&BEGIN, columns).await?)
}

/// Notes how validations went; gives back those authorizations that were pending still.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn end_acme_validations(tx: &mut Tx, ended: &[AcmeValidated]) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(ended.iter().map(|one| one.id).collect()),
        Column::Int(ended.iter().map(|one| one.status.code()).collect()),
        Column::Int(ended.iter().map(|one| one.at_us).collect()),
        Column::Int(ended.iter().map(|one| one.expires_at_us).collect()),
        Column::MaybeInt(ended.iter().map(|one| one.reusable_until_us).collect()),
        Column::MaybeText(ended.iter().map(|one| one.error.clone()).collect()),
    ];
    ids(tx.bulk(&END, columns).await?)
}

/// Ends a pending or valid authorization of `account`; false when it is neither.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn deactivate_acme_authorization(tx: &mut Tx, id: Uuid, account: Uuid) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), account.into(), AcmeAuthorizationStatus::Deactivated.code().into()];
    Ok(tx.execute(DEACTIVATE, parameters).await? == 1)
}

pub(super) fn ids(rows: Vec<Row>) -> Result<Vec<Uuid>, StoreError> {
    rows.into_iter().map(|mut row| row.uuid()).collect()
}

impl Acme<'_> {
    /// An authorization.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn authorization(self, id: Uuid) -> Result<Option<AcmeAuthorization>, StoreError> {
        self.0.row(AUTHORIZATION, vec![id.into()]).await?.map(authorization).transpose()
    }

    /// These authorizations, in the order asked for; those that are gone are left out. One statement, however many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn authorizations(self, ids: &[Uuid]) -> Result<Vec<AcmeAuthorization>, StoreError> {
        let rows = self.0.among(&AUTHORIZATIONS, ids.iter().map(|id| id.simple())).await?;
        let mut found = rows.into_iter().map(authorization).collect::<Result<Vec<_>, _>>()?;
        let places: HashMap<Uuid, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        found.sort_by_key(|one| places.get(&one.id).copied());
        Ok(found)
    }

    /// An account's authorizations for these identifiers that later orders may use.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn reusable(
        self,
        account: Uuid,
        identifiers: &[String],
        now_us: i64,
    ) -> Result<Vec<AcmeAuthorization>, StoreError> {
        let mut found = Vec::new();
        for part in identifiers.chunks(SIZES[SIZES.len() - 1]) {
            let Some((size, padded)) = padded(part) else { continue };
            let mut parameters: Vec<Value> = vec![account.into(), now_us.into()];
            parameters.extend(padded.into_iter().map(Value::from));
            let rows = self.0.rows(Cost::Point, &reusable(size), parameters).await?;
            for row in rows {
                found.push(authorization(row)?);
            }
        }
        Ok(found)
    }

    /// Of these identifiers, those an account has valid authorizations for, each with whether for a wildcard.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn held(
        self,
        account: Uuid,
        identifiers: &[String],
        now_us: i64,
    ) -> Result<Vec<(String, bool)>, StoreError> {
        let mut found = Vec::new();
        for part in identifiers.chunks(SIZES[SIZES.len() - 1]) {
            let Some((size, padded)) = padded(part) else { continue };
            let mut parameters: Vec<Value> = vec![account.into(), now_us.into()];
            parameters.extend(padded.into_iter().map(Value::from));
            for mut row in self.0.rows(Cost::Point, &held(size), parameters).await? {
                found.push((row.text()?, row.flag()?));
            }
        }
        Ok(found)
    }

    /// Claims validations whose claim expired.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_validations(
        self,
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.claim("claim_acme_validations", &CLAIM, lapsed_by_us, until_us, limit).await
    }

    /// Deletes authorizations whose id is below `before`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tidy_authorizations(self, before: Uuid, limit: usize) -> Result<u64, StoreError> {
        self.tidy("tidy_acme_authorizations", &TIDY, before, limit).await
    }
}

fn authorization(mut row: Row) -> Result<AcmeAuthorization, StoreError> {
    Ok(AcmeAuthorization {
        id: row.uuid()?,
        account: row.uuid()?,
        profile: row.text()?,
        identifier: row.text()?,
        wildcard: row.flag()?,
        status: row.coded("acme_authorizations.status")?,
        token: row.blob()?,
        methods: row.int()?,
        proof: row.maybe_int()?.map(AcmeProof::read).transpose()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
        validated_at_us: row.maybe_int()?,
        reusable_until_us: row.maybe_int()?,
        error: row.maybe_text()?,
        claimed_until_us: row.maybe_int()?,
    })
}
