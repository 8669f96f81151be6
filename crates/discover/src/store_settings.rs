//! `[store]`: the database.

use std::time::Duration;

use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};
use store::{StoreOptions, StoreUrl};

/// Configuration section `[store]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Whether scans store their results in the inventory.
    pub enabled: bool,
    /// URL of the database; empty: a file in the data folder.
    pub url: String,
    /// Maximum connections to PostgreSQL.
    pub connections: usize,
    /// Seconds to wait for an unreachable database.
    pub patience_s: u64,
    /// URL of a standby of the database, for reads while the primary is unreachable.
    pub replica_url: String,
    /// Maximum time in seconds that reads are served from the standby alone.
    pub replica_alone_s: u64,
}

impl Default for StoreSettings {
    fn default() -> Self {
        // A database failover may take up to a minute.
        Self {
            enabled: true,
            url: String::new(),
            connections: store::CONNECTIONS_DEFAULT,
            patience_s: 60,
            replica_url: String::new(),
            replica_alone_s: store::REPLICA_ALONE_DEFAULT.as_secs(),
        }
    }
}

impl StoreSettings {
    /// Returns the options for opening the database.
    pub fn options(&self) -> Outcome<StoreOptions> {
        Ok(StoreOptions {
            connections: self.connections,
            replica: self.replica()?,
            replica_alone: Duration::from_secs(self.replica_alone_s),
            ..StoreOptions::default()
        })
    }

    /// Returns the standby that is read while the database is unavailable.
    fn replica(&self) -> Outcome<Option<StoreUrl>> {
        if self.replica_url.is_empty() {
            return Ok(None);
        }
        let server = |text: &str| text.parse::<StoreUrl>().ok().filter(|url| url.sqlite_path().is_none());
        match (server(&self.url), server(&self.replica_url)) {
            (Some(_), Some(replica)) => Ok(Some(replica)),
            (None, _) => Err(Problem::usage("store.replica_url needs a PostgreSQL server in store.url")
                .hint("a database file cannot have a standby: leave store.replica_url empty")),
            (_, None) => Err(Problem::usage("store.replica_url is not a URL of a PostgreSQL server")
                .hint("for example postgres://bulla@standby/bulla")),
        }
    }

    /// Checks the values of the section.
    pub fn check(&self) -> Outcome<()> {
        if !(store::CONNECTIONS_MIN..=store::CONNECTIONS_MAX).contains(&self.connections) {
            return Err(
                Problem::usage("store.connections must be from 2 to 1000").hint("see `bulla config show`")
            );
        }
        self.replica().map(drop)
    }
}
