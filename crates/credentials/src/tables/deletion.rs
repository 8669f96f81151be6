//! Deleted and expired credentials, until they are destroyed.
//!
//! A deleted credential keeps its row and versions under a key that no name has. Statements that search by name therefore skip it,
//! and it can be restored until its retention period has passed. Expired versions, and versions beyond the retention rules, are
//! destroyed a few hundred in each transaction.

use futures_util::FutureExt;
use uuid::Uuid;

use super::handle::Credentials;
use super::requester::{CredentialOperation, Requester, may};
use super::write::SETTLE;
use db::{BulkStatement, Column, Cost, Row, StoreError, Tx};
use store::states::CredentialKind;

/// Maximum credentials or versions that one transaction destroys.
const DESTROYED_MAX: i64 = 500;

/// A deleted or expired credential that can be restored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeletedCredential {
    /// Id of the credential.
    pub credential: Uuid,
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Time of the deletion or expiry, µs since 1970-01-01 UTC.
    pub deleted_at_us: i64,
}

// `deleted:`, a UUID and a colon have 45 characters: the name begins at the 46th.
macro_rules! deleted {
    ($name:literal, $where:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT c.uuid, c.name, c.kind, c.deleted_at, c.id FROM (
    SELECT uuid, name, kind, deleted_at, id, substr(name_key, 46) AS name_key FROM credentials WHERE deleted_at IS NOT NULL",
            $where,
            ") c WHERE ",
            may!("2", "?1", "?2"),
            $rest
        )
    };
}

/// Credentials deleted after the time ?3, most recently deleted first. Credentials that were deleted earlier may already have
/// lost some versions.
pub(super) const DELETED: &str = deleted!(
    "credentials_deleted",
    " AND deleted_at > ?3",
    " ORDER BY c.deleted_at DESC, c.id DESC LIMIT ?4"
);
pub(super) const DELETED_NAMED: &str = deleted!(
    "credentials_deleted_named",
    " AND substr(name_key, 46) = ?3 AND deleted_at > ?4",
    " ORDER BY c.deleted_at DESC, c.id DESC LIMIT 1"
);
macro_rules! ended {
    ($name:literal, $where:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT c.uuid, c.name, c.kind, c.current_ends_at, c.id FROM credentials c
WHERE c.deleted_at IS NULL AND c.current_ends_at > ?3 AND c.current_ends_at <= ?4 AND ",
            $where,
            may!("2", "?1", "?2"),
            $rest
        )
    };
}

/// Credentials whose newest version expired after the time ?3 and not after ?4, most recent first.
pub(super) const ENDED_NAMES: &str =
    ended!("credentials_ended", "", " ORDER BY c.current_ends_at DESC, c.id DESC LIMIT ?5");
pub(super) const ENDED_NAMED: &str = ended!("credential_ended_named", "c.name_key = ?5 AND ", "");
pub(super) const RESTORE: &str = "-- credential_restore
UPDATE credentials SET name_key = substr(name_key, 46), deleted_at = NULL WHERE id = ?1 AND deleted_at IS NOT NULL";

/// Credentials that were deleted by the time ?1, so that their retention period has passed.
pub(super) const DELETED_BEFORE: BulkStatement = db::bulk! {
    "-- credentials_away
SELECT id FROM credentials WHERE deleted_at <= ?1 ORDER BY deleted_at, id LIMIT ?2{| FOR UPDATE SKIP LOCKED}"
};

/// Versions that had expired or were deleted by the time ?1.
pub(super) const ENDED: &str = "-- credential_versions_ended
SELECT id, credential_id FROM credential_versions WHERE ends_at <= ?1 ORDER BY ends_at, id LIMIT ?2";

/// The next versions in row order, at most ?2 after row ?1, with the key of their name and whether they are current.
pub(super) const OLD: &str = "-- credential_versions_old
SELECT v.id, v.credential_id, c.name_key, CASE WHEN v.id = c.active_id OR v.id = c.transitional_id THEN 1 ELSE 0 END,
       v.created_at
FROM (SELECT id, credential_id, created_at FROM credential_versions WHERE id > ?1 ORDER BY id LIMIT ?2) v
JOIN credentials c ON c.id = v.credential_id ORDER BY v.id";

pub(super) const LOCK: BulkStatement = db::bulk! { (id bigint)
    "-- credentials_hold
SELECT id FROM credentials WHERE id = {any id}{| ORDER BY name_key FOR UPDATE}"
};

/// Deletes versions that had ended by the given time, except those that were restored since the read.
pub(super) const DELETE_ENDED: BulkStatement = db::bulk! { (id bigint, ended_by bigint)
    "-- credential_versions_ended_delete
DELETE FROM credential_versions WHERE id = :id AND ends_at <= :ended_by"
};
/// Deletes versions that are not current.
pub(super) const DELETE_OLD: BulkStatement = db::bulk! { (id bigint)
    "-- credential_versions_old_delete
DELETE FROM credential_versions AS v WHERE v.id = {any id} AND NOT EXISTS (
    SELECT 1 FROM credentials c WHERE c.id = v.credential_id AND (c.active_id = v.id OR c.transitional_id = v.id))"
};
/// Deletes at most ?2 versions of the credentials in the list ?1, one credential after the other.
pub(super) const DELETE_SOME_VERSIONS: BulkStatement = db::bulk! {
    "-- credential_versions_some_delete
DELETE FROM credential_versions WHERE id {IN (|= ANY(ARRAY(}
    SELECT v.id FROM credential_versions v WHERE v.credential_id {among ?1 bigint}
    ORDER BY v.credential_id, v.id LIMIT ?2){|)}"
};
/// Ends all older versions of a credential whose active version had ended by a given time. ?1: credential; ?2: that time; ?3: end
/// of the older versions.
pub(super) const END_OLDER: BulkStatement = BulkStatement {
    sqlite: "-- credential_versions_older_end
UPDATE credential_versions SET ends_at = ?3 WHERE credential_id = ?1 AND (ends_at IS NULL OR ends_at > ?3)
AND id < (SELECT a.id FROM credentials c JOIN credential_versions a ON a.id = c.active_id
          WHERE c.id = ?1 AND a.ends_at <= ?2)",
    postgres: "-- credential_versions_older_end
UPDATE credential_versions v SET ends_at = u.at
FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::bigint[]) AS u (credential, ended_by, at)
JOIN credentials c ON c.id = u.credential JOIN credential_versions a ON a.id = c.active_id
WHERE v.credential_id = u.credential AND v.id < a.id AND a.ends_at <= u.ended_by
  AND (v.ends_at IS NULL OR v.ends_at > u.at)",
};
/// Deletes credentials without a version. Returns them and their keys.
pub(super) const DELETE_EMPTY: BulkStatement = db::bulk! { (id bigint)
    "-- credentials_empty_delete
DELETE FROM credentials WHERE id = {any id}
AND NOT EXISTS (SELECT 1 FROM credential_versions v WHERE v.credential_id = credentials.id) RETURNING id, name_key"
};

/// Restores the credential of a name (lower case) whose newest version has ended. If there is no such credential, restores the most
/// recently deleted credential of that name, if it was deleted after `since_us`. `None` when neither exists, or the caller is not
/// permitted to write the name.
///
/// # Errors
/// [`StoreError::Conflict`] when the name is in use; errors of the database.
#[crate::boxed]
pub async fn restore_credential(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    (since_us, now_us): (i64, i64),
) -> Result<Option<DeletedCredential>, StoreError> {
    if !super::permissions::is_permitted(tx, requester, name_key, CredentialOperation::Write).await? {
        return Ok(None);
    }
    let [everything, actor] = requester.name_access_parameters(name_key);
    // An expired credential comes before deleted ones, because it still occupies the name.
    let parameters = vec![everything.clone(), actor.clone(), since_us.into(), now_us.into(), name_key.into()];
    if let Some(mut row) = tx.row(ENDED_NAMED, parameters).await? {
        let change = VersionsChange::Restore(now_us);
        let back = change_credential_versions(tx, requester, name_key, None, change).await?;
        return Ok(if back { Some(deleted_row(&mut row)?.0) } else { None });
    }
    let parameters = vec![everything, actor, name_key.into(), since_us.into()];
    let Some(mut row) = tx.row(DELETED_NAMED, parameters).await? else {
        return Ok(None);
    };
    let (deleted, id) = deleted_row(&mut row)?;
    let restored = tx.execute(RESTORE, vec![id.into()]).await? == 1;
    Ok(restored.then_some(deleted))
}

/// Ends versions of a credential. ?1: credential; ?2: numbers; ?3: time of the end.
pub(super) const END: BulkStatement = db::bulk! { (credential bigint, number bigint, ends_at bigint)
    "-- credential_versions_end
UPDATE credential_versions SET ends_at = :ends_at WHERE credential_id = :credential AND number = :number
AND (ends_at IS NULL OR ends_at > :ends_at)"
};
/// Restores versions of a credential that have ended. A time to live in the future is kept. ?1: credential; ?2: numbers; ?3:
/// current time.
pub(super) const RESTORE_VERSIONS: BulkStatement = db::bulk! { (credential bigint, number bigint, now bigint)
    "-- credential_versions_take_back
UPDATE credential_versions SET ends_at = CASE WHEN ttl_ends_at > :now THEN ttl_ends_at END
WHERE credential_id = :credential AND number = :number AND ends_at <= :now"
};
/// Deletes versions of a credential by their numbers. ?1: credential; ?2: numbers.
pub(super) const DELETE_NUMBERED: BulkStatement = db::bulk! { (credential bigint, number bigint)
    "-- credential_versions_numbered_delete
DELETE FROM credential_versions WHERE credential_id = :credential AND number = :number"
};

/// A change to versions of a credential: deletion, restoration or destruction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionsChange {
    /// The versions end at this time, µs, and can be restored.
    End(i64),
    /// The versions end at this time, µs, permanently. If the active version is among them, all older versions end too.
    EndForGood(i64),
    /// Restores versions that have ended by this time, µs. A time to live in the future is kept.
    Restore(i64),
    /// Destroys the versions permanently. The name is removed with its last version. An older version replaces the active one.
    Destroy,
}

/// Changes versions of a credential (its name in lower case) by their numbers; without numbers the newest. Restoring requires the
/// write permission, all other changes the delete permission. Returns false when the credential does not exist or the permission is
/// missing.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn change_credential_versions(
    tx: &mut Tx,
    requester: &Requester,
    name_key: &str,
    numbers: Option<&[u64]>,
    change: VersionsChange,
) -> Result<bool, StoreError> {
    let operation = match change {
        VersionsChange::Restore(_) => CredentialOperation::Write,
        VersionsChange::End(_) | VersionsChange::EndForGood(_) | VersionsChange::Destroy => {
            CredentialOperation::Delete
        }
    };
    let Some(locked) = super::write::lock_credential(tx, requester, name_key, operation).await? else {
        return Ok(false);
    };
    let newest = [locked.last_number];
    let numbers = numbers.unwrap_or(&newest).iter();
    let numbers: Vec<i64> = numbers.map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect();
    let of = || vec![Column::Int(vec![locked.id; numbers.len()]), Column::Int(numbers.clone())];
    let at = |at_us| [of(), vec![Column::Int(vec![at_us; numbers.len()])]].concat();
    match change {
        VersionsChange::End(at_us) => tx.bulk(&END, at(at_us)).await?,
        VersionsChange::Restore(now_us) => tx.bulk(&RESTORE_VERSIONS, at(now_us)).await?,
        VersionsChange::Destroy => tx.bulk(&DELETE_NUMBERED, of()).await?,
        VersionsChange::EndForGood(at_us) => {
            tx.bulk(&END, at(at_us)).await?;
            tx.bulk(&END_OLDER, older(&[locked.id], at_us, at_us)).await?;
            tx.bulk(&DELETE_NUMBERED, of()).await?
        }
    };
    update_credentials(tx, vec![locked.id]).await?;
    Ok(true)
}

/// Returns the parameter columns of [`END_OLDER`].
fn older(credentials: &[i64], ended_by_us: i64, at_us: i64) -> Vec<Column> {
    let times = |time| Column::Int(vec![time; credentials.len()]);
    vec![Column::Int(credentials.to_vec()), times(ended_by_us), times(at_us)]
}

/// Deletes credentials without versions and updates the current version of the others. Returns the keys of the deleted ones.
async fn update_credentials(tx: &mut Tx, mut credentials: Vec<i64>) -> Result<Vec<String>, StoreError> {
    let (mut deleted_credentials, mut keys) = (Vec::new(), Vec::new());
    for mut row in tx.bulk(&DELETE_EMPTY, vec![Column::Int(credentials.clone())]).await? {
        deleted_credentials.push(row.int()?);
        keys.push(row.text()?);
    }
    credentials.retain(|id| !deleted_credentials.contains(id));
    tx.bulk(&SETTLE, vec![Column::Int(credentials)]).await?;
    Ok(keys)
}

/// Expired versions, and their credentials.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExpiredVersions {
    versions: Vec<i64>,
    /// Credentials of the versions, without duplicates.
    credentials: Vec<i64>,
}

impl ExpiredVersions {
    fn of(all: Vec<(i64, i64)>) -> Self {
        let (versions, mut credentials): (Vec<i64>, Vec<i64>) = all.into_iter().unzip();
        credentials.sort_unstable();
        credentials.dedup();
        Self { versions, credentials }
    }

    /// Returns whether there are no versions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}

/// Destroys versions that expired before a time, credentials without any other version, and their rotation plans. If the active
/// version is among them, all older versions end at `now_us`, so that no older version becomes active. Returns the removed names
/// (lower case) whose rotation had failed.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn destroy_expired_versions(
    tx: &mut Tx,
    ended: &ExpiredVersions,
    ended_by_us: i64,
    now_us: i64,
) -> Result<Vec<String>, StoreError> {
    let ExpiredVersions { versions, credentials } = ended;
    let by = Column::Int(vec![ended_by_us; versions.len()]);
    tx.bulks(&[
        (&LOCK, vec![Column::Int(credentials.clone())]),
        (&END_OLDER, older(credentials, ended_by_us, now_us)),
        (&DELETE_ENDED, vec![Column::Int(versions.clone()), by]),
    ])
    .await?;
    let deleted_credentials = update_credentials(tx, credentials.clone()).await?;
    super::rotation::delete_rotations(tx, deleted_credentials).await
}

/// Progress of a scan over old versions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OldVersionScan {
    /// Id of the last row that was scanned.
    pub after: i64,
    /// Whether the scan is complete.
    pub ended: bool,
}

impl Credentials<'_> {
    /// Lists credentials that were deleted or expired after `since_us` and that the caller can restore, most recent first.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn deleted(
        self,
        requester: &Requester,
        (since_us, now_us): (i64, i64),
        limit: usize,
    ) -> Result<Vec<DeletedCredential>, StoreError> {
        let [everything, actor] = requester.listing_parameters();
        let parameters = vec![everything.clone(), actor.clone(), since_us.into(), super::list::count(limit)];
        let mut rows = self.0.rows(Cost::Walk, DELETED, parameters).await?;
        let parameters = vec![everything, actor, since_us.into(), now_us.into(), super::list::count(limit)];
        rows.extend(self.0.rows(Cost::Walk, ENDED_NAMES, parameters).await?);
        let rows = rows.into_iter().map(|mut row| Ok(deleted_row(&mut row)?.0));
        let mut all = super::list::listed(requester, rows, |deleted| &deleted.name)?;
        all.sort_by_key(|deleted| std::cmp::Reverse(deleted.deleted_at_us));
        all.truncate(limit);
        Ok(all)
    }

    /// Destroys a batch of versions (at most 500) of credentials that were deleted by `deleted_by_us`, and credentials without a
    /// version. Returns the number destroyed; 0 when none is left.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn destroy_deleted(self, deleted_by_us: i64) -> Result<u64, StoreError> {
        let (deleted_before, some) = (DELETED_BEFORE.of(self.0), DELETE_SOME_VERSIONS.of(self.0));
        self.0
            .write("credentials_destroy", move |tx| {
                async move {
                    let rows =
                        tx.rows(deleted_before, vec![deleted_by_us.into(), DESTROYED_MAX.into()]).await?;
                    let ids = rows.into_iter().map(|mut row| row.int()).collect::<Result<Vec<_>, _>>()?;
                    if ids.is_empty() {
                        return Ok(0);
                    }
                    let list = serde_json::Value::from(ids.as_slice()).to_string();
                    let versions = tx.execute(some, vec![list.into(), DESTROYED_MAX.into()]).await?;
                    Ok(versions + tx.bulk(&DELETE_EMPTY, vec![Column::Int(ids)]).await?.len() as u64)
                }
                .boxed()
            })
            .await
    }

    /// Returns a batch of versions (at most 500) that expired by `ended_by_us`, for [`destroy_expired_versions`].
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn expired_versions(self, ended_by_us: i64) -> Result<ExpiredVersions, StoreError> {
        let rows = self.0.rows(Cost::Walk, ENDED, vec![ended_by_us.into(), DESTROYED_MAX.into()]).await?;
        let found = rows.into_iter().map(|mut row| Ok((row.int()?, row.int()?)));
        Ok(ExpiredVersions::of(found.collect::<Result<_, StoreError>>()?))
    }

    /// Destroys versions that are beyond their retention, but never current versions. `retained_since_us` returns the time from which
    /// versions of a name (lower case) are retained, or `None` if no rule covers the name. Scans a few hundred versions. Returns
    /// the progress of the scan and the number of destroyed versions.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn destroy_old_versions(
        self,
        after: i64,
        retained_since_us: impl Fn(&str) -> Option<i64>,
    ) -> Result<(OldVersionScan, usize), StoreError> {
        let rows = self.0.rows(Cost::Walk, OLD, vec![after.into(), DESTROYED_MAX.into()]).await?;
        let mut walk = OldVersionScan { after, ended: rows.len() < DESTROYED_MAX as usize };
        let mut old = Vec::new();
        for mut row in rows {
            let (id, credential, name) = (row.int()?, row.int()?, row.text()?);
            let (current, created_at_us) = (row.flag()?, row.int()?);
            walk.after = id;
            if !current && retained_since_us(&name).is_some_and(|since_us| created_at_us < since_us) {
                old.push((id, credential));
            }
        }
        let ExpiredVersions { versions, credentials } = ExpiredVersions::of(old);
        let count = versions.len();
        if count == 0 {
            return Ok((walk, 0));
        }
        let destroyed = self.0.write("credential_versions_destroy", move |tx| {
            async move {
                tx.bulk(&LOCK, vec![Column::Int(credentials.clone())]).await?;
                tx.bulk(&DELETE_OLD, vec![Column::Int(versions)]).await?;
                update_credentials(tx, credentials).await
            }
            .boxed()
        });
        destroyed.await?;
        Ok((walk, count))
    }
}

fn deleted_row(row: &mut Row) -> Result<(DeletedCredential, i64), StoreError> {
    let deleted = DeletedCredential {
        credential: row.uuid()?,
        name: row.text()?,
        kind: row.named("credentials.kind")?,
        deleted_at_us: row.int()?,
    };
    Ok((deleted, row.int()?))
}
