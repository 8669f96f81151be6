//! A standby of the database (PostgreSQL's streaming replication), used for reads while the database is unreachable.
//!
//! While the database is down there are no writes, so the standby is current except for changes that it had not received. A database may
//! also be only unreachable from here and still accept writes. So the standby is used for a limited time only.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::{Pool, Server, StatementPlanning};
use crate::error::StoreError;
use crate::value::{Row, Value};

/// Interval of probes while the database is unreachable.
const PROBE_EVERY: Duration = Duration::from_secs(1);
pub(super) const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// Timeout of a read of a few rows, counted from when a connection is available. After it the database counts as unreachable.
pub(super) const POINT_WITHIN: Duration = Duration::from_secs(5);

/// The standby and the state of the database.
pub(super) struct Replica {
    pool: Pool,
    alone: Duration,
    outage: Mutex<Option<Outage>>,
}

#[derive(Clone, Copy)]
struct Outage {
    since: Instant,
    probed: Instant,
}

/// The server to read from: the primary or a standby.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reading {
    /// The database. The last read from it succeeded.
    Primary,
    /// The database if a probe succeeds, else the standby.
    Probe,
    /// The standby only.
    Replica,
}

impl Replica {
    /// Creates a standby. Connects only when a read first needs the standby.
    pub(super) fn new(server: Server, connections: usize, alone: Duration) -> Self {
        Self { pool: Pool::new(server, connections), alone, outage: Mutex::default() }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reading(&self) -> Reading {
        let mut outage = self.outage();
        match &mut *outage {
            None => Reading::Primary,
            // The database has been unreachable for too long: the standby is no longer trusted.
            Some(outage) if outage.since.elapsed() > self.alone => Reading::Primary,
            Some(outage) if outage.probed.elapsed() >= PROBE_EVERY => {
                outage.probed = Instant::now();
                Reading::Probe
            }
            Some(_) => Reading::Replica,
        }
    }

    /// Records that the database did not respond. Returns whether the standby may be read.
    pub(super) fn record_primary_unreachable(&self) -> bool {
        let mut outage = self.outage();
        let since = match *outage {
            Some(outage) => outage.since,
            None => {
                tracing::warn!("the primary database is unreachable: reading from the standby");
                let now = Instant::now();
                *outage = Some(Outage { since: now, probed: now });
                now
            }
        };
        since.elapsed() <= self.alone
    }

    pub(super) fn record_primary_reachable(&self) {
        if self.outage().take().is_some() {
            tracing::warn!("the primary database is reachable again");
        }
    }

    pub(super) fn is_read(&self) -> bool {
        self.outage().is_some_and(|outage| outage.since.elapsed() <= self.alone)
    }

    pub(super) fn size(&self) -> usize {
        self.pool.size()
    }

    pub(super) fn taken(&self) -> usize {
        self.pool.taken()
    }

    pub(super) async fn rows(
        &self,
        planned: StatementPlanning,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let permit = self.pool.permit().await?;
        self.pool.rows(&permit, planned, statement, parameters).await
    }
}
