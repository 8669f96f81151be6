//! Leases: credentials that exist at a database until they are revoked there.
//!
//! A lease is inserted before its role is created at the database, and deleted after the role is dropped there. A crash between
//! these steps can leave a lease without a role, but never a role without a lease.

use uuid::Uuid;

use super::databases::texts;
use super::handle::Credentials;
use super::rotation::rotation_range;
use coded::named;
use db::{
    BulkStatement, Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or,
    limit_of, page, with_limit,
};

/// Maximum leases of one actor.
pub const LEASES_OF_ONE_MAX: i64 = 1_000;

/// Maximum leases that one call revokes, or one round marks.
pub const LEASES_AT_ONCE: i64 = 1_000;

named! {
    /// State of a lease: its database role is being created, exists, or is being dropped.
    pub enum LeaseState: "state of a lease" {
        /// The lease's role is being created at the database.
        Creating => "creating",
        /// The lease's credential can be used.
        Active => "active",
        /// The lease's role is being dropped at the database.
        Revoking => "revoking",
    }
}

/// A lease of a dynamic credential, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseRow {
    /// Id of the lease.
    pub id: Uuid,
    /// Name of the role (lower case).
    pub name_key: String,
    /// Name of the role.
    pub name: String,
    /// Name of the connection.
    pub connection: String,
    /// Name of the role that was created at the database.
    pub username: String,
    /// Statements that drop the role at the database. Empty: the default statements.
    pub revocation: Vec<String>,
    /// Actor that requested the credential.
    pub actor: String,
    /// Token, person or certificate that requested the lease. When this identity ends, the lease is revoked.
    pub identity: Option<Uuid>,
    /// Login token that requested the lease. When this token is revoked, so is the lease.
    pub login: Option<Uuid>,
    /// State of the lease.
    pub state: LeaseState,
    /// Creation time, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Expiry, µs since 1970-01-01 UTC.
    pub expires_at_us: i64,
    /// Maximum expiry with all renewals, µs since 1970-01-01 UTC.
    pub max_expires_at_us: i64,
    /// Time of the next attempt to revoke, µs since 1970-01-01 UTC.
    pub next_at_us: i64,
    /// Number of failed attempts to revoke.
    pub tries: i64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// Reason of the revocation, or the actor that requested it.
    pub ended_by: Option<String>,
}

/// The next attempt to revoke a lease that could not be revoked yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseRetry {
    /// Id of the lease.
    pub id: Uuid,
    /// Time of the next attempt, µs since 1970-01-01 UTC.
    pub next_at_us: i64,
    /// Error of the last attempt; `None` if the attempt did not fail but must be repeated.
    pub error: Option<String>,
}

/// Selection of leases to revoke.
#[derive(Clone, Debug)]
pub enum LeaseSelection {
    /// One lease.
    One(Uuid),
    /// Leases of a role, or of all roles below a path (lower case).
    Path(String),
    /// Leases of an actor.
    Actor(String),
    /// Leases of a login token.
    Login(Uuid),
}

macro_rules! columns {
    () => {
        "l.uuid, l.name_key, l.name, l.connection, l.username, l.revocation, l.actor, l.identity, l.login, l.state, l.created_at, \
         l.expires_at, l.max_expires_at, l.next_at, l.tries, l.error, l.ended_by"
    };
}

/// Inserts a lease if its connection has not changed since it was read (?15), and the actor has fewer than ?16 leases. The lock on
/// the connection excludes a concurrent change of its address.
const INSERT: BulkStatement = db::bulk! {
    "-- credential_lease_insert
INSERT INTO credential_leases (uuid, name_key, name, connection, username, revocation, actor, identity, login, state, created_at,
  expires_at, max_expires_at, next_at)
SELECT ?1{|::uuid}, ?2{|::text}, ?3{|::text}, c.name, ?5{|::text}, ?6{|::text}, ?7{|::text}, ?8{|::uuid}, ?9{|::uuid}, ?10{|::text},
  ?11{|::bigint}, ?12{|::bigint}, ?13{|::bigint}, ?14{|::bigint}
FROM credential_connections c WHERE c.name = ?4 AND c.uuid = ?15
AND (SELECT count(*) FROM (SELECT 1 FROM credential_leases w WHERE w.actor = ?7 LIMIT ?16) AS held) < ?16{| FOR SHARE OF c}"
};
const ACTIVATE: &str = "-- credential_lease_activate
UPDATE credential_leases SET state = ?2, next_at = expires_at WHERE uuid = ?1 AND state = ?3 AND expires_at > ?4";
const FORGET: &str = "-- credential_lease_forget
DELETE FROM credential_leases WHERE uuid = ?1 AND state = ?2";
const RENEW: &str = "-- credential_lease_renew
UPDATE credential_leases SET expires_at = ?2, next_at = ?2 WHERE uuid = ?1 AND state = ?3 AND expires_at > ?4";
const ONE: &str =
    concat!("-- credential_lease\nSELECT ", columns!(), " FROM credential_leases l WHERE l.uuid = ?1");
const ALL: &str = concat!(
    "-- credential_leases\nSELECT ",
    columns!(),
    " FROM credential_leases l WHERE (l.name_key, l.uuid) > (?1, ?2) AND l.name_key >= ?3 AND l.name_key < ?4
ORDER BY l.name_key, l.uuid LIMIT ?5"
);
const OWN: &str = concat!(
    "-- credential_leases_own\nSELECT ",
    columns!(),
    " FROM credential_leases l WHERE l.actor = ?1 AND l.uuid > ?2 ORDER BY l.uuid LIMIT ?3"
);

/// Marks leases (?1 …) for revocation now.
macro_rules! end {
    ($name:literal, $which:literal) => {
        concat!(
            "-- ",
            $name,
            "\nUPDATE credential_leases SET state = ?1, next_at = ?2, ended_by = ?3, identity = NULL, login = NULL
WHERE uuid IN (SELECT l.uuid FROM credential_leases l WHERE ",
            $which,
            " AND l.state <> ?1 ORDER BY l.uuid LIMIT ?4)"
        )
    };
}
const END_ONE: &str = end!("credential_lease_end", "l.uuid = ?5");
const END_PATH: &str = end!("credential_leases_end_path", "l.name_key >= ?5 AND l.name_key < ?6");
const END_ACTOR: &str = end!("credential_leases_end_actor", "l.actor = ?5");
const END_LOGIN: &str = end!("credential_leases_end_login", "l.login = ?5");
const END_DUE: &str = end!("credential_leases_end_due", "l.next_at <= ?2");
const END_IDENTITY: &str = end!("credential_leases_end_identity", "l.identity = ?5");

const ANY_DUE: &str = "-- credential_leases_any_due
SELECT 1 FROM credential_leases WHERE next_at <= ?1 LIMIT 1";
/// Identities of leases that cannot authenticate any more. Costs a few index probes for each identity, regardless of the number of
/// its leases.
const ENDED: &str = "-- credential_leases_ended_identities
WITH RECURSIVE held (identity) AS (
    SELECT (SELECT f.identity FROM credential_leases f WHERE f.identity IS NOT NULL ORDER BY f.identity LIMIT 1)
    UNION ALL
    SELECT (SELECT n.identity FROM credential_leases n WHERE n.identity > h.identity ORDER BY n.identity LIMIT 1)
    FROM held h WHERE h.identity IS NOT NULL
)
SELECT h.identity FROM held h WHERE h.identity IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM access_identities i WHERE i.id = h.identity AND i.enabled <> 0 AND (i.expires_at IS NULL OR i.expires_at > ?1)
) LIMIT ?2";
/// Names of connections with due leases. Costs a few index probes for each connection.
const DUE_CONNECTIONS: &str = "-- credential_leases_due_connections
WITH RECURSIVE held (connection) AS (
    SELECT (SELECT min(f.connection) FROM credential_leases f)
    UNION ALL
    SELECT (SELECT min(n.connection) FROM credential_leases n WHERE n.connection > h.connection) FROM held h WHERE h.connection IS NOT NULL
)
SELECT h.connection FROM held h WHERE h.connection IS NOT NULL
AND EXISTS (SELECT 1 FROM credential_leases l WHERE l.connection = h.connection AND l.next_at <= ?1) LIMIT ?2";
const DUE: &str = concat!(
    "-- credential_leases_due\nSELECT ",
    columns!(),
    " FROM credential_leases l WHERE l.connection = ?1 AND l.next_at <= ?2 AND l.state = ?3 ORDER BY l.next_at, l.uuid LIMIT ?4"
);
const DONE: BulkStatement = db::bulk! { (id uuid)
    "-- credential_leases_done
DELETE FROM credential_leases WHERE uuid = {any id} RETURNING uuid"
};
const RETRY: BulkStatement = db::bulk! { (id uuid, next_at bigint, failed bigint, error text)
    "-- credential_leases_retry
UPDATE credential_leases SET next_at = :next_at, tries = tries + :failed, error = :error WHERE uuid = :id"
};
/// All due leases of a connection that does not answer.
const DELETED_BEFORE: &str = "-- credential_leases_away
UPDATE credential_leases SET next_at = ?3, tries = tries + 1, error = ?4 WHERE connection = ?1 AND next_at <= ?2";
const ANY_FAILED: &str = "-- credential_leases_any_failed
SELECT 1 FROM credential_leases WHERE connection = ?1 AND tries >= ?2 LIMIT 1";

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[
        ACTIVATE,
        FORGET,
        RENEW,
        ONE,
        ALL,
        OWN,
        END_ONE,
        END_PATH,
        END_ACTOR,
        END_LOGIN,
        END_DUE,
        END_IDENTITY,
        ANY_DUE,
        ENDED,
        DUE_CONNECTIONS,
        DUE,
        DELETED_BEFORE,
        ANY_FAILED,
    ],
    sqlite: &[],
    postgres: &[],
    bulks: &[&INSERT, &DONE, &RETRY],
    composed: Vec::new,
};

/// Inserts a lease in the state [`LeaseState::Creating`]. Returns false when the connection has another configuration than `revision`,
/// or the actor has [`LEASES_OF_ONE_MAX`] leases.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn insert_lease(tx: &mut Tx, lease: &LeaseRow, revision: Uuid) -> Result<bool, StoreError> {
    let parameters: Vec<Value> = vec![
        lease.id.into(),
        lease.name_key.as_str().into(),
        lease.name.as_str().into(),
        lease.connection.as_str().into(),
        lease.username.as_str().into(),
        serde_json::Value::from(lease.revocation.as_slice()).to_string().into(),
        lease.actor.as_str().into(),
        lease.identity.into(),
        lease.login.into(),
        lease.state.name().into(),
        lease.created_at_us.into(),
        lease.expires_at_us.into(),
        lease.max_expires_at_us.into(),
        lease.next_at_us.into(),
        revision.into(),
        LEASES_OF_ONE_MAX.into(),
    ];
    let text = tx.text_of(&INSERT);
    Ok(tx.execute(text, parameters).await? == 1)
}

/// Makes a created lease active. Returns false if it was revoked in the meantime.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn activate_lease(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    let (active, creating) = (LeaseState::Active.name(), LeaseState::Creating.name());
    Ok(tx.execute(ACTIVATE, vec![id.into(), active.into(), creating.into(), now_us.into()]).await? == 1)
}

/// Deletes a lease whose role was certainly not created.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn forget_lease(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(FORGET, vec![id.into(), LeaseState::Creating.name().into()]).await? == 1)
}

/// Sets the expiry of an active lease. Returns false if it has expired or is being revoked.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn renew_lease(tx: &mut Tx, id: Uuid, expires_at_us: i64, now_us: i64) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), expires_at_us.into(), LeaseState::Active.name().into(), now_us.into()];
    Ok(tx.execute(RENEW, parameters).await? == 1)
}

/// Marks leases for revocation now, at most [`LEASES_AT_ONCE`]. Returns their number.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn end_leases(
    tx: &mut Tx,
    selection: LeaseSelection,
    now_us: i64,
    by: &str,
) -> Result<u64, StoreError> {
    let mut parameters: Vec<Value> =
        vec![LeaseState::Revoking.name().into(), now_us.into(), by.into(), LEASES_AT_ONCE.into()];
    let text = match selection {
        LeaseSelection::One(id) => {
            parameters.push(id.into());
            END_ONE
        }
        LeaseSelection::Path(path_key) => {
            let (from, before) = rotation_range(&path_key);
            parameters.extend([from.into(), before.into()]);
            END_PATH
        }
        LeaseSelection::Actor(actor) => {
            parameters.push(actor.into());
            END_ACTOR
        }
        LeaseSelection::Login(id) => {
            parameters.push(id.into());
            END_LOGIN
        }
    };
    tx.execute(text, parameters).await
}

/// Marks due leases for revocation: expired leases, and leases whose creation was not confirmed. Marks at most [`LEASES_AT_ONCE`]
/// and returns their number.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn end_due_leases(tx: &mut Tx, now_us: i64) -> Result<u64, StoreError> {
    let revoking = LeaseState::Revoking.name();
    tx.execute(END_DUE, vec![revoking.into(), now_us.into(), "expiry".into(), LEASES_AT_ONCE.into()]).await
}

/// Marks the leases of an identity for revocation now, at most [`LEASES_AT_ONCE`].
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn end_leases_of_identity(tx: &mut Tx, identity: Uuid, now_us: i64) -> Result<u64, StoreError> {
    let parameters = vec![
        LeaseState::Revoking.name().into(),
        now_us.into(),
        "end of the identity".into(),
        LEASES_AT_ONCE.into(),
        identity.into(),
    ];
    tx.execute(END_IDENTITY, parameters).await
}

/// Deletes leases whose roles were dropped. Returns the ids of the leases that existed. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_leases(tx: &mut Tx, ids: Vec<Uuid>) -> Result<Vec<Uuid>, StoreError> {
    let rows = tx.bulk(&DONE, vec![Column::Uuid(ids)]).await?;
    rows.into_iter().map(|mut row| row.uuid()).collect()
}

/// Stores the times of the next attempts to revoke leases, and the errors of failed attempts. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn retry_leases(tx: &mut Tx, retries: &[LeaseRetry]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(retries.iter().map(|one| one.id).collect()),
        Column::Int(retries.iter().map(|one| one.next_at_us).collect()),
        Column::Int(retries.iter().map(|one| i64::from(one.error.is_some())).collect()),
        Column::MaybeText(retries.iter().map(|one| one.error.clone()).collect()),
    ];
    tx.bulk(&RETRY, columns).await.map(drop)
}

/// Delays all due leases of a connection that does not answer. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delay_leases(
    tx: &mut Tx,
    connection: &str,
    now_us: i64,
    next_at_us: i64,
    error: &str,
) -> Result<u64, StoreError> {
    tx.execute(DELETED_BEFORE, vec![connection.into(), now_us.into(), next_at_us.into(), error.into()]).await
}

/// Returns whether a connection has a lease with at least `tries` failed attempts.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn has_failed_leases(tx: &mut Tx, connection: &str, tries: i64) -> Result<bool, StoreError> {
    Ok(tx.row(ANY_FAILED, vec![connection.into(), tries.into()]).await?.is_some())
}

impl Credentials<'_> {
    /// Returns a lease by its id.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn lease(self, id: Uuid) -> Result<Option<LeaseRow>, StoreError> {
        self.0.row(ONE, vec![id.into()]).await?.map(lease_row).transpose()
    }

    /// Returns a page of the leases of a role, or of all roles below a path (lower case).
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn leases_below(
        self,
        path_key: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<LeaseRow>, StoreError> {
        const LISTING: &str = "credential-leases";
        let first = [Value::Text(String::new()), Value::from(Uuid::nil())];
        let mut parameters = key_or(after, LISTING, &first)?;
        let (from, before) = rotation_range(path_key);
        parameters.extend([from.into(), before.into()]);
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, ALL, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, LISTING, |row| {
            let lease = lease_row(row)?;
            let key = vec![lease.name_key.as_str().into(), lease.id.into()];
            Ok((lease, key))
        })
    }

    /// Returns a page of the leases of an actor.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn leases_of(
        self,
        actor: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<LeaseRow>, StoreError> {
        const LISTING: &str = "credential-leases-own";
        let mut parameters = vec![Value::from(actor)];
        parameters.extend(key_or(after, LISTING, &[Value::from(Uuid::nil())])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, OWN, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, LISTING, |row| {
            let lease = lease_row(row)?;
            let key = vec![lease.id.into()];
            Ok((lease, key))
        })
    }

    /// Returns whether any lease is due for revocation.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn any_lease_due(self, now_us: i64) -> Result<bool, StoreError> {
        Ok(self.0.row(ANY_DUE, vec![now_us.into()]).await?.is_some())
    }

    /// Returns identities that have leases, and that were deleted or disabled, or have expired; at most [`LEASES_AT_ONCE`].
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn ended_lease_identities(self, now_us: i64) -> Result<Vec<Uuid>, StoreError> {
        let rows = self.0.rows(Cost::Point, ENDED, vec![now_us.into(), LEASES_AT_ONCE.into()]).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }

    /// Returns the names of connections with due leases.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn connections_with_due_leases(self, now_us: i64) -> Result<Vec<String>, StoreError> {
        let rows =
            self.0.rows(Cost::Point, DUE_CONNECTIONS, vec![now_us.into(), LEASES_AT_ONCE.into()]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Returns due leases of a connection that are to be revoked, at most `limit`.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn due_leases(
        self,
        connection: &str,
        now_us: i64,
        limit: i64,
    ) -> Result<Vec<LeaseRow>, StoreError> {
        let state = LeaseState::Revoking.name();
        let parameters = vec![connection.into(), now_us.into(), state.into(), limit.into()];
        self.0.rows(Cost::Point, DUE, parameters).await?.into_iter().map(lease_row).collect()
    }
}

fn lease_row(mut row: Row) -> Result<LeaseRow, StoreError> {
    Ok(LeaseRow {
        id: row.uuid()?,
        name_key: row.text()?,
        name: row.text()?,
        connection: row.text()?,
        username: row.text()?,
        revocation: texts(&row.text()?)?,
        actor: row.text()?,
        identity: row.maybe_uuid()?,
        login: row.maybe_uuid()?,
        state: row.named("credential_leases.state")?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
        max_expires_at_us: row.int()?,
        next_at_us: row.int()?,
        tries: row.int()?,
        error: row.maybe_text()?,
        ended_by: row.maybe_text()?,
    })
}
