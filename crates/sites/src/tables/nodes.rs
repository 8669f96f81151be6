//! The table of nodes.

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::SiteTables;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

/// Bytes of a node's KEM public key (X-Wing, draft-connolly-cfrg-xwing-kem).
pub const KEM_BYTES: usize = 1_216;

/// A node as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeRow {
    /// UUID that the control plane assigned to the node.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Id of the node's site.
    pub site: Uuid,
    /// Name of the node's site. Empty once the site is deleted.
    pub site_name: String,
    /// The site's attributes, as a JSON object.
    pub site_attributes: String,
    /// The node's own attributes, as a JSON object.
    pub attributes: String,
    /// Address for signing requests of other nodes, `HOST:PORT`.
    pub address: String,
    /// Public key to which secrets are sealed for the node.
    pub kem: Vec<u8>,
    /// SHA-256 of the SubjectPublicKeyInfo in the node's certificate.
    pub spki_sha256: [u8; 32],
    /// End of validity of the node's certificate, in µs since 1970-01-01 UTC.
    pub not_after_us: i64,
    /// The signed statement about the node, JSON.
    pub statement: String,
    /// Time from which the node's next statement is due, in µs since 1970-01-01 UTC. Up to 0: due immediately.
    pub sign_at_us: i64,
    /// Revision, incremented with every change that a person makes.
    pub revision: i64,
    /// Number of the last change of the node that other nodes read.
    pub changed: i64,
    /// Time of the enrolment, in µs since 1970-01-01 UTC.
    pub enrolled_at_us: i64,
    /// Time of the retirement, in µs since 1970-01-01 UTC. `None` while the node is in use.
    pub retired_at_us: Option<i64>,
    /// Whether the node was retired because it is no longer trusted.
    pub hostile: bool,
    /// End of the node's lease, in µs since 1970-01-01 UTC. 0 without a lease.
    pub lease_until_us: i64,
    /// Whether the other nodes were notified that the node is present.
    pub present: bool,
}

/// Filter for listing nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeFilter {
    /// Id of the nodes' site.
    pub site: Option<Uuid>,
    /// Whether to include retired nodes.
    pub retired: bool,
}

/// A new signed statement about a node, which replaces the last one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewStatement {
    /// Id of the node.
    pub node: Uuid,
    /// The signed statement as JSON.
    pub statement: String,
    /// [`NodeRow::sign_at_us`] and [`NodeRow::changed`] of the row that was signed. Of two statements for the same row only one is
    /// stored.
    pub made_from: (i64, i64),
    /// Time from which the node's next statement is due, in µs since 1970-01-01 UTC.
    pub sign_at_us: i64,
}

macro_rules! node_select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT n.uuid, n.name, n.site, COALESCE(s.name, ''), COALESCE(s.attributes, '{}'), n.attributes, n.address, \
             n.kem, n.spki_sha256, n.not_after, n.statement, n.sign_at, n.revision, n.changed, n.enrolled_at, \
             n.retired_at, n.hostile, COALESCE(l.until_at, 0), COALESCE(l.present, 0)\n\
             FROM key_nodes n LEFT JOIN key_sites s ON s.uuid = n.site LEFT JOIN key_node_leases l ON l.node = n.uuid\n",
            $rest
        )
    };
}

pub(super) const NODE: &str = node_select!("key_node", "WHERE n.uuid = ?1");
pub(super) const NODE_NAMED: &str = node_select!("key_node_named", "WHERE n.name = ?1");
pub(super) const NODE_OF_KEY: &str = node_select!("key_node_of_key", "WHERE n.spki_sha256 = ?1");
pub(super) const CHANGED: &str =
    node_select!("key_nodes_changed", "WHERE n.changed > ?1 ORDER BY n.changed LIMIT ?2");
pub(super) const DUE: &str = node_select!(
    "key_nodes_to_sign",
    "WHERE n.retired_at IS NULL AND n.sign_at <= ?1 AND (n.sign_at <= 0 OR l.present = 1) ORDER BY n.sign_at LIMIT ?2"
);
const PAGE: &str = node_select!("key_nodes_page", "WHERE n.name > ?1");

pub(super) const INSERT: &str = "-- key_node_insert
INSERT INTO key_nodes (uuid, name, site, attributes, address, kem, spki_sha256, not_after, statement, sign_at, revision,
                       changed, enrolled_at, hostile)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 1, ?11, ?12, 0) ON CONFLICT DO NOTHING";

pub(super) const TAKEN: &str = "-- key_node_taken
SELECT 1 FROM key_nodes WHERE name = ?1 OR spki_sha256 = ?2 LIMIT 1";

/// Counts the nodes of one site, or of all sites, that are not retired.
pub(super) const LIVE: &str = "-- key_nodes_live
SELECT count(*) FROM key_nodes WHERE retired_at IS NULL AND (site = ?1 OR CAST(?2 AS BIGINT) = 1)";

pub(super) const CERTIFIED: &str = "-- key_node_certified
UPDATE key_nodes SET not_after = ?3 WHERE uuid = ?1 AND spki_sha256 = ?2 AND retired_at IS NULL";

/// Changes the address. Sets `sign_at` to a time in the past that differs for each change, so that statements signed for the old
/// address are not stored.
pub(super) const ADDRESS: &str = "-- key_node_address
UPDATE key_nodes SET address = ?2, sign_at = CASE WHEN sign_at > 0 THEN 0 ELSE sign_at - 1 END
WHERE uuid = ?1 AND address <> ?2 AND retired_at IS NULL";

pub(super) const RETIRE: &str = "-- key_node_retire
UPDATE key_nodes SET retired_at = ?2, hostile = ?3, changed = ?4, revision = revision + 1
WHERE uuid = ?1 AND retired_at IS NULL";

pub(super) const MISTRUST: &str = "-- key_node_mistrust
UPDATE key_nodes SET hostile = 1, revision = revision + 1 WHERE uuid = ?1 AND retired_at IS NOT NULL AND hostile = 0";

pub(super) const SIGN_SITE: &str = "-- key_nodes_sign_site
UPDATE key_nodes SET sign_at = CASE WHEN sign_at > 0 THEN 0 ELSE sign_at - 1 END
WHERE site = ?1 AND retired_at IS NULL";

pub(super) const STATEMENTS: BulkStatement = db::bulk! {
    (node uuid, statement text, sign_at bigint, changed bigint, was_sign_at bigint, was_changed bigint)
    "-- key_node_statements
UPDATE key_nodes SET statement = :statement, sign_at = :sign_at, changed = :changed
WHERE uuid = :node AND sign_at = :was_sign_at AND changed = :was_changed AND retired_at IS NULL"
};

/// Returns all variants of the SQL statement that lists nodes.
pub(super) fn composed() -> Vec<String> {
    let filters = (0..4_u32)
        .map(|bits| NodeFilter { site: (bits & 1 != 0).then_some(Uuid::nil()), retired: bits & 2 != 0 });
    filters.map(|filter| nodes_page(&filter, Value::Null, 1).0).collect()
}

/// Returns whether a name or a key is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn is_node_taken(tx: &mut Tx, name: &str, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.row(TAKEN, vec![name.into(), spki_sha256.as_slice().into()]).await?.is_some())
}

/// Inserts a node with its lease. Other nodes are notified after its first heartbeat. Returns false when its name or key is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_node(tx: &mut Tx, node: &NodeRow) -> Result<bool, StoreError> {
    let parameters = vec![
        node.id.into(),
        node.name.as_str().into(),
        node.site.into(),
        node.attributes.as_str().into(),
        node.address.as_str().into(),
        node.kem.as_slice().into(),
        node.spki_sha256.as_slice().into(),
        node.not_after_us.into(),
        node.statement.as_str().into(),
        node.sign_at_us.into(),
        node.changed.into(),
        node.enrolled_at_us.into(),
    ];
    let inserted = tx.execute(INSERT, parameters).await? == 1;
    if inserted {
        super::presence::enter(tx, node.id).await?;
    }
    Ok(inserted)
}

/// Returns the number of nodes that are not retired, at a site or in total.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn live_nodes(tx: &mut Tx, site: Option<Uuid>) -> Result<i64, StoreError> {
    let everywhere = site.is_none();
    let row = tx.row(LIVE, vec![site.unwrap_or_default().into(), everywhere.into()]).await?;
    row.map_or(Ok(0), |mut row| row.int())
}

/// Stores a node's new certificate for the same key. Returns false when the node has another key, is retired or does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn node_certified(
    tx: &mut Tx,
    id: Uuid,
    spki_sha256: &[u8; 32],
    not_after_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), spki_sha256.as_slice().into(), not_after_us.into()];
    Ok(tx.execute(CERTIFIED, parameters).await? == 1)
}

/// Changes a node's address. A new signed statement about the node is then due immediately. Returns false when the address is
/// unchanged.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_node_address(tx: &mut Tx, id: Uuid, address: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(ADDRESS, vec![id.into(), address.into()]).await? == 1)
}

/// Makes a new signed statement due immediately for every node of a site.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn sign_nodes_of_site(tx: &mut Tx, site: Uuid) -> Result<(), StoreError> {
    tx.execute(SIGN_SITE, vec![site.into()]).await.map(drop)
}

/// Kind of a node's retirement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeRetirement {
    /// The node is no longer used.
    Ordinary,
    /// The node is no longer trusted. Keys that it could open count as compromised.
    Hostile,
}

/// Retires a node and ends its lease. Returns false when it is already retired or does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn retire_node(
    tx: &mut Tx,
    id: Uuid,
    at_us: i64,
    retirement: NodeRetirement,
) -> Result<bool, StoreError> {
    let changed = take_changes(tx, 1).await?;
    let retired = tx
        .execute(
            RETIRE,
            vec![id.into(), at_us.into(), (retirement == NodeRetirement::Hostile).into(), changed.into()],
        )
        .await?
        == 1;
    if retired {
        super::presence::leave(tx, id).await?;
    }
    Ok(retired)
}

/// Marks a retired node as no longer trusted. Returns false when it is already marked, or not retired.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn mistrust_node(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(MISTRUST, vec![id.into()]).await? == 1)
}

/// Replaces the signed statements of nodes, each with its own change number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_statements(tx: &mut Tx, new: Vec<NewStatement>) -> Result<(), StoreError> {
    let first = take_changes(tx, new.len()).await?;
    let changes = (first..).take(new.len()).collect();
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.node).collect()),
        Column::Text(new.iter().map(|one| one.statement.clone()).collect()),
        Column::Int(new.iter().map(|one| one.sign_at_us).collect()),
        Column::Int(changes),
        Column::Int(new.iter().map(|one| one.made_from.0).collect()),
        Column::Int(new.iter().map(|one| one.made_from.1).collect()),
    ];
    tx.bulk(&STATEMENTS, columns).await.map(drop)
}

impl SiteTables<'_> {
    /// Returns a node by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn node(self, id: Uuid) -> Result<Option<NodeRow>, StoreError> {
        self.0.row(NODE, vec![id.into()]).await?.map(node_of).transpose()
    }

    /// Returns a node by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn node_named(self, name: &str) -> Result<Option<NodeRow>, StoreError> {
        self.0.row(NODE_NAMED, vec![name.into()]).await?.map(node_of).transpose()
    }

    /// Returns a node by the SHA-256 of its SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// Database errors.
    pub async fn node_of_key(self, spki_sha256: &[u8; 32]) -> Result<Option<NodeRow>, StoreError> {
        self.0.row(NODE_OF_KEY, vec![spki_sha256.as_slice().into()]).await?.map(node_of).transpose()
    }

    /// Returns nodes that changed after the change `after`, in the order of their changes, including retired ones.
    ///
    /// # Errors
    /// Database errors.
    pub async fn nodes_changed(self, after: i64, limit: usize) -> Result<Vec<NodeRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Point, CHANGED, vec![after.into(), limit.into()]).await?;
        rows.into_iter().map(node_of).collect()
    }

    /// Returns nodes for which a new signed statement is due.
    ///
    /// # Errors
    /// Database errors.
    pub async fn nodes_to_sign(self, now_us: i64, limit: usize) -> Result<Vec<NodeRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Point, DUE, vec![now_us.into(), limit.into()]).await?;
        rows.into_iter().map(node_of).collect()
    }

    /// Lists nodes, ordered by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn nodes(
        self,
        filter: &NodeFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<NodeRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let key = key_or(after, "key_nodes", &[Value::Text(String::new())])?;
        let begin = key.into_iter().next().unwrap_or(Value::Text(String::new()));
        let (statement, parameters) = nodes_page(filter, begin, rows);
        let found = self.0.rows(Cost::Walk, &statement, parameters).await?;
        page(found, limit, "key_nodes", |row| {
            let node = node_of(row)?;
            let key = vec![node.name.as_str().into()];
            Ok((node, key))
        })
    }
}

/// Builds the SQL statement that reads a page of nodes, and its parameters. The SQL contains only the conditions that are set.
fn nodes_page(filter: &NodeFilter, begin: Value, limit: i64) -> (String, Vec<Value>) {
    let mut parameters = vec![begin];
    let mut statement = PAGE.to_owned();
    if let Some(site) = filter.site {
        parameters.push(site.into());
        statement.push_str(" AND n.site = ?2");
    }
    if !filter.retired {
        statement.push_str(" AND n.retired_at IS NULL");
    }
    parameters.push(limit.into());
    statement.push_str(&format!(" ORDER BY n.name LIMIT ?{}", parameters.len()));
    (statement, parameters)
}

fn node_of(mut row: Row) -> Result<NodeRow, StoreError> {
    Ok(NodeRow {
        id: row.uuid()?,
        name: row.text()?,
        site: row.uuid()?,
        site_name: row.text()?,
        site_attributes: row.text()?,
        attributes: row.text()?,
        address: row.text()?,
        kem: row.blob()?,
        spki_sha256: row.hash()?,
        not_after_us: row.int()?,
        statement: row.text()?,
        sign_at_us: row.int()?,
        revision: row.int()?,
        changed: row.int()?,
        enrolled_at_us: row.int()?,
        retired_at_us: row.maybe_int()?,
        hostile: row.flag()?,
        lease_until_us: row.int()?,
        present: row.flag()?,
    })
}
