//! Storage of the objects that teams own, their quotas, and the counts of their certificates.

use db::{BulkStatement, Column, Cost, Row, StoreError, Tx, Value};

use crate::teams::owns::{OwnedKind, Owns, Quota};

store::handle! {
    /// Tables of the objects that teams own, and of their quotas.
    Teams
}

/// An object and the team that owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedRow {
    /// Kind of the object, which determines the meaning of its name.
    pub kind: OwnedKind,
    /// Name of the object: a DNS suffix or IP address, a profile, an issuer, a deployment target or a credential path.
    pub object: String,
    /// Team that owns the object.
    pub team: String,
    /// Time in microseconds at which the object was moved from another team to this team; `None` if it never was.
    pub moved_at_us: Option<i64>,
}

const OWNED: &str = "-- team_objects
SELECT kind, object, team, moved_at FROM team_objects WHERE team IS NOT NULL";

const QUOTAS: &str = "-- team_quotas
SELECT team, requests_per_second, certificates_per_day FROM team_quotas";

const TAKEN: BulkStatement = db::bulk! { (kind bigint, object text, team text)
    "-- team_objects_taken
SELECT kind, object, team, moved_at FROM team_objects WHERE kind = :kind AND object = :object AND team <> :team"
};

const RELEASE: &str = "-- team_objects_release
UPDATE team_objects SET team = NULL WHERE team = ?1";

const CLAIM: BulkStatement = db::bulk! { (kind bigint, object text, team text, now bigint)
    "-- team_objects_claim
INSERT INTO team_objects (kind, object, team, last_team, claimed_at) VALUES (:kind, :object, :team, :team, :now)
ON CONFLICT (kind, object) DO UPDATE SET team = excluded.team, last_team = excluded.team, claimed_at = excluded.claimed_at,
  moved_at = CASE WHEN team_objects.last_team = excluded.team THEN team_objects.moved_at ELSE excluded.claimed_at END
WHERE team_objects.team IS NULL
RETURNING kind"
};

const DROP_QUOTA: &str = "-- team_quota_drop
DELETE FROM team_quotas WHERE team = ?1";

const PUT_QUOTA: &str = "-- team_quota_put
INSERT INTO team_quotas (team, requests_per_second, certificates_per_day) VALUES (?1, ?2, ?3)";

/// Counts one more certificate on this day, unless the count is already ?3.
const COUNT: &str = "-- team_day_count
INSERT INTO team_days (team, day, certificates) VALUES (?1, ?2, 1)
ON CONFLICT (team, day) DO UPDATE SET certificates = team_days.certificates + 1 WHERE team_days.certificates < ?3";

const DAY_COUNT: &str = "-- team_day
SELECT certificates FROM team_days WHERE team = ?1 AND day = ?2";

const FORGET_DAYS: &str = "-- team_days_forget
DELETE FROM team_days WHERE team = ?1 AND day < ?2";

pub(crate) const ALL: &[&str] =
    &[OWNED, QUOTAS, RELEASE, DROP_QUOTA, PUT_QUOTA, COUNT, DAY_COUNT, FORGET_DAYS];
pub(crate) const BULKS: &[&BulkStatement] = &[&TAKEN, &CLAIM];

/// Replaces the objects that a team owns. If another team owns one of them, nothing is changed, and that object is returned.
///
/// # Errors
/// [`StoreError::Stale`] if another team claims an object at the same time, or an error of the database.
#[crate::boxed]
pub async fn put_team(
    tx: &mut Tx,
    team: &str,
    owns: &Owns,
    quota: Quota,
    now_us: i64,
) -> Result<Option<OwnedRow>, StoreError> {
    let objects: Vec<(OwnedKind, &str)> = owns.objects().collect();
    let kinds = || Column::Int(objects.iter().map(|(kind, _)| kind.code()).collect());
    let names = || Column::Text(objects.iter().map(|(_, object)| (*object).to_owned()).collect());
    let teams = || Column::Text(vec![team.to_owned(); objects.len()]);
    if let Some(taken) = tx.bulk(&TAKEN, vec![kinds(), names(), teams()]).await?.into_iter().next() {
        return Ok(Some(owned(taken)?));
    }
    tx.execute(RELEASE, vec![team.into()]).await?;
    let now = Column::Int(vec![now_us; objects.len()]);
    let claimed = tx.bulk(&CLAIM, vec![kinds(), names(), teams(), now]).await?;
    if claimed.len() != objects.len() {
        return Err(StoreError::Stale(format!(
            "another request assigned an object of {team} to another team"
        )));
    }
    tx.execute(DROP_QUOTA, vec![team.into()]).await?;
    if quota != Quota::default() {
        let number = |limit: Option<u32>| limit.map_or(Value::Null, |limit| i64::from(limit).into());
        let limits = vec![team.into(), number(quota.requests_per_second), number(quota.certificates_per_day)];
        tx.execute(PUT_QUOTA, limits).await?;
    }
    Ok(None)
}

/// Counts one more certificate of a team on a day. Returns false if the count is already `most`.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn count_certificate(tx: &mut Tx, team: &str, day: i64, most: u32) -> Result<bool, StoreError> {
    tx.execute(FORGET_DAYS, vec![team.into(), day.into()]).await?;
    Ok(tx.execute(COUNT, vec![team.into(), day.into(), i64::from(most).into()]).await? == 1)
}

impl Teams<'_> {
    /// Returns all objects that teams own.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn owned(self) -> Result<Vec<OwnedRow>, StoreError> {
        self.0.rows(Cost::Walk, OWNED, Vec::new()).await?.into_iter().map(owned).collect()
    }

    /// Returns the number of certificates that count against the quota of a team on a day.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn certificates(self, team: &str, day: i64) -> Result<i64, StoreError> {
        let found = self.0.row(DAY_COUNT, vec![team.into(), day.into()]).await?;
        found.map_or(Ok(0), |mut row| row.int())
    }

    /// Returns the quotas of all teams that have one.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn quotas(self) -> Result<Vec<(String, Quota)>, StoreError> {
        let read = |mut row: Row| {
            let team = row.text()?;
            let limit = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
            let requests_per_second = limit(row.maybe_int()?);
            Ok((team, Quota { requests_per_second, certificates_per_day: limit(row.maybe_int()?) }))
        };
        self.0.rows(Cost::Walk, QUOTAS, Vec::new()).await?.into_iter().map(read).collect()
    }
}

fn owned(mut row: Row) -> Result<OwnedRow, StoreError> {
    Ok(OwnedRow {
        kind: row.coded("team_objects.kind")?,
        object: row.text()?,
        team: row.text()?,
        moved_at_us: row.maybe_int()?,
    })
}
