//! Who may do something with a name, by which permission or role, how two names differ in that, and what changed since.

use uuid::Uuid;

use super::asker::CredentialOperation;
use super::handle::Credentials;
use super::list::list;
use super::permissions::paths_above;
use db::{Bulk, Cost, Cursor, Page, Row, Sends, StoreError, Value, key_or, limit_of, page, with_limit};

/// The origin of a permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessWay {
    /// A permission.
    Permission {
        /// Its identity.
        id: Uuid,
        /// Its path, as written.
        path: String,
        /// When it was last changed, µs.
        changed_at_us: Option<i64>,
    },
    /// A role that may do everything.
    Role {
        /// Its name.
        role: String,
    },
}

/// An actor's permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessRow {
    /// As permissions name them.
    pub actor: String,
    /// Why.
    pub way: AccessWay,
    /// Since when, µs: of a role, when its holder was made.
    pub since_us: i64,
    /// The granting actor, if known.
    pub given_by: Option<String>,
}

/// Somebody who may do something with one of two names only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessDifference {
    /// As permissions name them.
    pub actor: String,
    /// The path by which the first name is theirs, the smallest of several.
    pub here: Option<String>,
    /// The path by which the second name is.
    pub there: Option<String>,
}

/// A permission that was given, changed or taken away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessChangeRow {
    /// When, µs.
    pub at_us: i64,
    /// The actor.
    pub by: String,
    /// `credential.grant` or `credential.ungrant`.
    pub action: String,
    /// What the log says of it: JSON with actor, path and operations.
    pub details: String,
    /// The same of the event before about the same permission.
    pub before: Option<String>,
    /// That one's action.
    pub action_before: Option<String>,
}

/// Who has a permission at one of some paths (?1), and the holders of a role (?4) that may do everything: those whom it was
/// given to, and those logged in whose groups have it.
const WHO: Bulk = db::bulk! {
    "-- credential_access
SELECT a.actor, a.id, a.path, a.since, a.changed, a.given_by, a.role, a.place FROM (
SELECT p.actor AS actor, p.uuid AS id, p.path AS path, p.created_at AS since, p.changed_at AS changed,
       p.granted_by AS given_by, p.path_key AS place, {NULL|CAST(NULL AS TEXT)} AS role
FROM credential_permissions p WHERE p.path_key {among ?1 text} AND p.operations & ?2 <> 0
UNION ALL
SELECT CASE i.kind WHEN 'token' THEN 'uaa-client:' WHEN 'user' THEN 'uaa-user:'
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

/// Who may with one of two names (the paths that reach them: ?1, ?2) and not with the other. Roles reach both.
const DIFFER: Bulk = db::bulk! {
    "-- credential_access_difference
SELECT d.actor, d.here, d.there FROM (
SELECT p.actor AS actor, min(CASE WHEN p.path_key {among ?1 text} THEN p.path END) AS here, min(CASE WHEN p.path_key {among ?2 text} THEN p.path END) AS there
FROM credential_permissions p WHERE (p.path_key {among ?1 text} OR p.path_key {among ?2 text}) AND p.operations & ?3 <> 0 GROUP BY p.actor) d
WHERE (d.here IS NULL) <> (d.there IS NULL) AND d.actor > ?4 ORDER BY d.actor LIMIT ?5"
};

/// What was done to permissions that reach a name, oldest first, each with what stood before.
const SINCE: Bulk = db::bulk! {
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

pub(crate) const SENDS: Sends = Sends::of(&[], &[&WHO, &DIFFER, &SINCE]);

/// The paths of permissions that reach a name or path (lower case).
fn reaching(path_key: &str) -> Value {
    let keys: Vec<String> = paths_above(path_key).collect();
    list(&keys)
}

impl Credentials<'_> {
    /// Who may do something with a name or path (lower case): by permission, or by one of these roles, which may do
    /// everything. By actor. One statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn access(
        self,
        (path_key, operation): (&str, CredentialOperation),
        roles: &[String],
        now_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessRow>, StoreError> {
        const LISTING: &str = "credential-access";
        let start = key_or(after, LISTING, &[Value::Text(String::new()), Value::Text(String::new())])?;
        let (limit, ask) = limit_of(limit);
        let roles = serde_json::Value::from(roles).to_string();
        let mut parameters = vec![reaching(path_key), (operation as i32).into(), now_us.into(), roles.into()];
        parameters.extend(start);
        let rows = self.0.rows(Cost::Walk, WHO.of(self.0), with_limit(parameters, ask)).await?;
        page(rows, limit, LISTING, access_of)
    }

    /// Who may do something with one of two names (lower case) and not with the other, by actor. One statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn access_difference(
        self,
        (here, there): (&str, &str),
        operation: CredentialOperation,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessDifference>, StoreError> {
        const LISTING: &str = "credential-access-difference";
        let start = key_or(after, LISTING, &[Value::Text(String::new())])?;
        let (limit, ask) = limit_of(limit);
        let mut parameters = vec![reaching(here), reaching(there), (operation as i32).into()];
        parameters.extend(start);
        let rows = self.0.rows(Cost::Walk, DIFFER.of(self.0), with_limit(parameters, ask)).await?;
        page(rows, limit, LISTING, |mut row| {
            let actor = row.text()?;
            let key = vec![Value::Text(actor.clone())];
            Ok((AccessDifference { actor, here: row.maybe_text()?, there: row.maybe_text()? }, key))
        })
    }

    /// What was done since a time (µs) to permissions that reach a name or path (lower case), oldest first. One statement.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
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
        let (limit, ask) = limit_of(limit);
        let mut parameters = vec![reaching(path_key)];
        parameters.extend(start);
        let rows = self.0.rows(Cost::Walk, SINCE.of(self.0), with_limit(parameters, ask)).await?;
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

fn access_of(mut row: Row) -> Result<(AccessRow, Vec<Value>), StoreError> {
    let (actor, id, path) = (row.text()?, row.maybe_uuid()?, row.maybe_text()?);
    let (since_us, changed_at_us, given_by) = (row.int()?, row.maybe_int()?, row.maybe_text()?);
    let (role, place) = (row.maybe_text()?, row.text()?);
    let key = vec![Value::Text(actor.clone()), Value::Text(place)];
    let way = way(id, path, role, changed_at_us)?;
    Ok((AccessRow { actor, way, since_us, given_by }, key))
}

fn way(
    id: Option<Uuid>,
    path: Option<String>,
    role: Option<String>,
    changed_at_us: Option<i64>,
) -> Result<AccessWay, StoreError> {
    match (id, path, role) {
        (Some(id), Some(path), None) => Ok(AccessWay::Permission { id, path, changed_at_us }),
        (None, None, Some(role)) => Ok(AccessWay::Role { role }),
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
    fn access_is_by_a_permission_or_by_a_role_and_by_nothing_else() {
        let (id, path, role) = (Uuid::nil(), || Some("/a".to_owned()), || Some("admin".to_owned()));
        let permission = way(Some(id), path(), None, Some(1)).unwrap();
        assert_eq!(permission, AccessWay::Permission { id, path: "/a".to_owned(), changed_at_us: Some(1) });
        assert_eq!(way(None, None, role(), None).unwrap(), AccessWay::Role { role: "admin".to_owned() });
        for (id, path, role) in [
            (None, None, None),
            (Some(id), None, None),
            (None, path(), None),
            (None, path(), role()),
            (Some(id), path(), role()),
        ] {
            assert!(way(id, path, role, None).unwrap_err().to_string().contains("credential_access"));
        }
    }
}
