//! Targets: where an agent deploys to.

use uuid::Uuid;

use super::handle::Agents;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{SealedColumn, sealed_column};

/// A target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetRow {
    /// Its identity.
    pub id: Uuid,
    /// Its name, kind, agent and configuration.
    pub settings: TargetSettings,
    /// Moves with every change.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// Settings of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetSettings {
    /// Its name, unique.
    pub name: String,
    /// The agent that deploys to it.
    pub agent: Uuid,
    /// Its kind, a word.
    pub kind: String,
    /// JSON without passwords.
    pub config: String,
    /// JSON with them, sealed; bound to this table, the identity, and column `secrets`.
    pub secrets: Option<Vec<u8>>,
}

/// The passwords of targets, for the rotation of the master key.
pub const SEALED_TARGETS: SealedColumn = sealed_column!("deploy_targets", "uuid" Uuid "uuid", "secrets");

pub(super) const TARGET: &str = "-- deploy_target
SELECT uuid, name, agent, kind, config, secrets, revision, created_at, updated_at FROM deploy_targets WHERE uuid = ?1";

pub(super) const TARGET_NAMED: &str = "-- deploy_target_named
SELECT uuid, name, agent, kind, config, secrets, revision, created_at, updated_at FROM deploy_targets WHERE name = ?1";

pub(super) const OF_AGENT: &str = "-- deploy_targets_of_agent
SELECT uuid, name, agent, kind, config, secrets, revision, created_at, updated_at FROM deploy_targets
WHERE agent = ?1 AND name > ?2 ORDER BY name LIMIT ?3";

pub(super) const TARGETS: &str = "-- deploy_targets
SELECT uuid, name, agent, kind, config, secrets, revision, created_at, updated_at FROM deploy_targets
WHERE name > ?1 ORDER BY name LIMIT ?2";

pub(super) const INSERT: &str = "-- deploy_target_insert
INSERT INTO deploy_targets (uuid, name, agent, kind, config, secrets, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7) ON CONFLICT DO NOTHING";

pub(super) const UPDATE: &str = "-- deploy_target_update
UPDATE deploy_targets SET name = ?3, agent = ?4, kind = ?5, config = ?6, secrets = ?7, revision = revision + 1,
                          updated_at = ?8
WHERE uuid = ?1 AND revision = ?2
AND NOT EXISTS (SELECT 1 FROM deploy_targets other WHERE other.name = ?3 AND other.uuid <> ?1)";

pub(super) const DELETE: &str = "-- deploy_target_delete
DELETE FROM deploy_targets WHERE uuid = ?1";

/// Enters a target; false when its name is taken.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_target(
    tx: &mut Tx,
    id: Uuid,
    settings: &TargetSettings,
    at_us: i64,
) -> Result<bool, StoreError> {
    let mut parameters: Vec<Value> = vec![id.into()];
    parameters.extend(values(settings));
    parameters.push(at_us.into());
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// Changes a target; false when it has another revision, or the name is taken.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn update_target(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    settings: &TargetSettings,
    at_us: i64,
) -> Result<bool, StoreError> {
    let mut parameters: Vec<Value> = vec![id.into(), revision.into()];
    parameters.extend(values(settings));
    parameters.push(at_us.into());
    Ok(tx.execute(UPDATE, parameters).await? == 1)
}

/// Removes a target; false when there is none.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_target(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

fn values(settings: &TargetSettings) -> [Value; 5] {
    [
        settings.name.as_str().into(),
        settings.agent.into(),
        settings.kind.as_str().into(),
        settings.config.as_str().into(),
        settings.secrets.as_deref().map_or(Value::Null, Value::from),
    ]
}

impl Agents<'_> {
    /// A target by its identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn target(self, id: Uuid) -> Result<Option<TargetRow>, StoreError> {
        self.0.row(TARGET, vec![id.into()]).await?.map(target_of).transpose()
    }

    /// A target by its name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn target_named(self, name: &str) -> Result<Option<TargetRow>, StoreError> {
        self.0.row(TARGET_NAMED, vec![name.into()]).await?.map(target_of).transpose()
    }

    /// Targets by name, of one agent or of all.
    ///
    /// # Errors
    /// Those of the database; [`StoreError::BadCursor`].
    pub async fn targets(
        self,
        agent: Option<Uuid>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<TargetRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters: Vec<Value> = agent.map(Value::from).into_iter().collect();
        parameters.extend(key_or(after, "targets", &[Value::Text(String::new())])?);
        parameters.push(rows.into());
        let statement = if agent.is_some() { OF_AGENT } else { TARGETS };
        let found = self.0.rows(Cost::Walk, statement, parameters).await?;
        page(found, limit, "targets", |row| {
            let target = target_of(row)?;
            let key = vec![target.settings.name.as_str().into()];
            Ok((target, key))
        })
    }
}

fn target_of(mut row: Row) -> Result<TargetRow, StoreError> {
    Ok(TargetRow {
        id: row.uuid()?,
        settings: TargetSettings {
            name: row.text()?,
            agent: row.uuid()?,
            kind: row.text()?,
            config: row.text()?,
            secrets: row.maybe_blob()?,
        },
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}
