//! Table of ownership rules, and queries for data that rules need beyond the rows of the inventory.

use std::collections::HashMap;

use futures_util::FutureExt;
use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{EndpointKey, stored_key};

store::handle! {
    /// Table of ownership rules.
    Ownership
}

/// Maximum rules. All rules are loaded into memory for matching, a few hundred bytes each.
pub const OWNERSHIP_RULES_MAX: usize = 1_000;

/// Maximum names of one certificate that rules read: the first ones. This is two and a half times the number that public CAs
/// allow.
pub const OWNERSHIP_NAMES_MAX: usize = 256;

/// Settings of an ownership rule that users can change: name, position, conditions and assignment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnershipSettings {
    /// Unique name.
    pub name: String,
    /// Position among the rules, lowest first; for equal positions the order is by name.
    pub position: u32,
    /// Conditions and assignment, JSON.
    pub body: String,
}

/// An ownership rule as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnershipRow {
    /// Unique identifier.
    pub id: Uuid,
    /// Settings of the rule.
    pub settings: OwnershipSettings,
    /// Number of the rule's version: starts at 1, and changes with every update.
    pub revision: i64,
    /// Creation time, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

/// Result of creating an ownership rule: created, name taken, or too many rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnershipInsertion {
    /// The rule was created.
    Made,
    /// Another rule has the name.
    Taken,
    /// There are already [`OWNERSHIP_RULES_MAX`] rules.
    Full,
}

macro_rules! rule_columns {
    () => {
        "uuid, name, position, body, revision, created_at, updated_at"
    };
}

const RULE: &str =
    concat!("-- ownership_rule\nSELECT ", rule_columns!(), " FROM ownership_rules WHERE uuid = ?1");
const RULE_NAMED: &str =
    concat!("-- ownership_rule_named\nSELECT ", rule_columns!(), " FROM ownership_rules WHERE name = ?1");
const RULES: &str = concat!(
    "-- ownership_rules\nSELECT ",
    rule_columns!(),
    " FROM ownership_rules WHERE (position, name) > (?1, ?2) ORDER BY position, name LIMIT ?3"
);
const LAST: &str = "-- ownership_rules_last
SELECT count(*), coalesce(max(position), 0) FROM ownership_rules";
const INSERT: &str = "-- ownership_rule_insert
INSERT INTO ownership_rules (uuid, name, position, body, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5) ON CONFLICT DO NOTHING";
const UPDATE: &str = "-- ownership_rule_update
UPDATE ownership_rules SET name = ?2, position = ?3, body = ?4, updated_at = ?5, revision = revision + 1
WHERE uuid = ?1 AND revision = ?6";
const DELETE: &str = "-- ownership_rule_delete
DELETE FROM ownership_rules WHERE uuid = ?1";
const CHANGED: &str = "-- ownership_changed
SELECT at FROM ownership_changed WHERE id = 1";
const CHANGE: &str = "-- ownership_change
UPDATE ownership_changed SET at = ?1 WHERE id = 1 AND at < ?1";

const NAMES: BulkStatement = db::bulk! { (sha256 bytea, most bigint)
    "-- ownership_names
SELECT c.sha256, n.name FROM certificates c JOIN certificate_names n ON n.certificate_id = c.id AND n.position < :most
WHERE c.sha256 = :sha256 ORDER BY {|c.id, }n.position"
};

const GROUPS: BulkStatement = db::bulk! {
    (number bigint, host text, port bigint, protocol text, server_name text, address text)
    "-- ownership_groups
SELECT :number, w.group_name FROM endpoints e
JOIN endpoints_told t ON t.endpoint_id = e.id JOIN watches w ON w.uuid = t.watch
WHERE e.host = :host AND e.port = :port AND e.protocol = :protocol AND e.server_name = :server_name
  AND e.address = :address"
};

pub(crate) const ALL: &[&str] = &[RULE, RULE_NAMED, RULES, LAST, INSERT, UPDATE, DELETE, CHANGED, CHANGE];
pub(crate) const BULKS: &[&BulkStatement] = &[&NAMES, &GROUPS];

/// Returns the highest position; 0 when there are no rules.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn last_ownership_position(tx: &mut Tx) -> Result<u32, StoreError> {
    counted(tx).await.map(|(_, last)| last)
}

async fn counted(tx: &mut Tx) -> Result<(usize, u32), StoreError> {
    match tx.row(LAST, Vec::new()).await? {
        Some(mut row) => Ok((row.number()?, row.number()?)),
        None => Ok((0, 0)),
    }
}

/// Creates a rule.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_ownership_rule(
    tx: &mut Tx,
    id: Uuid,
    settings: &OwnershipSettings,
    at_us: i64,
) -> Result<OwnershipInsertion, StoreError> {
    if counted(tx).await?.0 >= OWNERSHIP_RULES_MAX {
        return Ok(OwnershipInsertion::Full);
    }
    if tx.execute(INSERT, settings_of(id, settings, at_us)).await? == 0 {
        return Ok(OwnershipInsertion::Taken);
    }
    note_ownership_changed(tx, at_us).await?;
    Ok(OwnershipInsertion::Made)
}

/// Records that owners may have changed although no rule was changed, so that watches send notifications again.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn note_ownership_changed(tx: &mut Tx, at_us: i64) -> Result<(), StoreError> {
    tx.execute(CHANGE, vec![at_us.into()]).await.map(drop)
}

/// Changes a rule with this revision; false when its revision differs.
///
/// # Errors
/// [`StoreError::Conflict`] when another rule has the name; database errors.
#[crate::boxed]
pub async fn update_ownership_rule(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    settings: &OwnershipSettings,
    at_us: i64,
) -> Result<bool, StoreError> {
    let mut parameters = settings_of(id, settings, at_us);
    parameters.push(revision.into());
    let changed = tx.execute(UPDATE, parameters).await? == 1;
    if changed {
        note_ownership_changed(tx, at_us).await?;
    }
    Ok(changed)
}

/// Deletes a rule; false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_ownership_rule(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    let deleted = tx.execute(DELETE, vec![id.into()]).await? == 1;
    if deleted {
        note_ownership_changed(tx, at_us).await?;
    }
    Ok(deleted)
}

fn settings_of(id: Uuid, settings: &OwnershipSettings, at_us: i64) -> Vec<Value> {
    vec![
        id.into(),
        settings.name.as_str().into(),
        settings.position.into(),
        settings.body.as_str().into(),
        at_us.into(),
    ]
}

impl Ownership<'_> {
    /// Returns a rule by its id; `None` if it does not exist.
    ///
    /// # Errors
    /// Database errors.
    pub async fn rule(self, id: Uuid) -> Result<Option<OwnershipRow>, StoreError> {
        self.0.row(RULE, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// Returns a rule by its name; `None` if there is none.
    ///
    /// # Errors
    /// Database errors.
    pub async fn rule_named(self, name: &str) -> Result<Option<OwnershipRow>, StoreError> {
        self.0.row(RULE_NAMED, vec![name.into()]).await?.map(row_of).transpose()
    }

    /// Returns a page of the rules, in their order.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn rules(self, after: Option<&Cursor>, limit: usize) -> Result<Page<OwnershipRow>, StoreError> {
        let first = [Value::Int(-1), Value::Text(String::new())];
        let mut parameters = key_or(after, "ownership-rules", &first)?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, RULES, parameters).await?;
        page(rows, limit, "ownership-rules", |row| {
            let rule = row_of(row)?;
            let key = vec![rule.settings.position.into(), rule.settings.name.as_str().into()];
            Ok((rule, key))
        })
    }

    /// Returns the time of the last creation, change or deletion of a rule, µs since 1970-01-01 UTC; 0 when there was none.
    ///
    /// # Errors
    /// Database errors.
    pub async fn changed_us(self) -> Result<i64, StoreError> {
        self.0.row(CHANGED, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }

    /// Returns the names of certificates, by fingerprint: the first [`OWNERSHIP_NAMES_MAX`] of each, in certificate order. One
    /// statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn names(self, leaves: Vec<[u8; 32]>) -> Result<HashMap<[u8; 32], Vec<String>>, StoreError> {
        let most = vec![OWNERSHIP_NAMES_MAX as i64; leaves.len()];
        let columns =
            vec![Column::Blob(leaves.into_iter().map(|leaf| leaf.to_vec()).collect()), Column::Int(most)];
        let rows = self.0.write("ownership_names", move |tx| tx.bulk(&NAMES, columns).boxed()).await?;
        let mut names: HashMap<[u8; 32], Vec<String>> = HashMap::new();
        for mut row in rows {
            names.entry(row.hash()?).or_default().push(row.text()?);
        }
        Ok(names)
    }

    /// Returns the group of the watch that last reported each endpoint, by index in `endpoints`. Endpoints that no watch reported
    /// are missing. One statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn groups(self, endpoints: &[EndpointKey]) -> Result<HashMap<usize, String>, StoreError> {
        let keys: Vec<EndpointKey> = endpoints.iter().map(stored_key).collect();
        let text = |of: fn(&EndpointKey) -> &String| Column::Text(keys.iter().map(of).cloned().collect());
        let columns = vec![
            Column::Int((0..keys.len()).map(|number| number as i64).collect()),
            text(|key| &key.host),
            Column::Int(keys.iter().map(|key| key.port.into()).collect()),
            text(|key| &key.protocol),
            text(|key| &key.server_name),
            text(|key| &key.address),
        ];
        let rows = self.0.write("ownership_groups", move |tx| tx.bulk(&GROUPS, columns).boxed()).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.text()?))).collect()
    }
}

fn row_of(mut row: Row) -> Result<OwnershipRow, StoreError> {
    Ok(OwnershipRow {
        id: row.uuid()?,
        settings: OwnershipSettings { name: row.text()?, position: row.number()?, body: row.text()? },
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}
