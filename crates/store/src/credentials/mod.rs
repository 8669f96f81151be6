//! Credentials: names, sealed versions, and who may do what with them.
//!
//! Whether somebody may do something is decided in the statement that does it: a permission taken away holds from the
//! next statement on, and asking costs no round trip.

mod permissions;
mod tokens;
mod write;

use uuid::Uuid;

use crate::cursor::{Cursor, Page};
use crate::error::StoreError;
use crate::keys::{SealedColumn, sealed_column};
use crate::scans::key_or;
use crate::sql::Sends;
use crate::store::{Cost, Store, limit_of};
use crate::tx::Bulk;
use crate::value::{Row, Value};

pub use permissions::{
    PermissionRow, PermissionSettings, delete_permission, insert_permission, update_permission,
};
pub use write::{
    NewCredentialVersion, Put, delete_credential, delete_credential_version, put_credential_versions,
    set_transitional_version,
};

/// The values, sealed.
pub const SEALED_CREDENTIALS: SealedColumn =
    sealed_column!("credential_versions", "uuid" Uuid "uuid", "sealed");

/// What may be done with what lies at a path: bits of a permission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CredentialOperation {
    /// Read values.
    Read = 1,
    /// Set and generate.
    Write = 2,
    /// Delete.
    Delete = 4,
    /// See permissions.
    ReadAcl = 8,
    /// Change permissions.
    WriteAcl = 16,
}

/// On whose behalf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CredentialAsker {
    /// As permissions name them.
    pub actor: String,
    /// Whether everything is allowed, whatever permissions say.
    pub everything: bool,
}

impl CredentialAsker {
    pub(crate) fn values(&self) -> [Value; 2] {
        [self.everything.into(), self.actor.as_str().into()]
    }
}

/// A version of a credential.
#[derive(Clone, Eq, PartialEq)]
pub struct CredentialRow {
    /// The credential's identity, the same for all versions.
    pub credential: Uuid,
    /// As it was first written.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The version's identity.
    pub version: Uuid,
    /// When the version was stored, µs.
    pub created_at_us: i64,
    /// The value.
    pub sealed: Vec<u8>,
    /// JSON.
    pub metadata: Option<String>,
    /// How it was generated: JSON.
    pub parameters: Option<String>,
    /// What is known of it and no secret: JSON.
    pub facts: Option<String>,
    /// When its certificate ends, µs.
    pub not_after_us: Option<i64>,
    /// Whether it is its authority's version in transition.
    pub transitional: bool,
    /// Which credential signed the newest version: its name in lower case.
    pub signed_by: Option<String>,
}

impl std::fmt::Debug for CredentialRow {
    /// Without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialRow")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A credential that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundCredential {
    /// As it was first written.
    pub name: String,
    /// When its newest version was stored, µs.
    pub created_at_us: i64,
    /// When that version's certificate ends, µs.
    pub not_after_us: Option<i64>,
}

/// Whether the asker (`$all`, `$actor`) holds one of the operations `$bits` on the name of `c`.
macro_rules! may {
    ($bits:literal, $all:literal, $actor:literal) => {
        concat!(
            "(",
            $all,
            " = 1 OR EXISTS (SELECT 1 FROM credential_permissions p WHERE p.actor = ",
            $actor,
            " AND p.operations & ",
            $bits,
            " <> 0 AND (p.path_key = c.name_key OR substr(c.name_key, 1, length(p.prefix)) = p.prefix)))"
        )
    };
}
pub(crate) use may;

macro_rules! columns {
    () => {
        "c.uuid, c.name, c.kind, v.uuid, v.created_at, v.sealed, v.metadata, v.parameters, v.facts, v.not_after, \
         v.transitional, c.signed_by"
    };
}

/// Of each name its newest version that is not in transition, and the one that is.
const CURRENT: Bulk = Bulk {
    sqlite: concat!(
        "-- credentials_current\nSELECT ",
        columns!(),
        " FROM json_each(?1) n JOIN credentials c ON c.name_key = n.value JOIN credential_versions v ON v.id IN (
    (SELECT max(a.id) FROM credential_versions a WHERE a.credential_id = c.id AND a.transitional = 0),
    (SELECT max(t.id) FROM credential_versions t WHERE t.credential_id = c.id AND t.transitional = 1))
WHERE ",
        may!("1", "?2", "?3"),
        " ORDER BY c.id, v.transitional"
    ),
    postgres: concat!(
        "-- credentials_current\nSELECT ",
        columns!(),
        " FROM credentials c CROSS JOIN LATERAL (
    (SELECT * FROM credential_versions a WHERE a.credential_id = c.id AND a.transitional = 0 ORDER BY a.id DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM credential_versions t WHERE t.credential_id = c.id AND t.transitional = 1 ORDER BY t.id DESC LIMIT 1)
) v WHERE c.name_key = ANY(ARRAY(SELECT h FROM json_array_elements_text(?1::text::json) AS h)) AND ",
        may!("1", "?2", "?3"),
        " ORDER BY c.id, v.transitional"
    ),
};

const VERSIONS: &str = concat!(
    "-- credential_versions\nSELECT ",
    columns!(),
    " FROM credentials c JOIN credential_versions v ON v.credential_id = c.id WHERE c.name_key = ?1 AND ",
    may!("1", "?2", "?3"),
    " ORDER BY v.id DESC LIMIT ?4"
);

const VERSION: &str = concat!(
    "-- credential_version\nSELECT ",
    columns!(),
    " FROM credential_versions v JOIN credentials c ON c.id = v.credential_id WHERE v.uuid = ?1 AND ",
    may!("1", "?2", "?3")
);

const NAME_OF: &str = "-- credential_name
SELECT name FROM credentials WHERE uuid = ?1";

const FOUND: &str = concat!(
    "-- credential_found
SELECT c.name, c.current_at, c.current_not_after FROM credentials c WHERE c.name_key = ?1 AND ",
    may!("1", "?2", "?3")
);

/// Names from ?1 on and before ?2, whose newest version ends before ?5; 0 stands for any.
const UNDER: &str = concat!(
    "-- credentials_under
SELECT c.name, c.current_at, c.current_not_after FROM credentials c
WHERE c.name_key >= ?1 AND c.name_key < ?2 AND (?5 = 0 OR c.current_not_after <= ?5) AND ",
    may!("1", "?3", "?4"),
    " ORDER BY c.name_key LIMIT ?6"
);

/// Names like ?1. A walk over all names: a part of a name has no index.
const LIKE: &str = concat!(
    "-- credentials_like
SELECT c.name, c.current_at, c.current_not_after FROM credentials c
WHERE c.name_key LIKE ?1 ESCAPE '\\' AND (?4 = 0 OR c.current_not_after <= ?4) AND ",
    may!("1", "?2", "?3"),
    " ORDER BY c.name_key LIMIT ?5"
);

const CERTIFICATES: &str = concat!(
    "-- credential_certificates\nSELECT ",
    columns!(),
    ", c.id FROM credentials c JOIN credential_versions v ON v.credential_id = c.id
WHERE c.kind = 'certificate' AND c.id > ?3 AND c.id <= (
    SELECT max(m.id) FROM (
        SELECT e.id FROM credentials e WHERE e.kind = 'certificate' AND e.id > ?3 ORDER BY e.id LIMIT ?4) AS m) AND ",
    may!("1", "?1", "?2"),
    " ORDER BY c.id, v.id DESC"
);

const SIGNED: &str = concat!(
    "-- credentials_signed
SELECT c.name, c.signed_by FROM credentials c WHERE c.signed_by = ?1 AND ",
    may!("1", "?2", "?3"),
    " ORDER BY c.name_key"
);

const LAST_CERTIFICATE: &str = "-- credential_certificates_last
SELECT max(id) FROM (SELECT id FROM credentials WHERE kind = 'certificate' AND id > ?1 ORDER BY id LIMIT ?2) AS m";

const SEALED_WITH: &str = "-- credentials_sealed_with
SELECT substr(sealed, 1, 9), count(*) FROM credential_versions GROUP BY substr(sealed, 1, 9)";

pub(crate) const SENDS: Sends = Sends {
    both: &[
        VERSIONS,
        VERSION,
        NAME_OF,
        FOUND,
        UNDER,
        LIKE,
        CERTIFICATES,
        LAST_CERTIFICATE,
        SIGNED,
        SEALED_WITH,
        SEALED_CREDENTIALS.page,
        SEALED_CREDENTIALS.count,
        write::LOCK_VERSION,
        write::DELETE_VERSIONS,
        write::DELETE,
        write::DELETE_VERSION,
        write::NEWEST,
        write::TRANSITION,
        permissions::INSERT,
        permissions::UPDATE,
        permissions::DELETE,
        permissions::BY_ID,
        permissions::BY_PATH,
        permissions::AT,
        permissions::PAGE,
        permissions::MAY,
        tokens::END,
        tokens::ENDED,
        tokens::TIDY,
    ],
    sqlite: &[CURRENT.sqlite],
    postgres: &[CURRENT.postgres],
    bulks: &[&SEALED_CREDENTIALS.replace, &write::NAMES, &write::LOCK, &write::VERSIONS, &write::CURRENT],
    composed: Vec::new,
};

impl Store {
    /// What stands at these names (lower case) now: of each the newest version that is not in transition, then the one
    /// that is, if there is one and the asker may read. One statement, whatever the count of names.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_current(
        &self,
        asker: &CredentialAsker,
        names: &[String],
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let text = if self.is_postgres() { CURRENT.postgres } else { CURRENT.sqlite };
        let [everything, actor] = asker.values();
        let names = serde_json::Value::from(names).to_string();
        let rows = self.rows(Cost::Point, text, vec![names.into(), everything, actor]).await?;
        rows.into_iter().map(row_of).collect()
    }

    /// The newest versions of a name (lower case), newest first. As many rows are read as are given.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credential_versions(
        &self,
        asker: &CredentialAsker,
        name: &str,
        most: usize,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let [everything, actor] = asker.values();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let parameters = vec![name.into(), everything, actor, most.into()];
        let rows = self.rows(Cost::Walk, VERSIONS, parameters).await?;
        rows.into_iter().map(row_of).collect()
    }

    /// A version by its identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credential_version(
        &self,
        asker: &CredentialAsker,
        version: Uuid,
    ) -> Result<Option<CredentialRow>, StoreError> {
        let [everything, actor] = asker.values();
        self.row(VERSION, vec![version.into(), everything, actor]).await?.map(row_of).transpose()
    }

    /// The name of a credential, by the credential's identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credential_name(&self, credential: Uuid) -> Result<Option<String>, StoreError> {
        self.row(NAME_OF, vec![credential.into()]).await?.map(|mut row| row.text()).transpose()
    }

    /// A name (lower case), if it is there and the asker may read it. A probe of one index.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credential_found(
        &self,
        asker: &CredentialAsker,
        name: &str,
    ) -> Result<Option<FoundCredential>, StoreError> {
        let [everything, actor] = asker.values();
        self.row(FOUND, vec![name.into(), everything, actor]).await?.map(found_of).transpose()
    }

    /// Names (lower case) from `from` on and before `before` that the asker may read, by name, at most `most`.
    /// `ends_by_us`: only those whose newest version's certificate ends by then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_under(
        &self,
        asker: &CredentialAsker,
        (from, before): (&str, &str),
        ends_by_us: Option<i64>,
        most: usize,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        let [everything, actor] = asker.values();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let ends = ends_by_us.unwrap_or(0);
        let parameters = vec![from.into(), before.into(), everything, actor, ends.into(), most.into()];
        let rows = self.rows(Cost::Walk, UNDER, parameters).await?;
        rows.into_iter().map(found_of).collect()
    }

    /// As [`Self::credentials_under`], of names (lower case) like `pattern`: `%` stands for any run, `_` for any
    /// character, `\` takes that from what follows.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_like(
        &self,
        asker: &CredentialAsker,
        pattern: &str,
        ends_by_us: Option<i64>,
        most: usize,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        let [everything, actor] = asker.values();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let parameters = vec![pattern.into(), everything, actor, ends_by_us.unwrap_or(0).into(), most.into()];
        let rows = self.rows(Cost::Walk, LIKE, parameters).await?;
        rows.into_iter().map(found_of).collect()
    }

    /// Every version of a page of certificates, credential by credential in the order in which they were made, versions
    /// newest first; `limit` counts credentials, those the asker may not read among them.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn credential_certificates(
        &self,
        asker: &CredentialAsker,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<CredentialRow>, StoreError> {
        let start = key_or(after, "credential-certificates", &[Value::Int(0)])?;
        let (limit, _) = limit_of(limit);
        let [everything, actor] = asker.values();
        let range = vec![start[0].clone(), (limit as i64).into()];
        let last = self.row(LAST_CERTIFICATE, range.clone()).await?;
        let last = last.map(|mut row| row.maybe_int()).transpose()?.flatten();
        let mut parameters = vec![everything, actor];
        parameters.extend(range);
        let rows = self.rows(Cost::Walk, CERTIFICATES, parameters).await?;
        let rows = rows.into_iter().map(row_of).collect::<Result<Vec<_>, _>>()?;
        let next = last.map(|last| Cursor::new("credential-certificates", &[Value::Int(last)]));
        Ok(Page { rows, next })
    }

    /// The names of what a credential (lower case) signed that is current.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_signed_by(
        &self,
        asker: &CredentialAsker,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let [everything, actor] = asker.values();
        let rows = self.rows(Cost::Walk, SIGNED, vec![name.into(), everything, actor]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// How many versions are sealed with which head (version of the seal, master key). Walks an index.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn credentials_sealed_with(&self) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let rows = self.rows(Cost::Walk, SEALED_WITH, Vec::new()).await?;
        rows.into_iter().map(|mut row| Ok((row.blob()?, row.number()?))).collect()
    }
}

fn row_of(mut row: Row) -> Result<CredentialRow, StoreError> {
    Ok(CredentialRow {
        credential: row.uuid()?,
        name: row.text()?,
        kind: row.text()?,
        version: row.uuid()?,
        created_at_us: row.int()?,
        sealed: row.blob()?,
        metadata: row.maybe_text()?,
        parameters: row.maybe_text()?,
        facts: row.maybe_text()?,
        not_after_us: row.maybe_int()?,
        transitional: row.flag()?,
        signed_by: row.maybe_text()?,
    })
}

fn found_of(mut row: Row) -> Result<FoundCredential, StoreError> {
    Ok(FoundCredential { name: row.text()?, created_at_us: row.int()?, not_after_us: row.maybe_int()? })
}
