//! PostgreSQL connections: opened on demand, reused while healthy, and limited in number.

use std::collections::HashMap;
use std::error::Error as _;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Statement};
use uuid::Uuid;

use super::statements::{PLANNED_EACH_TIME, PLANNED_ONCE};
use super::tls::{MakeTls, SslMode};
use crate::disk::Disk;
use crate::error::{Cause, StoreError};
use crate::statement::{for_postgres, name_of};
use crate::value::{Row, Value};

/// Timeout of a connection attempt, including the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP timeout for an unresponsive peer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum number of prepared statements per connection. All are dropped before a further one is prepared.
const STATEMENTS_CACHED: usize = 512;

/// The parsed server address.
#[derive(Clone)]
pub(super) struct Server {
    config: Config,
    tls: MakeTls,
    /// Server address without the password.
    pub(super) redacted_url: String,
}

impl Server {
    pub(super) fn parse(url: &str, redacted_url: String) -> Result<Self, StoreError> {
        let refuse = |reason: String| StoreError::Url { text: redacted_url.clone(), reason };
        let (plain, mode, roots) = take_ssl_parameters(url).map_err(refuse)?;
        let mut config = Config::from_str(&plain)
            .map_err(|error| refuse(error.source().map_or_else(|| error.to_string(), ToString::to_string)))?;
        let tls = MakeTls::new(mode, roots.as_deref()).map_err(refuse)?;
        config.ssl_mode(match mode {
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                tokio_postgres::config::SslMode::Require
            }
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("bulla");
        }
        config
            .keepalives_idle(SILENCE_MAX / 2)
            .keepalives_interval(SILENCE_MAX / 6)
            .tcp_user_timeout(SILENCE_MAX);
        Ok(Self { config, tls, redacted_url })
    }

    async fn connect(&self) -> Result<Connected, StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, connection) = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| self.connect_error(error))?,
            Err(elapsed) => return Err(StoreError::Unavailable { source: elapsed.into() }),
        };
        // The task ends when the client is dropped or the server closes the connection.
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard("store-connection");
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "connection to the database lost");
            }
        });
        Ok(Connected { client, statements: HashMap::new(), planned: None })
    }

    /// Converts a connection error. Errors that waiting cannot fix (wrong password, missing database) need the operator.
    fn connect_error(&self, error: tokio_postgres::Error) -> StoreError {
        match translate("-- connect", error) {
            StoreError::Statement { source, .. } => {
                StoreError::Open { database: self.redacted_url.clone(), source }
            }
            transient => transient,
        }
    }
}

/// Removes `sslmode` and `sslrootcert` from the URL, because tokio-postgres does not fully support them.
fn take_ssl_parameters(url: &str) -> Result<(String, SslMode, Option<String>), String> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut kept) = (SslMode::Prefer, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", word)) => {
                mode = SslMode::parse(word).ok_or_else(|| {
                    format!("sslmode={word}: use disable, prefer, require, verify-ca or verify-full")
                })?;
            }
            Some(("sslrootcert", path)) => roots = Some(percent_decoded(path)?),
            _ => kept.push(pair),
        }
    }
    let plain = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    Ok((plain, mode, roots))
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let bytes = coded::percent_decoded(text).ok_or_else(|| format!("{text:?} is not percent-encoded"))?;
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// Time at which PostgreSQL plans a prepared statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StatementPlanning {
    /// The statement is planned on each execution, for the actual parameters.
    EachTime,
    /// The statement is planned once per connection. The plan prefers indexes.
    Once,
}

impl StatementPlanning {
    fn session(self) -> &'static str {
        match self {
            Self::EachTime => PLANNED_EACH_TIME,
            Self::Once => PLANNED_ONCE,
        }
    }
}

/// A connection with its prepared statements.
pub(crate) struct Connected {
    pub(super) client: Client,
    statements: HashMap<String, Statement>,
    planned: Option<StatementPlanning>,
}

impl Connected {
    /// Sets the session's plan mode for the following statements: plan at each execution, or once per connection.
    async fn plan(&mut self, planned: StatementPlanning) -> Result<(), StoreError> {
        if self.planned != Some(planned) {
            let session = planned.session();
            self.client.batch_execute(session).await.map_err(|error| translate(session, error))?;
            self.planned = Some(planned);
        }
        Ok(())
    }

    /// Returns the prepared statement, and prepares it on its first use in this connection.
    pub(super) async fn prepared(&mut self, statement: &str) -> Result<Statement, StoreError> {
        if let Some(known) = self.statements.get(statement) {
            return Ok(known.clone());
        }
        if self.statements.len() >= STATEMENTS_CACHED {
            self.statements.clear();
        }
        let prepared = self
            .client
            .prepare(&for_postgres(statement))
            .await
            .map_err(|error| translate(statement, error))?;
        self.statements.insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }
}

/// A parameter in the driver's own types: numbers, texts and bytes, also optional or as vectors.
pub type Parameter<'a> = &'a (dyn ToSql + Sync);

pub(crate) type BoundStatement<'a> = (&'a str, Vec<Parameter<'a>>);

impl Connected {
    /// Sends statements without waiting between them, preceded by `BEGIN` if needed: one round trip in total. The server executes
    /// them in order. After a failure it rejects the remaining ones.
    ///
    /// # Errors
    /// The error of the first failed statement.
    pub(crate) async fn execute_pipelined(
        &mut self,
        begin: bool,
        all: &[BoundStatement<'_>],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let mut prepared = Vec::with_capacity(all.len());
        for (statement, _) in all {
            prepared.push(self.prepared(statement).await?);
        }
        let client = &self.client;
        let begun = async {
            match begin {
                true => client.batch_execute("BEGIN").await.map_err(|error| translate("-- begin", error)),
                false => Ok(()),
            }
        };
        // A request is sent when its future is first polled; the futures are polled in this order.
        let queries = prepared.iter().zip(all).map(|(prepared, (statement, parameters))| async move {
            let found = client.query(prepared, parameters).await;
            found.map_err(|error| translate(statement, error))
        });
        let (begun, found) = tokio::join!(begun, join_all(queries));
        begun?;
        found.into_iter().map(|rows| decoded(&rows?)).collect()
    }

    pub(crate) async fn execute(&mut self, statement: &str, parameters: &[Value]) -> Result<u64, StoreError> {
        let prepared = self.prepared(statement).await?;
        self.client.execute_raw(&prepared, parameters).await.map_err(|error| translate(statement, error))
    }

    pub(crate) async fn rows(
        &mut self,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let parameters: Vec<_> = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        self.rows_of(statement, &parameters).await
    }

    pub(crate) async fn rows_of(
        &mut self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let prepared = self.prepared(statement).await?;
        let found = self.client.query(&prepared, parameters).await;
        decoded(&found.map_err(|error| translate(statement, error))?)
    }
}

fn decoded(found: &[tokio_postgres::Row]) -> Result<Vec<Row>, StoreError> {
    let decode = |row: &tokio_postgres::Row| {
        let values: Result<Vec<Value>, _> = (0..row.len()).map(|column| row.try_get(column)).collect();
        values.map(Row::new).map_err(|error| StoreError::Corrupt(error.to_string()))
    };
    found.iter().map(decode).collect()
}

/// A pool with a maximum number of connections.
pub(super) struct Pool {
    server: Server,
    permits: Semaphore,
    size: usize,
    idle: Mutex<Vec<Connected>>,
}

/// A connection for one call. If dropped without [`Pool::give_back`], it is closed together with its open transaction.
pub(super) struct Checkout<'p> {
    pub(super) connected: Connected,
    pub(super) permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(server: Server, size: usize) -> Self {
        Self { server, permits: Semaphore::new(size), size, idle: Mutex::new(Vec::new()) }
    }

    /// Returns the maximum number of connections.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of connections in use.
    pub(super) fn taken(&self) -> usize {
        self.size.saturating_sub(self.permits.available_permits())
    }

    /// Waits for a free connection slot.
    pub(super) async fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.permits.acquire().await.map_err(|_| StoreError::Closed)
    }

    /// Returns a free connection slot, or `None` if all are in use.
    pub(super) fn try_acquire_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    pub(super) async fn take(&self, planned: StatementPlanning) -> Result<Checkout<'_>, StoreError> {
        let permit = self.permit().await?;
        Ok(Checkout { connected: self.connected(planned).await?, permit })
    }

    /// Returns an idle connection with this planning mode, if there is one.
    async fn connected(&self, planned: StatementPlanning) -> Result<Connected, StoreError> {
        let kept = || {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = idle.iter().rposition(|connected| connected.planned == Some(planned));
            fits.map(|at| idle.remove(at)).or_else(|| idle.pop())
        };
        let mut connected = loop {
            match kept() {
                Some(connected) if connected.client.is_closed() => {}
                Some(connected) => break connected,
                // Boxed, like all rare paths here, to keep the future small.
                None => break Box::pin(self.server.connect()).await?,
            }
        };
        connected.plan(planned).await?;
        Ok(connected)
    }

    /// Reads rows. Retries once on a fresh connection if the pooled one is lost.
    pub(super) async fn rows(
        &self,
        _permit: &SemaphorePermit<'_>,
        planned: StatementPlanning,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let attempt = || async {
            let mut connected = self.connected(planned).await?;
            let found = connected.rows(statement, parameters).await?;
            self.keep(connected);
            Ok(found)
        };
        match attempt().await {
            Err(StoreError::Unavailable { .. }) => Box::pin(attempt()).await,
            other => other,
        }
    }

    pub(super) fn give_back(&self, taken: Checkout<'_>) {
        self.keep(taken.connected);
    }

    fn keep(&self, connected: Connected) {
        if !connected.client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connected);
        }
    }
}

/// Classifies a PostgreSQL error by what the caller can do about it (codes: PostgreSQL manual, appendix A).
pub(super) fn translate(statement: &str, error: tokio_postgres::Error) -> StoreError {
    let unavailable = |error: tokio_postgres::Error| StoreError::Unavailable { source: error.into() };
    let Some(code) = error.code() else {
        let lost = error.is_closed() || is_network_error(&error);
        return if lost { unavailable(error) } else { refused(statement, error) };
    };
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::QUERY_CANCELED => StoreError::Busy { source: error.into() },
        SqlState::UNIQUE_VIOLATION => {
            StoreError::Conflict { statement: name_of(statement).to_owned(), source: db_error(error) }
        }
        SqlState::DISK_FULL => StoreError::Full { disk: Disk::default(), source: db_error(error) },
        // The server started as a standby or is failing over: a primary will return.
        SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::OUT_OF_MEMORY
        | SqlState::INSUFFICIENT_RESOURCES => unavailable(error),
        ref other if other.code().starts_with("08") => unavailable(error),
        _ => refused(statement, error),
    }
}

fn is_network_error(error: &tokio_postgres::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn refused(statement: &str, error: tokio_postgres::Error) -> StoreError {
    StoreError::Statement { statement: name_of(statement).to_owned(), source: db_error(error) }
}

/// Returns the server's message. The driver's own text is only "db error".
fn db_error(error: tokio_postgres::Error) -> Cause {
    match error.as_db_error() {
        Some(db_error) => format!("{} ({})", db_error.message(), db_error.code().code()).into(),
        None => error.into(),
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) => match *ty {
                Type::INT2 => i16::try_from(*number)?.to_sql(ty, out),
                Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
                Type::BOOL => (*number != 0).to_sql(ty, out),
                _ => number.to_sql(ty, out),
            },
            Self::Text(text) => text.to_sql(ty, out),
            Self::Blob(bytes) => bytes.as_slice().to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT2, Type::INT4, Type::INT8, Type::BOOL, Type::TEXT, Type::BYTEA, Type::UUID].contains(ty)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *ty {
            Type::INT2 => Self::Int(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => Self::Int(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::BOOL => Self::Int(bool::from_sql(ty, raw)?.into()),
            Type::UUID => Self::Blob(Uuid::from_sql(ty, raw)?.as_bytes().to_vec()),
            Type::BYTEA => Self::Blob(raw.to_vec()),
            _ => Self::Text(String::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(ty: &Type) -> bool {
        <Self as ToSql>::accepts(ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssl_parameters_are_removed_from_the_postgres_url() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", SslMode::Prefer, None),
            ("postgres://h/d?sslmode=verify-full", "postgres://h/d", SslMode::VerifyFull, None),
            (
                "postgres://h/d?a=b&sslmode=verify-ca&sslrootcert=%2fetc%2Fca.pem&c=d",
                "postgres://h/d?a=b&c=d",
                SslMode::VerifyCa,
                Some("/etc/ca.pem".to_owned()),
            ),
        ];
        for (url, plain, mode, roots) in cases {
            assert_eq!(take_ssl_parameters(url).unwrap(), (plain.to_owned(), mode, roots), "{url}");
        }
        for url in [
            "postgres://h/d?sslmode=strict",
            "postgres://h/d?sslrootcert=%2",
            "postgres://h/d?sslrootcert=%ff",
        ] {
            assert!(take_ssl_parameters(url).is_err(), "{url}");
        }
    }

    #[test]
    fn invalid_postgres_urls_and_missing_root_files_are_rejected() {
        let error = Server::parse("postgres://h:port/d", "postgres://h:port/d".to_owned()).err().unwrap();
        assert!(matches!(error, StoreError::Url { .. }), "{error}");
        let missing = "postgres://h/d?sslmode=verify-full&sslrootcert=/does/not/exist.pem";
        assert!(
            Server::parse(missing, missing.to_owned()).err().unwrap().to_string().contains("sslrootcert")
        );
    }
}
