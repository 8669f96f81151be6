//! Number of connections that this process opens, and that the database server allows.

use crate::database::{Backend, Database};
use crate::error::StoreError;
use crate::options::StoreOptions;
use crate::postgres::Postgres;
use crate::statement::ModuleStatements;
use crate::url::{Location, StoreUrl};
use crate::value::Row;

/// Selects the connection limit for ordinary users on PostgreSQL. `reserved_connections` exists since version 16.
const CONNECTIONS_MAX: &str = "-- connections_max
SELECT current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
       - coalesce(current_setting('reserved_connections', true)::int8, 0)";

pub(crate) const MODULE_STATEMENTS: ModuleStatements =
    ModuleStatements { both: &[], sqlite: &[], postgres: &[CONNECTIONS_MAX], bulks: &[], composed: Vec::new };

/// Limits on connections to the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connections {
    /// Maximum number of connections of this process.
    pub ours: usize,
    /// Maximum number of connections of ordinary users on the server. `None` on SQLite.
    pub servers: Option<usize>,
}

fn servers(row: Option<Row>) -> Result<Option<usize>, StoreError> {
    row.map(|mut row| row.int()).transpose().map(|servers| servers.and_then(|all| usize::try_from(all).ok()))
}

impl Database {
    /// Returns the connection limits of this process and of the server.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn connections(&self) -> Result<Connections, StoreError> {
        let ours = match &self.backend {
            Backend::Sqlite(_) => {
                return Ok(Connections { ours: crate::sqlite::CONNECTIONS_MAX, servers: None });
            }
            Backend::Postgres(postgres) => postgres.connections(),
        };
        Ok(Connections { ours, servers: servers(self.row(CONNECTIONS_MAX, Vec::new()).await?)? })
    }

    /// Returns the same limits as [`Database::connections`], for a database that this process has not opened. Uses one connection,
    /// and creates or changes nothing.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn connections_at(url: &StoreUrl, options: &StoreOptions) -> Result<Connections, StoreError> {
        match &url.0 {
            Location::Sqlite(_) => Ok(Connections { ours: crate::sqlite::CONNECTIONS_MAX, servers: None }),
            Location::Postgres(address) => {
                let (readers, writers) = options.readers_and_writers();
                let row = Postgres::query_once(address, url.to_string(), CONNECTIONS_MAX).await?;
                Ok(Connections { ours: readers + writers, servers: servers(row)? })
            }
        }
    }
}
