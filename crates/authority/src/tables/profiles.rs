//! Profiles: what may be issued, kept as JSON that this crate does not look into.

use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of};

store::handle! {
    /// Profiles that certificates are issued by.
    Profiles
}

/// A profile as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Its name.
    pub name: String,
    /// Itself, JSON.
    pub body: String,
    /// Moved by every change, from 1.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// When it was last changed, µs.
    pub updated_at_us: i64,
}

const GET: &str = "-- profile_get
SELECT name, body, revision, created_at, updated_at FROM profiles WHERE name = ?1";

const LIST: &str = "-- profiles_list
SELECT name, body, revision, created_at, updated_at FROM profiles WHERE name > ?1 ORDER BY name LIMIT ?2";

/// ?4: the revision that must be in force, 0 for none yet, -1 for any.
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

/// Stores a profile. `expected` is the revision it replaces: `None` for any or none, `Some(0)` for none. `None` is
/// answered when another one is in force.
///
/// # Errors
/// Those of the database.
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

/// Removes a profile; false when it is not there, or in another revision than `expected`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_profile(tx: &mut Tx, name: &str, expected: Option<i64>) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![name.into(), expected.unwrap_or(-1).into()]).await? > 0)
}

/// A profile as the transaction sees it.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn profile_row(tx: &mut Tx, name: &str) -> Result<Option<ProfileRow>, StoreError> {
    tx.row(GET, vec![name.into()]).await?.map(row_of).transpose()
}

impl Profiles<'_> {
    /// A profile by its name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get(self, name: &str) -> Result<Option<ProfileRow>, StoreError> {
        self.0.row(GET, vec![name.into()]).await?.map(row_of).transpose()
    }

    /// Every profile, in the order of their names: they are made by hand.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn all(self) -> Result<Vec<ProfileRow>, StoreError> {
        self.0.rows(Cost::Walk, EVERY, vec![]).await?.into_iter().map(row_of).collect()
    }

    /// A page of profiles in the order of their names.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<ProfileRow>, StoreError> {
        let key = after.map(|cursor| cursor.key("profiles", &[Value::Text(String::new())])).transpose()?;
        let after = key.and_then(|mut key| key.pop()).unwrap_or(Value::Text(String::new()));
        let (limit, asked) = limit_of(limit);
        let found = self.0.rows(Cost::Walk, LIST, vec![after, asked.into()]).await?;
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
