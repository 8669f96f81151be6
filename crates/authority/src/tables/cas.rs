//! Storage of CAs: their rows, their certificates, and the change counter that caches check.

use coded::named;
use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Row, StoreError, Tx};

store::handle! {
    /// Tables of the CAs and their certificates.
    CaCache
}

/// Maximum number of CAs in a database; all of them are cached.
pub const CAS_MAX: usize = 10_000;

/// A stored CA: its key, state, parent and specification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaRow {
    /// Identifier of the CA, part of its publication URLs.
    pub id: Uuid,
    /// Name of the CA, unique.
    pub name: String,
    /// Key of the CA in table `keys`.
    pub key_id: Uuid,
    /// State: `pending`, `active`, `retiring` or `retired`.
    pub state: String,
    /// Parent CA on this server.
    pub parent_id: Option<Uuid>,
    /// SHA-256 of the certificate; `None` while the CA is pending.
    pub sha256: Option<[u8; 32]>,
    /// Specification from which the CA was created, JSON.
    pub specification: String,
    /// The CSR in DER, for a CA with an external parent.
    pub request: Option<Vec<u8>>,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Time in microseconds after which the CA issues no more certificates.
    pub retiring_at_us: Option<i64>,
    /// Time in microseconds after which the CA no longer signs anything.
    pub retired_at_us: Option<i64>,
}

/// The row of a CA with the public properties of its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaWithKey {
    /// Row of the CA in the table `cas`.
    pub ca: CaRow,
    /// Type of the CA key.
    pub key_type: String,
    /// SubjectPublicKeyInfo of the key in DER.
    pub spki: Vec<u8>,
    /// Time in microseconds at which the CA was last made the default; `None` if it never was.
    pub default_since_us: Option<i64>,
}

named! {
    /// Role of a certificate among the certificates of a CA.
    pub enum CaCertificateRole: "role of a CA certificate" {
        /// The CA's own certificate.
        Own => "own",
        /// A certificate for the same name and key by another issuer (cross-signature).
        Cross => "cross",
        /// A certificate of the external parent CA, or of a CA above it.
        Above => "above",
    }
}

/// A stored certificate of a CA: its own, a cross-signed one, or one of a CA above it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaCertificateRow {
    /// CA to which the certificate belongs.
    pub ca_id: Uuid,
    /// SHA-256 of `der`.
    pub sha256: [u8; 32],
    /// Role of the certificate among the certificates of the CA.
    pub role: CaCertificateRole,
    /// Position among the certificates of the same role, from 0.
    pub position: i64,
    /// CA on this server that signed the certificate.
    pub issuer_ca: Option<Uuid>,
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// End of validity in microseconds.
    pub not_after_us: i64,
    /// Time of creation or import in microseconds.
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

const CHOICE: &str = "-- cas_choice
SELECT c.id, c.name, c.state, c.parent_id, c.specification, c.default_since, k.der
FROM cas c JOIN ca_certificates k ON k.ca_id = c.id AND k.sha256 = c.sha256 ORDER BY c.seq LIMIT ?1";

const CERTIFICATES: &str = "-- ca_certificates
SELECT ca_id, sha256, role, position, issuer_ca, der, not_after, created_at FROM ca_certificates
ORDER BY ca_id, role, position, sha256";

const INSERT: BulkStatement = db::bulk! {
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

const CERTIFICATES_INSERT: BulkStatement = db::bulk! {
    (ca_id uuid, sha256 bytea, role text, position bigint, issuer_ca uuid, der bytea, not_after bigint,
     created_at bigint)
    "-- ca_certificates_insert
INSERT INTO ca_certificates (ca_id, sha256, role, position, issuer_ca, der, not_after, created_at)
VALUES (:ca_id, :sha256, :role, :position, :issuer_ca, :der, :not_after, :created_at) ON CONFLICT (ca_id, sha256) DO
  NOTHING"
};

/// Counts at most ?3 valid certificates that a CA issued, because larger numbers make no difference. This statement reads all
/// certificates of the CA, but runs only once for each CA. The CA's own certificates and certificates of retired CAs are not
/// counted.
const VALID_ISSUED: &str = "-- living_issued
SELECT count(*) FROM (
    SELECT 1 FROM issued i WHERE i.ca = ?1 AND i.not_after > ?2 AND i.certificate_id NOT IN (
        SELECT c.id FROM ca_certificates cc JOIN cas a ON a.id = cc.ca_id JOIN certificates c ON c.sha256 = cc.sha256
        WHERE cc.ca_id = ?1 OR a.state = 'retired')
    LIMIT ?3) AS living";

pub(crate) const ALL: &[&str] = &[
    VALID_ISSUED,
    GENERATION,
    GENERATION_NEXT,
    CAS,
    CHOICE,
    CERTIFICATES,
    INSTALL,
    RENEW,
    RETIRING,
    RETIRED,
    MAKE_DEFAULT,
    DELETE_PENDING,
];
pub(crate) const BULKS: &[&BulkStatement] = &[&INSERT, &CERTIFICATES_INSERT];

/// All CAs and their certificates, with the change counter that was read before them.
#[derive(Clone, Debug)]
pub struct CaRows {
    /// Change counter at the time of reading.
    pub generation: i64,
    /// CAs, oldest first.
    pub cas: Vec<CaWithKey>,
    /// Certificates, sorted by CA, role and position.
    pub certificates: Vec<CaCertificateRow>,
}

impl CaCache<'_> {
    /// Returns the change counter of the CAs. It increases with every change.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn generation(self) -> Result<i64, StoreError> {
        let row = self.0.row(GENERATION, Vec::new()).await?;
        row.ok_or_else(|| StoreError::Corrupt("ca_generation is empty".to_owned()))?.int()
    }

    /// Returns all CAs with their certificates in three statements. The change counter is read first. So if a concurrent change is
    /// missed, the counter in the database differs from the returned one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn all(self) -> Result<CaRows, StoreError> {
        let generation = self.generation().await?;
        let cas = self.0.rows(Cost::Walk, CAS, vec![(CAS_MAX as i64).into()]).await?;
        let certificates = self.0.rows(Cost::Walk, CERTIFICATES, Vec::new()).await?;
        Ok(CaRows {
            generation,
            cas: cas.into_iter().map(ca_row).collect::<Result<_, _>>()?,
            certificates: certificates.into_iter().map(certificate_of).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of certificates of a CA that are valid after `now_us`, counted up to `most`.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn count_valid_certificates(self, ca: Uuid, now_us: i64, most: i64) -> Result<u64, StoreError> {
        let rows = self.0.rows(Cost::Walk, VALID_ISSUED, vec![ca.into(), now_us.into(), most.into()]).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

/// The properties of a CA from which the issuing CA is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaChoiceRow {
    /// Identifier of the CA, part of its publication URLs.
    pub id: Uuid,
    /// Name of the CA, unique.
    pub name: String,
    /// State: `pending`, `active`, `retiring` or `retired`.
    pub state: String,
    /// Parent CA on this server.
    pub parent_id: Option<Uuid>,
    /// Specification from which the CA was created, JSON.
    pub specification: String,
    /// Time in microseconds at which the CA was last made the default; `None` if it never was.
    pub default_since_us: Option<i64>,
    /// The CA's certificate in DER.
    pub der: Vec<u8>,
}

/// Returns the CAs that have a certificate, oldest first, as seen by this transaction.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn ca_choices(tx: &mut Tx) -> Result<Vec<CaChoiceRow>, StoreError> {
    let rows = tx.rows(CHOICE, vec![(CAS_MAX as i64).into()]).await?;
    let choice = |mut row: Row| {
        Ok(CaChoiceRow {
            id: row.uuid()?,
            name: row.text()?,
            state: row.text()?,
            parent_id: row.maybe_uuid()?,
            specification: row.text()?,
            default_since_us: row.maybe_int()?,
            der: row.blob()?,
        })
    };
    rows.into_iter().map(choice).collect()
}

/// Inserts a CA. Returns false if its name is in use or if there are already [`CAS_MAX`] CAs.
///
/// # Errors
/// Fails if the database fails.
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

/// Inserts certificates of CAs. Existing ones are not changed.
///
/// # Errors
/// Fails if the database fails.
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

/// Activates a pending CA. Returns false if it is not pending.
///
/// # Errors
/// Fails if the database fails.
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

/// Replaces the certificate of an active CA. Returns false if the CA is not active or if its certificate has changed in the
/// meantime.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn renew_ca(tx: &mut Tx, id: Uuid, old: &[u8; 32], new: &[u8; 32]) -> Result<bool, StoreError> {
    let renewed = tx.execute(RENEW, vec![id.into(), (*old).into(), (*new).into()]).await?;
    changed(tx, renewed).await
}

/// Starts the retirement of an active CA, which then issues no more certificates. Returns false if it is not active.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn begin_retiring_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let moved = tx.execute(RETIRING, vec![id.into(), at_us.into()]).await?;
    changed(tx, moved).await
}

/// Retires a retiring CA completely, so that it no longer signs anything. Returns false if it is not retiring.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn finish_retiring_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let moved = tx.execute(RETIRED, vec![id.into(), at_us.into()]).await?;
    changed(tx, moved).await
}

/// Makes an active CA the default. Returns false if it is not active.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn make_default_ca(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let made = tx.execute(MAKE_DEFAULT, vec![id.into(), at_us.into()]).await?;
    changed(tx, made).await
}

/// Deletes a CA that never had a certificate. Returns false if it is not pending.
///
/// # Errors
/// Fails if the database fails.
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

fn ca_row(mut row: Row) -> Result<CaWithKey, StoreError> {
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
