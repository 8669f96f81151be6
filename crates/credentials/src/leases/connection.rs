//! Connections to databases. A stored password is bound to the address for which it was given.

use callout::{DatabaseTarget, RemoteLogin, RemoteTls};
use futures_util::FutureExt;
use keys::Secret;
use keys::keyring::Context;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::tables::{
    self, CONNECTIONS_MAX, ConnectionRow, ConnectionTls, ConnectionUse, ConnectionUsers, Requester,
    SEALED_CONNECTIONS, connection_use, delete_connection, lock_connection, put_connection,
};
use crate::{CredentialError, Credentials};

/// Maximum characters of a name.
const NAME_MAX: usize = 64;
/// Maximum bytes of a host, a database, a user or a password.
const TEXT_MAX: usize = 1_024;
/// Maximum bytes of a set of roots.
const ROOTS_MAX: usize = 65_536;

/// Settings of a connection to a target database of dynamic credentials.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Name of the connection: letters, digits, `-` and `_`, at most 64 characters.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// TCP port of the database server.
    pub port: u16,
    /// Name of the database.
    pub database: String,
    /// Database role that creates and drops the roles of leases.
    pub username: String,
    /// Password of `username`. `None` keeps the stored password. `None` is rejected for a new connection, and if host, port,
    /// database, user, TLS mode or roots change.
    pub password: Option<Secret>,
    /// TLS mode: `verify-full`, `verify-ca` or `disable`.
    pub tls: ConnectionTls,
    /// Certificates to trust, in PEM. They replace the system's roots.
    pub roots: Option<String>,
    /// Whether a changed host, port or database name still denotes the same database. Existing leases are then revoked at the new
    /// address.
    pub same_database: bool,
}

/// A connection without its password, for display.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DatabaseConnection(ConnectionRow);

impl DatabaseConnection {
    /// Returns the settings. They contain the password in encrypted form.
    #[must_use]
    pub fn row(&self) -> &ConnectionRow {
        &self.0
    }
}

/// The plaintext that is encrypted as the password of a connection: the password, and the address that it is bound to.
#[derive(Deserialize, Serialize)]
struct Sealed {
    /// The address for which the password was given.
    destination: String,
    #[serde(serialize_with = "keys::secret::exposed")]
    password: Secret,
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_CONNECTIONS.table, row: id.as_bytes(), column: SEALED_CONNECTIONS.column }
}

/// Rejects callers that are not permitted to configure databases.
pub(super) fn require_database_access(requester: &Requester) -> Result<(), CredentialError> {
    if requester.manages_databases { Ok(()) } else { Err(CredentialError::Forbidden) }
}

/// Returns the fields that determine which server receives the password.
fn destination(row: &ConnectionRow) -> String {
    json!([row.host, row.port, row.database, row.username, row.tls.name(), row.roots]).to_string()
}

fn tls(mode: ConnectionTls) -> RemoteTls {
    match mode {
        ConnectionTls::VerifyFull => RemoteTls::VerifyFull,
        ConnectionTls::VerifyCa => RemoteTls::VerifyCa,
        ConnectionTls::Disable => RemoteTls::Disable,
    }
}

impl ConnectionSettings {
    fn check(&self) -> Result<(), CredentialError> {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.chars().all(letters) {
            return Err(CredentialError::bad(format!(
                "A connection's name can have letters, digits, hyphens and underscores, and at most {NAME_MAX} characters."
            )));
        }
        let texts = [("host", &self.host), ("database", &self.database), ("user", &self.username)];
        for (what, text) in texts {
            if text.is_empty() || text.len() > TEXT_MAX || text.chars().any(char::is_control) {
                return Err(CredentialError::bad(format!(
                    "The {what} of a connection is missing, or has more than {TEXT_MAX} bytes or control characters. Give a \
                     url as postgres://USER@HOST:5432/DATABASE."
                )));
            }
        }
        if self.host.starts_with('/') {
            return Err(CredentialError::bad(
                "A connection needs a host name or address: a Unix socket is a file of the server's machine.",
            ));
        }
        if self.port == 0 {
            return Err(CredentialError::bad("The port of a connection must be 1 to 65535."));
        }
        let password = self.password.as_ref().map_or(1, |password| password.expose().len());
        if !(1..=TEXT_MAX).contains(&password) {
            return Err(CredentialError::bad(format!("A password must have 1 to {TEXT_MAX} bytes.")));
        }
        if self.roots.as_ref().is_some_and(|roots| roots.len() > ROOTS_MAX) {
            return Err(CredentialError::bad(
                "The roots are too long: give only the root that signed the database's certificate.",
            ));
        }
        Ok(())
    }
}

impl Credentials {
    /// Creates a connection, or replaces the connection of that name.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for invalid settings, a missing password, or another address while leases exist;
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn set_connection(
        &self,
        requester: &Requester,
        settings: ConnectionSettings,
    ) -> Result<DatabaseConnection, CredentialError> {
        require_database_access(requester)?;
        settings.check()?;
        let before = tables::Credentials::of(self.store()).connection(&settings.name).await?;
        let mut row = ConnectionRow {
            id: Uuid::now_v7(),
            name: settings.name,
            host: settings.host,
            port: settings.port,
            database: settings.database,
            username: settings.username,
            tls: settings.tls,
            roots: settings.roots,
            sealed: Vec::new(),
            set_at_us: self.now_us(),
            set_by: requester.actor.clone(),
        };
        let password = match (settings.password, &before) {
            (Some(password), _) => password,
            (None, Some(before)) if destination(before) == destination(&row) => self.password(before)?,
            (None, Some(_)) => {
                return Err(CredentialError::bad(
                    "Give the password again: the stored one is only for the previous host, port, database, user and TLS \
                     settings.",
                ));
            }
            (None, None) => return Err(CredentialError::bad("A new connection needs a password.")),
        };
        let sealed = Sealed { destination: destination(&row), password };
        let plain =
            serde_json::to_vec(&sealed).map_err(|error| CredentialError::Internal(error.to_string()))?;
        row.sealed = self.keyring().seal(&context(&row.id), &Zeroizing::new(plain));
        self.store_connection(requester, row.clone(), before.map(|before| before.id), settings.same_database)
            .await?;
        Ok(DatabaseConnection(row))
    }

    async fn store_connection(
        &self,
        requester: &Requester,
        row: ConnectionRow,
        expected: Option<Uuid>,
        same_database: bool,
    ) -> Result<(), CredentialError> {
        let details = json!({
            "host": row.host, "port": row.port, "database": row.database, "user": row.username, "tls": row.tls,
        });
        let event = self.connection_event(requester, "credential.connection", &row.name, details);
        let put = self.store().write("credential_connection_put", move |tx| {
            async move {
                let locked = lock_connection(tx, &row.name).await?;
                if locked.as_ref().map(|locked| locked.id) != expected {
                    return Ok(Err(CredentialError::Changed));
                }
                let endpoint = |row: &ConnectionRow| (row.host.clone(), row.port, row.database.clone());
                let moves = locked.is_some_and(|locked| endpoint(&locked) != endpoint(&row));
                if moves
                    && !same_database
                    && let Some(in_use) = connection_use(tx, &row.name, ConnectionUsers::Leases).await?
                {
                    return Ok(Err(in_use_error(
                        &in_use,
                        "Or, if the new address belongs to the same database, give --same-database (same_database).",
                    )));
                }
                if !put_connection(tx, &row).await? {
                    return Ok(Err(CredentialError::bad(format!(
                        "The limit of {CONNECTIONS_MAX} connections is reached. Remove one first."
                    ))));
                }
                store::audit(tx, vec![event]).await?;
                Ok(Ok(()))
            }
            .boxed()
        });
        put.await?
    }

    /// Deletes a connection.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] while a role or a lease uses the connection; [`CredentialError::NotFound`];
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn delete_connection(&self, requester: &Requester, name: &str) -> Result<(), CredentialError> {
        require_database_access(requester)?;
        let event = self.connection_event(requester, "credential.connection_removed", name, json!({}));
        let name = name.to_owned();
        let deleted = self.store().write("credential_connection_delete", move |tx| {
            async move {
                if lock_connection(tx, &name).await?.is_none() {
                    return Ok(Err(CredentialError::NotFound));
                }
                if let Some(in_use) = connection_use(tx, &name, ConnectionUsers::All).await? {
                    return Ok(Err(in_use_error(&in_use, "")));
                }
                delete_connection(tx, &name).await?;
                store::audit(tx, vec![event]).await?;
                Ok(Ok(()))
            }
            .boxed()
        });
        deleted.await?
    }

    /// Lists the connections without their passwords, sorted by name.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn connections(
        &self,
        requester: &Requester,
    ) -> Result<Vec<DatabaseConnection>, CredentialError> {
        require_database_access(requester)?;
        let all = tables::Credentials::of(self.store()).connections().await?;
        Ok(all.into_iter().map(DatabaseConnection).collect())
    }

    /// Decrypts the password of a connection. Fails if the address is not the one for which the password was given.
    pub(super) fn password(&self, row: &ConnectionRow) -> Result<Secret, CredentialError> {
        let failed = |why: &str| CredentialError::Sealed {
            name: format!("the connection {}", row.name),
            why: format!("{why}; set its password again"),
        };
        let plain = self.keyring().open_sealed(&context(&row.id), &row.sealed);
        let plain = plain.map_err(|error| failed(&error.to_string()))?;
        let sealed: Sealed =
            serde_json::from_slice(&plain).map_err(|_| failed("the text cannot be parsed"))?;
        if sealed.destination != destination(row) {
            return Err(failed("it was given for another address"));
        }
        Ok(sealed.password)
    }

    fn connection_event(
        &self,
        requester: &Requester,
        action: &'static str,
        name: &str,
        details: serde_json::Value,
    ) -> store::AuditEvent {
        let event = self.event(requester, action, "", details);
        store::AuditEvent { resource: format!("credential_connection/{name}"), ..event }
    }
}

/// Returns the address and the login of a connection, to open a session.
pub(super) fn target<'a>(row: &'a ConnectionRow, password: &'a Secret) -> DatabaseTarget<'a> {
    DatabaseTarget {
        revision: row.id,
        port: row.port,
        login: RemoteLogin {
            host: &row.host,
            database: &row.database,
            user: &row.username,
            password: password.expose(),
            tls: tls(row.tls),
            roots: row.roots.as_deref(),
        },
    }
}

fn in_use_error(in_use: &ConnectionUse, hint: &str) -> CredentialError {
    CredentialError::bad(match in_use {
        ConnectionUse::Role(role) => {
            format!("The role {role} uses this connection. Remove the role first: `bulla credential role remove`.")
        }
        ConnectionUse::Leases(count) => format!(
            "This connection has {count} leases, whose roles exist at its database. Revoke them first: `bulla credential \
             lease revoke --path '/*'`. {hint}"
        )
        .trim_end()
        .to_owned(),
    })
}
