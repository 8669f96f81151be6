//! The servers that use this database. Each sends a heartbeat every few seconds.

use uuid::Uuid;

use db::{Cost, StoreError, Value};

/// Time in µs without a heartbeat after which a server is displayed as gone.
pub const GONE_AFTER_US: i64 = 60_000_000;
/// Time in µs without a heartbeat after which a server's row is deleted: a day.
const KEPT_US: i64 = 86_400_000_000;

/// A server process that uses the database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerNode {
    /// Random id, chosen at startup.
    pub id: Uuid,
    /// Host name. Empty when unknown.
    pub host: String,
    /// Version of Bulla that the server runs.
    pub version: String,
    /// Start time, µs.
    pub started_at_us: i64,
    /// Time of the last heartbeat, µs.
    pub seen_at_us: i64,
}

const SEEN: &str = "-- server_node_seen
INSERT INTO server_nodes (id, host, version, started_at, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at";

const FORGET: &str = "-- server_nodes_forget
DELETE FROM server_nodes WHERE seen_at < ?1";

const LEAVE: &str = "-- server_node_leave
DELETE FROM server_nodes WHERE id = ?1";

const LIST: &str = "-- server_nodes
SELECT id, host, version, started_at, seen_at FROM server_nodes ORDER BY started_at, id LIMIT 1000";

pub(crate) const ALL: &[&str] = &[SEEN, FORGET, LEAVE, LIST];

crate::handle! {
    /// The servers that use this database.
    ServerNodes
}

impl ServerNodes<'_> {
    /// Records a server's heartbeat, and deletes servers without a heartbeat for a day.
    ///
    /// # Errors
    /// Database errors.
    pub async fn record_heartbeat(self, node: &ServerNode) -> Result<(), StoreError> {
        let parameters: Vec<Value> = vec![
            node.id.into(),
            node.host.as_str().into(),
            node.version.as_str().into(),
            node.started_at_us.into(),
            node.seen_at_us.into(),
        ];
        self.0.execute(SEEN, parameters).await?;
        self.0.execute(FORGET, vec![node.seen_at_us.saturating_sub(KEPT_US).into()]).await.map(drop)
    }

    /// Deletes the row of a server, on its shutdown.
    ///
    /// # Errors
    /// Database errors.
    pub async fn leave(self, id: Uuid) -> Result<(), StoreError> {
        self.0.execute(LEAVE, vec![id.into()]).await.map(drop)
    }

    /// Returns the servers seen within a day, longest running first.
    ///
    /// # Errors
    /// Database errors.
    pub async fn list(self) -> Result<Vec<ServerNode>, StoreError> {
        let rows = self.0.rows(Cost::Point, LIST, Vec::new()).await?;
        rows.into_iter()
            .map(|mut row| {
                Ok(ServerNode {
                    id: row.uuid()?,
                    host: row.text()?,
                    version: row.text()?,
                    started_at_us: row.int()?,
                    seen_at_us: row.int()?,
                })
            })
            .collect()
    }
}
