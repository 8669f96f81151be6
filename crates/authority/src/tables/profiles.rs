//! Storage of profiles as JSON. This module does not parse the JSON.

use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of};

store::handle! {
    /// Table of the profiles.
    Profiles
}

/// A profile as stored: its JSON, which is not parsed here, and its revision.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Name of the profile, unique.
    pub name: String,
    /// The profile as JSON.
    pub body: String,
    /// Revision, from 1. Every change increases it.
    pub revision: i64,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Time of the last change in microseconds.
    pub updated_at_us: i64,
}

const GET: &str = "-- profile_get
SELECT name, body, revision, created_at, updated_at FROM profiles WHERE name = ?1";

const LIST: &str = "-- profiles_list
SELECT name, body, revision, created_at, updated_at FROM profiles WHERE name > ?1 ORDER BY name LIMIT ?2";

/// Stores a profile. ?4 is the required present revision: 0 for none, -1 for any.
const PUT: &str = "-- profile_put
INSERT INTO profiles (name, body, revision, created_at, updated_at)
SELECT CAST(?1 AS TEXT), CAST(?2 AS TEXT), 1, CAST(?3 AS BIGINT), CAST(?3 AS BIGINT)
WHERE CAST(?4 AS BIGINT) <= 0 OR EXISTS (SELECT 1 FROM profiles WHERE name = ?1 AND revision = ?4)
ON CONFLICT (name) DO UPDATE
SET body = excluded.body, revision = profiles.revision + 1, updated_at = excluded.updated_at
WHERE ?4 < 0 OR profiles.revision = ?4
RETURNING name, body, revision, created_at, updated_at";

const DELETE: &str = "-- profile_delete
DELETE FROM profiles WHERE name = ?1 AND (CAST(?2 AS BIGINT) < 0 OR revision = ?2)";

const EVERY: &str = "-- profiles_every
SELECT name, body, revision, created_at, updated_at FROM profiles ORDER BY name";

pub(crate) const ALL: &[&str] = &[GET, LIST, PUT, DELETE, EVERY];

/// Stores a profile. `expected` is the revision to replace: `None` accepts any revision or no stored profile, `Some(0)` requires
/// that no profile of this name is stored. Returns `None` if the stored revision is not `expected`.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn put_profile(
    tx: &mut Tx,
    name: &str,
    body: &str,
    now_us: i64,
    expected: Option<i64>,
) -> Result<Option<ProfileRow>, StoreError> {
    let parameters = vec![name.into(), body.into(), now_us.into(), expected.unwrap_or(-1).into()];
    tx.row(PUT, parameters).await?.map(row_of).transpose()
}

/// Deletes a profile. Returns false if it does not exist or its revision is not `expected`.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn delete_profile(tx: &mut Tx, name: &str, expected: Option<i64>) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![name.into(), expected.unwrap_or(-1).into()]).await? > 0)
}

/// Returns the profile with this name, read within the transaction; `None` if it does not exist.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn profile_row(tx: &mut Tx, name: &str) -> Result<Option<ProfileRow>, StoreError> {
    tx.row(GET, vec![name.into()]).await?.map(row_of).transpose()
}

impl Profiles<'_> {
    /// Returns the profile with this name; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn get(self, name: &str) -> Result<Option<ProfileRow>, StoreError> {
        self.0.row(GET, vec![name.into()]).await?.map(row_of).transpose()
    }

    /// Returns all profiles in the order of their names. Their number is small, because people create them.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn all(self) -> Result<Vec<ProfileRow>, StoreError> {
        self.0.rows(Cost::Walk, EVERY, vec![]).await?.into_iter().map(row_of).collect()
    }

    /// Returns a page of profiles in the order of their names.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<ProfileRow>, StoreError> {
        let key = after.map(|cursor| cursor.key("profiles", &[Value::Text(String::new())])).transpose()?;
        let after = key.and_then(|mut key| key.pop()).unwrap_or(Value::Text(String::new()));
        let (limit, row_limit) = limit_of(limit);
        let found = self.0.rows(Cost::Walk, LIST, vec![after, row_limit.into()]).await?;
        let more = found.len() > limit;
        let rows = found.into_iter().take(limit).map(row_of).collect::<Result<Vec<_>, _>>()?;
        let next =
            rows.last().filter(|_| more).map(|row| Cursor::new("profiles", &[row.name.as_str().into()]));
        Ok(Page { rows, next })
    }
}

fn row_of(mut row: Row) -> Result<ProfileRow, StoreError> {
    Ok(ProfileRow {
        name: row.text()?,
        body: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}
