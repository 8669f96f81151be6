//! Managed certificates: rows, names, tags, versions and counters.

mod facets;
mod groups;
mod handle;
mod name_part;
mod page;
mod plans;
mod row;
mod search;
mod served;
mod signing;
mod totals;
mod versions;

pub use facets::Facet;
pub use groups::{GroupBy, GroupChanges, GroupTotal, Groups, ManagedCount, adjust_managed_groups};
pub use name_part::NamePartSource;
pub use page::{Direction, ManagedFilter, ManagedOrder, ManagedScope, ManagedSort, managed_matching};
pub use row::{ManagedRow, ManagedView, NEVER_ISSUED_US, OpenRun, ServedFacts};
pub use search::ManagedSearch;
pub use served::{
    DeployedVersion, ObservedVersion, certificates_changed_since, deployed_versions, late_deployments,
    managed_after, observed_versions,
};
pub use signing::{SigningKeyPage, SigningKeyRow, SigningKeysBy};
pub use totals::{ManagedSummary, ManagedTotal, adjust_managed_totals};
pub use versions::{
    ManagedSuggestion, ManagedVersion, NewManagedVersion, RevokedVersion, ServedVersion, drop_suggestions,
    due_suggestions, insert_versions, issued_ids_of, managed_by_version_fingerprints, revoke_versions,
    set_suggestions, suggestions_of, versions_of, versions_revoked_by,
};

use uuid::Uuid;

use row::{managed_columns, managed_row, run_columns, run_join, view, with_run_states};
use store::states::{JobKind, JobState};

use db::{BulkStatement, Column, StoreError, Tx, reversed};
pub use handle::Managed;

/// A managed certificate to insert, with its DNS names and tags.
#[derive(Clone, Debug)]
pub struct NewManaged {
    /// The row. The database sets `id` and `revision`.
    pub row: ManagedRow,
    /// DNS names, for the search by suffix.
    pub names: Vec<String>,
    /// Tags: name and value.
    pub tags: Vec<(String, String)>,
}

const BY_UUID: &str = with_run_states!(concat!(
    "-- managed_by_uuid\nSELECT ",
    managed_columns!(),
    ", ",
    run_columns!(),
    " FROM managed_certificates m",
    run_join!(),
    " WHERE m.uuid = ?1"
));

const BY_NAME: &str = with_run_states!(concat!(
    "-- managed_by_name\nSELECT ",
    managed_columns!(),
    ", ",
    run_columns!(),
    " FROM managed_certificates m",
    run_join!(),
    " WHERE m.name = ?1"
));

const BY_IDS: BulkStatement = db::bulk! { (id bigint)
    concat!("-- managed_by_ids\nSELECT ", managed_columns!(), " FROM managed_certificates m WHERE m.id = :id")
};

const BY_UUIDS: BulkStatement = db::bulk! { (uuid uuid)
    concat!("-- managed_by_uuids\nSELECT ", managed_columns!(), " FROM managed_certificates m WHERE m.uuid = :uuid")
};

const INSERT: BulkStatement = db::bulk! {
    (uuid uuid, name text, state bigint, profile text, issuer text, owner text, team text, environment text,
     policy text, key_location bigint, agent uuid, key_type text, names text, tags text, targets text,
     options text, fingerprint bytea, not_before bigint, not_after bigint, at bigint)
    "-- managed_insert
INSERT INTO managed_certificates (uuid, name, state, revision, profile, issuer, owner, team, environment, policy,
  key_location, agent, key_type, names, tags, targets, options, version_id, fingerprint, not_before, not_after, revoked,
  failures, last_error, created_at, updated_at)
VALUES (:uuid, :name, :state, 1, :profile, :issuer, :owner, :team, :environment, :policy, :key_location, :agent,
  :key_type, :names, :tags, :targets, :options, NULL, :fingerprint, :not_before, :not_after, 0, 0, NULL, :at, :at)
ON CONFLICT DO NOTHING RETURNING id, uuid"
};

/// Updates all columns that may change, if the row still has the revision that was read.
const UPDATE: BulkStatement = db::bulk! {
    (id bigint, revision bigint, name text, state bigint, profile text, issuer text, owner text, team text,
     environment text, policy text, key_location bigint, agent uuid, key_type text, names text, tags text,
     targets text, options text, version_id bigint, fingerprint bytea, not_before bigint, not_after bigint,
     served_fingerprint bytea, served_not_before bigint, served_not_after bigint, undeployed_since bigint,
     undeployed_late_at bigint, revoked bigint, failures bigint, last_error text, at bigint)
    "-- managed_update
UPDATE managed_certificates SET revision = revision + 1, name = :name, state = :state, profile = :profile,
  issuer = :issuer, owner = :owner, team = :team, environment = :environment, policy = :policy,
  key_location = :key_location, agent = :agent, key_type = :key_type, names = :names, tags = :tags,
  targets = :targets, options = :options, version_id = :version_id, fingerprint = :fingerprint,
  not_before = :not_before, not_after = :not_after, served_fingerprint = :served_fingerprint,
  served_not_before = :served_not_before, served_not_after = :served_not_after,
  undeployed_since = :undeployed_since, undeployed_late_at = :undeployed_late_at, revoked = :revoked, failures = :failures,
  last_error = :last_error, updated_at = :at
WHERE id = :id AND revision = :revision RETURNING id"
};

/// Updates only the columns that a state transition changes while the version stays the same. Few columns are listed, because
/// SQLite rewrites the index of every listed column, even if the value is unchanged.
const MOVE: BulkStatement = db::bulk! {
    (id bigint, revision bigint, state bigint, revoked bigint, failures bigint, last_error text, at bigint)
    "-- managed_move
UPDATE managed_certificates SET revision = revision + 1, state = :state, revoked = :revoked, failures = :failures,
  last_error = :last_error, updated_at = :at
WHERE id = :id AND revision = :revision RETURNING id"
};

const NAMES_DELETE: BulkStatement = db::bulk! { (certificate_id bigint)
    "-- managed_names_delete
DELETE FROM managed_names WHERE certificate_id = {any certificate_id}"
};

const NAMES_INSERT: BulkStatement = db::bulk! { (certificate_id bigint, position bigint, name_reversed text)
    "-- managed_names_insert
INSERT INTO managed_names (certificate_id, position, name_reversed) VALUES (:certificate_id, :position, :name_reversed)"
};

const TAGS_DELETE: BulkStatement = db::bulk! { (certificate_id bigint)
    "-- managed_tags_delete
DELETE FROM managed_tags WHERE certificate_id = {any certificate_id}"
};

const TAGS_INSERT: BulkStatement = db::bulk! { (certificate_id bigint, tag text, value text)
    "-- managed_tags_insert
INSERT INTO managed_tags (certificate_id, tag, value) VALUES (:certificate_id, :tag, :value)"
};

const TARGET_AGENTS: BulkStatement = db::bulk! { (uuid uuid)
    "-- managed_target_agents
SELECT uuid, agent FROM deploy_targets WHERE uuid = :uuid"
};

pub(crate) const ALL: &[&str] = &[
    BY_UUID,
    BY_NAME,
    groups::KEPT,
    totals::TOTALS,
    totals::EXPIRING_TO,
    totals::UNDEPLOYED,
    served::LATE,
    served::CHANGED,
    served::AFTER,
    signing::PAGE,
    signing::SINCE,
    signing::NEWEST,
    versions::VERSIONS,
    versions::SERVED,
    versions::VERSION,
    versions::SUGGESTIONS_DUE,
    versions::SUGGESTION,
    versions::VERSIONS_BY_FINGERPRINT,
    versions::REVOKED_BY,
];

pub(crate) const BULKS: &[&BulkStatement] = &[
    &BY_IDS,
    &BY_UUIDS,
    &TARGET_AGENTS,
    &INSERT,
    &UPDATE,
    &MOVE,
    &NAMES_DELETE,
    &NAMES_INSERT,
    &TAGS_DELETE,
    &TAGS_INSERT,
    &groups::ADJUST,
    &totals::ADJUST,
    &served::DEPLOYED,
    &served::OBSERVED,
    &versions::INSERT,
    &versions::REVOKE,
    &versions::BY_IDS,
    &versions::BY_FINGERPRINTS,
    &versions::ISSUED_IDS,
    &versions::SUGGESTIONS_SET,
    &versions::SUGGESTIONS_OF,
    &versions::SUGGESTIONS_DROP,
];

pub(crate) use name_part::{POSTGRES as NAME_PART_POSTGRES, SQLITE as NAME_PART_SQLITE};
pub(crate) use search::{ALL as SEARCH, POSTGRES as SEARCH_POSTGRES, SQLITE as SEARCH_SQLITE};

pub(crate) fn composed() -> Vec<String> {
    page::composed().into_iter().chain(groups::composed()).chain(facets::composed()).collect()
}

impl Managed<'_> {
    /// Returns a certificate by id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<ManagedView>, StoreError> {
        self.0.row(BY_UUID, vec![id.into()]).await?.map(view).transpose()
    }

    /// Returns a certificate by name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn named(self, name: &str) -> Result<Option<ManagedView>, StoreError> {
        self.0.row(BY_NAME, vec![name.into()]).await?.map(view).transpose()
    }
}

/// Returns certificates by row id, in no particular order. Unknown ids are ignored.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn managed_by_ids(tx: &mut Tx, ids: Vec<i64>) -> Result<Vec<ManagedRow>, StoreError> {
    tx.bulk(&BY_IDS, vec![Column::Int(ids)]).await?.into_iter().map(|mut row| managed_row(&mut row)).collect()
}

/// Returns certificates by their public id, in no particular order. Unknown ids are ignored.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn managed_by_uuids(tx: &mut Tx, ids: Vec<Uuid>) -> Result<Vec<ManagedRow>, StoreError> {
    tx.bulk(&BY_UUIDS, vec![Column::Uuid(ids)])
        .await?
        .into_iter()
        .map(|mut row| managed_row(&mut row))
        .collect()
}

/// Returns the agents of these targets, as pairs of target and agent. Missing targets are left out.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn agents_of_targets(tx: &mut Tx, targets: Vec<Uuid>) -> Result<Vec<(Uuid, Uuid)>, StoreError> {
    let rows = tx.bulk(&TARGET_AGENTS, vec![Column::Uuid(targets)]).await?;
    rows.into_iter().map(|mut row| Ok((row.uuid()?, row.uuid()?))).collect()
}

/// Inserts certificates. Returns the row id and public id of each inserted one. Skips a certificate whose name or id exists.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_managed(tx: &mut Tx, new: &[NewManaged]) -> Result<Vec<(i64, Uuid)>, StoreError> {
    let rows = || new.iter().map(|one| &one.row);
    let columns = vec![
        Column::Uuid(rows().map(|row| row.uuid).collect()),
        Column::Text(rows().map(|row| row.name.clone()).collect()),
        Column::Int(rows().map(|row| row.state.code()).collect()),
        Column::Text(rows().map(|row| row.profile.clone()).collect()),
        Column::Text(rows().map(|row| row.issuer.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.owner.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.team.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.environment.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.policy.clone()).collect()),
        Column::Int(rows().map(|row| row.key_location.code()).collect()),
        Column::MaybeUuid(rows().map(|row| row.agent).collect()),
        Column::Text(rows().map(|row| row.key_type.clone()).collect()),
        Column::Text(rows().map(|row| row.names.clone()).collect()),
        Column::Text(rows().map(|row| row.tags.clone()).collect()),
        Column::Text(rows().map(|row| row.targets.clone()).collect()),
        Column::Text(rows().map(|row| row.options.clone()).collect()),
        Column::MaybeBlob(rows().map(|row| row.fingerprint.map(|hash| hash.to_vec())).collect()),
        Column::Int(rows().map(|row| row.not_before_us).collect()),
        Column::Int(rows().map(|row| row.not_after_us).collect()),
        Column::Int(rows().map(|row| row.created_at_us).collect()),
    ];
    let given = tx.bulk(&INSERT, columns).await?;
    let given: Vec<(i64, Uuid)> =
        given.into_iter().map(|mut row| Ok((row.int()?, row.uuid()?))).collect::<Result<_, StoreError>>()?;
    let by_uuid: std::collections::HashMap<Uuid, i64> = given.iter().map(|(id, uuid)| (*uuid, *id)).collect();
    let entered: Vec<(i64, &NewManaged)> =
        new.iter().filter_map(|one| by_uuid.get(&one.row.uuid).map(|id| (*id, one))).collect();
    insert_names(tx, entered.iter().map(|(id, one)| (*id, &one.names[..]))).await?;
    insert_tags(tx, entered.iter().map(|(id, one)| (*id, &one.tags[..]))).await?;
    Ok(given)
}

/// Stores changed rows that still have the revision that was read, and returns their number. If the number is less than the number
/// of `rows`, the caller must roll back the transaction and read again.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_managed(tx: &mut Tx, rows: &[ManagedRow]) -> Result<usize, StoreError> {
    let columns = vec![
        Column::Int(rows.iter().map(|row| row.id).collect()),
        Column::Int(rows.iter().map(|row| row.revision).collect()),
        Column::Text(rows.iter().map(|row| row.name.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.state.code()).collect()),
        Column::Text(rows.iter().map(|row| row.profile.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.issuer.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.owner.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.team.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.environment.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.policy.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.key_location.code()).collect()),
        Column::MaybeUuid(rows.iter().map(|row| row.agent).collect()),
        Column::Text(rows.iter().map(|row| row.key_type.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.names.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.tags.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.targets.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.options.clone()).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.version).collect()),
        Column::MaybeBlob(rows.iter().map(|row| row.fingerprint.map(|hash| hash.to_vec())).collect()),
        Column::Int(rows.iter().map(|row| row.not_before_us).collect()),
        Column::Int(rows.iter().map(|row| row.not_after_us).collect()),
        Column::MaybeBlob(rows.iter().map(|row| row.served.map(|one| one.fingerprint.to_vec())).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.served.map(|one| one.not_before_us)).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.served.map(|one| one.not_after_us)).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.undeployed_since_us).collect()),
        Column::MaybeInt(rows.iter().map(|row| row.undeployed_late_at_us).collect()),
        Column::Int(rows.iter().map(|row| row.revoked.into()).collect()),
        Column::Int(rows.iter().map(|row| row.failures).collect()),
        Column::MaybeText(rows.iter().map(|row| row.last_error.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.updated_at_us).collect()),
    ];
    Ok(tx.bulk(&UPDATE, columns).await?.len())
}

/// Like [`update_managed`], for rows in which only state, revocation, failures, last error and time of change differ.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn move_managed(tx: &mut Tx, rows: &[ManagedRow]) -> Result<usize, StoreError> {
    let columns = vec![
        Column::Int(rows.iter().map(|row| row.id).collect()),
        Column::Int(rows.iter().map(|row| row.revision).collect()),
        Column::Int(rows.iter().map(|row| row.state.code()).collect()),
        Column::Int(rows.iter().map(|row| row.revoked.into()).collect()),
        Column::Int(rows.iter().map(|row| row.failures).collect()),
        Column::MaybeText(rows.iter().map(|row| row.last_error.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.updated_at_us).collect()),
    ];
    Ok(tx.bulk(&MOVE, columns).await?.len())
}

/// Replaces the names in the search index of these certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn replace_managed_names(tx: &mut Tx, of: &[(i64, Vec<String>)]) -> Result<(), StoreError> {
    tx.bulk(&NAMES_DELETE, vec![Column::Int(of.iter().map(|(id, _)| *id).collect())]).await?;
    insert_names(tx, of.iter().map(|(id, names)| (*id, &names[..]))).await
}

/// Replaces the tags in the search index of these certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn replace_managed_tags(
    tx: &mut Tx,
    of: &[(i64, Vec<(String, String)>)],
) -> Result<(), StoreError> {
    tx.bulk(&TAGS_DELETE, vec![Column::Int(of.iter().map(|(id, _)| *id).collect())]).await?;
    insert_tags(tx, of.iter().map(|(id, tags)| (*id, &tags[..]))).await
}

async fn insert_names<'a>(
    tx: &mut Tx,
    of: impl Iterator<Item = (i64, &'a [String])>,
) -> Result<(), StoreError> {
    let (mut ids, mut positions, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (id, all) in of {
        for (position, name) in all.iter().enumerate() {
            ids.push(id);
            positions.push(position as i64);
            names.push(reversed(name));
        }
    }
    tx.bulk(&NAMES_INSERT, vec![Column::Int(ids), Column::Int(positions), Column::Text(names)])
        .await
        .map(drop)
}

async fn insert_tags<'a>(
    tx: &mut Tx,
    of: impl Iterator<Item = (i64, &'a [(String, String)])>,
) -> Result<(), StoreError> {
    let (mut ids, mut tags, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (id, all) in of {
        for (tag, value) in all {
            ids.push(id);
            tags.push(tag.clone());
            values.push(value.clone());
        }
    }
    tx.bulk(&TAGS_INSERT, vec![Column::Int(ids), Column::Text(tags), Column::Text(values)]).await.map(drop)
}
