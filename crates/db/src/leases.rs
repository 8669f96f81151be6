//! Leases: each lets only one process of a cluster do some work.

use uuid::Uuid;

use crate::database::{Cost, Database};
use crate::error::StoreError;
use crate::statement::ModuleStatements;

const LEASE_TAKE: &str = "-- lease_take
INSERT INTO leases (name, holder, until_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
WHERE leases.until_at <= ?4 OR leases.holder = excluded.holder";

const LEASE_RELEASE: &str = "-- lease_release
DELETE FROM leases WHERE name = ?1 AND holder = ?2";

const LEASES: &str = "-- leases
SELECT name, holder, until_at FROM leases WHERE until_at > ?1 ORDER BY name LIMIT 1000";

pub(crate) const MODULE_STATEMENTS: ModuleStatements =
    ModuleStatements::of(&[LEASE_TAKE, LEASE_RELEASE, LEASES], &[]);

/// A lease with its current holder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Name of the work that the holder does for the cluster.
    pub name: String,
    /// Id of the process that holds the lease.
    pub holder: Uuid,
    /// End of the lease unless renewed, µs.
    pub until_us: i64,
}

impl Database {
    /// Acquires or renews the lease `name` for `holder` until `now_us + for_us`. Returns false while another process holds it.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn lease(
        &self,
        name: &str,
        holder: Uuid,
        now_us: i64,
        for_us: i64,
    ) -> Result<bool, StoreError> {
        let until = now_us.saturating_add(for_us);
        let taken =
            self.execute(LEASE_TAKE, vec![name.into(), holder.into(), until.into(), now_us.into()]).await?;
        Ok(taken == 1)
    }

    /// Returns the leases that are held at `now_us`, sorted by name; at most a thousand.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn leases(&self, now_us: i64) -> Result<Vec<Lease>, StoreError> {
        let rows = self.rows(Cost::Point, LEASES, vec![now_us.into()]).await?;
        rows.into_iter()
            .map(|mut row| Ok(Lease { name: row.text()?, holder: row.uuid()?, until_us: row.int()? }))
            .collect()
    }

    /// Writes one row to check whether the disk has space.
    ///
    /// # Errors
    /// Database errors.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        // A lease that ended long ago: needs no clock, and the row is always the same.
        self.lease("disk-probe", Uuid::nil(), 0, 0).await.map(drop)
    }

    /// Releases the lease early. Does nothing when `holder` no longer has it.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn release(&self, name: &str, holder: Uuid) -> Result<(), StoreError> {
        self.execute(LEASE_RELEASE, vec![name.into(), holder.into()]).await.map(drop)
    }
}
