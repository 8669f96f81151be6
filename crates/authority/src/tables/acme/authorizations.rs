//! Storage of ACME authorizations, with their challenges and validation results.

use std::collections::HashMap;

use coded::coded;
use uuid::Uuid;

use super::handle::Acme;
use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, Value};

coded! {
    /// Stored state of an authorization. Readers determine from the time whether it has expired.
    pub enum AcmeAuthorizationStatus: "ACME authorization status" {
        /// Not yet validated.
        Pending = 0 => "pending",
        /// The validation succeeded, or none was required.
        Valid = 1 => "valid",
        /// The validation failed.
        Invalid = 2 => "invalid",
        /// Deactivated by the account.
        Deactivated = 3 => "deactivated",
        /// Revoked by the operator.
        Revoked = 4 => "revoked",
    }
}

coded! {
    /// Validation method, which is a type of challenge. Challenges are listed in this order.
    pub enum Method: "ACME challenge type" {
        /// Validation over HTTP (RFC 8555 section 8.3).
        Http01 = 0 => "http-01",
        /// Validation by a TXT record (RFC 8555 section 8.4).
        Dns01 = 1 => "dns-01",
        /// Validation over TLS (RFC 8737).
        TlsAlpn01 = 2 => "tls-alpn-01",
        /// Validation by a TXT record of the account (draft-ietf-acme-dns-account-label-03).
        DnsAccount01 = 3 => "dns-account-01",
        /// Validation by a permanent TXT record (draft-ietf-acme-dns-persist-02). Available only if the server's options name CAA
        /// identities.
        DnsPersist01 = 4 => "dns-persist-01",
    }
}

impl Method {
    /// Returns the bit of this method in a bit set.
    pub(crate) fn bit(self) -> i64 {
        1 << self.code()
    }

    /// Returns the methods in a bit set.
    pub(crate) fn methods_in_bits(bits: i64) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |method| bits & method.bit() != 0)
    }
}

/// Database code of [`AcmeProof::NotNeeded`].
const NOT_NEEDED: i64 = -1;

/// How an authorization becomes valid: with a challenge, or without validation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcmeProof {
    /// No validation is required: the directory trusts its accounts.
    NotNeeded,
    /// Validated with the challenge of this type.
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

/// An account's authorization for an identifier, with the state of its validation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeAuthorization {
    /// Identifier of the authorization, a UUIDv7.
    pub id: Uuid,
    /// Account that may use the authorization.
    pub account: Uuid,
    /// Profile whose rules apply.
    pub profile: String,
    /// Name to validate, such as `dns:a.example` or `ip:10.0.0.1`.
    pub identifier: String,
    /// Whether the authorization is for the wildcard `*.` of the name.
    pub wildcard: bool,
    /// Stored state. It does not show whether the authorization has expired: see `expires_at_us`.
    pub status: AcmeAuthorizationStatus,
    /// Random bytes of the token of all challenges.
    pub token: Vec<u8>,
    /// Available methods, as a bit set.
    pub methods: i64,
    /// Challenge to which the client responded, or with which the name was validated; `None` before a response.
    pub proof: Option<AcmeProof>,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Expiry time in microseconds.
    pub expires_at_us: i64,
    /// Time of the successful or failed validation in microseconds.
    pub validated_at_us: Option<i64>,
    /// Time in microseconds until which later orders may reuse the authorization.
    pub reusable_until_us: Option<i64>,
    /// Error of a failed validation, JSON.
    pub error: Option<String>,
    /// Expiry of the claim by the node that validates, in microseconds.
    pub claimed_until_us: Option<i64>,
}

/// A response to a challenge, after which the validation begins.
#[derive(Clone, Copy, Debug)]
pub struct AcmeChallengeResponse {
    /// Identifier of the authorization that contains the challenge.
    pub id: Uuid,
    /// Type of the challenge to which the client responded.
    pub method: Method,
    /// Expiry of this node's claim in microseconds.
    pub claimed_until_us: i64,
}

/// The result of a validation, to be stored in its authorization.
#[derive(Clone, Debug)]
pub struct AcmeValidationResult {
    /// Identifier of the authorization that was validated, successfully or not.
    pub id: Uuid,
    /// New state: valid or invalid.
    pub status: AcmeAuthorizationStatus,
    /// Time of the result in microseconds.
    pub at_us: i64,
    /// New expiry time in microseconds.
    pub expires_at_us: i64,
    /// Time in microseconds until which later orders may reuse the authorization.
    pub reusable_until_us: Option<i64>,
    /// Error of a failed validation, JSON.
    pub error: Option<String>,
}

macro_rules! columns {
    () => {
        "SELECT id, account, profile, identifier, wildcard, status, token, methods, method, created_at, expires_at, \
         validated_at, reusable_until, error, claimed_until FROM acme_authorizations"
    };
}

pub(super) const AUTHORIZATION: &str = concat!("-- acme_authorization\n", columns!(), " WHERE id = ?1");

pub(super) const AUTHORIZATIONS: BulkStatement = db::bulk! {
    concat!("-- acme_authorizations\n", columns!(), " WHERE id {among ?1 uuid}")
};

pub(super) const INSERT: BulkStatement = db::bulk! {
    (id uuid, account uuid, profile text, identifier text, wildcard bigint, status bigint, token bytea,
     methods bigint, method bigint, created_at bigint, expires_at bigint, validated_at bigint,
     reusable_until bigint)
    "-- acme_authorization_insert
INSERT INTO acme_authorizations (id, account, profile, identifier, wildcard, status, token, methods, method, created_at,
                                 expires_at, validated_at, reusable_until)
VALUES (:id, :account, :profile, :identifier, :wildcard, :status, :token, :methods, :method, :created_at, :expires_at,
  :validated_at, :reusable_until) ON CONFLICT (id) DO NOTHING"
};

/// Starts the validation of pending authorizations without a response.
pub(super) const BEGIN: BulkStatement = db::bulk! { (id uuid, method bigint, claimed_until bigint)
    db::with_codes!([AcmeAuthorizationStatus::{Pending}] "-- acme_validation_begin
UPDATE acme_authorizations SET method = :method, claimed_until = :claimed_until
WHERE id = :id AND status = {AcmeAuthorizationStatus::Pending}
  AND method IS NULL
RETURNING id")
};

/// Stores results of authorizations that are still pending: the account may have deactivated one in the meantime.
pub(super) const END: BulkStatement = db::bulk! {
    (id uuid, status bigint, validated_at bigint, expires_at bigint, reusable_until bigint, error text)
    db::with_codes!([AcmeAuthorizationStatus::{Pending}] "-- acme_validation_end
UPDATE acme_authorizations SET status = :status, validated_at = :validated_at, expires_at = :expires_at,
  reusable_until = :reusable_until, error = :error, claimed_until = NULL
WHERE id = :id AND status = {AcmeAuthorizationStatus::Pending} RETURNING id")
};

/// Releases claims that no other node has taken over. The expiry of a claim identifies it.
pub(super) const RELEASE: BulkStatement = db::bulk! { (id uuid, claimed bigint, now bigint)
    "-- acme_validations_release
UPDATE acme_authorizations SET claimed_until = :now WHERE id = :id AND claimed_until = :claimed"
};

/// Deactivates an authorization that is pending or valid.
pub(super) const DEACTIVATE: &str = db::with_codes!([AcmeAuthorizationStatus::{Invalid}] "-- acme_authorization_deactivate
UPDATE acme_authorizations SET status = ?3, reusable_until = NULL, claimed_until = NULL
WHERE id = ?1 AND account = ?2 AND status < {AcmeAuthorizationStatus::Invalid}");

pub(super) const CLAIM: BulkStatement = db::bulk! {
    "-- acme_validations_claim
UPDATE acme_authorizations SET claimed_until = ?2 WHERE id IN
    (SELECT id FROM acme_authorizations WHERE claimed_until IS NOT NULL AND claimed_until <= ?1
     ORDER BY claimed_until LIMIT ?3{| FOR UPDATE SKIP LOCKED})
RETURNING id"
};

pub(super) const TIDY: BulkStatement = db::bulk! {
    "-- acme_authorizations_tidy
DELETE FROM acme_authorizations WHERE id IN
    (SELECT id FROM acme_authorizations WHERE id < ?1 ORDER BY id LIMIT ?2{| FOR UPDATE SKIP LOCKED})"
};

/// Numbers of identifiers in one statement. A list is padded with its first member to the next of these sizes, so that few
/// different statements exist.
const SIZES: [usize; 5] = [1, 2, 8, 32, 128];

fn placeholders(count: usize, first: usize) -> String {
    let marks: Vec<String> = (first..first + count).map(|number| format!("?{number}")).collect();
    marks.join(", ")
}

fn reusable(count: usize) -> String {
    let names = placeholders(count, 3);
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

fn authorized_identifiers(count: usize) -> String {
    format!(
        "-- acme_authorizations_held_{count}\nSELECT DISTINCT identifier, wildcard FROM acme_authorizations \
         WHERE account = ?1 AND expires_at > ?2 AND identifier IN ({}) AND status = {} AND method <> {NOT_NEEDED}",
        placeholders(count, 3),
        AcmeAuthorizationStatus::Valid.code()
    )
}

pub(super) fn composed() -> Vec<String> {
    let forms: [fn(usize) -> String; 2] = [reusable, authorized_identifiers];
    forms.into_iter().flat_map(|form| SIZES.into_iter().map(form)).collect()
}

fn padded<T: Clone>(all: &[T]) -> Option<(usize, Vec<T>)> {
    let first = all.first()?;
    let size = SIZES.into_iter().find(|size| *size >= all.len())?;
    let mut padded = all.to_vec();
    padded.resize(size, first.clone());
    Some((size, padded))
}

/// Inserts new authorizations, in the states given by the caller.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn insert_acme_authorizations(tx: &mut Tx, new: &[AcmeAuthorization]) -> Result<(), StoreError> {
    let column = |of: fn(&AcmeAuthorization) -> i64| Column::Int(new.iter().map(of).collect());
    let optional_ints =
        |of: fn(&AcmeAuthorization) -> Option<i64>| Column::MaybeInt(new.iter().map(of).collect());
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.id).collect()),
        Column::Uuid(new.iter().map(|one| one.account).collect()),
        Column::Text(new.iter().map(|one| one.profile.clone()).collect()),
        Column::Text(new.iter().map(|one| one.identifier.clone()).collect()),
        column(|one| one.wildcard.into()),
        column(|one| one.status.code()),
        Column::Blob(new.iter().map(|one| one.token.clone()).collect()),
        column(|one| one.methods),
        optional_ints(|one| one.proof.map(AcmeProof::code)),
        column(|one| one.created_at_us),
        column(|one| one.expires_at_us),
        optional_ints(|one| one.validated_at_us),
        optional_ints(|one| one.reusable_until_us),
    ];
    tx.bulk(&INSERT, columns).await.map(drop)
}

/// Stores responses to challenges. Returns the authorizations that were pending without a response.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn begin_acme_validations(
    tx: &mut Tx,
    answers: &[AcmeChallengeResponse],
) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(answers.iter().map(|one| one.id).collect()),
        Column::Int(answers.iter().map(|one| one.method.code()).collect()),
        Column::Int(answers.iter().map(|one| one.claimed_until_us).collect()),
    ];
    ids(tx.bulk(&BEGIN, columns).await?)
}

/// Stores results of validations. Returns the authorizations that were still pending.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn store_validation_results(
    tx: &mut Tx,
    ended: &[AcmeValidationResult],
) -> Result<Vec<Uuid>, StoreError> {
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

/// Deactivates a pending or valid authorization of `account`. Returns false if `account` has no such authorization.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn deactivate_acme_authorization(tx: &mut Tx, id: Uuid, account: Uuid) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), account.into(), AcmeAuthorizationStatus::Deactivated.code().into()];
    Ok(tx.execute(DEACTIVATE, parameters).await? == 1)
}

pub(super) fn ids(rows: Vec<Row>) -> Result<Vec<Uuid>, StoreError> {
    rows.into_iter().map(|mut row| row.uuid()).collect()
}

impl Acme<'_> {
    /// Returns the authorization with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn authorization(self, id: Uuid) -> Result<Option<AcmeAuthorization>, StoreError> {
        self.0.row(AUTHORIZATION, vec![id.into()]).await?.map(authorization).transpose()
    }

    /// Returns these authorizations in the given order, in a single statement. Deleted ones are omitted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn authorizations(self, ids: &[Uuid]) -> Result<Vec<AcmeAuthorization>, StoreError> {
        let rows = self.0.among(&AUTHORIZATIONS, ids.iter().map(|id| id.simple())).await?;
        let mut found = rows.into_iter().map(authorization).collect::<Result<Vec<_>, _>>()?;
        let indexes: HashMap<Uuid, usize> = ids.iter().enumerate().map(|(index, id)| (*id, index)).collect();
        found.sort_by_key(|one| indexes.get(&one.id).copied());
        Ok(found)
    }

    /// Returns an account's authorizations for these identifiers that later orders may reuse.
    ///
    /// # Errors
    /// Fails if the database fails.
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

    /// Returns the identifiers for which an account has a valid authorization, each with its wildcard flag.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn authorized_identifiers(
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
            for mut row in self.0.rows(Cost::Point, &authorized_identifiers(size), parameters).await? {
                found.push((row.text()?, row.flag()?));
            }
        }
        Ok(found)
    }

    /// Claims validations whose previous claim has expired by the time `lapsed_by_us`. Returns the identifiers of their
    /// authorizations.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn claim_validations(
        self,
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.claim("claim_acme_validations", &CLAIM, lapsed_by_us, until_us, limit).await
    }

    /// Deletes authorizations whose identifier is less than `before`. Returns their number.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn delete_authorizations_before(self, before: Uuid, limit: usize) -> Result<u64, StoreError> {
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
