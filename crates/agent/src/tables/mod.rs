//! Tables of agents: enrolment tokens, agents, labels, groups, targets and deployments.

mod deployments;
mod enrolment;
mod handle;
mod targets;

pub use deployments::{
    DeploymentFilter, DeploymentResult, DeploymentRow, NewDeployment, cancel_deployments, finish_deployments,
    insert_deployments, open_deployments,
};
pub use enrolment::{AgentTokenRow, delete_agent_token, insert_agent_token, use_agent_token};
pub use targets::{SEALED_TARGETS, TargetRow, TargetSettings, delete_target, insert_target, update_target};

use uuid::Uuid;

use db::{
    BulkStatement, Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or,
    limit_of, page,
};
pub use handle::Agents;
use store::states::{JobKind, JobState};

/// Maximum number of labels in a selector. Each label adds a condition to the SQL statement.
pub const SELECTOR_LABELS_MAX: usize = 8;

/// An enrolled or retired agent, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentRow {
    /// Id of the agent, which the agent's client certificate contains in a URI.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Labels, as a JSON object with string values.
    pub labels: String,
    /// SHA-256 of the SubjectPublicKeyInfo in the agent's client certificate.
    pub spki_sha256: [u8; 32],
    /// End of the client certificate's validity, µs.
    pub not_after_us: i64,
    /// Facts about the host.
    pub facts: AgentFacts,
    /// Revision, incremented with every change of name or labels.
    pub revision: i64,
    /// Time of the enrolment, µs.
    pub enrolled_at_us: i64,
    /// Time of the last poll in µs, accurate to a minute.
    pub last_seen_at_us: i64,
    /// Time of the retirement, µs.
    pub retired_at_us: Option<i64>,
}

/// Facts about an agent's host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentFacts {
    /// Host name.
    pub hostname: String,
    /// Operating system of the host, such as `linux`.
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Version of the agent program.
    pub version: String,
    /// IP addresses, as a JSON array.
    pub addresses: String,
}

/// Filter for listing agents by labels, retirement and last-seen time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentFilter {
    /// Labels that an agent must have. At most [`SELECTOR_LABELS_MAX`]; callers reject more.
    pub labels: Vec<(String, String)>,
    /// Whether to include retired agents.
    pub retired: bool,
    /// Lower bound of the last-seen time, inclusive, µs.
    pub seen_from_us: Option<i64>,
    /// Upper bound of the last-seen time, exclusive, µs.
    pub seen_before_us: Option<i64>,
}

/// Numbers of online and offline agents.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AgentCounts {
    /// Number of agents seen since `seen_from_us` of the query.
    pub online: i64,
    /// Number of agents not seen since `seen_from_us` of the query.
    pub offline: i64,
}

/// A group of agents, selected by their labels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentGroupRow {
    /// Unique name.
    pub name: String,
    /// Labels that select the group's agents, as a JSON object.
    pub selector: String,
    /// Human-readable description.
    pub description: String,
    /// Revision, incremented with every change.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

const COLUMNS: &str = "a.uuid, a.name, a.labels, a.spki_sha256, a.not_after, a.hostname, a.os, a.arch, a.version, \
                       a.addresses, a.revision, a.enrolled_at, a.last_seen_at, a.retired_at";

macro_rules! agent_select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT a.uuid, a.name, a.labels, a.spki_sha256, a.not_after, a.hostname, a.os, a.arch, a.version, \
             a.addresses, a.revision, a.enrolled_at, a.last_seen_at, a.retired_at FROM agents a ",
            $rest
        )
    };
}

const AGENT: &str = agent_select!("agent", "WHERE a.uuid = ?1");
const AGENT_NAMED: &str = agent_select!("agent_named", "WHERE a.name = ?1");
const AGENT_OF_KEY: &str = agent_select!("agent_of_key", "WHERE a.spki_sha256 = ?1");

const INSERT: &str = "-- agent_insert
INSERT INTO agents (uuid, name, labels, spki_sha256, not_after, hostname, os, arch, version, addresses, revision,
                    enrolled_at, last_seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11, ?11) ON CONFLICT DO NOTHING";

const UPDATE: &str = "-- agent_update
UPDATE agents SET name = ?3, labels = ?4, revision = revision + 1 WHERE uuid = ?1 AND revision = ?2
AND NOT EXISTS (SELECT 1 FROM agents other WHERE other.name = ?3 AND other.uuid <> ?1)";

const CERTIFIED: &str = "-- agent_certified
UPDATE agents SET spki_sha256 = ?2, not_after = ?3 WHERE uuid = ?1 AND retired_at IS NULL";

const RETIRE: &str = "-- agent_retire
UPDATE agents SET retired_at = ?2, revision = revision + 1 WHERE uuid = ?1 AND retired_at IS NULL";

const TAKEN: &str = "-- agent_taken
SELECT 1 FROM agents WHERE name = ?1 OR spki_sha256 = ?2 LIMIT 1";

/// Agents with pending work in the table of runs. The index contains only runs that wait for agents.
const WITH_WORK: &str = db::with_codes!([JobState::{Queued, Running, AwaitingCsr}, JobKind::{Deployment}] "-- agents_with_work
SELECT DISTINCT agent FROM jobs WHERE agent IS NOT NULL AND state IN ({JobState::Queued}, {JobState::Running},
  {JobState::AwaitingCsr}) AND (state = {JobState::Queued} AND kind = {JobKind::Deployment}
    OR state = {JobState::AwaitingCsr})
AND next_attempt_at <= ?1 LIMIT ?2");

const LABELS_DELETE: &str = "-- agent_labels_delete
DELETE FROM agent_labels WHERE agent = ?1";

const COUNTS: &str = "-- agent_counts
SELECT COALESCE(SUM(CASE WHEN last_seen_at >= ?1 THEN 1 ELSE 0 END), 0),
       COALESCE(SUM(CASE WHEN last_seen_at < ?1 THEN 1 ELSE 0 END), 0) FROM agents WHERE retired_at IS NULL";

const LABELS_INSERT: BulkStatement = db::bulk! { (agent uuid, label text, value text)
    "-- agent_labels_insert
INSERT INTO agent_labels (agent, label, value) VALUES (:agent, :label, :value)"
};

const SEEN: BulkStatement = db::bulk! {
    (uuid uuid, at bigint, hostname text, os text, arch text, version text, addresses text)
    "-- agents_seen
UPDATE agents SET last_seen_at = {max|greatest}(last_seen_at, :at), hostname = :hostname, os = :os, arch = :arch,
  version = :version, addresses = :addresses
WHERE uuid = :uuid"
};

const GROUP: &str = "-- agent_group
SELECT name, selector, description, revision, created_at, updated_at FROM agent_groups WHERE name = ?1";

const GROUPS: &str = "-- agent_groups
SELECT name, selector, description, revision, created_at, updated_at FROM agent_groups WHERE name > ?1
ORDER BY name LIMIT ?2";

const GROUP_INSERT: &str = "-- agent_group_insert
INSERT INTO agent_groups (name, selector, description, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?4) ON CONFLICT DO NOTHING";

const GROUP_UPDATE: &str = "-- agent_group_update
UPDATE agent_groups SET selector = ?3, description = ?4, revision = revision + 1, updated_at = ?5
WHERE name = ?1 AND revision = ?2";

const GROUP_DELETE: &str = "-- agent_group_delete
DELETE FROM agent_groups WHERE name = ?1";

pub(crate) const ALL: &[&str] = &[
    AGENT,
    AGENT_NAMED,
    AGENT_OF_KEY,
    INSERT,
    UPDATE,
    CERTIFIED,
    RETIRE,
    LABELS_DELETE,
    TAKEN,
    WITH_WORK,
    COUNTS,
    GROUP,
    GROUPS,
    GROUP_INSERT,
    GROUP_UPDATE,
    GROUP_DELETE,
    enrolment::INSERT,
    enrolment::USE,
    enrolment::USED_FOR,
    enrolment::DELETE,
    enrolment::TOKENS,
    enrolment::PURGE,
    targets::TARGET,
    targets::TARGET_NAMED,
    targets::OF_AGENT,
    targets::TARGETS,
    targets::INSERT,
    targets::UPDATE,
    targets::DELETE,
    SEALED_TARGETS.page,
    SEALED_TARGETS.count,
    SEALED_TARGETS.heads,
    deployments::OF_TARGET,
    deployments::OF_CERTIFICATE,
    deployments::OF_JOB,
    deployments::OPEN,
    deployments::CANCEL,
];

pub(crate) const BULKS: &[&BulkStatement] =
    &[&LABELS_INSERT, &SEEN, &deployments::INSERT, &deployments::FINISH, &SEALED_TARGETS.replace];

/// Returns every form of the statement for a page of agents.
pub(crate) fn composed() -> Vec<String> {
    let mut all = deployments::composed();
    for labels in 0..=SELECTOR_LABELS_MAX {
        for bits in 0..8_u32 {
            let filter = AgentFilter {
                labels: vec![(String::new(), String::new()); labels],
                retired: bits & 1 != 0,
                seen_from_us: (bits & 2 != 0).then_some(0),
                seen_before_us: (bits & 4 != 0).then_some(0),
            };
            all.push(agents_page_statement(&filter, String::new(), 1).0);
        }
    }
    all
}

/// Inserts an agent with its labels. Returns false when its name or key is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_agent(
    tx: &mut Tx,
    agent: &AgentRow,
    labels: &[(String, String)],
) -> Result<bool, StoreError> {
    let facts = &agent.facts;
    let parameters = vec![
        agent.id.into(),
        agent.name.as_str().into(),
        agent.labels.as_str().into(),
        agent.spki_sha256.as_slice().into(),
        agent.not_after_us.into(),
        facts.hostname.as_str().into(),
        facts.os.as_str().into(),
        facts.arch.as_str().into(),
        facts.version.as_str().into(),
        facts.addresses.as_str().into(),
        agent.enrolled_at_us.into(),
    ];
    if tx.execute(INSERT, parameters).await? == 0 {
        return Ok(false);
    }
    insert_labels(tx, agent.id, labels).await?;
    Ok(true)
}

/// Returns whether an agent has this name or this key.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn is_agent_taken(tx: &mut Tx, name: &str, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.row(TAKEN, vec![name.into(), spki_sha256.as_slice().into()]).await?.is_some())
}

async fn insert_labels(tx: &mut Tx, agent: Uuid, labels: &[(String, String)]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(vec![agent; labels.len()]),
        Column::Text(labels.iter().map(|(label, _)| label.clone()).collect()),
        Column::Text(labels.iter().map(|(_, value)| value.clone()).collect()),
    ];
    tx.bulk(&LABELS_INSERT, columns).await.map(drop)
}

/// Changes an agent's name and labels. Returns false when the revision does not match, or the name is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_agent(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    name: &str,
    labels_json: &str,
    labels: &[(String, String)],
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), revision.into(), name.into(), labels_json.into()];
    if tx.execute(UPDATE, parameters).await? == 0 {
        return Ok(false);
    }
    tx.execute(LABELS_DELETE, vec![id.into()]).await?;
    insert_labels(tx, id, labels).await?;
    Ok(true)
}

/// Stores an agent's new client certificate. Returns false when the agent is retired or does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_agent_certificate(
    tx: &mut Tx,
    id: Uuid,
    spki_sha256: &[u8; 32],
    not_after_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), spki_sha256.as_slice().into(), not_after_us.into()];
    Ok(tx.execute(CERTIFIED, parameters).await? == 1)
}

/// Retires an agent. Returns false when it is already retired or does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn retire_agent(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(RETIRE, vec![id.into(), at_us.into()]).await? == 1)
}

/// Stores when agents were last seen, with the facts about their hosts, in one statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_agents_last_seen(tx: &mut Tx, seen: &[(Uuid, i64, AgentFacts)]) -> Result<(), StoreError> {
    let text = |of: fn(&AgentFacts) -> &String| {
        Column::Text(seen.iter().map(|(_, _, facts)| of(facts).clone()).collect())
    };
    let columns = vec![
        Column::Uuid(seen.iter().map(|(id, _, _)| *id).collect()),
        Column::Int(seen.iter().map(|(_, at, _)| *at).collect()),
        text(|facts| &facts.hostname),
        text(|facts| &facts.os),
        text(|facts| &facts.arch),
        text(|facts| &facts.version),
        text(|facts| &facts.addresses),
    ];
    tx.bulk(&SEEN, columns).await.map(drop)
}

/// Inserts a group. Returns false when the name is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_agent_group(
    tx: &mut Tx,
    name: &str,
    selector: &str,
    description: &str,
    at_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![name.into(), selector.into(), description.into(), at_us.into()];
    Ok(tx.execute(GROUP_INSERT, parameters).await? == 1)
}

/// Changes a group. Returns false when the revision does not match.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_agent_group(
    tx: &mut Tx,
    name: &str,
    revision: i64,
    selector: &str,
    description: &str,
    at_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![name.into(), revision.into(), selector.into(), description.into(), at_us.into()];
    Ok(tx.execute(GROUP_UPDATE, parameters).await? == 1)
}

/// Deletes a group. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_agent_group(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(GROUP_DELETE, vec![name.into()]).await? == 1)
}

impl Agents<'_> {
    /// Returns an agent by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<AgentRow>, StoreError> {
        self.0.row(AGENT, vec![id.into()]).await?.map(agent_of).transpose()
    }

    /// Returns an agent by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn named(self, name: &str) -> Result<Option<AgentRow>, StoreError> {
        self.0.row(AGENT_NAMED, vec![name.into()]).await?.map(agent_of).transpose()
    }

    /// Returns an agent by the SHA-256 of its SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// Database errors.
    pub async fn of_key(self, spki_sha256: &[u8; 32]) -> Result<Option<AgentRow>, StoreError> {
        self.0.row(AGENT_OF_KEY, vec![spki_sha256.as_slice().into()]).await?.map(agent_of).transpose()
    }

    /// Lists agents, sorted by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn page(
        self,
        filter: &AgentFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let key = key_or(after, "agents", &[Value::Text(String::new())])?;
        let begin = match key.into_iter().next() {
            Some(Value::Text(name)) => name,
            _ => String::new(),
        };
        let (statement, parameters) = agents_page_statement(filter, begin, rows);
        let found = self.0.rows(Cost::Walk, &statement, parameters).await?;
        page(found, limit, "agents", |row| {
            let agent = agent_of(row)?;
            let key = vec![agent.name.as_str().into()];
            Ok((agent, key))
        })
    }

    /// Returns the agents with pending work, at most ten thousand.
    ///
    /// # Errors
    /// Database errors.
    pub async fn agents_with_work(self, now_us: i64) -> Result<Vec<Uuid>, StoreError> {
        const MOST: i64 = 10_000;
        let rows = self.0.rows(Cost::Walk, WITH_WORK, vec![now_us.into(), MOST.into()]).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }

    /// Counts agents seen since `seen_from_us` and the others, without retired agents.
    ///
    /// # Errors
    /// Database errors.
    pub async fn counts(self, seen_from_us: i64) -> Result<AgentCounts, StoreError> {
        let row = self.0.row(COUNTS, vec![seen_from_us.into()]).await?;
        row.map_or_else(
            || Ok(AgentCounts::default()),
            |mut row| Ok(AgentCounts { online: row.int()?, offline: row.int()? }),
        )
    }

    /// Returns the group with this name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn group(self, name: &str) -> Result<Option<AgentGroupRow>, StoreError> {
        self.0.row(GROUP, vec![name.into()]).await?.map(agent_group_row).transpose()
    }

    /// Lists groups, sorted by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn groups(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentGroupRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters = key_or(after, "agent_groups", &[Value::Text(String::new())])?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, GROUPS, parameters).await?;
        page(found, limit, "agent_groups", |row| {
            let group = agent_group_row(row)?;
            let key = vec![group.name.as_str().into()];
            Ok((group, key))
        })
    }
}

/// Builds the statement of a page and its parameters. The statement contains only the conditions that are set.
fn agents_page_statement(filter: &AgentFilter, begin: String, limit: i64) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = vec![begin.into()];
    let mut conditions = vec!["a.name > ?1".to_owned()];
    for (label, value) in filter.labels.iter().take(SELECTOR_LABELS_MAX) {
        parameters.push(label.as_str().into());
        parameters.push(value.as_str().into());
        let (label, value) = (parameters.len() - 1, parameters.len());
        conditions.push(format!(
            "EXISTS (SELECT 1 FROM agent_labels l WHERE l.agent = a.uuid AND l.label = ?{label} AND l.value = ?{value})"
        ));
    }
    if !filter.retired {
        conditions.push("a.retired_at IS NULL".to_owned());
    }
    let times = [("a.last_seen_at >=", filter.seen_from_us), ("a.last_seen_at <", filter.seen_before_us)];
    for (condition, time) in times {
        if let Some(time) = time {
            parameters.push(time.into());
            conditions.push(format!("{condition} ?{}", parameters.len()));
        }
    }
    parameters.push(limit.into());
    let statement = format!(
        "-- agents_page\nSELECT {COLUMNS} FROM agents a\nWHERE {} ORDER BY a.name LIMIT ?{}",
        conditions.join(" AND "),
        parameters.len()
    );
    (statement, parameters)
}

fn agent_of(mut row: Row) -> Result<AgentRow, StoreError> {
    Ok(AgentRow {
        id: row.uuid()?,
        name: row.text()?,
        labels: row.text()?,
        spki_sha256: row.hash()?,
        not_after_us: row.int()?,
        facts: AgentFacts {
            hostname: row.text()?,
            os: row.text()?,
            arch: row.text()?,
            version: row.text()?,
            addresses: row.text()?,
        },
        revision: row.int()?,
        enrolled_at_us: row.int()?,
        last_seen_at_us: row.int()?,
        retired_at_us: row.maybe_int()?,
    })
}

fn agent_group_row(mut row: Row) -> Result<AgentGroupRow, StoreError> {
    Ok(AgentGroupRow {
        name: row.text()?,
        selector: row.text()?,
        description: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] =
    &[ModuleStatements { both: ALL, sqlite: &[], postgres: &[], bulks: BULKS, composed }];
