//! What is deleted or has ended, until it is destroyed.
//!
//! A deleted credential keeps its row and versions under a key that no name has, so that every statement that goes by names
//! passes it by; until its time is over it can be taken back. Versions that have ended, or that nobody keeps, are
//! destroyed some hundred a transaction.

use futures_util::FutureExt;
use uuid::Uuid;

use super::write::SETTLE;
use super::{CredentialAsker, CredentialOperation, may};
use crate::error::StoreError;
use crate::store::{Cost, Store};
use crate::tx::{Bulk, Column, Tx};
use crate::value::Row;

/// Credentials or versions destroyed by one transaction.
const DESTROYED_MAX: i64 = 500;

/// A credential that was deleted and can be taken back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeletedCredential {
    /// The credential's identity.
    pub credential: Uuid,
    /// As it was first written.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// When it was deleted, µs.
    pub deleted_at_us: i64,
}

// `deleted:` and a UUID and a colon are 45 characters: the name begins with the 46th.
pub(super) const SET_ASIDE: &str = "-- credential_set_aside
UPDATE credentials SET name_key = 'deleted:' || CAST(?2 AS TEXT) || ':' || name_key, deleted_at = ?3 WHERE id = ?1";

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

/// The newest first.
pub(super) const DELETED: &str = deleted!(
    "credentials_deleted",
    " AND deleted_at < ?3",
    " ORDER BY c.deleted_at DESC, c.id DESC LIMIT ?4"
);
pub(super) const DELETED_NAMED: &str = deleted!(
    "credentials_deleted_named",
    " AND substr(name_key, 46) = ?3",
    " ORDER BY c.deleted_at DESC, c.id DESC LIMIT 1"
);
pub(super) const RESTORE: &str = "-- credential_restore
UPDATE credentials SET name_key = substr(name_key, 46), deleted_at = NULL WHERE id = ?1 AND deleted_at IS NOT NULL";

/// Credentials whose time to be taken back is over at ?1.
pub(super) const AWAY: Bulk = Bulk {
    sqlite: "-- credentials_away
SELECT id FROM credentials WHERE deleted_at <= ?1 ORDER BY deleted_at, id LIMIT ?2",
    postgres: "-- credentials_away
SELECT id FROM credentials WHERE deleted_at <= ?1 ORDER BY deleted_at, id LIMIT ?2 FOR UPDATE SKIP LOCKED",
};

/// Versions that ended by ?1.
pub(super) const ENDED: &str = "-- credential_versions_ended
SELECT id, credential_id FROM credential_versions WHERE ends_at <= ?1 ORDER BY ends_at, id LIMIT ?2";

/// Versions after ?1 in the order of their rows, older than ?2, with the key of their name and whether they are current.
pub(super) const OLD: &str = "-- credential_versions_old
SELECT v.id, v.credential_id, c.name_key, CASE WHEN v.id = c.active_id OR v.id = c.transitional_id THEN 1 ELSE 0 END,
       v.created_at
FROM (SELECT id, credential_id, created_at FROM credential_versions WHERE id > ?1 ORDER BY id LIMIT ?2) v
JOIN credentials c ON c.id = v.credential_id ORDER BY v.id";

pub(super) const LOCK: Bulk = Bulk {
    sqlite: "-- credentials_hold
SELECT id FROM credentials WHERE id = ?1",
    postgres: "-- credentials_hold
SELECT id FROM credentials WHERE id = ANY(?1::bigint[]) ORDER BY name_key FOR UPDATE",
};

/// Versions ?1 that had ended by ?2 and were not taken back meanwhile.
pub(super) const DELETE_ENDED: Bulk = Bulk {
    sqlite: "-- credential_versions_ended_delete
DELETE FROM credential_versions WHERE id = ?1 AND ends_at <= ?2",
    postgres: "-- credential_versions_ended_delete
DELETE FROM credential_versions v USING UNNEST(?1::bigint[], ?2::bigint[]) AS u (id, ended_by)
WHERE v.id = u.id AND v.ends_at <= u.ended_by",
};
/// Versions ?1 that are not current.
pub(super) const DELETE_OLD: Bulk = Bulk {
    sqlite: "-- credential_versions_old_delete
DELETE FROM credential_versions AS v WHERE v.id = ?1 AND NOT EXISTS (
    SELECT 1 FROM credentials c WHERE c.id = v.credential_id AND (c.active_id = v.id OR c.transitional_id = v.id))",
    postgres: "-- credential_versions_old_delete
DELETE FROM credential_versions v WHERE v.id = ANY(?1::bigint[]) AND NOT EXISTS (
    SELECT 1 FROM credentials c WHERE c.id = v.credential_id AND (c.active_id = v.id OR c.transitional_id = v.id))",
};
pub(super) const DELETE_VERSIONS: Bulk = Bulk {
    sqlite: "-- credential_versions_of_delete
DELETE FROM credential_versions WHERE credential_id = ?1",
    postgres: "-- credential_versions_of_delete
DELETE FROM credential_versions WHERE credential_id = ANY(?1::bigint[])",
};
/// Those without a version; answers them.
pub(super) const DELETE_EMPTY: Bulk = Bulk {
    sqlite: "-- credentials_empty_delete
DELETE FROM credentials WHERE id = ?1
AND NOT EXISTS (SELECT 1 FROM credential_versions v WHERE v.credential_id = credentials.id) RETURNING id",
    postgres: "-- credentials_empty_delete
DELETE FROM credentials c WHERE c.id = ANY(?1::bigint[])
AND NOT EXISTS (SELECT 1 FROM credential_versions v WHERE v.credential_id = c.id) RETURNING c.id",
};

pub(super) async fn set_aside(tx: &mut Tx, id: i64, uuid: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), uuid.to_string().into(), at_us.into()];
    Ok(tx.execute(SET_ASIDE, parameters).await? == 1)
}

/// Takes back the credential of a name (lower case) that was deleted last; `None` when there is none or the asker may not
/// write there.
///
/// # Errors
/// [`StoreError::Conflict`] when the name is taken; those of the database.
pub async fn restore_credential(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
) -> Result<Option<DeletedCredential>, StoreError> {
    if !super::permissions::may_do(tx, asker, name_key, CredentialOperation::Write).await? {
        return Ok(None);
    }
    let [everything, actor] = asker.values();
    let Some(mut row) = tx.row(DELETED_NAMED, vec![everything, actor, name_key.into()]).await? else {
        return Ok(None);
    };
    let (deleted, id) = deleted_of(&mut row)?;
    let restored = tx.execute(RESTORE, vec![id.into()]).await? == 1;
    Ok(restored.then_some(deleted))
}

/// Versions ?2 of credential ?1 end at ?3, or no more.
pub(super) const END: Bulk = Bulk {
    sqlite: "-- credential_versions_end
UPDATE credential_versions SET ends_at = ?3 WHERE credential_id = ?1 AND number = ?2
AND (ends_at IS NULL OR ?3 IS NULL OR ends_at > ?3)",
    postgres: "-- credential_versions_end
UPDATE credential_versions v SET ends_at = u.ends_at
FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::bigint[]) AS u (credential, number, ends_at)
WHERE v.credential_id = u.credential AND v.number = u.number
  AND (v.ends_at IS NULL OR u.ends_at IS NULL OR v.ends_at > u.ends_at)",
};
/// Versions ?2 of credential ?1.
pub(super) const DELETE_NUMBERED: Bulk = Bulk {
    sqlite: "-- credential_versions_numbered_delete
DELETE FROM credential_versions WHERE credential_id = ?1 AND number = ?2",
    postgres: "-- credential_versions_numbered_delete
DELETE FROM credential_versions v USING UNNEST(?1::bigint[], ?2::bigint[]) AS u (credential, number)
WHERE v.credential_id = u.credential AND v.number = u.number",
};

/// What is to happen to versions of a credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionsChange {
    /// They are read no more from this time on, µs, and can be taken back.
    End(i64),
    /// Taken back.
    TakeBack,
    /// Removed for good; with the last the name goes.
    Destroy,
}

/// Changes versions of a credential (its name in lower case) by their numbers; without numbers the newest. False when the
/// credential is not there or the asker may not: taking back is writing, the rest deleting.
///
/// # Errors
/// Those of the database.
pub async fn change_credential_versions(
    tx: &mut Tx,
    asker: &CredentialAsker,
    name_key: &str,
    numbers: Option<&[u64]>,
    change: VersionsChange,
) -> Result<bool, StoreError> {
    let operation = match change {
        VersionsChange::TakeBack => CredentialOperation::Write,
        VersionsChange::End(_) | VersionsChange::Destroy => CredentialOperation::Delete,
    };
    let Some(held) = super::write::hold(tx, asker, name_key, operation).await? else { return Ok(false) };
    let newest = [held.last_number];
    let numbers = numbers.unwrap_or(&newest).iter();
    let numbers: Vec<i64> = numbers.map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect();
    let mut columns = vec![Column::Int(vec![held.id; numbers.len()]), Column::Int(numbers.clone())];
    let ends_at = match change {
        VersionsChange::End(at_us) => Some(at_us),
        VersionsChange::TakeBack => None,
        VersionsChange::Destroy => {
            tx.bulk(&DELETE_NUMBERED, columns).await?;
            let gone = tx.bulk(&DELETE_EMPTY, vec![Column::Int(vec![held.id])]).await?;
            if gone.is_empty() {
                tx.bulk(&SETTLE, vec![Column::Int(vec![held.id])]).await?;
            }
            return Ok(true);
        }
    };
    columns.push(Column::MaybeInt(vec![ends_at; numbers.len()]));
    tx.bulk(&END, columns).await?;
    tx.bulk(&SETTLE, vec![Column::Int(vec![held.id])]).await?;
    Ok(true)
}

/// Where a walk over old versions is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OldVersions {
    /// After this row.
    pub after: i64,
    /// Whether there is no more.
    pub ended: bool,
}

impl Store {
    /// Credentials that were deleted before a time and can be taken back by the asker, the last deleted first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_deleted(
        &self,
        asker: &CredentialAsker,
        before_us: i64,
        most: usize,
    ) -> Result<Vec<DeletedCredential>, StoreError> {
        let [everything, actor] = asker.values();
        let parameters = vec![everything, actor, before_us.into(), super::count(most)];
        let rows = self.rows(Cost::Walk, DELETED, parameters).await?;
        rows.into_iter().map(|mut row| Ok(deleted_of(&mut row)?.0)).collect()
    }

    /// Destroys some hundred credentials that were deleted by a time. Answers how many; none is the end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn destroy_deleted_credentials(&self, deleted_by_us: i64) -> Result<usize, StoreError> {
        let away = AWAY.of(self);
        self.write("credentials_destroy", move |tx| {
            async move {
                let rows = tx.rows(away, vec![deleted_by_us.into(), DESTROYED_MAX.into()]).await?;
                let ids = rows.into_iter().map(|mut row| row.int()).collect::<Result<Vec<_>, _>>()?;
                tx.bulk(&DELETE_VERSIONS, vec![Column::Int(ids.clone())]).await?;
                Ok(tx.bulk(&DELETE_EMPTY, vec![Column::Int(ids)]).await?.len())
            }
            .boxed()
        })
        .await
    }

    /// Destroys some hundred versions that ended by a time, and credentials that have no other. Answers how many versions;
    /// none is the end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn destroy_ended_versions(&self, ended_by_us: i64) -> Result<usize, StoreError> {
        let rows = self.rows(Cost::Walk, ENDED, vec![ended_by_us.into(), DESTROYED_MAX.into()]).await?;
        let found = rows.into_iter().map(|mut row| Ok((row.int()?, row.int()?)));
        self.destroy_versions(found.collect::<Result<_, StoreError>>()?, Some(ended_by_us)).await
    }

    /// Destroys versions that are older than their name allows: `kept_since_us` says of a name (lower case) from when on
    /// versions stay, if it says anything. What is current stays. Looks at some hundred versions; answers where it is and
    /// how many went.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn destroy_old_versions(
        &self,
        after: i64,
        kept_since_us: impl Fn(&str) -> Option<i64>,
    ) -> Result<(OldVersions, usize), StoreError> {
        let rows = self.rows(Cost::Walk, OLD, vec![after.into(), DESTROYED_MAX.into()]).await?;
        let mut walk = OldVersions { after, ended: rows.len() < DESTROYED_MAX as usize };
        let mut old = Vec::new();
        for mut row in rows {
            let (id, credential, name) = (row.int()?, row.int()?, row.text()?);
            let (current, created_at_us) = (row.flag()?, row.int()?);
            walk.after = id;
            if !current && kept_since_us(&name).is_some_and(|since_us| created_at_us < since_us) {
                old.push((id, credential));
            }
        }
        Ok((walk, self.destroy_versions(old, None).await?))
    }

    async fn destroy_versions(
        &self,
        all: Vec<(i64, i64)>,
        ended_by_us: Option<i64>,
    ) -> Result<usize, StoreError> {
        if all.is_empty() {
            return Ok(0);
        }
        let (versions, mut credentials): (Vec<i64>, Vec<i64>) = all.into_iter().unzip();
        credentials.sort_unstable();
        credentials.dedup();
        let count = versions.len();
        self.write("credential_versions_destroy", move |tx| {
            async move {
                tx.bulk(&LOCK, vec![Column::Int(credentials.clone())]).await?;
                match ended_by_us {
                    Some(by_us) => {
                        let by = Column::Int(vec![by_us; versions.len()]);
                        tx.bulk(&DELETE_ENDED, vec![Column::Int(versions), by]).await?
                    }
                    None => tx.bulk(&DELETE_OLD, vec![Column::Int(versions)]).await?,
                };
                let empty = tx.bulk(&DELETE_EMPTY, vec![Column::Int(credentials.clone())]).await?;
                let empty = empty.into_iter().map(|mut row| row.int()).collect::<Result<Vec<_>, _>>()?;
                credentials.retain(|id| !empty.contains(id));
                tx.bulk(&SETTLE, vec![Column::Int(credentials)]).await?;
                Ok(count)
            }
            .boxed()
        })
        .await
    }
}

fn deleted_of(row: &mut Row) -> Result<(DeletedCredential, i64), StoreError> {
    let deleted = DeletedCredential {
        credential: row.uuid()?,
        name: row.text()?,
        kind: row.text()?,
        deleted_at_us: row.int()?,
    };
    Ok((deleted, row.int()?))
}
