//! Tables of sites, join tokens, nodes, presence and key policies.

mod changes;
mod handle;
mod nodes;
mod policies;
mod presence;
mod sealed_keys;
mod state;
mod tokens;
mod wraps;

pub use changes::take_changes;
pub use nodes::{
    KEM_BYTES, NewStatement, NodeFilter, NodeRetirement, NodeRow, insert_node, is_node_taken, live_nodes,
    mistrust_node, node_certified, put_statements, retire_node, set_node_address, sign_nodes_of_site,
};
pub use policies::{
    GenerationRow, PolicyRemoval, PolicyRow, SEALED_SEEDS, count_policies, insert_policy, policy_seeds,
    remove_policy, retire_generations, rotate_policy,
};
pub use presence::{NodeLease, flip_nodes, put_leases};
pub use sealed_keys::{
    ResealedKey, SealedKeyRow, SealedPut, count_sealed_keys, is_key_sealed, put_sealed_key, reseal_keys,
    withdraw_sealed_key,
};
pub use state::{KeyChange, KeyStateChanges, PolicyChange, WrapChange};
pub use tokens::{
    NodeTokenRow, delete_node_token, delete_node_tokens_of, insert_node_token, node_token, use_node_token,
};
pub use wraps::{NewWrap, PolicyNode, WrapKey, node_kems, put_wraps, withdraw_wraps};

use uuid::Uuid;

use db::{
    BulkStatement, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or, limit_of, page,
};
pub use handle::SiteTables;

/// A site as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SiteRow {
    /// UUID that the control plane assigned to the site.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Attributes, as a JSON object with string values.
    pub attributes: String,
    /// Revision, incremented with every change, from 1.
    pub revision: i64,
    /// Creation time, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

const SITE: &str = "-- key_site
SELECT uuid, name, attributes, revision, created_at, updated_at FROM key_sites WHERE uuid = ?1";

const SITE_NAMED: &str = "-- key_site_named
SELECT uuid, name, attributes, revision, created_at, updated_at FROM key_sites WHERE name = ?1";

const SITES: &str = "-- key_sites
SELECT uuid, name, attributes, revision, created_at, updated_at FROM key_sites WHERE name > ?1 ORDER BY name LIMIT ?2";

const SITES_COUNT: &str = "-- key_sites_count
SELECT count(*) FROM key_sites";

const INSERT: &str = "-- key_site_insert
INSERT INTO key_sites (uuid, name, attributes, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?4) ON CONFLICT DO NOTHING";

const UPDATE: &str = "-- key_site_update
UPDATE key_sites SET name = ?3, attributes = ?4, revision = revision + 1, updated_at = ?5
WHERE uuid = ?1 AND revision = ?2
AND NOT EXISTS (SELECT 1 FROM key_sites other WHERE other.name = ?3 AND other.uuid <> ?1)";

/// Rewrites the row unchanged. Other transactions that lock, change or delete the site wait until this transaction ends.
const LOCK: &str = "-- key_site_lock
UPDATE key_sites SET revision = revision WHERE uuid = ?1
RETURNING uuid, name, attributes, revision, created_at, updated_at";

const DELETE: &str = "-- key_site_delete
DELETE FROM key_sites WHERE uuid = ?1";

const SIGNER: &str = "-- key_statement_signer
SELECT signer FROM key_places WHERE id = 1";

const SIGNER_CLAIM: &str = "-- key_statement_signer_claim
UPDATE key_places SET signer = ?1 WHERE id = 1 AND signer IS NULL";

pub(crate) const ALL: &[&str] = &[
    SITE,
    SITE_NAMED,
    SITES,
    SITES_COUNT,
    INSERT,
    UPDATE,
    LOCK,
    DELETE,
    changes::TAKE,
    changes::LAST,
    SIGNER,
    SIGNER_CLAIM,
    tokens::INSERT,
    tokens::TOKEN,
    tokens::USE,
    tokens::USED_FOR,
    tokens::DELETE,
    tokens::DELETE_OF,
    tokens::TOKENS,
    tokens::PURGE,
    nodes::NODE,
    nodes::NODE_NAMED,
    nodes::NODE_OF_KEY,
    nodes::CHANGED,
    nodes::DUE,
    nodes::INSERT,
    nodes::TAKEN,
    nodes::LIVE,
    nodes::CERTIFIED,
    nodes::ADDRESS,
    nodes::RETIRE,
    nodes::MISTRUST,
    nodes::SIGN_SITE,
    presence::ENTER,
    presence::LEAVE,
    presence::FLIPS,
    policies::POLICY,
    policies::POLICY_NAMED,
    policies::POLICIES,
    policies::COUNT,
    policies::INSERT,
    policies::INSERT_GENERATION,
    policies::ROTATE,
    policies::TOUCH,
    policies::REMOVE,
    policies::DELETE_GENERATIONS,
    policies::RETIRE,
    policies::GENERATIONS,
    policies::GENERATIONS_ALL,
    policies::BEHIND,
    policies::PURGE,
    SEALED_SEEDS.page,
    SEALED_SEEDS.count,
    SEALED_SEEDS.heads,
    wraps::PLACED,
    wraps::LIVE,
    wraps::CHANGED,
    wraps::OF_POLICY,
    wraps::WRAPPED_NODES,
    wraps::POLICIES_OF_NODE,
    wraps::PURGE,
    sealed_keys::KEY,
    sealed_keys::KEYS,
    sealed_keys::COUNT,
    policies::KEYS_COUNT,
    sealed_keys::BY_GENERATION,
    sealed_keys::PUT,
    sealed_keys::WITHDRAW,
    sealed_keys::BEHIND,
    sealed_keys::PURGE,
    state::POLICIES,
    state::WRAPS,
    state::KEYS,
    state::STATE_LAST,
];

pub(crate) const BULKS: &[&BulkStatement] = &[
    &nodes::STATEMENTS,
    &presence::LEASES,
    &presence::FLIP,
    &presence::CHANGE,
    &SEALED_SEEDS.replace,
    &policies::SEEDS,
    &wraps::KEMS,
    &wraps::HOLD,
    &wraps::PUT,
    &wraps::WITHDRAW,
    &sealed_keys::RESEAL,
];

/// Returns all variants of the SQL statement that lists nodes.
pub(crate) fn composed() -> Vec<String> {
    nodes::composed()
}

/// Registers `key` as the signer of statements. Returns false when there is one already.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn claim_statement_signer(tx: &mut Tx, key: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(SIGNER_CLAIM, vec![key.into()]).await? == 1)
}

/// Inserts a site. Returns false when its name is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_site(tx: &mut Tx, site: &SiteRow) -> Result<bool, StoreError> {
    let parameters = vec![
        site.id.into(),
        site.name.as_str().into(),
        site.attributes.as_str().into(),
        site.created_at_us.into(),
    ];
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// Changes a site. Returns false when the revision does not match, or the name is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_site(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    name: &str,
    attributes: &str,
    at_us: i64,
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), revision.into(), name.into(), attributes.into(), at_us.into()];
    Ok(tx.execute(UPDATE, parameters).await? == 1)
}

/// Locks a site until this transaction ends. `None` when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn lock_site(tx: &mut Tx, id: Uuid) -> Result<Option<SiteRow>, StoreError> {
    tx.row(LOCK, vec![id.into()]).await?.map(site_of).transpose()
}

/// Deletes a site, without checking its nodes. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_site(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

/// Returns the number of sites.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn count_sites(tx: &mut Tx) -> Result<i64, StoreError> {
    tx.row(SITES_COUNT, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
}

impl SiteTables<'_> {
    /// Returns a site by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn site(self, id: Uuid) -> Result<Option<SiteRow>, StoreError> {
        self.0.row(SITE, vec![id.into()]).await?.map(site_of).transpose()
    }

    /// Returns a site by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn site_named(self, name: &str) -> Result<Option<SiteRow>, StoreError> {
        self.0.row(SITE_NAMED, vec![name.into()]).await?.map(site_of).transpose()
    }

    /// Lists sites, ordered by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn sites(self, after: Option<&Cursor>, limit: usize) -> Result<Page<SiteRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters = key_or(after, "key_sites", &[Value::Text(String::new())])?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, SITES, parameters).await?;
        page(found, limit, "key_sites", |row| {
            let site = site_of(row)?;
            let key = vec![site.name.as_str().into()];
            Ok((site, key))
        })
    }

    /// Returns the id of the key that signs statements. `None` until the first server registers one.
    ///
    /// # Errors
    /// Database errors.
    pub async fn statement_signer(self) -> Result<Option<Uuid>, StoreError> {
        self.0.row(SIGNER, Vec::new()).await?.map_or(Ok(None), |mut row| row.maybe_uuid())
    }
}

fn site_of(mut row: Row) -> Result<SiteRow, StoreError> {
    Ok(SiteRow {
        id: row.uuid()?,
        name: row.text()?,
        attributes: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

/// Every SQL statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] =
    &[ModuleStatements { both: ALL, sqlite: &[], postgres: &[], bulks: BULKS, composed }];
