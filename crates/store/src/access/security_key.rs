//! Security keys of users, and WebAuthn ceremonies.

use coded::named;
use uuid::Uuid;

use super::handle::Access;
use super::identity::{AccessChange, Identity, identity_columns, identity_row};
use db::{Cost, ModuleStatements, Row, StoreError, Tx, Value};

/// Maximum number of security keys of one user.
pub const SECURITY_KEYS_MAX: usize = 16;

/// Maximum unfinished ceremonies of one user for one purpose. Ceremonies with and without the password are counted separately. A
/// further ceremony ends the oldest one.
const CEREMONIES_MAX: i64 = 8;

/// Maximum number of unfinished ceremonies in which the user is not known yet. A further ceremony ends the oldest.
const UNKNOWN_CEREMONIES_MAX: i64 = 4_096;

/// A user's WebAuthn credential, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecurityKey {
    /// Id of the key, UUIDv7.
    pub id: Uuid,
    /// User that the key belongs to.
    pub identity: Uuid,
    /// Name, chosen by the user.
    pub name: String,
    /// WebAuthn credential id.
    pub credential_id: Vec<u8>,
    /// Public key as `COSE_Key`.
    pub public_key: Vec<u8>,
    /// Host name that the key was registered for.
    pub rp_id: String,
    /// Last seen signature counter.
    pub sign_count: u32,
    /// Whether the authenticator verified the user at registration.
    pub user_verified: bool,
    /// Whether the key can be copied to other devices.
    pub backup_eligible: bool,
    /// Whether the key is stored outside its authenticator.
    pub backed_up: bool,
    /// AAGUID: the model of the authenticator. Nil if the authenticator does not report one.
    pub aaguid: Uuid,
    /// Transports by which browsers reach the authenticator: a JSON list.
    pub transports: String,
    /// Registration time, µs.
    pub created_at_us: i64,
    /// Time of the last use, µs.
    pub last_used_at_us: Option<i64>,
}

/// Data of a security key that changes with each use.
#[derive(Clone, Copy, Debug)]
pub struct SecurityKeyUse {
    /// New signature counter.
    pub sign_count: u32,
    /// Whether the key is stored outside its authenticator.
    pub backed_up: bool,
    /// Time of the use, µs.
    pub at_us: i64,
}

named! {
    /// Purpose of a WebAuthn ceremony: registration, sign-in, confirmation or approval.
    pub enum CeremonyPurpose: "ceremony purpose" {
        /// Registration of a security key.
        Register => "register",
        /// Sign-in.
        SignIn => "sign-in",
        /// Confirmation of the user's identity in an existing session.
        Confirm => "confirm",
        /// Signature of an approval.
        Approve => "approve",
    }
}

/// An unfinished WebAuthn ceremony as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyCeremony {
    /// SHA-256 of the secret that the browser returns.
    pub secret_hash: [u8; 32],
    /// The user; nil if not known yet.
    pub identity: Uuid,
    /// Action for which the ceremony may be used.
    pub purpose: CeremonyPurpose,
    /// Random WebAuthn challenge that the security key signs.
    pub challenge: [u8; 32],
    /// Relying party identifier.
    pub rp_id: String,
    /// Origin that the browser must report.
    pub origin: String,
    /// Token hash of the session that the ceremony belongs to, if any.
    pub session: Option<[u8; 32]>,
    /// Whether the user gave the password in this ceremony.
    pub after_password: bool,
    /// Name of the key to register. Only for registrations.
    pub name: Option<String>,
    /// Id of the approval, pending change or enrolment to sign. Only for approvals.
    pub subject: Option<Uuid>,
    /// SHA-256 of the plan to sign. Only for approvals.
    pub plan_sha256: Option<[u8; 32]>,
    /// Nonce of the signature. Only for approvals.
    pub nonce: Option<[u8; 32]>,
    /// Start time, µs.
    pub created_at_us: i64,
    /// Expiry, µs.
    pub expires_at_us: i64,
}

/// An approver's signature of a plan, made with a security key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApprovalSignatureRow {
    /// Identifier of the approval, pending change or enrolment.
    pub subject: Uuid,
    /// The approver, in the notation of the audit log.
    pub actor: String,
    /// SHA-256 of the signed plan.
    pub plan_sha256: [u8; 32],
    /// Id of the security key that signed.
    pub security_key: Uuid,
    /// JSON with the signature and all data for its verification.
    pub signature: String,
    /// Time of the signature, µs.
    pub signed_at_us: i64,
}

macro_rules! key_columns {
    () => {
        "k.id, k.identity, k.name, k.credential_id, k.public_key, k.rp_id, k.sign_count, k.user_verified, \
         k.backup_eligible, k.backed_up, k.aaguid, k.transports, k.created_at, k.last_used_at"
    };
}

const OF_USER: &str = concat!(
    "-- access_security_keys_of\nSELECT ",
    key_columns!(),
    " FROM access_security_keys k WHERE k.identity = ?1 ORDER BY k.created_at, k.id"
);

const BY_CREDENTIAL: &str = concat!(
    "-- access_security_key_by_credential\nSELECT ",
    key_columns!(),
    ", ",
    identity_columns!("i."),
    " FROM access_security_keys k JOIN access_identities i ON i.id = k.identity WHERE k.credential_id = ?1"
);

const INSERT: &str = "-- access_security_key_insert
INSERT INTO access_security_keys (id, identity, name, credential_id, public_key, rp_id, sign_count, user_verified,
                                  backup_eligible, backed_up, aaguid, transports, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT DO NOTHING";

const USED: &str = "-- access_security_key_used
UPDATE access_security_keys SET sign_count = ?3, backed_up = ?4, last_used_at = ?5 WHERE id = ?1 AND sign_count = ?2";

const DELETE: &str = "-- access_security_key_delete
DELETE FROM access_security_keys WHERE id = ?1 AND identity = ?2";

const DELETE_OF: &str = "-- access_security_keys_delete_of
DELETE FROM access_security_keys WHERE identity = ?1";

const INSERT_CEREMONY: &str = "-- access_key_ceremony_insert
INSERT INTO access_key_ceremonies (secret_hash, identity, purpose, challenge, rp_id, origin, session, after_password, name,
                                   subject, plan_sha256, nonce, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

const TRIM_CEREMONIES: &str = "-- access_key_ceremonies_trim
DELETE FROM access_key_ceremonies WHERE secret_hash IN
    (SELECT secret_hash FROM access_key_ceremonies WHERE identity = ?1 AND purpose = ?2 AND after_password = ?3
     ORDER BY created_at DESC LIMIT ?4 OFFSET ?5)";

const TAKE_CEREMONY: &str = "-- access_key_ceremony_take
DELETE FROM access_key_ceremonies WHERE secret_hash = ?1
RETURNING secret_hash, identity, purpose, challenge, rp_id, origin, session, after_password, name, subject, plan_sha256,
          nonce, created_at, expires_at";

const DELETE_CEREMONIES_OF: &str = "-- access_key_ceremonies_delete_of
DELETE FROM access_key_ceremonies WHERE identity = ?1";

const EXPIRE_CEREMONIES: &str = "-- access_key_ceremonies_expire
DELETE FROM access_key_ceremonies WHERE expires_at <= ?1";

const PUT_SIGNATURE: &str = "-- approval_signature_put
INSERT INTO approval_signatures (subject, actor, plan_sha256, security_key, signature, signed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (subject, actor, plan_sha256) DO UPDATE
SET security_key = excluded.security_key, signature = excluded.signature, signed_at = excluded.signed_at";

const SIGNATURES_OF: &str = "-- approval_signatures_of
SELECT subject, actor, plan_sha256, security_key, signature, signed_at FROM approval_signatures
WHERE subject = ?1 ORDER BY signed_at, actor";

const TRIM_SIGNATURES: &str = "-- approval_signatures_trim
DELETE FROM approval_signatures WHERE signed_at < ?1";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(
    &[
        OF_USER,
        BY_CREDENTIAL,
        INSERT,
        USED,
        DELETE,
        DELETE_OF,
        INSERT_CEREMONY,
        TRIM_CEREMONIES,
        TAKE_CEREMONY,
        DELETE_CEREMONIES_OF,
        EXPIRE_CEREMONIES,
        PUT_SIGNATURE,
        SIGNATURES_OF,
        TRIM_SIGNATURES,
    ],
    &[],
);

/// Inserts a security key. [`AccessChange::Taken`] if the credential is registered already.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_security_key(tx: &mut Tx, new: &SecurityKey) -> Result<AccessChange, StoreError> {
    let parameters: Vec<Value> = vec![
        new.id.into(),
        new.identity.into(),
        new.name.as_str().into(),
        new.credential_id.clone().into(),
        new.public_key.clone().into(),
        new.rp_id.as_str().into(),
        i64::from(new.sign_count).into(),
        i64::from(new.user_verified).into(),
        i64::from(new.backup_eligible).into(),
        i64::from(new.backed_up).into(),
        new.aaguid.into(),
        new.transports.as_str().into(),
        new.created_at_us.into(),
    ];
    let inserted = tx.execute(INSERT, parameters).await?;
    Ok(if inserted == 1 { AccessChange::Done } else { AccessChange::Taken })
}

/// Returns the security keys of a user, the oldest first, read within the transaction.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn security_keys_in(tx: &mut Tx, identity: Uuid) -> Result<Vec<SecurityKey>, StoreError> {
    tx.rows(OF_USER, vec![identity.into()]).await?.iter_mut().map(key_row).collect()
}

/// Records a use of a security key, if its stored counter still equals the counter of `before`. Returns false if another use
/// changed the counter, or the key was deleted.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn security_key_used(
    tx: &mut Tx,
    before: &SecurityKey,
    used: SecurityKeyUse,
) -> Result<bool, StoreError> {
    let parameters: Vec<Value> = vec![
        before.id.into(),
        i64::from(before.sign_count).into(),
        i64::from(used.sign_count).into(),
        i64::from(used.backed_up).into(),
        used.at_us.into(),
    ];
    Ok(tx.execute(USED, parameters).await? == 1)
}

/// Deletes a security key of a user. [`AccessChange::Stale`] if the user has no such key.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_security_key(tx: &mut Tx, identity: Uuid, id: Uuid) -> Result<AccessChange, StoreError> {
    Ok(super::identity::changed(tx.execute(DELETE, vec![id.into(), identity.into()]).await?))
}

/// Inserts a ceremony. Beyond the limit for its user and purpose, the oldest ceremonies end.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_key_ceremony(tx: &mut Tx, new: &KeyCeremony) -> Result<(), StoreError> {
    let parameters: Vec<Value> = vec![
        new.secret_hash.into(),
        new.identity.into(),
        new.purpose.name().into(),
        new.challenge.into(),
        new.rp_id.as_str().into(),
        new.origin.as_str().into(),
        new.session.map(|hash| hash.to_vec()).into(),
        i64::from(new.after_password).into(),
        new.name.clone().into(),
        new.subject.into(),
        new.plan_sha256.map(|hash| hash.to_vec()).into(),
        new.nonce.map(|nonce| nonce.to_vec()).into(),
        new.created_at_us.into(),
        new.expires_at_us.into(),
    ];
    tx.execute(INSERT_CEREMONY, parameters).await?;
    let most = if new.identity.is_nil() { UNKNOWN_CEREMONIES_MAX } else { CEREMONIES_MAX };
    let trim_parameters: Vec<Value> = vec![
        new.identity.into(),
        new.purpose.name().into(),
        i64::from(new.after_password).into(),
        i64::from(u32::MAX).into(),
        most.into(),
    ];
    tx.execute(TRIM_CEREMONIES, trim_parameters).await.map(drop)
}

/// Deletes and returns a ceremony, so that it can be used only once. Of several concurrent transactions only one gets it.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn take_key_ceremony(
    tx: &mut Tx,
    secret_hash: [u8; 32],
) -> Result<Option<KeyCeremony>, StoreError> {
    tx.row(TAKE_CEREMONY, vec![secret_hash.into()]).await?.map(ceremony_row).transpose()
}

/// Stores the signature of an approver, and replaces the approver's earlier signature for the same plan.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_approval_signature(tx: &mut Tx, new: &ApprovalSignatureRow) -> Result<(), StoreError> {
    let parameters: Vec<Value> = vec![
        new.subject.into(),
        new.actor.as_str().into(),
        new.plan_sha256.into(),
        new.security_key.into(),
        new.signature.as_str().into(),
        new.signed_at_us.into(),
    ];
    tx.execute(PUT_SIGNATURE, parameters).await.map(drop)
}

/// Ends the unfinished ceremonies of a user.
pub(super) async fn end_key_ceremonies(tx: &mut Tx, identity: Uuid) -> Result<(), StoreError> {
    tx.execute(DELETE_CEREMONIES_OF, vec![identity.into()]).await.map(drop)
}

/// Deletes the security keys of a user.
pub(super) async fn remove_security_keys(tx: &mut Tx, identity: Uuid) -> Result<(), StoreError> {
    tx.execute(DELETE_OF, vec![identity.into()]).await.map(drop)
}

impl Access<'_> {
    /// Returns the security keys of a user, the oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub async fn security_keys(self, identity: Uuid) -> Result<Vec<SecurityKey>, StoreError> {
        self.0.rows(Cost::Point, OF_USER, vec![identity.into()]).await?.iter_mut().map(key_row).collect()
    }

    /// Returns a security key and its user, by credential id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn security_key(
        self,
        credential_id: Vec<u8>,
    ) -> Result<Option<(SecurityKey, Identity)>, StoreError> {
        let found = self.0.row(BY_CREDENTIAL, vec![credential_id.into()]).await?;
        found.map(|mut row| Ok((key_row(&mut row)?, identity_row(&mut row)?))).transpose()
    }

    /// Returns the signatures for an approval, pending change or enrolment, oldest first. Includes signatures of superseded plans.
    ///
    /// # Errors
    /// Database errors.
    pub async fn approval_signatures(self, subject: Uuid) -> Result<Vec<ApprovalSignatureRow>, StoreError> {
        self.0
            .rows(Cost::Point, SIGNATURES_OF, vec![subject.into()])
            .await?
            .iter_mut()
            .map(signature_row)
            .collect()
    }

    /// Deletes signatures that are older than `before_us`. Returns their number.
    ///
    /// # Errors
    /// Database errors.
    pub async fn trim_approval_signatures(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM_SIGNATURES, vec![before_us.into()]).await
    }

    /// Deletes ceremonies that expired by `now_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn expire_key_ceremonies(self, now_us: i64) -> Result<u64, StoreError> {
        self.0.execute(EXPIRE_CEREMONIES, vec![now_us.into()]).await
    }
}

fn key_row(row: &mut Row) -> Result<SecurityKey, StoreError> {
    Ok(SecurityKey {
        id: row.uuid()?,
        identity: row.uuid()?,
        name: row.text()?,
        credential_id: row.blob()?,
        public_key: row.blob()?,
        rp_id: row.text()?,
        sign_count: row.number()?,
        user_verified: row.flag()?,
        backup_eligible: row.flag()?,
        backed_up: row.flag()?,
        aaguid: row.uuid()?,
        transports: row.text()?,
        created_at_us: row.int()?,
        last_used_at_us: row.maybe_int()?,
    })
}

fn signature_row(row: &mut Row) -> Result<ApprovalSignatureRow, StoreError> {
    Ok(ApprovalSignatureRow {
        subject: row.uuid()?,
        actor: row.text()?,
        plan_sha256: row.hash()?,
        security_key: row.uuid()?,
        signature: row.text()?,
        signed_at_us: row.int()?,
    })
}

fn ceremony_row(mut row: Row) -> Result<KeyCeremony, StoreError> {
    Ok(KeyCeremony {
        secret_hash: row.hash()?,
        identity: row.uuid()?,
        purpose: row.named("access_key_ceremonies.purpose")?,
        challenge: row.hash()?,
        rp_id: row.text()?,
        origin: row.text()?,
        session: row.maybe_hash()?,
        after_password: row.flag()?,
        name: row.maybe_text()?,
        subject: row.maybe_uuid()?,
        plan_sha256: row.maybe_hash()?,
        nonce: row.maybe_hash()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
    })
}
