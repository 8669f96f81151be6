//! Deployment targets of agents.

use uuid::Uuid;

use super::handle::Agents;
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{SealedColumn, sealed_column};

/// A deployment target of an agent, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetRow {
    /// Id of the target, UUIDv7.
    pub id: Uuid,
    /// Name, kind, agent and configuration of the target.
    pub settings: TargetSettings,
    /// Incremented with every change.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// Name, agent, kind and configuration of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetSettings {
    /// Unique name.
    pub name: String,
    /// Id of the agent that deploys to the target.
    pub agent: Uuid,
    /// Stable name of the kind.
    pub kind: String,
    /// Configuration as JSON, without passwords.
    pub config: String,
    /// Sealed JSON with the passwords. The associated data (AAD) is this table, the target's id, and column `secrets`.
    pub secrets: Option<Vec<u8>>,
}

/// The sealed passwords of targets, for the rotation of the master key.
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

/// Inserts a target. Returns false when its name is taken.
///
/// # Errors
/// Database errors.
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

/// Changes a target. Returns false when the revision does not match, or the name is taken.
///
/// # Errors
/// Database errors.
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

/// Deletes a target. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
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
    /// Returns a target by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn target(self, id: Uuid) -> Result<Option<TargetRow>, StoreError> {
        self.0.row(TARGET, vec![id.into()]).await?.map(target_of).transpose()
    }

    /// Returns a target by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn target_named(self, name: &str) -> Result<Option<TargetRow>, StoreError> {
        self.0.row(TARGET_NAMED, vec![name.into()]).await?.map(target_of).transpose()
    }

    /// Lists the targets of one agent or of all agents, sorted by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
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
