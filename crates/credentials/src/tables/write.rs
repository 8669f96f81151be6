//! Writes and deletions of versions.
//!
//! Versions of many names share a transaction of five statements, regardless of the number of versions. Names are locked in sorted
//! order, so that transactions cannot deadlock. Only writers of the same name wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::requester::{CredentialOperation, Requester, may};
use db::{BulkStatement, Column, Row, StoreError, Tx, Value};
use store::states::CredentialKind;

/// A version to be stored.
#[derive(Clone)]
pub struct NewCredentialVersion {
    /// The caller that stores the version.
    pub requester: Requester,
    /// The name as written; used if the name is new.
    pub name: String,
    /// The name in lower case.
    pub name_key: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Id of the version. The encryption of the value is bound to this id.
    pub version: Uuid,
    /// Creation time, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// The encrypted value.
    pub sealed: Vec<u8>,
    /// Metadata, as JSON.
    pub metadata: Option<String>,
    /// Parameters of the generation, as JSON.
    pub parameters: Option<String>,
    /// Public properties of the value, as JSON.
    pub facts: Option<String>,
    /// Expiry of the certificate, µs since 1970-01-01 UTC.
    pub not_after_us: Option<i64>,
    /// Whether the version is transitional.
    pub transitional: bool,
    /// Name (lower case) of the credential that signed the certificate.
    pub signed_by: Option<String>,
    /// The version that must be the newest; the write fails otherwise. `Some(None)` requires that no version exists.
    pub expected: Option<Option<Uuid>>,
    /// Number that the newest version ever stored must have; the write fails otherwise. 0 requires that no version ever existed.
    pub expected_number: Option<u64>,
    /// End of the version, µs since 1970-01-01 UTC. The version cannot be read after this time.
    pub ends_at_us: Option<i64>,
    /// Number of versions to retain, including this one. Current versions are always retained.
    pub keep: Option<u32>,
}

impl NewCredentialVersion {
    /// Returns whether the version may create its name.
    fn can_create_name(&self) -> bool {
        !matches!(self.expected, Some(Some(_))) && self.expected_number.is_none_or(|number| number == 0)
    }
}

/// Result of writing a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Put {
    /// The version was stored and is the newest.
    Stored {
        /// Id of the credential.
        credential: Uuid,
        /// The name, with the capitalization in which it was first written.
        name: String,
        /// Number of the version.
        number: u64,
    },
    /// The caller has no permission to write this name.
    Denied,
    /// The existing credential has another type.
    OtherKind,
    /// The newest version is not the expected one. Contains the id of the newest version, or `None` if there is no version.
    Newer(Option<Uuid>),
}

macro_rules! names {
    ($source:literal, $where:literal, $order:literal) => {
        concat!(
            "-- credential_names\nINSERT INTO credentials (uuid, name, name_key, kind, created_at, current_at)\n",
            "SELECT c.uuid, c.name, c.name_key, c.kind, c.at, c.at FROM ",
            $source,
            " WHERE ",
            may!("2", "c.everything", "c.actor"),
            $where,
            $order,
            " ON CONFLICT (name_key) DO NOTHING"
        )
    };
}

/// Inserts names that do not exist yet.
pub(super) const NAMES: BulkStatement = BulkStatement {
    sqlite: names!(
        "(SELECT ?1 AS uuid, ?2 AS name, ?3 AS name_key, ?4 AS kind, ?5 AS at, ?6 AS everything, ?7 AS actor) c",
        "",
        ""
    ),
    postgres: names!(
        "UNNEST(?1::uuid[], ?2::text[], ?3::text[], ?4::text[], ?5::bigint[], ?6::bigint[], ?7::text[]) WITH ORDINALITY
     AS c (uuid, name, name_key, kind, at, everything, actor, place)",
        "",
        " ORDER BY c.name_key COLLATE \"C\", c.place"
    ),
};

macro_rules! lock {
    ($source:literal, $rest:literal, $everything:literal, $actor:literal, $index:literal, $now:literal) => {
        concat!(
            "-- credential_lock\nSELECT ",
            $index,
            ", c.id, c.uuid, c.name, c.kind, CASE WHEN c.current_ends_at <= ",
            $now,
            " THEN NULL ELSE c.current END, c.last_number, CASE WHEN ",
            may!("2", $everything, $actor),
            " THEN 1 ELSE 0 END FROM ",
            $source,
            $rest
        )
    };
}

/// Reads and locks the credential of each name until the transaction ends.
pub(super) const LOCK: BulkStatement = BulkStatement {
    sqlite: lock!("credentials c", " WHERE c.name_key = ?2", "?3", "?4", "?1", "?5"),
    postgres: lock!(
        "UNNEST(?1::bigint[], ?2::text[], ?3::bigint[], ?4::text[], ?5::bigint[])
     AS u (place, name_key, everything, actor, now)
JOIN credentials c ON c.name_key = u.name_key",
        " ORDER BY c.name_key FOR UPDATE OF c",
        "u.everything",
        "u.actor",
        "u.place",
        "u.now"
    ),
};

pub(super) const VERSIONS: BulkStatement = BulkStatement {
    sqlite: "-- credential_versions_insert
INSERT INTO credential_versions (uuid, credential_id, created_at, sealed, metadata, parameters, facts, not_after,
                                 transitional, number, ends_at, ttl_ends_at, signed_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12)",
    postgres: "-- credential_versions_insert
INSERT INTO credential_versions (uuid, credential_id, created_at, sealed, metadata, parameters, facts, not_after,
                                 transitional, number, ends_at, ttl_ends_at, signed_by)
SELECT u.uuid, u.credential, u.at, u.sealed, u.metadata, u.parameters, u.facts, u.not_after, u.transitional, u.number,
       u.ends_at, u.ends_at, u.signed_by
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::bytea[], ?5::text[], ?6::text[], ?7::text[], ?8::bigint[],
            ?9::bigint[], ?10::bigint[], ?11::bigint[], ?12::text[]) WITH ORDINALITY
     AS u (uuid, credential, at, sealed, metadata, parameters, facts, not_after, transitional, number, ends_at, signed_by,
           place)
ORDER BY u.place",
};

pub(super) const SOFT_DELETE: &str = "-- credential_set_aside
UPDATE credentials SET name_key = 'deleted:' || CAST(?2 AS TEXT) || ':' || name_key, deleted_at = ?3 WHERE id = ?1";

/// Sets the current version of credentials. Each credential must have at least one version.
pub(super) const SETTLE: BulkStatement = db::bulk! { (id bigint)
    "-- credential_settle
UPDATE credentials AS c SET
    (current, current_at, current_not_after, current_ends_at, signed_by, last_number) = (
        SELECT v.uuid, v.created_at, v.not_after, v.ends_at, v.signed_by, {max|GREATEST}(c.last_number, v.number)
        FROM credential_versions v WHERE v.credential_id = c.id ORDER BY v.id DESC LIMIT 1),
    active_id = (SELECT a.id FROM credential_versions a WHERE a.credential_id = c.id AND a.transitional = 0
                 ORDER BY a.id DESC LIMIT 1),
    transitional_id = (SELECT t.id FROM credential_versions t WHERE t.credential_id = c.id AND t.transitional = 1
                       ORDER BY t.id DESC LIMIT 1)
WHERE c.id = {any id}"
};

/// Deletes old versions of a credential that are not current. Each input row contains a credential and the number of its newest
/// versions to keep.
pub(super) const PRUNE: BulkStatement = db::bulk! { (id bigint, keep bigint)
    "-- credential_prune
DELETE FROM credential_versions AS v WHERE v.credential_id = :id AND EXISTS (
    SELECT 1 FROM credentials c WHERE c.id = v.credential_id AND v.number <= c.last_number - :keep
    AND v.id IS DISTINCT FROM c.active_id AND v.id IS DISTINCT FROM c.transitional_id)"
};

pub(super) const LOCK_VERSION: &str = "-- credential_version_of
SELECT v.id FROM credential_versions v WHERE v.uuid = ?1 AND v.credential_id = ?2";
pub(super) const DELETE_VERSIONS: &str = "-- credential_versions_delete
DELETE FROM credential_versions WHERE credential_id = ?1";
pub(super) const DELETE: &str = "-- credential_delete
DELETE FROM credentials WHERE id = ?1";
pub(super) const DELETE_VERSION: &str = "-- credential_version_delete
DELETE FROM credential_versions WHERE id = ?1";
pub(super) const ANY_VERSION: &str = "-- credential_any_version
SELECT id FROM credential_versions WHERE credential_id = ?1 LIMIT 1";
pub(super) const TRANSITION: &str = "-- credential_transition
UPDATE credential_versions SET transitional = CASE WHEN uuid = ?2 THEN 1 ELSE 0 END
WHERE credential_id = ?1 AND (transitional = 1 OR uuid = ?2)";

pub(super) const METADATA: &str = "-- credential_metadata
UPDATE credential_versions SET metadata = ?2 WHERE uuid = ?1";

pub(super) const NOTED: &str = "-- credential_noted
SELECT metadata FROM credential_versions WHERE uuid = ?1";

/// A credential whose row this transaction has locked.
#[derive(Clone)]
pub(super) struct StoredCredential {
    pub(super) id: i64,
    uuid: Uuid,
    name: String,
    kind: CredentialKind,
    current: Option<Uuid>,
    pub(super) last_number: u64,
}

/// Stores versions independently of each other, in their order. Returns a result for each version, in the same order.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn put_credential_versions(
    tx: &mut Tx,
    versions: &Arc<[NewCredentialVersion]>,
) -> Result<Vec<Put>, StoreError> {
    let keys = versions.iter().map(|new| (&new.name_key, &new.requester, new.at_us));
    let mut found = tx.bulks(&[(&NAMES, names_of(versions)), (&LOCK, keys_of(keys))]).await?;
    let locked = found.pop().unwrap_or_default();
    let mut existing: HashMap<String, StoredCredential> = HashMap::new();
    let mut may_write = vec![None; versions.len()];
    for mut row in locked {
        let index: usize = row.number()?;
        let (found, may) = stored_credential_row(&mut row)?;
        may_write[index] = Some(may);
        existing.entry(versions[index].name_key.clone()).or_insert(found);
    }
    let mut outcomes = Vec::with_capacity(versions.len());
    let mut stored = Vec::new();
    for (new, may) in versions.iter().zip(may_write) {
        let outcome = decide_put(new, may, existing.get_mut(&new.name_key));
        if let (Put::Stored { number, .. }, Some(of)) = (&outcome, existing.get(&new.name_key)) {
            stored.push(Numbered { new, credential: of.id, number: *number });
        }
        outcomes.push(outcome);
    }
    insert_versions(tx, &stored).await?;
    Ok(outcomes)
}

/// Decides whether a version is stored, and if so records it as the newest one.
fn decide_put(new: &NewCredentialVersion, may: Option<bool>, existing: Option<&mut StoredCredential>) -> Put {
    let Some(existing) = existing.filter(|_| may == Some(true)) else {
        // For a missing name, its creation was either denied, or the version requires an existing name.
        let absent = may.is_none() && !new.can_create_name();
        return if absent { Put::Newer(None) } else { Put::Denied };
    };
    if existing.kind != new.kind {
        return Put::OtherKind;
    }
    let another = new.expected.is_some_and(|expected| expected != existing.current)
        || new.expected_number.is_some_and(|expected| expected != existing.last_number);
    if another {
        return Put::Newer(existing.current);
    }
    existing.current = Some(new.version);
    existing.last_number += 1;
    Put::Stored { credential: existing.uuid, name: existing.name.clone(), number: existing.last_number }
}

/// Returns the names to insert, from versions that may create their name.
fn names_of(versions: &[NewCredentialVersion]) -> Vec<Column> {
    let mut all: Vec<&NewCredentialVersion> = versions.iter().filter(|new| new.can_create_name()).collect();
    all.sort_by(|a, b| a.name_key.cmp(&b.name_key));
    vec![
        Column::Uuid(all.iter().map(|_| Uuid::now_v7()).collect()),
        Column::Text(all.iter().map(|new| new.name.clone()).collect()),
        Column::Text(all.iter().map(|new| new.name_key.clone()).collect()),
        Column::Text(all.iter().map(|new| new.kind.name().to_owned()).collect()),
        Column::Int(all.iter().map(|new| new.at_us).collect()),
        Column::Int(all.iter().map(|new| new.requester.at(&new.name_key).0.into()).collect()),
        Column::Text(all.iter().map(|new| new.requester.at(&new.name_key).1.to_owned()).collect()),
    ]
}

fn keys_of<'a>(keys: impl Iterator<Item = (&'a String, &'a Requester, i64)> + Clone) -> Vec<Column> {
    vec![
        Column::Int((0_i64..).take(keys.clone().count()).collect()),
        Column::Text(keys.clone().map(|(name, ..)| name.clone()).collect()),
        Column::Int(keys.clone().map(|(name, requester, _)| requester.at(name).0.into()).collect()),
        Column::Text(keys.clone().map(|(name, requester, _)| requester.at(name).1.to_owned()).collect()),
        Column::Int(keys.map(|(.., now_us)| now_us).collect()),
    ]
}

fn stored_credential_row(row: &mut Row) -> Result<(StoredCredential, bool), StoreError> {
    let existing = StoredCredential {
        id: row.int()?,
        uuid: row.uuid()?,
        name: row.text()?,
        kind: row.named("credentials.kind")?,
        current: row.maybe_uuid()?,
        last_number: row.number()?,
    };
    Ok((existing, row.flag()?))
}

/// A version to insert, with its credential and number.
struct Numbered<'a> {
    new: &'a NewCredentialVersion,
    credential: i64,
    number: u64,
}

async fn insert_versions(tx: &mut Tx, all: &[Numbered<'_>]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(all.iter().map(|one| one.new.version).collect()),
        Column::Int(all.iter().map(|one| one.credential).collect()),
        Column::Int(all.iter().map(|one| one.new.at_us).collect()),
        Column::Blob(all.iter().map(|one| one.new.sealed.clone()).collect()),
        Column::MaybeText(all.iter().map(|one| one.new.metadata.clone()).collect()),
        Column::MaybeText(all.iter().map(|one| one.new.parameters.clone()).collect()),
        Column::MaybeText(all.iter().map(|one| one.new.facts.clone()).collect()),
        Column::MaybeInt(all.iter().map(|one| one.new.not_after_us).collect()),
        Column::Int(all.iter().map(|one| one.new.transitional.into()).collect()),
        Column::Int(all.iter().map(|one| i64::try_from(one.number).unwrap_or(i64::MAX)).collect()),
        Column::MaybeInt(all.iter().map(|one| one.new.ends_at_us).collect()),
        Column::MaybeText(all.iter().map(|one| one.new.signed_by.clone()).collect()),
    ];
    // Of several versions of a name, the last one sets the number to retain.
    let keep: BTreeMap<i64, Option<u32>> = all.iter().map(|one| (one.credential, one.new.keep)).collect();
    let settled = vec![Column::Int(keep.keys().copied().collect())];
    let (ids, keep) = keep.into_iter().filter_map(|(id, keep)| Some((id, i64::from(keep?)))).unzip();
    let pruned = vec![Column::Int(ids), Column::Int(keep)];
    tx.bulks(&[(&VERSIONS, columns), (&SETTLE, settled), (&PRUNE, pruned)]).await.map(drop)
}

/// Locks and returns the row of a name (lower case). `None` when the name does not exist or the caller is not permitted to perform
/// the operation on it.
pub(super) async fn lock_credential(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    operation: CredentialOperation,
) -> Result<Option<StoredCredential>, StoreError> {
    let key = name_key.to_owned();
    let locked = tx.bulk(&LOCK, keys_of(std::iter::once((&key, requester, i64::MIN)))).await?;
    let Some(mut row) = locked.into_iter().next() else { return Ok(None) };
    row.skip()?;
    let (existing, _) = stored_credential_row(&mut row)?;
    let may = super::permissions::is_permitted(tx, requester, name_key, operation).await?;
    Ok(may.then_some(existing))
}

async fn soft_delete(tx: &mut Tx, id: i64, uuid: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), uuid.to_string().into(), at_us.into()];
    Ok(tx.execute(SOFT_DELETE, parameters).await? == 1)
}

/// Deletes a credential (its name in lower case) and all its versions. Returns false when the credential does not exist or the
/// caller lacks the permission. With `retained_since_us`, the credential is soft-deleted at that time and can be restored with
/// [`restore_credential`](super::restore_credential).
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_credential(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    retained_since_us: Option<i64>,
) -> Result<bool, StoreError> {
    let Some(existing) = lock_credential(tx, requester, name_key, CredentialOperation::Delete).await? else {
        return Ok(false);
    };
    if let Some(at_us) = retained_since_us {
        return soft_delete(tx, existing.id, existing.uuid, at_us).await;
    }
    tx.execute(DELETE_VERSIONS, vec![existing.id.into()]).await?;
    Ok(tx.execute(DELETE, vec![existing.id.into()]).await? == 1)
}

/// Deletes one version of a credential (its name in lower case). Returns false when the version does not exist or the caller lacks
/// the permission.
///
/// # Errors
/// [`StoreError::Stale`] when the credential has no other version; errors of the database.
#[crate::boxed]
pub async fn delete_credential_version(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    version: Uuid,
) -> Result<bool, StoreError> {
    let Some(existing) = lock_credential(tx, requester, name_key, CredentialOperation::Delete).await? else {
        return Ok(false);
    };
    let found = tx.row(LOCK_VERSION, vec![version.into(), existing.id.into()]).await?;
    let Some(id) = found.map(|mut row| row.int()).transpose()? else { return Ok(false) };
    tx.execute(DELETE_VERSION, vec![id.into()]).await?;
    if tx.row(ANY_VERSION, vec![existing.id.into()]).await?.is_none() {
        return Err(StoreError::Stale("the last version of a credential".to_owned()));
    }
    tx.bulk(&SETTLE, vec![Column::Int(vec![existing.id])]).await?;
    Ok(true)
}

/// Makes one version of a credential (its name in lower case) the transitional one, or none. Returns false when the credential or
/// version does not exist, or the caller is not permitted to write.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn set_transitional_version(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    version: Option<Uuid>,
) -> Result<bool, StoreError> {
    let Some(existing) = lock_credential(tx, requester, name_key, CredentialOperation::Write).await? else {
        return Ok(false);
    };
    if let Some(version) = version
        && tx.row(LOCK_VERSION, vec![version.into(), existing.id.into()]).await?.is_none()
    {
        return Ok(false);
    }
    let version = version.map_or_else(|| Value::from(Uuid::nil()), Value::from);
    tx.execute(TRANSITION, vec![existing.id.into(), version]).await?;
    tx.bulk(&SETTLE, vec![Column::Int(vec![existing.id])]).await?;
    Ok(true)
}

/// Locks the newest version of a credential (its name in lower case), and returns it with its metadata as JSON. `None` when the
/// credential does not exist or the caller is not permitted to write.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn lock_credential_metadata(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
) -> Result<Option<(Uuid, Option<String>)>, StoreError> {
    let existing = lock_credential(tx, requester, name_key, CredentialOperation::Write).await?;
    let Some(newest) = existing.and_then(|existing| existing.current) else { return Ok(None) };
    let Some(mut row) = tx.row(NOTED, vec![newest.into()]).await? else { return Ok(None) };
    Ok(Some((newest, row.maybe_text()?)))
}

/// Sets the metadata of a version, as JSON.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn set_credential_metadata(
    tx: &mut Tx,
    version: Uuid,
    metadata: Option<&str>,
) -> Result<(), StoreError> {
    let metadata = metadata.map_or(Value::Null, Value::from);
    tx.execute(METADATA, vec![version.into(), metadata]).await.map(drop)
}
