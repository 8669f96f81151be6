//! Connections to target databases, and roles: the templates of the dynamic credentials in these databases.

use uuid::Uuid;

use super::handle::Credentials;
use super::requester::{Requester, may};
use coded::named;
use db::{
    BulkStatement, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or, limit_of, page,
    with_limit,
};
use store::{SealedColumn, sealed_column};

/// Maximum number of configured database connections. Operators create each one, so that a low limit suffices.
pub const CONNECTIONS_MAX: i64 = 1_000;

/// Maximum roles of an installation.
pub const ROLES_MAX: i64 = 10_000;

/// The encrypted passwords of connections.
pub const SEALED_CONNECTIONS: SealedColumn =
    sealed_column!("credential_connections", "uuid" Uuid "uuid", "sealed");

named! {
    /// Encryption of a connection to a database.
    pub enum ConnectionTls: "TLS mode" {
        /// TLS; the certificate must be trusted and name the host.
        VerifyFull => "verify-full",
        /// TLS; the certificate must be trusted.
        VerifyCa => "verify-ca",
        /// No TLS.
        Disable => "disable",
    }
}

/// A connection to a database in which roles are created on request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConnectionRow {
    /// Id of this configuration. The encryption of the password is bound to this id.
    pub id: Uuid,
    /// Name of the connection.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// TCP port of the database server.
    pub port: u16,
    /// Name of the database.
    pub database: String,
    /// Database role that creates and drops the roles of leases.
    pub username: String,
    /// TLS mode: `verify-full`, `verify-ca` or `disable`.
    pub tls: ConnectionTls,
    /// Certificates to trust, in PEM. They replace the system's roots.
    pub roots: Option<String>,
    /// The encrypted password.
    pub sealed: Vec<u8>,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub set_at_us: i64,
    /// Actor that made the last change.
    pub set_by: String,
}

/// A role: the SQL templates and lifetimes of the credentials that are created through a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RoleRow {
    /// Name of the role, a path like the name of a credential.
    pub name: String,
    /// Name of the connection.
    pub connection: String,
    /// Templates of the statements that create a credential.
    pub creation: Vec<String>,
    /// Templates of the statements that drop a credential. Empty: the default statements.
    pub revocation: Vec<String>,
    /// Lifetime of a lease if the request contains none, s.
    pub default_ttl_s: u32,
    /// Maximum lifetime of a lease with all renewals, s.
    pub max_ttl_s: u32,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub set_at_us: i64,
    /// Actor that made the last change.
    pub set_by: String,
}

/// Objects that use a connection and prevent its deletion or change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConnectionUse {
    /// Name of a role that uses the connection.
    Role(String),
    /// Number of leases that use the connection.
    Leases(u64),
}

macro_rules! connection_columns {
    () => {
        "uuid, name, host, port, db_name, username, tls, roots, sealed, set_at, set_by"
    };
}

macro_rules! role_columns {
    () => {
        "c.name, c.connection, c.creation, c.revocation, c.default_ttl_s, c.max_ttl_s, c.set_at, c.set_by"
    };
}

const PUT: BulkStatement = db::bulk! {
    "-- credential_connection_put
INSERT INTO credential_connections (uuid, name, host, port, db_name, username, tls, roots, sealed, set_at, set_by)
SELECT ?1{|::uuid}, ?2{|::text}, ?3{|::text}, ?4{|::bigint}, ?5{|::text}, ?6{|::text}, ?7{|::text}, ?8{|::text}, ?9{|::bytea},
  ?10{|::bigint}, ?11{|::text}
WHERE (SELECT count(*) FROM credential_connections k WHERE k.name <> ?2) < ?12
ON CONFLICT (name) DO UPDATE SET uuid = excluded.uuid, host = excluded.host, port = excluded.port,
    db_name = excluded.db_name, username = excluded.username, tls = excluded.tls, roots = excluded.roots,
    sealed = excluded.sealed, set_at = excluded.set_at, set_by = excluded.set_by"
};
const DELETE: &str = "-- credential_connection_delete
DELETE FROM credential_connections WHERE name = ?1";
const ONE: &str = concat!(
    "-- credential_connection\nSELECT ",
    connection_columns!(),
    " FROM credential_connections WHERE name = ?1"
);
/// Locks the connection: no lease is inserted until the transaction ends.
const LOCK_CONNECTION: BulkStatement = db::bulk! {
    concat!(
        "-- credential_connection_hold\nSELECT ",
        connection_columns!(),
        " FROM credential_connections WHERE name = ?1{| FOR UPDATE}"
    )
};
const ALL: &str = concat!(
    "-- credential_connections\nSELECT ",
    connection_columns!(),
    " FROM credential_connections ORDER BY name LIMIT ?1"
);
const ROLE_OF: &str = "-- credential_connection_role
SELECT name FROM credential_roles WHERE connection = ?1 ORDER BY name_key LIMIT 1";
const LEASES_OF: &str = "-- credential_connection_leases
SELECT count(*) FROM credential_leases WHERE connection = ?1";

const PUT_ROLE: BulkStatement = db::bulk! {
    "-- credential_role_put
INSERT INTO credential_roles (name_key, name, connection, creation, revocation, default_ttl_s, max_ttl_s, set_at, set_by)
SELECT ?1{|::text}, ?2{|::text}, ?3{|::text}, ?4{|::text}, ?5{|::text}, ?6{|::bigint}, ?7{|::bigint}, ?8{|::bigint}, ?9{|::text}
WHERE (SELECT count(*) FROM credential_roles k WHERE k.name_key <> ?1) < ?10
ON CONFLICT (name_key) DO UPDATE SET connection = excluded.connection, creation = excluded.creation,
    revocation = excluded.revocation, default_ttl_s = excluded.default_ttl_s, max_ttl_s = excluded.max_ttl_s,
    set_at = excluded.set_at, set_by = excluded.set_by"
};
const DELETE_ROLE: &str = "-- credential_role_delete
DELETE FROM credential_roles WHERE name_key = ?1";
/// A role by name (?1), if the caller may read it.
const ROLE: &str = concat!(
    "-- credential_role\nSELECT ",
    role_columns!(),
    " FROM credential_roles c WHERE c.name_key = ?1 AND ",
    may!("1", "?2", "?3")
);
const ROLES: &str = concat!(
    "-- credential_roles\nSELECT ",
    role_columns!(),
    ", c.name_key FROM credential_roles c WHERE ",
    may!("1", "?1", "?2"),
    " AND c.name_key > ?3 ORDER BY c.name_key LIMIT ?4"
);

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[
        DELETE,
        ONE,
        ALL,
        ROLE_OF,
        LEASES_OF,
        DELETE_ROLE,
        ROLE,
        ROLES,
        SEALED_CONNECTIONS.page,
        SEALED_CONNECTIONS.count,
        SEALED_CONNECTIONS.heads,
    ],
    sqlite: &[],
    postgres: &[],
    bulks: &[&PUT, &LOCK_CONNECTION, &PUT_ROLE, &SEALED_CONNECTIONS.replace],
    composed: Vec::new,
};

/// Creates a connection, or replaces the connection of that name. Returns false when [`CONNECTIONS_MAX`] others exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn put_connection(tx: &mut Tx, row: &ConnectionRow) -> Result<bool, StoreError> {
    let parameters = vec![
        row.id.into(),
        row.name.as_str().into(),
        row.host.as_str().into(),
        row.port.into(),
        row.database.as_str().into(),
        row.username.as_str().into(),
        row.tls.name().into(),
        row.roots.clone().into(),
        row.sealed.as_slice().into(),
        row.set_at_us.into(),
        row.set_by.as_str().into(),
        CONNECTIONS_MAX.into(),
    ];
    let text = tx.text_of(&PUT);
    Ok(tx.execute(text, parameters).await? == 1)
}

/// Returns a connection and locks it, so that no lease is inserted until the transaction ends.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn lock_connection(tx: &mut Tx, name: &str) -> Result<Option<ConnectionRow>, StoreError> {
    let text = tx.text_of(&LOCK_CONNECTION);
    tx.row(text, vec![name.into()]).await?.map(connection_row).transpose()
}

/// Kinds of objects that [`connection_use`] looks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionUsers {
    /// Roles and leases.
    All,
    /// Leases only.
    Leases,
}

/// Returns a role or the leases that use a connection.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn connection_use(
    tx: &mut Tx,
    name: &str,
    users: ConnectionUsers,
) -> Result<Option<ConnectionUse>, StoreError> {
    if users == ConnectionUsers::All
        && let Some(mut row) = tx.row(ROLE_OF, vec![name.into()]).await?
    {
        return Ok(Some(ConnectionUse::Role(row.text()?)));
    }
    let row = tx.row(LEASES_OF, vec![name.into()]).await?;
    let leases: u64 = row.map_or(Ok(0), |mut row| row.number())?;
    Ok((leases > 0).then_some(ConnectionUse::Leases(leases)))
}

/// Deletes a connection. Returns false if it does not exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_connection(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![name.into()]).await? == 1)
}

/// Creates a role, or replaces the role of that name. Returns false when [`ROLES_MAX`] others exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn put_role(tx: &mut Tx, row: &RoleRow) -> Result<bool, StoreError> {
    let json = |texts: &[String]| serde_json::Value::from(texts).to_string();
    let parameters = vec![
        row.name.to_ascii_lowercase().into(),
        row.name.as_str().into(),
        row.connection.as_str().into(),
        json(&row.creation).into(),
        json(&row.revocation).into(),
        row.default_ttl_s.into(),
        row.max_ttl_s.into(),
        row.set_at_us.into(),
        row.set_by.as_str().into(),
        ROLES_MAX.into(),
    ];
    let text = tx.text_of(&PUT_ROLE);
    Ok(tx.execute(text, parameters).await? == 1)
}

/// Deletes a role by its name (lower case). Its leases stay. Returns false if the role does not exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_role(tx: &mut Tx, name_key: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE_ROLE, vec![name_key.into()]).await? == 1)
}

impl Credentials<'_> {
    /// Returns every connection, sorted by name.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn connections(self) -> Result<Vec<ConnectionRow>, StoreError> {
        let rows = self.0.rows(Cost::Point, ALL, vec![CONNECTIONS_MAX.into()]).await?;
        rows.into_iter().map(connection_row).collect()
    }

    /// Returns a connection by its name.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn connection(self, name: &str) -> Result<Option<ConnectionRow>, StoreError> {
        self.0.row(ONE, vec![name.into()]).await?.map(connection_row).transpose()
    }

    /// Returns a role by its name (lower case), if the caller may read this name.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn role(self, requester: &Requester, name_key: &str) -> Result<Option<RoleRow>, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name_key);
        let found = self.0.row(ROLE, vec![name_key.into(), everything, actor]).await?;
        found.map(|mut row| role_row(&mut row)).transpose()
    }

    /// Returns a page of the roles whose names the caller may read, sorted by name. The page may have fewer rows than `limit`.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn roles(
        self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RoleRow>, StoreError> {
        const LISTING: &str = "credential-roles";
        let mut parameters = requester.listing_parameters().to_vec();
        parameters.extend(key_or(after, LISTING, &[Value::Text(String::new())])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, ROLES, with_limit(parameters, fetch_limit)).await?;
        let mut page = page(rows, limit, LISTING, |mut row| {
            let role = role_row(&mut row)?;
            Ok((role, vec![row.text()?.into()]))
        })?;
        page.rows.retain(|row| requester.lists(&row.name));
        Ok(page)
    }
}

/// Parses a list of texts in JSON.
pub(super) fn texts(json: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(json).map_err(|error| StoreError::Corrupt(format!("a list of statements: {error}")))
}

fn connection_row(mut row: Row) -> Result<ConnectionRow, StoreError> {
    Ok(ConnectionRow {
        id: row.uuid()?,
        name: row.text()?,
        host: row.text()?,
        port: row.number()?,
        database: row.text()?,
        username: row.text()?,
        tls: row.named("credential_connections.tls")?,
        roots: row.maybe_text()?,
        sealed: row.blob()?,
        set_at_us: row.int()?,
        set_by: row.text()?,
    })
}

fn role_row(row: &mut Row) -> Result<RoleRow, StoreError> {
    Ok(RoleRow {
        name: row.text()?,
        connection: row.text()?,
        creation: texts(&row.text()?)?,
        revocation: texts(&row.text()?)?,
        default_ttl_s: row.number()?,
        max_ttl_s: row.number()?,
        set_at_us: row.int()?,
        set_by: row.text()?,
    })
}
