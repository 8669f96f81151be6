//! Certificates under management: their rows, names, tags, versions and counts.

mod handle;
mod page;
mod plans;
mod row;
mod signing;
mod totals;
mod versions;

pub use page::{ManagedFilter, ManagedOrder, ManagedScope, managed_selected};
pub use row::{ManagedRow, ManagedView, NEVER_ISSUED_US, OpenRun};
pub use signing::{SigningKeyPage, SigningKeyRow, SigningKeysBy};
pub use totals::{ManagedSummary, ManagedTotal, adjust_managed_totals};
pub use versions::{
    ManagedSuggestion, ManagedVersion, NewManagedVersion, RevokedVersion, ServedVersion, drop_suggestions,
    due_suggestions, insert_versions, issued_ids_of, managed_by_version_fingerprints, revoke_versions,
    set_suggestions, suggestions_of, versions_of, versions_revoked_by,
};

use uuid::Uuid;

use row::{managed_columns, managed_row, run_columns, run_join, view};

use db::{Bulk, Column, StoreError, Tx, reversed};
pub use handle::Managed;

/// A certificate to enter.
#[derive(Clone, Debug)]
pub struct NewManaged {
    /// The row; `id` and `revision` are given by the database.
    pub row: ManagedRow,
    /// Its names, for the search by suffix.
    pub names: Vec<String>,
    /// Its tags.
    pub tags: Vec<(String, String)>,
}

const BY_UUID: &str = concat!(
    "-- managed_by_uuid\nSELECT ",
    managed_columns!(),
    ", ",
    run_columns!(),
    " FROM managed_certificates m",
    run_join!(),
    " WHERE m.uuid = ?1"
);

const BY_NAME: &str = concat!(
    "-- managed_by_name\nSELECT ",
    managed_columns!(),
    ", ",
    run_columns!(),
    " FROM managed_certificates m",
    run_join!(),
    " WHERE m.name = ?1"
);

const BY_IDS: Bulk = Bulk {
    sqlite: concat!(
        "-- managed_by_ids\nSELECT ",
        managed_columns!(),
        " FROM managed_certificates m WHERE m.id = ?1"
    ),
    postgres: concat!(
        "-- managed_by_ids\nSELECT ",
        managed_columns!(),
        " FROM UNNEST(?1::bigint[]) AS u(id) JOIN managed_certificates m ON m.id = u.id"
    ),
};

const BY_UUIDS: Bulk = Bulk {
    sqlite: concat!(
        "-- managed_by_uuids\nSELECT ",
        managed_columns!(),
        " FROM managed_certificates m WHERE m.uuid = ?1"
    ),
    postgres: concat!(
        "-- managed_by_uuids\nSELECT ",
        managed_columns!(),
        " FROM UNNEST(?1::uuid[]) AS u(uuid) JOIN managed_certificates m ON m.uuid = u.uuid"
    ),
};

const INSERT: Bulk = Bulk {
    sqlite: "-- managed_insert
INSERT INTO managed_certificates (uuid, name, state, revision, profile, issuer, owner, team, environment, policy,
  key_location, agent, key_type, names, tags, targets, options, version_id, fingerprint, not_before, not_after, revoked,
  failures, last_error, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, NULL, ?17, ?18, ?19, 0, 0, NULL,
  ?20, ?20)
ON CONFLICT DO NOTHING RETURNING id, uuid",
    postgres: "-- managed_insert
INSERT INTO managed_certificates (uuid, name, state, revision, profile, issuer, owner, team, environment, policy,
  key_location, agent, key_type, names, tags, targets, options, version_id, fingerprint, not_before, not_after, revoked,
  failures, last_error, created_at, updated_at)
SELECT u.uuid, u.name, u.state, 1, u.profile, u.issuer, u.owner, u.team, u.environment, u.policy, u.key_location,
  u.agent, u.key_type, u.names, u.tags, u.targets, u.options, NULL, u.fingerprint, u.not_before, u.not_after, 0, 0,
  NULL, u.at, u.at
FROM UNNEST(?1::uuid[], ?2::text[], ?3::bigint[], ?4::text[], ?5::text[], ?6::text[], ?7::text[], ?8::text[],
  ?9::text[], ?10::bigint[], ?11::uuid[], ?12::text[], ?13::text[], ?14::text[], ?15::text[], ?16::text[],
  ?17::bytea[], ?18::bigint[], ?19::bigint[], ?20::bigint[])
  AS u(uuid, name, state, profile, issuer, owner, team, environment, policy, key_location, agent, key_type, names, tags,
       targets, options, fingerprint, not_before, not_after, at)
ON CONFLICT DO NOTHING RETURNING id, uuid",
};

/// Everything that may change, of rows whose revision is still the one that was read.
const UPDATE: Bulk = Bulk {
    sqlite: "-- managed_update
UPDATE managed_certificates SET revision = revision + 1, name = ?3, state = ?4, profile = ?5, issuer = ?6, owner = ?7,
  team = ?8, environment = ?9, policy = ?10, key_location = ?11, agent = ?12, key_type = ?13, names = ?14, tags = ?15,
  targets = ?16, options = ?17, version_id = ?18, fingerprint = ?19, not_before = ?20, not_after = ?21, revoked = ?22,
  failures = ?23, last_error = ?24, updated_at = ?25
WHERE id = ?1 AND revision = ?2 RETURNING id",
    postgres: "-- managed_update
UPDATE managed_certificates SET revision = managed_certificates.revision + 1, name = u.name, state = u.state,
  profile = u.profile, issuer = u.issuer, owner = u.owner, team = u.team, environment = u.environment,
  policy = u.policy, key_location = u.key_location, agent = u.agent, key_type = u.key_type, names = u.names,
  tags = u.tags, targets = u.targets, options = u.options, version_id = u.version_id, fingerprint = u.fingerprint,
  not_before = u.not_before, not_after = u.not_after, revoked = u.revoked, failures = u.failures,
  last_error = u.last_error, updated_at = u.at
FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::text[], ?4::bigint[], ?5::text[], ?6::text[], ?7::text[], ?8::text[],
  ?9::text[], ?10::text[], ?11::bigint[], ?12::uuid[], ?13::text[], ?14::text[], ?15::text[], ?16::text[], ?17::text[],
  ?18::bigint[], ?19::bytea[], ?20::bigint[], ?21::bigint[], ?22::bigint[], ?23::bigint[], ?24::text[], ?25::bigint[])
  AS u(id, revision, name, state, profile, issuer, owner, team, environment, policy, key_location, agent, key_type,
       names, tags, targets, options, version_id, fingerprint, not_before, not_after, revoked, failures, last_error, at)
WHERE managed_certificates.id = u.id AND managed_certificates.revision = u.revision RETURNING managed_certificates.id",
};

/// What a move changes while the version stays: SQLite writes every index anew whose columns are named here, changed or
/// not, so they are few.
const MOVE: Bulk = Bulk {
    sqlite: "-- managed_move
UPDATE managed_certificates SET revision = revision + 1, state = ?3, revoked = ?4, failures = ?5, last_error = ?6,
  updated_at = ?7
WHERE id = ?1 AND revision = ?2 RETURNING id",
    postgres: "-- managed_move
UPDATE managed_certificates SET revision = managed_certificates.revision + 1, state = u.state, revoked = u.revoked,
  failures = u.failures, last_error = u.last_error, updated_at = u.at
FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::bigint[], ?6::text[], ?7::bigint[])
  AS u(id, revision, state, revoked, failures, last_error, at)
WHERE managed_certificates.id = u.id AND managed_certificates.revision = u.revision RETURNING managed_certificates.id",
};

const NAMES_DELETE: Bulk = Bulk {
    sqlite: "-- managed_names_delete
DELETE FROM managed_names WHERE certificate_id = ?1",
    postgres: "-- managed_names_delete
DELETE FROM managed_names WHERE certificate_id = ANY(?1::bigint[])",
};

const NAMES_INSERT: Bulk = Bulk {
    sqlite: "-- managed_names_insert
INSERT INTO managed_names (certificate_id, position, name_reversed) VALUES (?1, ?2, ?3)",
    postgres: "-- managed_names_insert
INSERT INTO managed_names (certificate_id, position, name_reversed)
SELECT * FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::text[])",
};

const TAGS_DELETE: Bulk = Bulk {
    sqlite: "-- managed_tags_delete
DELETE FROM managed_tags WHERE certificate_id = ?1",
    postgres: "-- managed_tags_delete
DELETE FROM managed_tags WHERE certificate_id = ANY(?1::bigint[])",
};

const TAGS_INSERT: Bulk = Bulk {
    sqlite: "-- managed_tags_insert
INSERT INTO managed_tags (certificate_id, tag, value) VALUES (?1, ?2, ?3)",
    postgres: "-- managed_tags_insert
INSERT INTO managed_tags (certificate_id, tag, value) SELECT * FROM UNNEST(?1::bigint[], ?2::text[], ?3::text[])",
};

const TARGET_AGENTS: Bulk = Bulk {
    sqlite: "-- managed_target_agents
SELECT uuid, agent FROM deploy_targets WHERE uuid = ?1",
    postgres: "-- managed_target_agents
SELECT t.uuid, t.agent FROM UNNEST(?1::uuid[]) AS u(uuid) JOIN deploy_targets t ON t.uuid = u.uuid",
};

pub(crate) const ALL: &[&str] = &[
    BY_UUID,
    BY_NAME,
    totals::TOTALS,
    totals::EXPIRING_TO,
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

pub(crate) const BULKS: &[&Bulk] = &[
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
    &totals::ADJUST,
    &versions::INSERT,
    &versions::REVOKE,
    &versions::BY_IDS,
    &versions::BY_FINGERPRINTS,
    &versions::ISSUED_IDS,
    &versions::SUGGESTIONS_SET,
    &versions::SUGGESTIONS_OF,
    &versions::SUGGESTIONS_DROP,
];

pub(crate) fn composed() -> Vec<String> {
    page::composed()
}

impl Managed<'_> {
    /// A certificate by its identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get(self, id: Uuid) -> Result<Option<ManagedView>, StoreError> {
        self.0.row(BY_UUID, vec![id.into()]).await?.map(view).transpose()
    }

    /// A certificate by its name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn named(self, name: &str) -> Result<Option<ManagedView>, StoreError> {
        self.0.row(BY_NAME, vec![name.into()]).await?.map(view).transpose()
    }
}

/// Rows by their number, in no order; those missing are left out.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn managed_by_ids(tx: &mut Tx, ids: Vec<i64>) -> Result<Vec<ManagedRow>, StoreError> {
    tx.bulk(&BY_IDS, vec![Column::Int(ids)]).await?.into_iter().map(|mut row| managed_row(&mut row)).collect()
}

/// Rows by their identity, in no order; those missing are left out.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn managed_by_uuids(tx: &mut Tx, ids: Vec<Uuid>) -> Result<Vec<ManagedRow>, StoreError> {
    tx.bulk(&BY_UUIDS, vec![Column::Uuid(ids)])
        .await?
        .into_iter()
        .map(|mut row| managed_row(&mut row))
        .collect()
}

/// The agents of these targets: target and agent; targets that do not exist are left out.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn agents_of_targets(tx: &mut Tx, targets: Vec<Uuid>) -> Result<Vec<(Uuid, Uuid)>, StoreError> {
    let rows = tx.bulk(&TARGET_AGENTS, vec![Column::Uuid(targets)]).await?;
    rows.into_iter().map(|mut row| Ok((row.uuid()?, row.uuid()?))).collect()
}

/// Enters certificates; answers the rows given, by identity. A name or identity that exists leaves its certificate out.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_managed(tx: &mut Tx, new: &[NewManaged]) -> Result<Vec<(i64, Uuid)>, StoreError> {
    let rows = || new.iter().map(|one| &one.row);
    let columns = vec![
        Column::Uuid(rows().map(|row| row.uuid).collect()),
        Column::Text(rows().map(|row| row.name.clone()).collect()),
        Column::Int(rows().map(|row| row.state).collect()),
        Column::Text(rows().map(|row| row.profile.clone()).collect()),
        Column::Text(rows().map(|row| row.issuer.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.owner.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.team.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.environment.clone()).collect()),
        Column::MaybeText(rows().map(|row| row.policy.clone()).collect()),
        Column::Int(rows().map(|row| row.key_location).collect()),
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

/// Stores rows that were read and changed; answers how many still had the revision read. Whoever gets fewer than given
/// undoes the transaction and reads again.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn update_managed(tx: &mut Tx, rows: &[ManagedRow]) -> Result<usize, StoreError> {
    let columns = vec![
        Column::Int(rows.iter().map(|row| row.id).collect()),
        Column::Int(rows.iter().map(|row| row.revision).collect()),
        Column::Text(rows.iter().map(|row| row.name.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.state).collect()),
        Column::Text(rows.iter().map(|row| row.profile.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.issuer.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.owner.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.team.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.environment.clone()).collect()),
        Column::MaybeText(rows.iter().map(|row| row.policy.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.key_location).collect()),
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
        Column::Int(rows.iter().map(|row| row.revoked.into()).collect()),
        Column::Int(rows.iter().map(|row| row.failures).collect()),
        Column::MaybeText(rows.iter().map(|row| row.last_error.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.updated_at_us).collect()),
    ];
    Ok(tx.bulk(&UPDATE, columns).await?.len())
}

/// [`update_managed`] of rows of which only state, revocation, failures, last error and time of change differ.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn move_managed(tx: &mut Tx, rows: &[ManagedRow]) -> Result<usize, StoreError> {
    let columns = vec![
        Column::Int(rows.iter().map(|row| row.id).collect()),
        Column::Int(rows.iter().map(|row| row.revision).collect()),
        Column::Int(rows.iter().map(|row| row.state).collect()),
        Column::Int(rows.iter().map(|row| row.revoked.into()).collect()),
        Column::Int(rows.iter().map(|row| row.failures).collect()),
        Column::MaybeText(rows.iter().map(|row| row.last_error.clone()).collect()),
        Column::Int(rows.iter().map(|row| row.updated_at_us).collect()),
    ];
    Ok(tx.bulk(&MOVE, columns).await?.len())
}

/// Replaces the names by which these certificates are found.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn replace_managed_names(tx: &mut Tx, of: &[(i64, Vec<String>)]) -> Result<(), StoreError> {
    tx.bulk(&NAMES_DELETE, vec![Column::Int(of.iter().map(|(id, _)| *id).collect())]).await?;
    insert_names(tx, of.iter().map(|(id, names)| (*id, &names[..]))).await
}

/// Replaces the tags by which these certificates are found.
///
/// # Errors
/// Those of the database.
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
