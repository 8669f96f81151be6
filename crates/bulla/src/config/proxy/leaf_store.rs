//! `[proxy.store]`: persistent storage of the proxy's leaves.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use proxy::certificate_store::{LEAVES_MAX, OutagePolicy, SecondLevelOptions, TRIP_TIMEOUT, lease_of};
use serde::{Deserialize, Serialize};
use store::StoreUrl;

use discover::StoreSettings;

/// Configuration section `[proxy.store]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyStoreSettings {
    pub(crate) backend: LeafBackend,
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
    pub(crate) connections: usize,
    pub(crate) when_away: StorageOutageAction,
    pub(crate) timeout_ms: u64,
    pub(crate) leaves_max: u64,
}

/// Storage for the leaf certificates of the proxy.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LeafBackend {
    /// Leaves are only cached in memory.
    #[default]
    Memory,
    /// Leaves are cached in memory and in a file on this machine.
    Disk,
    /// Leaves are cached in memory and in a database that proxies share.
    Database,
}

/// The action for new names while the storage is unavailable.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StorageOutageAction {
    /// The proxy mints the leaf itself.
    #[default]
    Mint,
    /// The handshake fails.
    Refuse,
}

impl Default for ProxyStoreSettings {
    fn default() -> Self {
        Self {
            backend: LeafBackend::Memory,
            folder: PathBuf::new(),
            url: String::new(),
            connections: store::CONNECTIONS_DEFAULT,
            when_away: StorageOutageAction::Mint,
            timeout_ms: TRIP_TIMEOUT.as_millis() as u64,
            leaves_max: LEAVES_MAX,
        }
    }
}

impl ProxyStoreSettings {
    pub(super) fn check(&self) -> Outcome<()> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Problem::usage(format_args!("proxy.store.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`"))
        };
        let (fewest, most) = (store::CONNECTIONS_MIN as u64, store::CONNECTIONS_MAX as u64);
        within("connections", self.connections as u64, fewest, most)?;
        within("timeout_ms", self.timeout_ms, 10, 5_000)?;
        within("leaves_max", self.leaves_max, 1, 100_000_000)?;
        let misplaced = |key: &str, backend: &str| {
            Problem::usage(format_args!("proxy.store.{key} needs proxy.store.backend = \"{backend}\""))
                .hint(format!("set that backend, or leave proxy.store.{key} out"))
        };
        if !self.url.is_empty() && self.backend != LeafBackend::Database {
            return Err(misplaced("url", "database"));
        }
        if !self.folder.as_os_str().is_empty() && self.backend != LeafBackend::Disk {
            return Err(misplaced("folder", "disk"));
        }
        if !self.url.is_empty() {
            self.database(&StoreSettings::default())?;
        }
        Ok(())
    }

    /// Returns the database's address, from this section or from `[store]`.
    pub(crate) fn database(&self, of_store: &StoreSettings) -> Outcome<StoreUrl> {
        let (key, text) = match self.url.as_str() {
            "" => ("store.url", of_store.url.as_str()),
            own => ("proxy.store.url", own),
        };
        if text.is_empty() {
            return Err(Problem::usage("proxy.store.backend = \"database\" needs a database URL").hint(
                "set proxy.store.url (or store.url), for example postgres://bulla@server/bulla; for this machine alone use \
                 backend = \"disk\"",
            ));
        }
        text.parse().map_err(|error: store::StoreError| {
            Problem::usage(format_args!("{key}: {error}")).hint(format!("correct {key}"))
        })
    }

    pub(crate) fn options(&self) -> SecondLevelOptions {
        let trip_timeout = Duration::from_millis(self.timeout_ms);
        SecondLevelOptions {
            when_away: match self.when_away {
                StorageOutageAction::Mint => OutagePolicy::Mint,
                StorageOutageAction::Refuse => OutagePolicy::Refuse,
            },
            trip_timeout,
            lease: lease_of(trip_timeout),
            leaves_max: self.leaves_max,
            is_shared: self.backend == LeafBackend::Database,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_leaf_store_settings_are_rejected_with_a_hint() {
        let right = ProxyStoreSettings::default;
        assert!(right().check().is_ok());
        let wrong = [
            ProxyStoreSettings { timeout_ms: 0, ..right() },
            ProxyStoreSettings { leaves_max: 0, ..right() },
            ProxyStoreSettings { connections: 1, ..right() },
            ProxyStoreSettings { url: "postgres://a@b/c".to_owned(), ..right() },
            ProxyStoreSettings { folder: "/leaves".into(), ..right() },
            ProxyStoreSettings { url: "luna://x".to_owned(), backend: LeafBackend::Database, ..right() },
        ];
        for settings in wrong {
            let problem = settings.check().unwrap_err();
            assert!(
                problem.hint.is_some() && problem.message.contains("proxy.store."),
                "{}",
                problem.message
            );
        }
    }

    #[test]
    fn leaf_store_uses_own_database_url_or_the_shared_one() {
        let mut settings = ProxyStoreSettings { backend: LeafBackend::Database, ..Default::default() };
        let mut of_store = StoreSettings::default();
        assert!(settings.database(&of_store).unwrap_err().hint.unwrap().contains("disk"));
        of_store.url = "postgres://all@server/all".to_owned();
        assert!(settings.database(&of_store).unwrap().to_string().contains("all@server"));
        settings.url = "postgres://own@server/own".to_owned();
        assert!(settings.database(&of_store).unwrap().to_string().contains("own@server"));
    }

    #[test]
    fn minting_lease_covers_the_signature_and_three_timeouts() {
        let options = ProxyStoreSettings { timeout_ms: 2_000, ..Default::default() }.options();
        assert_eq!(options.lease, Duration::from_secs(5 + 3 * 2));
    }
}
