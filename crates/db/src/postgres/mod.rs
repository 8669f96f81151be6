//! PostgreSQL 14 or newer: a connection pool for writers (one connection for a scan, the others for concurrent commits) and a
//! smaller pool for readers. Lost connections are reopened.

pub(crate) mod connection;
mod remote;
mod replica;
mod statements;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::SemaphorePermit;

pub use connection::Parameter;
pub(crate) use connection::{BoundStatement, Connected, StatementPlanning};
use connection::{Checkout, Pool, Server, translate};
pub use remote::{RemoteError, RemoteLogin, RemoteServer, RemoteSession, RemoteTls};
use replica::{POINT_WITHIN, PROBE_WITHIN, Reading, Replica};
use statements::{PING, SCHEMA_LOCK, TABLE_EXISTS};
pub(crate) use statements::{PLANNED_ONCE, STATEMENTS};

use crate::error::StoreError;
use crate::joint::Work;
use crate::migrate::{
    self, AppliedMigration, MIGRATION_RECORD, MIGRATIONS_APPLIED, MIGRATIONS_TABLE, Migration,
    OLDEST_COMPATIBLE,
};
use crate::options::{Fault, StoreOptions};
use crate::pool::PoolUse;
use crate::statement::for_postgres;
use crate::tx::{Tx, TxConnection};
use crate::url::{Location, StoreUrl};
use crate::value::{Row, Value};

/// Advisory lock for schema changes: "bulla" in ASCII.
const SCHEMA_LOCK_KEY: i64 = 0x62_75_6c_6c_61;

pub(crate) struct Postgres {
    readers: Pool,
    writers: Pool,
    replica: Option<Replica>,
    fault: Arc<AtomicU8>,
    sent: AtomicU64,
}

impl Postgres {
    pub(crate) async fn open(
        url: &str,
        redacted_url: String,
        options: &StoreOptions,
        migrations: &[Migration],
        now_us: i64,
    ) -> Result<Self, StoreError> {
        let server = Server::parse(url, redacted_url.clone())?;
        let (readers, writers) = options.readers_and_writers();
        let replica = match &options.replica {
            Some(replica) => Some(Self::replica(replica, readers, options.replica_alone)?),
            None => None,
        };
        let store = Self {
            readers: Pool::new(server.clone(), readers),
            writers: Pool::new(server, writers),
            replica,
            fault: Arc::clone(&options.fault),
            sent: AtomicU64::new(0),
        };
        store.migrate(&redacted_url, migrations, now_us).await.map_err(|error| match error {
            StoreError::Unavailable { source } | StoreError::Statement { source, .. } => {
                StoreError::Open { database: redacted_url, source }
            }
            other => other,
        })?;
        Ok(store)
    }

    async fn migrate(&self, database: &str, migrations: &[Migration], now_us: i64) -> Result<(), StoreError> {
        let mut taken = self.writers.take(StatementPlanning::EachTime).await?;
        let lock = taken.connected.prepared(SCHEMA_LOCK).await?;
        let exists = taken.connected.prepared(TABLE_EXISTS).await?;
        let run = |statement: &'static str| move |error| translate(statement, error);
        let transaction = taken.connected.client.transaction().await.map_err(run("-- begin"))?;
        transaction.execute(&lock, &[&SCHEMA_LOCK_KEY]).await.map_err(run(SCHEMA_LOCK))?;
        let found = transaction.query_one(&exists, &[&"schema_migrations"]).await;
        if !found.map_err(run(TABLE_EXISTS))?.get::<_, bool>(0) {
            transaction.batch_execute(MIGRATIONS_TABLE).await.map_err(run(MIGRATIONS_TABLE))?;
        }
        let rows = transaction.query(MIGRATIONS_APPLIED, &[]).await.map_err(run(MIGRATIONS_APPLIED))?;
        let applied: Vec<AppliedMigration> =
            rows.iter().map(|row| AppliedMigration { version: row.get(0), checksum: row.get(1) }).collect();
        let oldest = match migrate::has_newer_migration(migrations, &applied) {
            true => {
                let found = transaction.query_opt(OLDEST_COMPATIBLE, &[]).await;
                found.map_err(run(OLDEST_COMPATIBLE))?.map(|row| row.get(0))
            }
            false => None,
        };
        for migration in migrate::pending(database, migrations, &applied, oldest)? {
            transaction.batch_execute(migration.sql).await.map_err(run("-- migration"))?;
            let record = migrate::record_of(migration, now_us);
            let record: Vec<_> = record.iter().map(as_parameter).collect();
            transaction
                .execute(&for_postgres(MIGRATION_RECORD), &record)
                .await
                .map_err(run(MIGRATION_RECORD))?;
        }
        transaction.commit().await.map_err(run("-- commit"))?;
        self.writers.give_back(taken);
        Ok(())
    }

    /// Runs `create` when no table has this name.
    pub(crate) async fn create_table_if_missing(&self, table: &str, create: &str) -> Result<(), StoreError> {
        let mut taken = self.writers.take(StatementPlanning::EachTime).await?;
        let exists = taken.connected.prepared(TABLE_EXISTS).await?;
        let run = |statement: &'static str| move |error| translate(statement, error);
        let found = taken.connected.client.query_one(&exists, &[&table]).await;
        if !found.map_err(run(TABLE_EXISTS))?.get::<_, bool>(0) {
            let lock = taken.connected.prepared(SCHEMA_LOCK).await?;
            let transaction = taken.connected.client.transaction().await.map_err(run("-- begin"))?;
            transaction.execute(&lock, &[&SCHEMA_LOCK_KEY]).await.map_err(run(SCHEMA_LOCK))?;
            // Another process may have created the table since the check. A second check could return an outdated answer from this
            // session's cache. The statement that creates the table does not use the cache.
            let created = transaction.batch_execute(create).await;
            created.map_err(|error| translate(create, error))?;
            transaction.commit().await.map_err(run("-- commit"))?;
        }
        self.writers.give_back(taken);
        Ok(())
    }

    pub(crate) async fn execute(&self, statement: &str, parameters: &[Value]) -> Result<u64, StoreError> {
        let mut taken = self.writers.take(StatementPlanning::EachTime).await?;
        let changed = taken.connected.execute(statement, parameters).await?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.writers.give_back(taken);
        Ok(changed)
    }

    /// Same as [`Self::execute`], for a statement that finds rows by an index and returns them.
    pub(crate) async fn write_rows(
        &self,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let mut taken = self.writers.take(StatementPlanning::Once).await?;
        let rows = taken.connected.rows(statement, parameters).await?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.writers.give_back(taken);
        Ok(rows)
    }

    fn replica(url: &StoreUrl, connections: usize, alone: Duration) -> Result<Replica, StoreError> {
        let Location::Postgres(address) = &url.0 else {
            let reason =
                "a standby must be a PostgreSQL server, as in postgres://bulla@standby/bulla".to_owned();
            return Err(StoreError::Url { text: url.to_string(), reason });
        };
        Ok(Replica::new(Server::parse(address, url.to_string())?, connections, alone))
    }

    /// Reads rows, from the standby while the database is unreachable. The standby rejects writing statements.
    pub(crate) async fn rows(
        &self,
        planned: StatementPlanning,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let Some(replica) = &self.replica else {
            let permit = self.readers.permit().await?;
            return self.primary_rows(&permit, planned, statement, parameters).await;
        };
        // Waiting for a free connection does not count as a timeout: busy connections say nothing about the database.
        let Some(permit) = self.acquire_read_permit(replica).await? else {
            return Box::pin(replica.rows(planned, statement, parameters)).await;
        };
        let query = Box::pin(self.primary_rows(&permit, planned, statement, parameters));
        let answer = match planned {
            StatementPlanning::EachTime => query.await,
            StatementPlanning::Once => within(POINT_WITHIN, query).await,
        };
        match answer {
            Err(StoreError::Unavailable { source }) if replica.record_primary_unreachable() => {
                drop(permit);
                let read = Box::pin(replica.rows(planned, statement, parameters)).await;
                // If the standby fails, too, return the database's error: it is more useful.
                read.map_err(|_| StoreError::Unavailable { source })
            }
            Err(error @ StoreError::Unavailable { .. }) => Err(error),
            answer => {
                replica.record_primary_reachable();
                answer
            }
        }
    }

    /// Waits for a connection to the database. `None` when the standby is to be read.
    async fn acquire_read_permit(
        &self,
        replica: &Replica,
    ) -> Result<Option<SemaphorePermit<'_>>, StoreError> {
        match replica.reading() {
            Reading::Replica => Ok(None),
            Reading::Probe => Ok(Box::pin(self.probed(replica)).await),
            Reading::Primary => {
                let permit = self.readers.permit().await?;
                // The previous user of the connection may have found the database unreachable.
                Ok((!replica.is_read()).then_some(permit))
            }
        }
    }

    /// Probes the database on a free connection. Returns a permit to read from the database if it responds.
    async fn probed(&self, replica: &Replica) -> Option<SemaphorePermit<'_>> {
        let permit = self.readers.try_acquire_permit()?;
        let ping = self.primary_rows(&permit, StatementPlanning::Once, PING, &[]);
        within(PROBE_WITHIN, ping).await.ok()?;
        replica.record_primary_reachable();
        Some(permit)
    }

    async fn primary_rows(
        &self,
        permit: &SemaphorePermit<'_>,
        planned: StatementPlanning,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let found = self.readers.rows(permit, planned, statement, parameters).await;
        self.sent.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns whether reads currently use the standby. `None` without a standby.
    pub(crate) fn is_reading_replica(&self) -> Option<bool> {
        self.replica.as_ref().map(Replica::is_read)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn pools(&self) -> Vec<PoolUse> {
        let mut pools = vec![
            PoolUse { name: "readers", in_use: self.readers.taken(), size: self.readers.size() },
            PoolUse { name: "writers", in_use: self.writers.taken(), size: self.writers.size() },
        ];
        let standby = self.replica.as_ref();
        pools.extend(standby.map(|pool| PoolUse {
            name: "replica",
            in_use: pool.taken(),
            size: pool.size(),
        }));
        pools
    }

    /// Returns the maximum number of connections of this process.
    pub(crate) fn connections(&self) -> usize {
        self.readers.size() + self.writers.size()
    }

    /// Returns one row of a statement without parameters, over a new connection. Does not migrate the database.
    pub(crate) async fn query_once(
        url: &str,
        redacted_url: String,
        statement: &str,
    ) -> Result<Option<Row>, StoreError> {
        let pool = Pool::new(Server::parse(url, redacted_url)?, 1);
        let mut taken = pool.take(StatementPlanning::EachTime).await?;
        Ok(taken.connected.rows(statement, &[]).await?.into_iter().next())
    }

    /// Runs `work` in one transaction.
    pub(crate) async fn write(&self, planned: StatementPlanning, work: Work) -> Result<(), StoreError> {
        let Checkout { connected, permit } = self.writers.take(planned).await?;
        let mut tx = Tx {
            connection: TxConnection::Postgres(Box::new(connected)),
            audit_head: None,
            sent: 0,
            begin: true,
        };
        let outcome = self.transaction(&mut tx, work).await;
        self.sent.fetch_add(tx.sent, Ordering::Relaxed);
        if let TxConnection::Postgres(connected) = tx.connection {
            // A connection that is not returned to the pool is closed, and the server rolls back.
            if outcome.is_ok() || connected.client.batch_execute("ROLLBACK").await.is_ok() {
                self.writers.give_back(Checkout { connected: *connected, permit });
            }
        }
        outcome
    }

    async fn transaction(&self, tx: &mut Tx, work: Work) -> Result<(), StoreError> {
        work(tx).await?;
        if Fault::BeforeCommit.take(&self.fault) {
            return Err(Fault::BeforeCommit.error());
        }
        if !tx.begin {
            run(tx, "COMMIT").await?;
        }
        if Fault::AfterCommit.take(&self.fault) {
            return Err(Fault::AfterCommit.error());
        }
        Ok(())
    }

    /// Prepares one statement without running it.
    pub(crate) async fn check(&self, statement: &str) -> Result<(), StoreError> {
        let mut taken = self.writers.take(StatementPlanning::EachTime).await?;
        taken.connected.prepared(statement).await?;
        self.writers.give_back(taken);
        Ok(())
    }
}

/// Runs a read with a timeout, after which the database counts as unreachable.
async fn within(
    limit: Duration,
    query: impl Future<Output = Result<Vec<Row>, StoreError>>,
) -> Result<Vec<Row>, StoreError> {
    match tokio::time::timeout(limit, query).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(StoreError::Unavailable { source: elapsed.into() }),
    }
}

async fn run(tx: &mut Tx, statement: &str) -> Result<(), StoreError> {
    let TxConnection::Postgres(connected) = &mut tx.connection else { return Err(StoreError::Closed) };
    connected.client.batch_execute(statement).await.map_err(|error| translate("-- transaction", error))
}

fn as_parameter(value: &Value) -> &(dyn tokio_postgres::types::ToSql + Sync) {
    value
}
