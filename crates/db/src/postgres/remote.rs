//! Sessions at a PostgreSQL server that an operator administers through Bulla. Bulla stores nothing there: it creates and drops
//! roles. The caller opens the TCP connection, so that the caller's egress guard can reject the address.

use std::error::Error as _;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

use super::tls::{MakeTls, SslMode};

/// Timeout of the TLS handshake and the login.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Timeout of one statement. The server enforces it, also after this process has ended.
const STATEMENT_LIMIT: Duration = Duration::from_secs(15);

/// Time in ms to wait until a terminated session has ended.
const TERMINATE_MS: u32 = 5_000;

/// Maximum characters of a server's message in an error.
const MESSAGE_MAX: usize = 500;

/// Encryption of the connection to a server, and the checks of the server's certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RemoteTls {
    /// TLS; the certificate must be trusted and name the host.
    VerifyFull,
    /// TLS; the certificate must be trusted.
    VerifyCa,
    /// No TLS.
    Disable,
}

/// Address and credentials of a server.
#[derive(Clone, Copy)]
pub struct RemoteLogin<'a> {
    /// Host name or address, which the server's certificate must contain.
    pub host: &'a str,
    /// Name of the database to connect to.
    pub database: &'a str,
    /// The role to log in as.
    pub user: &'a str,
    /// Password of that role.
    pub password: &'a str,
    /// Encryption of the connection.
    pub tls: RemoteTls,
    /// Certificates to trust instead of the system's, in PEM.
    pub roots: Option<&'a str>,
}

/// Reason why a remote statement failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RemoteError {
    /// The server did not answer, or the connection was lost. It is unknown whether an open transaction was committed.
    #[error("the database server does not answer: {0}")]
    Unavailable(String),
    /// The server rejected the login.
    #[error("the database server rejects the login: {0}")]
    Login(String),
    /// The server rejected a statement; its transaction was rolled back.
    #[error("the database server rejected {statement}: {message}")]
    Rejected {
        /// The statement, by its number or by a short description.
        statement: String,
        /// Error message of the server.
        message: String,
    },
}

/// Connection settings of a server, for any number of logins.
#[derive(Clone)]
pub struct RemoteServer {
    config: Config,
    tls: MakeTls,
    host: String,
}

/// A session at a server. Dropping it closes the connection, and the server rolls back an open transaction.
pub struct RemoteSession {
    client: Client,
}

impl RemoteServer {
    /// Creates the settings for logins at a server. Sends nothing.
    ///
    /// # Errors
    /// The reason why the roots cannot be used.
    pub fn new(login: &RemoteLogin<'_>) -> Result<Self, String> {
        let (mode, wanted) = match login.tls {
            RemoteTls::VerifyFull => (SslMode::VerifyFull, tokio_postgres::config::SslMode::Require),
            RemoteTls::VerifyCa => (SslMode::VerifyCa, tokio_postgres::config::SslMode::Require),
            RemoteTls::Disable => (SslMode::Disable, tokio_postgres::config::SslMode::Disable),
        };
        let mut config = Config::new();
        config
            .user(login.user)
            .password(login.password)
            .dbname(login.database)
            .application_name("bulla")
            .ssl_mode(wanted);
        Ok(Self { config, tls: MakeTls::with_pem(mode, login.roots)?, host: login.host.to_owned() })
    }

    /// Logs in over a connection to the server.
    ///
    /// # Errors
    /// [`RemoteError::Unavailable`], [`RemoteError::Login`].
    #[crate::boxed]
    pub async fn log_in(&self, stream: TcpStream) -> Result<RemoteSession, RemoteError> {
        let unavailable = |why: &dyn std::fmt::Display| RemoteError::Unavailable(why.to_string());
        let tls = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut self.tls.clone(), &self.host);
        let tls = tls.map_err(|error| unavailable(&error))?;
        let connecting = timeout(LOGIN_LIMIT, self.config.connect_raw(stream, tls)).await;
        let (client, connection) = match connecting {
            Ok(connected) => connected.map_err(|error| login_error(&error))?,
            Err(_) => return Err(RemoteError::Unavailable("the login timed out".to_owned())),
        };
        // The task ends when the client is dropped or the server closes the connection.
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard("remote-database");
            if let Err(error) = connection.await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "connection to a remote database lost"
                );
            }
        });
        let session = RemoteSession { client };
        let limit = STATEMENT_LIMIT.as_millis();
        let settings = format!("SET statement_timeout = {limit}; SET lock_timeout = {limit}");
        session.batch("the session's settings", &settings).await?;
        Ok(session)
    }
}

impl RemoteSession {
    /// Returns whether the connection is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns whether the server answers.
    #[crate::boxed]
    pub async fn ping(&self) -> bool {
        self.batch("a ping", "").await.is_ok()
    }

    /// Runs statements in one transaction, under an advisory lock of the database. An error of the server rolls the transaction
    /// back.
    ///
    /// # Errors
    /// [`RemoteError::Rejected`] names the statement by its number, from 1.
    #[crate::boxed]
    pub async fn run(&self, lock: i64, statements: &[String]) -> Result<(), RemoteError> {
        self.batch("BEGIN", &format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")).await?;
        for (at, statement) in statements.iter().enumerate() {
            if let Err(error) = self.batch(&format!("statement {}", at + 1), statement).await {
                // The connection is not reused if this fails too.
                let _ = self.batch("ROLLBACK", "ROLLBACK").await;
                return Err(error);
            }
        }
        self.batch("COMMIT", "COMMIT").await
    }

    /// Sets the time from which a role's password is refused, RFC 3339.
    ///
    /// # Errors
    /// See [`Self::run`].
    #[crate::boxed]
    pub async fn extend_role(&self, role: &str, until: &str) -> Result<(), RemoteError> {
        check_role(role)?;
        let statement = format!("ALTER ROLE \"{role}\" VALID UNTIL '{}'", until.replace('\'', ""));
        self.batch("ALTER ROLE … VALID UNTIL", &statement).await
    }

    /// Ends a role: forbids new logins, terminates its sessions, then runs `statements`. Without `statements`, assigns the role's
    /// objects to the current user and drops the role. Returns false if there is no such role. Waits for a transaction under the
    /// same lock.
    ///
    /// # Errors
    /// See [`Self::run`].
    #[crate::boxed]
    pub async fn end_role(&self, lock: i64, role: &str, statements: &[String]) -> Result<bool, RemoteError> {
        check_role(role)?;
        self.run(lock, &[]).await?;
        let exists = format!("SELECT 1 FROM pg_roles WHERE rolname = '{role}'");
        if self.first(&exists).await?.is_none() {
            return Ok(false);
        }
        self.batch("ALTER ROLE … NOLOGIN", &format!("ALTER ROLE \"{role}\" NOLOGIN")).await?;
        // Only a member of the role, or a superuser, may terminate its sessions and take over its objects.
        let member = format!("SELECT 1 WHERE pg_has_role(current_user, '{role}', 'USAGE')");
        if self.first(&member).await?.is_none() {
            self.batch("GRANT … TO CURRENT_USER", &format!("GRANT \"{role}\" TO CURRENT_USER")).await?;
        }
        // Materialized: in one query the planner may call the function before it compares the user, and end other sessions.
        let sessions = format!(
            "WITH own AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE usename = '{role}') \
             SELECT pid FROM own WHERE NOT pg_terminate_backend(pid, {TERMINATE_MS})"
        );
        if let Some(pid) = self.first(&sessions).await? {
            let message = format!("the session {pid} did not end within {} s", TERMINATE_MS / 1_000);
            return Err(RemoteError::Rejected { statement: "pg_terminate_backend".to_owned(), message });
        }
        let usual = || {
            vec![
                format!("REASSIGN OWNED BY \"{role}\" TO CURRENT_USER"),
                format!("DROP OWNED BY \"{role}\""),
                format!("DROP ROLE \"{role}\""),
            ]
        };
        let statements = if statements.is_empty() { usual() } else { statements.to_vec() };
        self.run(lock, &statements).await?;
        Ok(true)
    }

    /// Runs a statement without parameters; `what` describes it in errors.
    async fn batch(&self, what: &str, statement: &str) -> Result<(), RemoteError> {
        self.client.batch_execute(statement).await.map_err(|error| translate(what, &error))
    }

    /// Returns the first column of the first row as text.
    async fn first(&self, query: &str) -> Result<Option<String>, RemoteError> {
        let found = self.client.simple_query(query).await;
        let found = found.map_err(|error| translate("a query of its catalog", &error))?;
        Ok(found.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        }))
    }
}

/// Rejects names that would need quotes.
fn check_role(role: &str) -> Result<(), RemoteError> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !role.is_empty() && role.bytes().all(letter) {
        return Ok(());
    }
    let message = "the name may have lower-case letters, digits and _ only".to_owned();
    Err(RemoteError::Rejected { statement: format!("the role {role:?}"), message })
}

fn login_error(error: &tokio_postgres::Error) -> RemoteError {
    match translate("the login", error) {
        RemoteError::Rejected { message, .. } => RemoteError::Login(message),
        unavailable => unavailable,
    }
}

/// Converts an error. Errors without a message of the server mean a lost connection.
fn translate(what: &str, error: &tokio_postgres::Error) -> RemoteError {
    let Some(db_error) = error.as_db_error() else {
        let cause = error.source().map(ToString::to_string);
        let text = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        return RemoteError::Unavailable(shortened(&text));
    };
    let code = db_error.code().code();
    let mut message = format!("{} ({code})", db_error.message());
    for part in [db_error.detail(), db_error.hint()].into_iter().flatten() {
        message.push_str("; ");
        message.push_str(part);
    }
    let message = shortened(&message);
    // The server starts, stops, has no free connection, or became a standby.
    let unavailable =
        code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") || code == "25006";
    match unavailable {
        true => RemoteError::Unavailable(message),
        false => RemoteError::Rejected { statement: what.to_owned(), message },
    }
}

fn shortened(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_MAX).collect()
}
