//! Leases: one holder at a time for work that a cluster does once.

use uuid::Uuid;

use crate::database::{Cost, Database};
use crate::error::StoreError;
use crate::statement::Sends;

const LEASE_TAKE: &str = "-- lease_take
INSERT INTO leases (name, holder, until_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
WHERE leases.until_at <= ?4 OR leases.holder = excluded.holder";

const LEASE_RELEASE: &str = "-- lease_release
DELETE FROM leases WHERE name = ?1 AND holder = ?2";

const LEASES: &str = "-- leases
SELECT name, holder, until_at FROM leases WHERE until_at > ?1 ORDER BY name LIMIT 1000";

pub(crate) const SENDS: Sends = Sends::of(&[LEASE_TAKE, LEASE_RELEASE, LEASES], &[]);

/// A lease that is held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// The work that its holder does for the cluster.
    pub name: String,
    /// The process that holds it.
    pub holder: Uuid,
    /// When it ends unless renewed, µs.
    pub until_us: i64,
}

impl Database {
    /// Takes or renews the lease `name` for `holder` until `now_us + for_us`; false while another holds it.
    ///
    /// # Errors
    /// Those of the database.
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

    /// The leases held at `now_us`, by name; at most a thousand.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn leases(&self, now_us: i64) -> Result<Vec<Lease>, StoreError> {
        let rows = self.rows(Cost::Point, LEASES, vec![now_us.into()]).await?;
        rows.into_iter()
            .map(|mut row| Ok(Lease { name: row.text()?, holder: row.uuid()?, until_us: row.int()? }))
            .collect()
    }

    /// Writes one row, to find out whether there is room.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        // A lease that ended long ago: no clock is asked, and the row is always the same.
        self.lease("disk-probe", Uuid::nil(), 0, 0).await.map(drop)
    }

    /// Gives the lease back early; nothing when `holder` has it no longer.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn release(&self, name: &str, holder: Uuid) -> Result<(), StoreError> {
        self.execute(LEASE_RELEASE, vec![name.into(), holder.into()]).await.map(drop)
    }
}
