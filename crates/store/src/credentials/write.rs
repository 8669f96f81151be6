//! New versions, and what is taken away.
//!
//! Versions of many names share a transaction of five statements, whatever their count. Names are taken in their order,
//! so that two transactions never wait for each other; whoever writes the same name waits for its row, and nobody else.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::{CredentialAsker, CredentialOperation, may};
use crate::error::StoreError;
use crate::tx::{Bulk, Column, Tx};
use crate::value::{Row, Value};

/// A version to be stored.
#[derive(Clone)]
pub struct NewCredentialVersion {
    /// On whose behalf.
    pub asker: CredentialAsker,
    /// As written; counts for a name that is new.
    pub name: String,
    /// The name in lower case.
    pub name_key: String,
    /// Its type.
    pub kind: &'static str,
    /// The version's identity: part of what the value is sealed to.
    pub version: Uuid,
    /// When, µs.
    pub at_us: i64,
    /// The value, sealed.
    pub sealed: Vec<u8>,
    /// JSON.
    pub metadata: Option<String>,
    /// JSON.
    pub parameters: Option<String>,
    /// JSON.
    pub facts: Option<String>,
    /// When its certificate ends, µs.
    pub not_after_us: Option<i64>,
    /// Whether it is in transition.
    pub transitional: bool,
    /// What signed it: a name in lower case.
    pub signed_by: Option<String>,
    /// Only if this is the newest version; `Some(None)`: only if there is none.
    pub expected: Option<Option<Uuid>>,
}

/// What became of a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Put {
    /// It is stored, and is the newest of the credential of this identity and name as first written.
    Stored {
        /// The credential's identity.
        credential: Uuid,
        /// The name as first written.
        name: String,
    },
    /// The asker may not write there.
    Denied,
    /// The name has another type.
    OtherKind,
    /// The newest version is another than expected: this one, or none.
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

/// Names that are not there yet.
pub(super) const NAMES: Bulk = Bulk {
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
    ($source:literal, $rest:literal, $everything:literal, $actor:literal, $place:literal) => {
        concat!(
            "-- credential_lock\nSELECT ",
            $place,
            ", c.id, c.uuid, c.name, c.kind, c.current, CASE WHEN ",
            may!("2", $everything, $actor),
            " THEN 1 ELSE 0 END FROM ",
            $source,
            $rest
        )
    };
}

/// What stands at each name, held until the transaction ends.
pub(super) const LOCK: Bulk = Bulk {
    sqlite: lock!("credentials c", " WHERE c.name_key = ?2", "?3", "?4", "?1"),
    postgres: lock!(
        "UNNEST(?1::bigint[], ?2::text[], ?3::bigint[], ?4::text[]) AS u (place, name_key, everything, actor)
JOIN credentials c ON c.name_key = u.name_key",
        " ORDER BY c.name_key FOR UPDATE OF c",
        "u.everything",
        "u.actor",
        "u.place"
    ),
};

pub(super) const VERSIONS: Bulk = Bulk {
    sqlite: "-- credential_versions_insert
INSERT INTO credential_versions (uuid, credential_id, created_at, sealed, metadata, parameters, facts, not_after,
                                 transitional)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    postgres: "-- credential_versions_insert
INSERT INTO credential_versions (uuid, credential_id, created_at, sealed, metadata, parameters, facts, not_after,
                                 transitional)
SELECT u.uuid, u.credential, u.at, u.sealed, u.metadata, u.parameters, u.facts, u.not_after, u.transitional
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::bytea[], ?5::text[], ?6::text[], ?7::text[], ?8::bigint[],
            ?9::bigint[]) WITH ORDINALITY
     AS u (uuid, credential, at, sealed, metadata, parameters, facts, not_after, transitional, place)
ORDER BY u.place",
};

pub(super) const CURRENT: Bulk = Bulk {
    sqlite: "-- credential_current_set
UPDATE credentials SET current = ?2, current_at = ?3, current_not_after = ?4, signed_by = ?5 WHERE id = ?1",
    postgres: "-- credential_current_set
UPDATE credentials c SET current = u.current, current_at = u.at, current_not_after = u.not_after,
                         signed_by = u.signed_by
FROM UNNEST(?1::bigint[], ?2::uuid[], ?3::bigint[], ?4::bigint[], ?5::text[]) AS u (id, current, at, not_after, signed_by)
WHERE c.id = u.id",
};

pub(super) const LOCK_VERSION: &str = "-- credential_version_of
SELECT v.id FROM credential_versions v WHERE v.uuid = ?1 AND v.credential_id = ?2";
pub(super) const DELETE_VERSIONS: &str = "-- credential_versions_delete
DELETE FROM credential_versions WHERE credential_id = ?1";
pub(super) const DELETE: &str = "-- credential_delete
DELETE FROM credentials WHERE id = ?1";
pub(super) const DELETE_VERSION: &str = "-- credential_version_delete
DELETE FROM credential_versions WHERE id = ?1";
pub(super) const NEWEST: &str = "-- credential_newest
SELECT uuid, created_at, not_after FROM credential_versions WHERE credential_id = ?1 ORDER BY id DESC LIMIT 1";
pub(super) const TRANSITION: &str = "-- credential_transition
UPDATE credential_versions SET transitional = CASE WHEN uuid = ?2 THEN 1 ELSE 0 END
WHERE credential_id = ?1 AND (transitional = 1 OR uuid = ?2)";

/// A credential held by this transaction.
#[derive(Clone)]
struct Held {
    id: i64,
    uuid: Uuid,
    name: String,
    kind: String,
    current: Option<Uuid>,
}

/// Stores versions in their order, each by itself: what became of it stands in its place.
///
/// # Errors
/// Those of the database.
pub async fn put_credential_versions(
    tx: &mut Tx,
    versions: &Arc<[NewCredentialVersion]>,
) -> Result<Vec<Put>, StoreError> {
    tx.bulk(&NAMES, names_of(versions)).await?;
    let locked = tx.bulk(&LOCK, keys_of(versions.iter().map(|new| (&new.name_key, &new.asker)))).await?;
    let mut held: HashMap<String, Held> = HashMap::new();
    let mut may_write = vec![None; versions.len()];
    for mut row in locked {
        let place: usize = row.number()?;
        let (found, may) = held_of(&mut row)?;
        may_write[place] = Some(may);
        held.entry(versions[place].name_key.clone()).or_insert(found);
    }
    let mut fates = Vec::with_capacity(versions.len());
    let (mut stored, mut ids) = (Vec::new(), Vec::new());
    for (new, may) in versions.iter().zip(may_write) {
        let fate = fate_of(new, may, held.get_mut(&new.name_key));
        if matches!(fate, Put::Stored { .. })
            && let Some(of) = held.get(&new.name_key)
        {
            stored.push(new);
            ids.push(of.id);
        }
        fates.push(fate);
    }
    insert_versions(tx, &stored, &ids).await?;
    Ok(fates)
}

/// Decides, and moves what is newest on.
fn fate_of(new: &NewCredentialVersion, may: Option<bool>, held: Option<&mut Held>) -> Put {
    let Some(held) = held.filter(|_| may == Some(true)) else {
        // A name that is not there was either not allowed to be made, or has to be there already.
        let absent = may.is_none() && matches!(new.expected, Some(Some(_)));
        return if absent { Put::Newer(None) } else { Put::Denied };
    };
    if held.kind != new.kind {
        return Put::OtherKind;
    }
    if new.expected.is_some_and(|expected| expected != held.current) {
        return Put::Newer(held.current);
    }
    held.current = Some(new.version);
    Put::Stored { credential: held.uuid, name: held.name.clone() }
}

/// Only of versions that may make their name.
fn names_of(versions: &[NewCredentialVersion]) -> Vec<Column> {
    let mut all: Vec<&NewCredentialVersion> =
        versions.iter().filter(|new| !matches!(new.expected, Some(Some(_)))).collect();
    all.sort_by(|a, b| a.name_key.cmp(&b.name_key));
    vec![
        Column::Uuid(all.iter().map(|_| Uuid::now_v7()).collect()),
        Column::Text(all.iter().map(|new| new.name.clone()).collect()),
        Column::Text(all.iter().map(|new| new.name_key.clone()).collect()),
        Column::Text(all.iter().map(|new| new.kind.to_owned()).collect()),
        Column::Int(all.iter().map(|new| new.at_us).collect()),
        Column::Int(all.iter().map(|new| new.asker.everything.into()).collect()),
        Column::Text(all.iter().map(|new| new.asker.actor.clone()).collect()),
    ]
}

fn keys_of<'a>(keys: impl Iterator<Item = (&'a String, &'a CredentialAsker)> + Clone) -> Vec<Column> {
    vec![
        Column::Int((0_i64..).take(keys.clone().count()).collect()),
        Column::Text(keys.clone().map(|(name, _)| name.clone()).collect()),
        Column::Int(keys.clone().map(|(_, asker)| asker.everything.into()).collect()),
        Column::Text(keys.map(|(_, asker)| asker.actor.clone()).collect()),
    ]
}

fn held_of(row: &mut Row) -> Result<(Held, bool), StoreError> {
    let held = Held {
        id: row.int()?,
        uuid: row.uuid()?,
        name: row.text()?,
        kind: row.text()?,
        current: row.maybe_uuid()?,
    };
    Ok((held, row.flag()?))
}

async fn insert_versions(tx: &mut Tx, new: &[&NewCredentialVersion], ids: &[i64]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(new.iter().map(|new| new.version).collect()),
        Column::Int(ids.to_vec()),
        Column::Int(new.iter().map(|new| new.at_us).collect()),
        Column::Blob(new.iter().map(|new| new.sealed.clone()).collect()),
        Column::MaybeText(new.iter().map(|new| new.metadata.clone()).collect()),
        Column::MaybeText(new.iter().map(|new| new.parameters.clone()).collect()),
        Column::MaybeText(new.iter().map(|new| new.facts.clone()).collect()),
        Column::MaybeInt(new.iter().map(|new| new.not_after_us).collect()),
        Column::Int(new.iter().map(|new| new.transitional.into()).collect()),
    ];
    tx.bulk(&VERSIONS, columns).await?;
    // Of several versions of a name the last is what stands in its row.
    let last: HashMap<i64, &NewCredentialVersion> = ids.iter().copied().zip(new.iter().copied()).collect();
    let columns = vec![
        Column::Int(last.keys().copied().collect()),
        Column::Uuid(last.values().map(|new| new.version).collect()),
        Column::Int(last.values().map(|new| new.at_us).collect()),
        Column::MaybeInt(last.values().map(|new| new.not_after_us).collect()),
        Column::MaybeText(last.values().map(|new| new.signed_by.clone()).collect()),
    ];
    tx.bulk(&CURRENT, columns).await.map(drop)
}

/// The row of a name (lower case), held; `None` when it is not there or the asker does not hold the operation on it.
async fn hold(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
    operation: CredentialOperation,
) -> Result<Option<Held>, StoreError> {
    let key = name_key.to_owned();
    let locked = tx.bulk(&LOCK, keys_of(std::iter::once((&key, asker)))).await?;
    let Some(mut row) = locked.into_iter().next() else { return Ok(None) };
    row.skip()?;
    let (held, _) = held_of(&mut row)?;
    let may = super::permissions::may_do(tx, asker, name_key, operation).await?;
    Ok(may.then_some(held))
}

/// Removes a credential (its name in lower case) and all its versions; false when it is not there or the asker may not.
///
/// # Errors
/// Those of the database.
pub async fn delete_credential(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
) -> Result<bool, StoreError> {
    let Some(held) = hold(tx, asker, name_key, CredentialOperation::Delete).await? else { return Ok(false) };
    tx.execute(DELETE_VERSIONS, vec![held.id.into()]).await?;
    Ok(tx.execute(DELETE, vec![held.id.into()]).await? == 1)
}

/// Removes one version of a credential (its name in lower case); false when it is not there, the asker may not, or it is
/// the last.
///
/// # Errors
/// Those of the database.
pub async fn delete_credential_version(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
    version: Uuid,
) -> Result<bool, StoreError> {
    let Some(held) = hold(tx, asker, name_key, CredentialOperation::Delete).await? else { return Ok(false) };
    let found = tx.row(LOCK_VERSION, vec![version.into(), held.id.into()]).await?;
    let Some(id) = found.map(|mut row| row.int()).transpose()? else { return Ok(false) };
    tx.execute(DELETE_VERSION, vec![id.into()]).await?;
    let newest = tx.row(NEWEST, vec![held.id.into()]).await?;
    let Some(mut newest) = newest else {
        return Err(StoreError::Stale("the last version of a credential".to_owned()));
    };
    if held.current == Some(version) {
        let columns = vec![
            Column::Int(vec![held.id]),
            Column::Uuid(vec![newest.uuid()?]),
            Column::Int(vec![newest.int()?]),
            Column::MaybeInt(vec![newest.maybe_int()?]),
            Column::MaybeText(vec![None]),
        ];
        tx.bulk(&CURRENT, columns).await?;
    }
    Ok(true)
}

/// Makes one version of a credential (its name in lower case) the one in transition, or none; false when the credential or
/// version is not there, or the asker may not write.
///
/// # Errors
/// Those of the database.
pub async fn set_transitional_version(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
    version: Option<Uuid>,
) -> Result<bool, StoreError> {
    let Some(held) = hold(tx, asker, name_key, CredentialOperation::Write).await? else { return Ok(false) };
    if let Some(version) = version
        && tx.row(LOCK_VERSION, vec![version.into(), held.id.into()]).await?.is_none()
    {
        return Ok(false);
    }
    let version = version.map_or_else(|| Value::from(Uuid::nil()), Value::from);
    tx.execute(TRANSITION, vec![held.id.into(), version]).await?;
    Ok(true)
}
