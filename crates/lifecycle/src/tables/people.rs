//! Owners and teams, and dismissed certificates.

use uuid::Uuid;

use crate::tables::policies::{NamedDocument, document, named};
use db::{
    BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, contains, key_or, limit_of, page,
};

store::handle! {
    /// The tables of owners and teams, and of found certificates that are dismissed.
    People
}

coded::named! {
    /// Kind of person record: owner or team.
    pub enum PeopleKind: "kind of people" {
        /// An owner of certificates.
        Owner => "owner",
        /// A team, to which owners and certificates belong.
        Team => "team",
    }
}

const PERSON: &str = "-- person
SELECT name, body, revision, created_at, updated_at FROM people WHERE kind = ?1 AND name = ?2";
const PEOPLE: &str = "-- people
SELECT name, body, revision, created_at, updated_at FROM people WHERE kind = ?1 AND name > ?2 ORDER BY name LIMIT ?3";
/// Names of owners or teams that contain a text. Reads at most the first 5,000 rows.
const SEARCH: &str = "-- people_search
SELECT name FROM (SELECT name FROM people WHERE kind = ?1 ORDER BY name LIMIT 5000) x
WHERE lower(name) LIKE ?2 ESCAPE '\\' ORDER BY name LIMIT ?3";
const PERSON_INSERT: &str = "-- person_insert
INSERT INTO people (kind, name, body, revision, created_at, updated_at) VALUES (?1, ?2, ?3, 1, ?4, ?4)
ON CONFLICT DO NOTHING";
const PERSON_UPDATE: &str = "-- person_update
UPDATE people SET body = ?3, revision = revision + 1, updated_at = ?4 WHERE kind = ?1 AND name = ?2 AND revision = ?5";
const PERSON_DELETE: &str = "-- person_delete
DELETE FROM people WHERE kind = ?1 AND name = ?2";
const TEAM_REVISION: &str = "-- team_revision
SELECT revision FROM people WHERE kind = 'team' AND name = ?1";
const OWNER_USED: &str = "-- owner_used
SELECT uuid FROM managed_certificates WHERE owner = ?1 LIMIT 1";
const TEAM_USED: &str = "-- team_used
SELECT uuid FROM managed_certificates WHERE team = ?1 LIMIT 1";

const DISMISS: &str = "-- dismiss
INSERT INTO dismissals (fingerprint, actor, note, at, until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (fingerprint) DO UPDATE SET actor = excluded.actor, note = excluded.note, at = excluded.at,
  until = excluded.until";
const DISMISS_UNDO: &str = "-- dismiss_undo
DELETE FROM dismissals WHERE fingerprint = ?1";
const DISMISSED: BulkStatement = db::bulk! { (fingerprint bytea, now bigint)
    "-- dismissed
SELECT fingerprint, note, until FROM dismissals WHERE fingerprint = :fingerprint AND (until IS NULL OR until > :now)"
};

pub(crate) const ALL: &[&str] = &[
    PERSON,
    PEOPLE,
    SEARCH,
    PERSON_INSERT,
    PERSON_UPDATE,
    PERSON_DELETE,
    TEAM_REVISION,
    OWNER_USED,
    TEAM_USED,
    DISMISS,
    DISMISS_UNDO,
];
pub(crate) const BULKS: &[&BulkStatement] = &[&DISMISSED];

/// Inserts an owner or team. Returns false if the name is in use.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_person(
    tx: &mut Tx,
    kind: PeopleKind,
    name: &str,
    body: &str,
    at_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![kind.name().into(), name.into(), body.into(), at_us.into()];
    Ok(tx.execute(PERSON_INSERT, parameters).await? == 1)
}

/// Replaces an owner or team with this revision. Returns false if the revision differs.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_person(
    tx: &mut Tx,
    kind: PeopleKind,
    name: &str,
    body: &str,
    at_us: i64,
    revision: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![kind.name().into(), name.into(), body.into(), at_us.into(), revision.into()];
    Ok(tx.execute(PERSON_UPDATE, parameters).await? == 1)
}

/// Deletes an owner or team. Returns false if it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_person(tx: &mut Tx, kind: PeopleKind, name: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(PERSON_DELETE, vec![kind.name().into(), name.into()]).await? == 1)
}

/// Returns the revision of a team; `None` if it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn team_revision(tx: &mut Tx, name: &str) -> Result<Option<i64>, StoreError> {
    tx.row(TEAM_REVISION, vec![name.into()]).await?.map(|mut row| row.int()).transpose()
}

/// Returns the id of one certificate of this owner or team.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn person_user(tx: &mut Tx, kind: PeopleKind, name: &str) -> Result<Option<Uuid>, StoreError> {
    let statement = match kind {
        PeopleKind::Owner => OWNER_USED,
        PeopleKind::Team => TEAM_USED,
    };
    tx.row(statement, vec![name.into()]).await?.map(|mut row| row.uuid()).transpose()
}

/// A found certificate that is not to be managed, permanently or until a given time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dismissal {
    /// Reason for the dismissal.
    pub note: String,
    /// End of the dismissal, in µs since 1970. `None`: permanent.
    pub until_us: Option<i64>,
}

/// Records that a found certificate is not to be managed, permanently or until a given time.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn dismiss(
    tx: &mut Tx,
    fingerprint: [u8; 32],
    actor: &str,
    dismissal: &Dismissal,
    at_us: i64,
) -> Result<(), StoreError> {
    let (note, until) = (dismissal.note.as_str(), dismissal.until_us);
    let parameters = vec![fingerprint.into(), actor.into(), note.into(), at_us.into(), until.into()];
    tx.execute(DISMISS, parameters).await.map(drop)
}

/// Withdraws a dismissal. Returns false if the certificate was not dismissed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn undismiss(tx: &mut Tx, fingerprint: [u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.execute(DISMISS_UNDO, vec![fingerprint.into()]).await? == 1)
}

/// Returns the subset of these certificates that are dismissed at `now_us`, with the reasons.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn dismissed(
    tx: &mut Tx,
    fingerprints: &[[u8; 32]],
    now_us: i64,
) -> Result<Vec<([u8; 32], Dismissal)>, StoreError> {
    let column = Column::Blob(fingerprints.iter().map(|hash| hash.to_vec()).collect());
    let rows = tx.bulk(&DISMISSED, vec![column, Column::Int(vec![now_us; fingerprints.len()])]).await?;
    let one = |mut row: Row| {
        let fingerprint = row.hash()?;
        Ok((fingerprint, Dismissal { note: row.text()?, until_us: row.maybe_int()? }))
    };
    rows.into_iter().map(one).collect()
}

impl People<'_> {
    /// Returns at most `most` names of owners or teams that contain this text.
    ///
    /// # Errors
    /// Database errors.
    pub async fn search(self, kind: PeopleKind, text: &str, most: usize) -> Result<Vec<String>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let parameters = vec![kind.name().into(), contains(text).into(), most.into()];
        let rows = self.0.rows(Cost::Point, SEARCH, parameters).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Returns an owner or team by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, kind: PeopleKind, name: &str) -> Result<Option<NamedDocument>, StoreError> {
        self.0.row(PERSON, vec![kind.name().into(), name.into()]).await?.map(document).transpose()
    }

    /// Returns a page of owners or teams, sorted by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn page(
        self,
        kind: PeopleKind,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<NamedDocument>, StoreError> {
        let listing = kind.name();
        let mut parameters: Vec<Value> = vec![listing.into()];
        parameters.extend(key_or(after, listing, &[Value::Text(String::new())])?);
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, PEOPLE, parameters).await?;
        page(rows, limit, listing, named)
    }
}
