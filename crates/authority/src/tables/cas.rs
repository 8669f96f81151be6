//! Certification authorities: their rows, their certificates, and the count of changes that caches ask.

use coded::named;
use uuid::Uuid;

use db::{Bulk, Column, Cost, Row, StoreError, Tx};

store::handle! {
    /// Certification authorities and their certificates.
    Cas
}

/// Authorities one database holds: all of them are kept in memory.
pub const CAS_MAX: usize = 10_000;

/// A certification authority.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaRow {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    pub name: String,
    /// Its key, in table `keys`.
    pub key_id: Uuid,
    /// `pending`, `active`, `retiring` or `retired`.
    pub state: String,
    /// The authority here that signed it.
    pub parent_id: Option<Uuid>,
    /// SHA-256 of its certificate; none while it is pending.
    pub sha256: Option<[u8; 32]>,
    /// The specification that it was created from, JSON.
    pub specification: String,
    /// The certification request, DER, of one below an external parent.
    pub request: Option<Vec<u8>>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Since when it issues no more, µs.
    pub retiring_at_us: Option<i64>,
    /// Since when it signs nothing more, µs.
    pub retired_at_us: Option<i64>,
}

/// An authority's row with its key's public facts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaWithKey {
    /// The row.
    pub ca: CaRow,
    /// The key's kind.
    pub key_type: String,
    /// The key's DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// Since when it is the default, µs.
    pub default_since_us: Option<i64>,
}

named! {
    /// What a certificate is to its authority.
    pub enum CaCertificateRole: "role of a CA certificate" {
        /// Its certificate.
        Own => "own",
        /// For the same name and key, by another issuer.
        Cross => "cross",
        /// Of an external parent, or further above.
        Above => "above",
    }
}

/// A certificate of an authority.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaCertificateRow {
    /// Whose.
    pub ca_id: Uuid,
    /// SHA-256 of `der`.
    pub sha256: [u8; 32],
    /// Role of the certificate for its CA.
    pub role: CaCertificateRole,
    /// Its place among those of the same role, from 0.
    pub position: i64,
    /// The authority here that signed it.
    pub issuer_ca: Option<Uuid>,
    /// The certificate.
    pub der: Vec<u8>,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// When it was made or imported, µs.
    pub created_at_us: i64,
}

const GENERATION: &str = "-- ca_generation
SELECT value FROM ca_generation WHERE id = 1";

const GENERATION_NEXT: &str = "-- ca_generation_next
UPDATE ca_generation SET value = value + 1 WHERE id = 1";

const CAS: &str = "-- cas
SELECT c.id, c.name, c.key_id, c.state, c.parent_id, c.sha256, c.specification, c.request, c.created_at, c.retiring_at,
       c.retired_at, k.key_type, k.spki, c.default_since
FROM cas c JOIN keys k ON k.id = c.key_id ORDER BY c.seq LIMIT ?1";

const CERTIFICATES: &str = "-- ca_certificates
SELECT ca_id, sha256, role, position, issuer_ca, der, not_after, created_at FROM ca_certificates
ORDER BY ca_id, role, position, sha256";

const INSERT: Bulk = db::bulk! {
    "-- ca_insert
INSERT INTO cas (id, name, key_id, state, parent_id, sha256, specification, request, created_at)
SELECT ?1{|::uuid}, ?2{|::text}, ?3{|::uuid}, ?4{|::text}, ?5{|::uuid}, ?6{|::bytea}, ?7{|::text}, ?8{|::bytea},
  ?9{|::bigint}
WHERE (SELECT count(*) FROM cas) < ?10
ON CONFLICT (name) DO NOTHING"
};

const INSTALL: &str = "-- ca_install
UPDATE cas SET state = 'active', sha256 = ?2, parent_id = ?3, request = NULL WHERE id = ?1 AND state = 'pending'";

const RENEW: &str = "-- ca_renew
UPDATE cas SET sha256 = ?3 WHERE id = ?1 AND sha256 = ?2 AND state = 'active'";

const RETIRING: &str = "-- ca_retiring
UPDATE cas SET state = 'retiring', retiring_at = ?2 WHERE id = ?1 AND state = 'active'";

const RETIRED: &str = "-- ca_retired
UPDATE cas SET state = 'retired', retired_at = ?2 WHERE id = ?1 AND state = 'retiring'";

const MAKE_DEFAULT: &str = "-- ca_make_default
UPDATE cas SET default_since = ?2 WHERE id = ?1 AND state = 'active'";

const DELETE_PENDING: &str = "-- ca_delete_pending
DELETE FROM cas WHERE id = ?1 AND state = 'pending'";

const CERTIFICATES_INSERT: Bulk = db::bulk! {
    (ca_id uuid, sha256 bytea, role text, position bigint, issuer_ca uuid, der bytea, not_after bigint,
     created_at bigint)
    "-- ca_certificates_insert
INSERT INTO ca_certificates (ca_id, sha256, role, position, issuer_ca, der, not_after, created_at)
VALUES (:ca_id, :sha256, :role, :position, :issuer_ca, :der, :not_after, :created_at) ON CONFLICT (ca_id, sha256) DO
  NOTHING"
};

/// At most ?3, as no more needs to be told: a walk over what was issued, done once in an authority's life. Not counted
/// are its own certificates, and those of authorities below it that are retired.
const LIVING_ISSUED: &str = "-- living_issued
SELECT count(*) FROM (
    SELECT 1 FROM issued i WHERE i.ca = ?1 AND i.not_after > ?2 AND i.certificate_id NOT IN (
        SELECT c.id FROM ca_certificates cc JOIN cas a ON a.id = cc.ca_id JOIN certificates c ON c.sha256 = cc.sha256
        WHERE cc.ca_id = ?1 OR a.state = 'retired')
    LIMIT ?3) AS living";

pub(crate) const ALL: &[&str] = &[
    LIVING_ISSUED,
    GENERATION,
    GENERATION_NEXT,
    CAS,
    CERTIFICATES,
    INSTALL,
    RENEW,
    RETIRING,
    RETIRED,
    MAKE_DEFAULT,
    DELETE_PENDING,
];
pub(crate) const BULKS: &[&Bulk] = &[&INSERT, &CERTIFICATES_INSERT];

/// Everything known of the authorities, at one moment.
#[derive(Clone, Debug)]
pub struct CaRows {
    /// The count of changes when it was read.
    pub generation: i64,
    /// The authorities, oldest first.
    pub cas: Vec<CaWithKey>,
    /// Their certificates, by authority, role and position.
    pub certificates: Vec<CaCertificateRow>,
}

impl Cas<'_> {
    /// How often the authorities were changed; another number, other authorities.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn generation(self) -> Result<i64, StoreError> {
        let row = self.0.row(GENERATION, Vec::new()).await?;
        row.ok_or_else(|| StoreError::Corrupt("ca_generation is empty".to_owned()))?.int()
    }

    /// All authorities with their certificates: three statements. A change in between is seen by the next reader,
    /// because the count of changes is read first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn all(self) -> Result<CaRows, StoreError> {
        let generation = self.generation().await?;
        let cas = self.0.rows(Cost::Walk, CAS, vec![(CAS_MAX as i64).into()]).await?;
        let certificates = self.0.rows(Cost::Walk, CERTIFICATES, Vec::new()).await?;
        Ok(CaRows {
            generation,
            cas: cas.into_iter().map(ca_of).collect::<Result<_, _>>()?,
            certificates: certificates.into_iter().map(certificate_of).collect::<Result<_, _>>()?,
        })
    }

    /// How many certificates an authority issued that are valid after `now_us`, counted up to `most`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn living_issued(self, ca: Uuid, now_us: i64, most: i64) -> Result<u64, StoreError> {
        let rows =
            self.0.rows(Cost::Walk, LIVING_ISSUED, vec![ca.into(), now_us.into(), most.into()]).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

/// Adds an authority; false when its name is taken or there are [`CAS_MAX`].
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_ca(tx: &mut Tx, ca: &CaRow) -> Result<bool, StoreError> {
    let inserted = tx
        .execute(
            tx.text_of(&INSERT),
            vec![
                ca.id.into(),
                ca.name.as_str().into(),
                ca.key_id.into(),
                ca.state.as_str().into(),
                ca.parent_id.into(),
                ca.sha256.into(),
                ca.specification.as_str().into(),
                ca.request.as_deref().into(),
                ca.created_at_us.into(),
                (CAS_MAX as i64).into(),
            ],
        )
        .await?;
    changed(tx, inserted).await
}

/// Adds certificates to CAs; existing ones stay.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_ca_certificates(tx: &mut Tx, rows: Vec<CaCertificateRow>) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(rows.iter().map(|row| row.ca_id).collect()),
        Column::Blob(rows.iter().map(|row| row.sha256.to_vec()).collect()),
        Column::Text(rows.iter().map(|row| row.role.name().to_owned()).collect()),
        Column::Int(rows.iter().map(|row| row.position).collect()),
        Column::MaybeUuid(rows.iter().map(|row| row.issuer_ca).collect()),
        Column::Blob(rows.iter().map(|row| row.der.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.not_after_us).collect()),
        Column::Int(rows.iter().map(|row| row.created_at_us).collect()),
    ];
    tx.bulk(&CERTIFICATES_INSERT, columns).await?;
    changed(tx, 1).await.map(drop)
}

/// Makes a pending authority active; false when it is not pending.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn install_ca(
    tx: &mut Tx,
    id: Uuid,
    sha256: &[u8; 32],
    parent: Option<Uuid>,
) -> Result<bool, StoreError> {
    let installed = tx.execute(INSTALL, vec![id.into(), (*sha256).into(), parent.into()]).await?;
    changed(tx, installed).await
}

/// Puts another certificate of an active authority in place of the one it has; false when it has another by now, or is
/// not active.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn renew_ca(tx: &mut Tx, id: Uuid, old: &[u8; 32], new: &[u8; 32]) -> Result<bool, StoreError> {
    let renewed = tx.execute(RENEW, vec![id.into(), (*old).into(), (*new).into()]).await?;
    changed(tx, renewed).await
}

/// Lets an active authority issue no more; false when it is not active.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn begin_retiring_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let moved = tx.execute(RETIRING, vec![id.into(), at_us.into()]).await?;
    changed(tx, moved).await
}

/// Lets a retiring authority sign nothing more; false when it is not retiring.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn finish_retiring_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let moved = tx.execute(RETIRED, vec![id.into(), at_us.into()]).await?;
    changed(tx, moved).await
}

/// Makes an active authority the default; false when it is not active.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn make_default_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let made = tx.execute(MAKE_DEFAULT, vec![id.into(), at_us.into()]).await?;
    changed(tx, made).await
}

/// Removes an authority that never had a certificate; false when it is not pending.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_pending_ca(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    let deleted = tx.execute(DELETE_PENDING, vec![id.into()]).await?;
    changed(tx, deleted).await
}

async fn changed(tx: &mut Tx, rows: u64) -> Result<bool, StoreError> {
    if rows > 0 {
        tx.execute(GENERATION_NEXT, Vec::new()).await?;
    }
    Ok(rows > 0)
}

fn ca_of(mut row: Row) -> Result<CaWithKey, StoreError> {
    let ca = CaRow {
        id: row.uuid()?,
        name: row.text()?,
        key_id: row.uuid()?,
        state: row.text()?,
        parent_id: row.maybe_uuid()?,
        sha256: row.maybe_hash()?,
        specification: row.text()?,
        request: row.maybe_blob()?,
        created_at_us: row.int()?,
        retiring_at_us: row.maybe_int()?,
        retired_at_us: row.maybe_int()?,
    };
    Ok(CaWithKey { ca, key_type: row.text()?, spki: row.blob()?, default_since_us: row.maybe_int()? })
}

fn certificate_of(mut row: Row) -> Result<CaCertificateRow, StoreError> {
    Ok(CaCertificateRow {
        ca_id: row.uuid()?,
        sha256: row.hash()?,
        role: row.named("ca_certificates.role")?,
        position: row.int()?,
        issuer_ca: row.maybe_uuid()?,
        der: row.blob()?,
        not_after_us: row.int()?,
        created_at_us: row.int()?,
    })
}
