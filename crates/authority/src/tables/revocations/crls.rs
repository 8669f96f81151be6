//! Storage of CRLs and of the certificates of OCSP responders, once for the whole cluster.

use uuid::Uuid;

use super::RevocationRow;
use super::handle::Revocations;
use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, Value};
use x509::crl::Reason;

/// The state of a CRL. Shard 0 is the full CRL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CrlState {
    /// CA that issues the CRL.
    pub ca: Uuid,
    /// Number of the shard; 0 for the full CRL.
    pub shard: i64,
    /// Counter that every revocation on this CRL increments.
    pub changes: i64,
    /// Value of `changes` when the newest CRL was created.
    pub built: i64,
    /// Number of the newest CRL; 0 if no CRL was issued yet.
    pub number: i64,
    /// Creation time in microseconds.
    pub this_update_us: i64,
    /// Expiry time in microseconds.
    pub next_update_us: i64,
    /// Latest time in microseconds at which the next CRL is created.
    pub refresh_at_us: i64,
}

/// The newest CRL of a CA and shard. Shard 0 is the full CRL, shard -1 the delta CRL.
#[derive(Clone, Debug, PartialEq)]
pub struct CrlRow {
    /// CRL number (RFC 5280 section 5.2.3).
    pub number: i64,
    /// Creation time in microseconds.
    pub this_update_us: i64,
    /// Expiry time in microseconds.
    pub next_update_us: i64,
    /// Number of certificates on the CRL.
    pub entries: i64,
    /// Number of the base CRL, for a delta CRL.
    pub base: Option<i64>,
    /// The CRL in DER.
    pub der: Vec<u8>,
}

/// A newly created CRL to store, with the counter value that it includes.
#[derive(Clone, Debug)]
pub struct BuiltCrl {
    /// CA that issues the CRL.
    pub ca: Uuid,
    /// Number of the shard; -1 for the delta CRL.
    pub shard: i64,
    /// Value of [`CrlState::changes`], read before the entries of the CRL.
    pub built: i64,
    /// Latest time in microseconds at which the next CRL is created.
    pub refresh_at_us: i64,
    /// The CRL to serve.
    pub crl: CrlRow,
}

/// The delegated OCSP responder of a CA.
#[derive(Clone, Debug, PartialEq)]
pub struct OcspResponderRow {
    /// CA for which the responder signs.
    pub ca: Uuid,
    /// Id of the key in table `keys`.
    pub key_id: Uuid,
    /// Certificate of the responder in DER.
    pub certificate: Vec<u8>,
    /// Start of validity in microseconds.
    pub not_before_us: i64,
    /// End of validity in microseconds.
    pub not_after_us: i64,
}

const BEGIN: BulkStatement = db::bulk! { (ca uuid, shard bigint)
    "-- crls_begin
INSERT INTO crls (ca, shard, changes, built, number, this_update, next_update, refresh_at, entries)
VALUES (:ca, :shard, 0, 0, 0, 0, 0, 0, 0){| ORDER BY :ca, :shard} ON CONFLICT (ca, shard) DO NOTHING"
};

const STATES: &str = "-- crl_states
SELECT ca, shard, changes, built, number, this_update, next_update, refresh_at FROM crls WHERE shard >= 0
ORDER BY ca, shard";

const DUE: &str = "-- crls_due
SELECT ca, shard, changes, built, number, this_update, next_update, refresh_at FROM crls
WHERE shard >= 0 AND (changes <> built OR refresh_at <= ?1) ORDER BY ca, shard";

const STATE: &str = "-- crl_state
SELECT ca, shard, changes, built, number, this_update, next_update, refresh_at FROM crls WHERE ca = ?1 AND shard = ?2";

/// Stores a CRL. ?9 is the required number of the current CRL; a negative number for any.
const STORE: &str = "-- crl_store
INSERT INTO crls (ca, shard, changes, built, number, this_update, next_update, refresh_at, entries, base)
VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, ?8, ?10)
ON CONFLICT (ca, shard) DO UPDATE
SET built = excluded.built, number = excluded.number, this_update = excluded.this_update,
    next_update = excluded.next_update, refresh_at = excluded.refresh_at, entries = excluded.entries,
    base = excluded.base, failures = 0, failed_at = NULL, last_error = NULL
WHERE crls.number = ?9 OR CAST(?9 AS BIGINT) < 0";

const DER_STORE: &str = "-- crl_der_store
INSERT INTO crl_ders (ca, shard, number, der) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (ca, shard) DO UPDATE SET number = excluded.number, der = excluded.der";

const BASE_STORE: &str = "-- crl_base_store
INSERT INTO crl_bases (ca, number, this_update, next_update) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (ca, number) DO NOTHING";

const BASES_TRIM: &str = "-- crl_bases_trim
DELETE FROM crl_bases WHERE ca = ?1 AND next_update < ?2";

const BASE_OLDEST: &str = "-- crl_base_oldest
SELECT number, this_update FROM crl_bases WHERE ca = ?1 AND next_update >= ?2 ORDER BY number LIMIT 1";

const GET: &str = "-- crl_get
SELECT c.number, c.this_update, c.next_update, c.entries, c.base, d.der
FROM crls c JOIN crl_ders d ON d.ca = c.ca AND d.shard = c.shard WHERE c.ca = ?1 AND c.shard = ?2";

/// Sums the counters of full CRLs only, because every revocation increments the counter of a full CRL.
const CHANGES: &str = "-- crl_changes
SELECT CAST(COALESCE(SUM(changes), 0) AS BIGINT) FROM crls WHERE shard = 0";

const NUMBER: &str = "-- crl_number
SELECT number FROM crls WHERE ca = ?1 AND shard = ?2";

/// Selects the entries of a full CRL, without certificates that expired before ?2. A hold that was released is not a revocation.
const ENTRIES_FULL: &str = db::with_codes!([Reason::{RemoveFromCrl}] "-- crl_entries_full
SELECT serial, revoked_at, reason, invalidity_at, recorded_at FROM revocations
WHERE ca = ?1 AND not_after >= ?2 AND reason <> {Reason::RemoveFromCrl}");

const ENTRIES_SHARD: &str = db::with_codes!([Reason::{RemoveFromCrl}] "-- crl_entries_shard
SELECT serial, revoked_at, reason, invalidity_at, recorded_at FROM revocations
WHERE ca = ?1 AND shard = ?3 AND not_after >= ?2 AND reason <> {Reason::RemoveFromCrl}");

/// Selects released holds, which a delta CRL lists together with the revocations.
const LIFTED_SINCE: &str = db::with_codes!([Reason::{RemoveFromCrl}] "-- crl_lifted_since
SELECT serial, revoked_at, reason, invalidity_at, recorded_at FROM revocations
WHERE ca = ?1 AND not_after >= ?2 AND reason = {Reason::RemoveFromCrl} AND recorded_at >= ?3");

const RESPONDER: &str = "-- ocsp_responder
SELECT ca, key_id, certificate, not_before, not_after FROM ocsp_responders WHERE ca = ?1";

const RESPONDER_PUT: &str = "-- ocsp_responder_put
INSERT INTO ocsp_responders (ca, key_id, certificate, not_before, not_after) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ca) DO UPDATE SET key_id = excluded.key_id, certificate = excluded.certificate,
                               not_before = excluded.not_before, not_after = excluded.not_after";

pub(crate) const ALL: &[&str] = &[
    STATES,
    DUE,
    STATE,
    STORE,
    DER_STORE,
    BASE_STORE,
    BASES_TRIM,
    BASE_OLDEST,
    GET,
    CHANGES,
    NUMBER,
    ENTRIES_FULL,
    ENTRIES_SHARD,
    LIFTED_SINCE,
    RESPONDER,
    RESPONDER_PUT,
];

pub(crate) const BULKS: &[&BulkStatement] = &[&BEGIN];

/// Inserts rows for CRLs, which are due immediately. Existing rows are not changed.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn crls_begin(tx: &mut Tx, crls: &[(Uuid, i64)]) -> Result<(), StoreError> {
    let (cas, shards) = crls.iter().copied().unzip();
    tx.bulk(&BEGIN, vec![Column::Uuid(cas), Column::Int(shards)]).await.map(drop)
}

/// Stores a CRL; a full CRL is also stored as a base for delta CRLs. Returns false if the number of the current CRL is not
/// `before`. `None` accepts any.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn crl_store(tx: &mut Tx, built: &BuiltCrl, before: Option<i64>) -> Result<bool, StoreError> {
    let BuiltCrl { ca, shard, crl, .. } = built;
    let parameters = vec![
        (*ca).into(),
        (*shard).into(),
        built.built.into(),
        crl.number.into(),
        crl.this_update_us.into(),
        crl.next_update_us.into(),
        built.refresh_at_us.into(),
        crl.entries.into(),
        before.unwrap_or(-1).into(),
        crl.base.into(),
    ];
    if tx.execute(STORE, parameters).await? == 0 {
        return Ok(false);
    }
    let parameters = vec![(*ca).into(), (*shard).into(), crl.number.into(), Value::Blob(crl.der.clone())];
    tx.execute(DER_STORE, parameters).await?;
    if *shard == 0 {
        let times = [crl.number, crl.this_update_us, crl.next_update_us].map(Value::from);
        tx.execute(BASE_STORE, [vec![(*ca).into()], times.to_vec()].concat()).await?;
        tx.execute(BASES_TRIM, vec![(*ca).into(), crl.this_update_us.into()]).await?;
    }
    Ok(true)
}

/// Stores the OCSP responder of a CA, in place of the current one.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn put_ocsp_responder(tx: &mut Tx, row: &OcspResponderRow) -> Result<(), StoreError> {
    let parameters = vec![
        row.ca.into(),
        row.key_id.into(),
        Value::Blob(row.certificate.clone()),
        row.not_before_us.into(),
        row.not_after_us.into(),
    ];
    tx.execute(RESPONDER_PUT, parameters).await.map(drop)
}

impl Revocations<'_> {
    /// Returns the states of all CRLs except delta CRLs.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_states(self) -> Result<Vec<CrlState>, StoreError> {
        self.0.rows(Cost::Walk, STATES, Vec::new()).await?.into_iter().map(state_of).collect()
    }

    /// Returns the CRLs that are due at `now_us`.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crls_due(self, now_us: i64) -> Result<Vec<CrlState>, StoreError> {
        self.0.rows(Cost::Point, DUE, vec![now_us.into()]).await?.into_iter().map(state_of).collect()
    }

    /// Returns the state of the CRL of a shard; `None` if the CA has no such CRL.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_state(self, ca: Uuid, shard: i64) -> Result<Option<CrlState>, StoreError> {
        self.0.row(STATE, vec![ca.into(), shard.into()]).await?.map(state_of).transpose()
    }

    /// Returns the newest CRL of a CA and shard (-1 for the delta CRL); `None` if there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl(self, ca: Uuid, shard: i64) -> Result<Option<CrlRow>, StoreError> {
        let found = self.0.rows(Cost::Walk, GET, vec![ca.into(), shard.into()]).await?.into_iter().next();
        found.map(crl_of).transpose()
    }

    /// Returns a counter that every revocation of any CA increments.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_change_counter(self) -> Result<i64, StoreError> {
        self.0.row(CHANGES, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }

    /// Returns the number of the newest CRL of a CA and shard (-1 for the delta CRL).
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_number(self, ca: Uuid, shard: i64) -> Result<Option<i64>, StoreError> {
        self.0.row(NUMBER, vec![ca.into(), shard.into()]).await?.map(|mut row| row.int()).transpose()
    }

    /// Returns the entries of a CRL, for the whole CA (shard 0) or for one shard. Certificates that expired before `ended_us` are
    /// omitted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_entries(
        self,
        ca: Uuid,
        shard: i64,
        ended_us: i64,
    ) -> Result<Vec<RevocationRow>, StoreError> {
        let mut parameters = vec![ca.into(), ended_us.into()];
        let statement = if shard == 0 {
            ENTRIES_FULL
        } else {
            parameters.push(shard.into());
            ENTRIES_SHARD
        };
        self.0.rows(Cost::Walk, statement, parameters).await?.into_iter().map(entry_of).collect()
    }

    /// Returns the holds of a CA that were released since `from_us` (reason 8, removeFromCRL).
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crl_holds_released_since(
        self,
        ca: Uuid,
        ended_us: i64,
        from_us: i64,
    ) -> Result<Vec<RevocationRow>, StoreError> {
        let parameters = vec![ca.into(), ended_us.into(), from_us.into()];
        self.0.rows(Cost::Walk, LIFTED_SINCE, parameters).await?.into_iter().map(entry_of).collect()
    }

    /// Returns number and time of the oldest full CRL that is still valid at `now_us`.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn oldest_valid_base_crl(
        self,
        ca: Uuid,
        now_us: i64,
    ) -> Result<Option<(i64, i64)>, StoreError> {
        let found = self.0.row(BASE_OLDEST, vec![ca.into(), now_us.into()]).await?;
        found.map(|mut row| Ok((row.int()?, row.int()?))).transpose()
    }

    /// Returns the OCSP responder of a CA; `None` if none is stored.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn ocsp_responder(self, ca: Uuid) -> Result<Option<OcspResponderRow>, StoreError> {
        let found = self.0.row(RESPONDER, vec![ca.into()]).await?;
        found
            .map(|mut row| {
                Ok(OcspResponderRow {
                    ca: row.uuid()?,
                    key_id: row.uuid()?,
                    certificate: row.blob()?,
                    not_before_us: row.int()?,
                    not_after_us: row.int()?,
                })
            })
            .transpose()
    }
}

fn state_of(mut row: Row) -> Result<CrlState, StoreError> {
    Ok(CrlState {
        ca: row.uuid()?,
        shard: row.int()?,
        changes: row.int()?,
        built: row.int()?,
        number: row.int()?,
        this_update_us: row.int()?,
        next_update_us: row.int()?,
        refresh_at_us: row.int()?,
    })
}

fn crl_of(mut row: Row) -> Result<CrlRow, StoreError> {
    Ok(CrlRow {
        number: row.int()?,
        this_update_us: row.int()?,
        next_update_us: row.int()?,
        entries: row.int()?,
        base: row.maybe_int()?,
        der: row.blob()?,
    })
}

fn entry_of(mut row: Row) -> Result<RevocationRow, StoreError> {
    Ok(RevocationRow {
        serial: row.blob()?,
        revoked_at_us: row.int()?,
        reason: row.coded("revocations.reason")?,
        invalidity_at_us: row.maybe_int()?,
        recorded_at_us: row.int()?,
    })
}
