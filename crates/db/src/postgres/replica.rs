//! A standby that follows the database (PostgreSQL's streaming replication), read where the database is away.
//!
//! Only reads come here: while the database is away nobody writes there, so what the standby has is what was, but for
//! what it had not received yet. That it is away and not merely out of sight nobody can know; so it counts for a bounded
//! time only.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::{Planned, Pool, Server};
use crate::error::StoreError;
use crate::value::{Row, Value};

/// While the database is away, it is asked so often whether it is back.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// For the answer to it.
pub(super) const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// For the answer to a read of a few rows, from when a connection may be used for it, before the database counts as away.
pub(super) const POINT_WITHIN: Duration = Duration::from_secs(5);

/// The standby.
pub(super) struct Replica {
    pool: Pool,
    alone: Duration,
    away: Mutex<Option<Away>>,
}

#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    probed: Instant,
}

/// The database to read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reading {
    /// The database, which was there at last.
    Primary,
    /// The database if it answers that it is back; the standby if it does not.
    Probe,
    /// The standby.
    Replica,
}

impl Replica {
    /// A standby, connected to when it is first needed.
    pub(super) fn new(server: Server, connections: usize, alone: Duration) -> Self {
        Self { pool: Pool::new(server, connections), alone, away: Mutex::default() }
    }

    fn away(&self) -> std::sync::MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reading(&self) -> Reading {
        let mut away = self.away();
        match &mut *away {
            None => Reading::Primary,
            // Too long alone: what it says is believed no more.
            Some(away) if away.since.elapsed() > self.alone => Reading::Primary,
            Some(away) if away.probed.elapsed() >= PROBE_EVERY => {
                away.probed = Instant::now();
                Reading::Probe
            }
            Some(_) => Reading::Replica,
        }
    }

    /// The database did not answer. Whether the standby may be asked for it.
    pub(super) fn primary_is_away(&self) -> bool {
        let mut away = self.away();
        let since = match *away {
            Some(away) => away.since,
            None => {
                tracing::warn!("the database is away: its standby is read");
                let now = Instant::now();
                *away = Some(Away { since: now, probed: now });
                now
            }
        };
        since.elapsed() <= self.alone
    }

    pub(super) fn primary_is_back(&self) {
        if self.away().take().is_some() {
            tracing::warn!("the database is back");
        }
    }

    pub(super) fn is_read(&self) -> bool {
        self.away().is_some_and(|away| away.since.elapsed() <= self.alone)
    }

    pub(super) fn size(&self) -> usize {
        self.pool.size()
    }

    pub(super) fn taken(&self) -> usize {
        self.pool.taken()
    }

    /// Reads.
    pub(super) async fn rows(
        &self,
        planned: Planned,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let permit = self.pool.permit().await?;
        self.pool.rows(&permit, planned, statement, parameters).await
    }
}
