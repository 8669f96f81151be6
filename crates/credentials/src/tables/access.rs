//! Queries of the actors with access to a name, of the difference between two names, and of changes since a time.

use uuid::Uuid;

use super::handle::Credentials;
use super::list::list;
use super::permissions::paths_above;
use super::requester::CredentialOperation;
use db::{
    BulkStatement, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Value, key_or, limit_of, page,
    with_limit,
};

/// The source of an actor's access.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessSource {
    /// A permission on the name itself, or on a path above it.
    Permission {
        /// Id of the permission.
        id: Uuid,
        /// Path of the permission, as written.
        path: String,
        /// Time of the last change, µs since 1970-01-01 UTC.
        changed_at_us: Option<i64>,
    },
    /// A role with full access.
    Role {
        /// Name of the role.
        role: String,
    },
}

/// An actor with access to a name, and the source of the access.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessRow {
    /// The actor, as named in permissions.
    pub actor: String,
    /// Permission or role from which the actor has access.
    pub source: AccessSource,
    /// Start of the access, µs since 1970-01-01 UTC. For a role: when its holder was created.
    pub since_us: i64,
    /// The granting actor, if known.
    pub given_by: Option<String>,
}

/// An actor that has access to one of two names only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessDifference {
    /// The actor, as named in permissions.
    pub actor: String,
    /// The permission path that covers the first name. Of several paths, the first in sort order.
    pub here: Option<String>,
    /// The permission path that covers the second name. Of several paths, the first in sort order.
    pub there: Option<String>,
}

/// A grant, change or revocation of a permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessChangeRow {
    /// Time of the change, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// Actor that made the change.
    pub by: String,
    /// Action of the change: `credential.grant` or `credential.ungrant`.
    pub action: String,
    /// Details from the audit log: JSON with actor, path and operations.
    pub details: String,
    /// Details of the previous event about the same permission.
    pub before: Option<String>,
    /// Action of the previous event.
    pub action_before: Option<String>,
}

/// Actors with a permission for one of the paths ?1, and holders of one of the roles ?4, which have full access. A holder has the
/// role by assignment, or by a group of the login. Actors of tokens have the prefix ?8.
const ACCESS: BulkStatement = db::bulk! {
    "-- credential_access
SELECT a.actor, a.id, a.path, a.since, a.changed, a.given_by, a.role, a.place FROM (
SELECT p.actor AS actor, p.uuid AS id, p.path AS path, p.created_at AS since, p.changed_at AS changed,
       p.granted_by AS given_by, p.path_key AS place, {NULL|CAST(NULL AS TEXT)} AS role
FROM credential_permissions p WHERE p.path_key {among ?1 text} AND p.operations & ?2 <> 0
UNION ALL
SELECT CASE i.kind WHEN 'token' THEN ?8{|::text} WHEN 'user' THEN 'user:'
       WHEN 'certificate' THEN 'certificate:' END || i.name,
       NULL, NULL, i.created_at, NULL, i.created_by, '',
       coalesce((SELECT min({json_extract(g.value, '$.role')|g->>'role'})
        FROM {json_each(i.grants) g|json_array_elements(i.grants::json) AS g}
        WHERE {json_extract(g.value, '$.role')|g->>'role'} {among ?4 text}
        AND coalesce({json_extract(g.value, '$.scope')|g->>'scope'}, 'any') = 'any'),
       (SELECT min(r) FROM (SELECT {json_extract(g.value, '$.role')|g->>'role'} AS r
        FROM access_sessions s, {json_each(s.grants) g|json_array_elements(s.grants::json) AS g}
        WHERE s.identity = i.id AND s.expires_at > ?3 AND {json_extract(g.value, '$.role')|g->>'role'} {among ?4 text}
        AND coalesce({json_extract(g.value, '$.scope')|g->>'scope'}, 'any') = 'any') AS by_login))
FROM access_identities i WHERE i.enabled = 1 AND (i.expires_at IS NULL OR i.expires_at > ?3)
) a WHERE (a.id IS NOT NULL OR a.role IS NOT NULL)
  AND (a.actor{| COLLATE \"C\"}, a.place{| COLLATE \"C\"}) > (?5, ?6)
ORDER BY a.actor{| COLLATE \"C\"}, a.place{| COLLATE \"C\"} LIMIT ?7"
};

/// Actors with access to one of two names, but not to the other. Roles give access to both. ?1 and ?2: the paths that match each
/// name.
const ACCESS_DIFFERENCE: BulkStatement = db::bulk! {
    "-- credential_access_difference
SELECT d.actor, d.here, d.there FROM (
SELECT p.actor AS actor, min(CASE WHEN p.path_key {among ?1 text} THEN p.path END) AS here, min(CASE WHEN p.path_key {among ?2 text} THEN p.path END) AS there
FROM credential_permissions p WHERE (p.path_key {among ?1 text} OR p.path_key {among ?2 text}) AND p.operations & ?3 <> 0 GROUP BY p.actor) d
WHERE (d.here IS NULL) <> (d.there IS NULL) AND d.actor > ?4 ORDER BY d.actor LIMIT ?5"
};

/// Changes of permissions that match a name, oldest first, each with the previous state.
const ACCESS_SINCE: BulkStatement = db::bulk! {
    "-- credential_access_since
SELECT e.at, e.actor, e.action, e.details,
       (SELECT b.details FROM audit_events b WHERE b.resource = e.resource AND (b.at, b.shard, b.sequence) < (e.at, e.shard, e.sequence)
        ORDER BY b.at DESC, b.shard DESC, b.sequence DESC LIMIT 1),
       (SELECT b.action FROM audit_events b WHERE b.resource = e.resource AND (b.at, b.shard, b.sequence) < (e.at, e.shard, e.sequence)
        ORDER BY b.at DESC, b.shard DESC, b.sequence DESC LIMIT 1),
       e.shard, e.sequence
FROM audit_events e WHERE e.action IN ('credential.grant', 'credential.ungrant')
AND (e.at, e.shard, e.sequence) > (?2, ?3, ?4) AND lower({json_extract(e.details, '$.path')|(e.details::json)->>'path'}) {among ?1 text}
ORDER BY e.at, e.shard, e.sequence LIMIT ?5"
};

pub(crate) const MODULE_STATEMENTS: ModuleStatements =
    ModuleStatements::of(&[], &[&ACCESS, &ACCESS_DIFFERENCE, &ACCESS_SINCE]);

/// Returns the paths of permissions that match a name or path (lower case).
fn matching_paths(path_key: &str) -> Value {
    let keys: Vec<String> = paths_above(path_key).collect();
    list(&keys)
}

impl Credentials<'_> {
    /// Lists the actors that may perform an operation on a name or path (lower case), by permission or by one of these roles with
    /// full access. Sorted by actor. Actors of API tokens have the prefix `tokens`. Uses one statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn access(
        self,
        (path_key, operation): (&str, CredentialOperation),
        (roles, tokens): (&[String], &str),
        now_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessRow>, StoreError> {
        const LISTING: &str = "credential-access";
        let start = key_or(after, LISTING, &[Value::Text(String::new()), Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        let roles = serde_json::Value::from(roles).to_string();
        let mut parameters =
            vec![matching_paths(path_key), (operation as i32).into(), now_us.into(), roles.into()];
        parameters.extend(start);
        let mut parameters = with_limit(parameters, fetch_limit);
        parameters.push(tokens.into());
        let rows = self.0.rows(Cost::Walk, ACCESS.of(self.0), parameters).await?;
        page(rows, limit, LISTING, access_row)
    }

    /// Lists the actors that may perform an operation on one of two names (lower case), but not on the other. Sorted by actor. Uses
    /// one statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn access_difference(
        self,
        (here, there): (&str, &str),
        operation: CredentialOperation,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessDifference>, StoreError> {
        const LISTING: &str = "credential-access-difference";
        let start = key_or(after, LISTING, &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        let mut parameters = vec![matching_paths(here), matching_paths(there), (operation as i32).into()];
        parameters.extend(start);
        let rows = self
            .0
            .rows(Cost::Walk, ACCESS_DIFFERENCE.of(self.0), with_limit(parameters, fetch_limit))
            .await?;
        page(rows, limit, LISTING, |mut row| {
            let actor = row.text()?;
            let key = vec![Value::Text(actor.clone())];
            Ok((AccessDifference { actor, here: row.maybe_text()?, there: row.maybe_text()? }, key))
        })
    }

    /// Lists the changes of permissions that match a name or path (lower case) since the given time (µs), oldest first. Uses one
    /// statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn access_since(
        self,
        path_key: &str,
        since_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessChangeRow>, StoreError> {
        const LISTING: &str = "credential-access-since";
        let first = [Value::Int(since_us), Value::Int(-1), Value::Int(-1)];
        let start = key_or(after, LISTING, &first)?;
        let (limit, fetch_limit) = limit_of(limit);
        let mut parameters = vec![matching_paths(path_key)];
        parameters.extend(start);
        let rows =
            self.0.rows(Cost::Walk, ACCESS_SINCE.of(self.0), with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, LISTING, |mut row| {
            let change = AccessChangeRow {
                at_us: row.int()?,
                by: row.text()?,
                action: row.text()?,
                details: row.text()?,
                before: row.maybe_text()?,
                action_before: row.maybe_text()?,
            };
            let key = vec![Value::Int(change.at_us), Value::Int(row.int()?), Value::Int(row.int()?)];
            Ok((change, key))
        })
    }
}

fn access_row(mut row: Row) -> Result<(AccessRow, Vec<Value>), StoreError> {
    let (actor, id, path) = (row.text()?, row.maybe_uuid()?, row.maybe_text()?);
    let (since_us, changed_at_us, given_by) = (row.int()?, row.maybe_int()?, row.maybe_text()?);
    let (role, path_key) = (row.maybe_text()?, row.text()?);
    let key = vec![Value::Text(actor.clone()), Value::Text(path_key)];
    let source = source(id, path, role, changed_at_us)?;
    Ok((AccessRow { actor, source, since_us, given_by }, key))
}

fn source(
    id: Option<Uuid>,
    path: Option<String>,
    role: Option<String>,
    changed_at_us: Option<i64>,
) -> Result<AccessSource, StoreError> {
    match (id, path, role) {
        (Some(id), Some(path), None) => Ok(AccessSource::Permission { id, path, changed_at_us }),
        (None, None, Some(role)) => Ok(AccessSource::Role { role }),
        (id, path, role) => {
            let found = format!("id {id:?}, path {path:?}, role {role:?}");
            Err(StoreError::Corrupt(format!("credential_access: neither a permission nor a role: {found}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_row_must_hold_either_a_permission_or_a_role() {
        let (id, path, role) = (Uuid::nil(), || Some("/a".to_owned()), || Some("admin".to_owned()));
        let permission = source(Some(id), path(), None, Some(1)).unwrap();
        assert_eq!(
            permission,
            AccessSource::Permission { id, path: "/a".to_owned(), changed_at_us: Some(1) }
        );
        assert_eq!(
            source(None, None, role(), None).unwrap(),
            AccessSource::Role { role: "admin".to_owned() }
        );
        for (id, path, role) in [
            (None, None, None),
            (Some(id), None, None),
            (None, path(), None),
            (None, path(), role()),
            (Some(id), path(), role()),
        ] {
            assert!(source(id, path, role, None).unwrap_err().to_string().contains("credential_access"));
        }
    }
}
