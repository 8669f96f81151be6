//! A CA on a new database.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use keys::{Keyring, KeyringConfig, MasterKeySource};
use store::{AuditFilter, Clock, Store};
use testbed::Database;

/// 2026-11-21, seconds.
pub(crate) const NOW: i64 = 1_795_219_200;

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) keystore: KeyStore,
    pub(crate) authority: Authority,
    // Last field: connections of the store are dropped before the database.
    database: Database,
}

impl Fixture {
    pub(crate) async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        let store = database.open().await;
        let clock = Clock::manual(NOW * 1_000_000);
        let keyring = ring(&database.path("master"), &[]);
        let keystore = KeyStore::new(store.clone(), keyring, clock.clone());
        let authority = open(&store, &keystore, &clock);
        Self { store, clock, keystore, authority, database }
    }

    /// Returns a path in the directory of the fixture.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.database.path(name)
    }

    /// Returns a key store as after a restart. The first of these master keys is the current one.
    pub(crate) fn keystore_with(&self, masters: &[&str]) -> KeyStore {
        let older: Vec<PathBuf> = masters[1..].iter().map(|name| self.path(name)).collect();
        KeyStore::new(self.store.clone(), ring(&self.path(masters[0]), &older), self.clock.clone())
    }

    /// Returns the CA on another node of the cluster.
    pub(crate) fn another_node(&self) -> Authority {
        open(&self.store, &self.keystore_with(&["master"]), &self.clock)
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Returns the actions in the audit log, oldest first, and verifies its hash chains.
    pub(crate) async fn actions(&self) -> Vec<String> {
        let verified = self.store.audit_verify().await.unwrap();
        assert_eq!(verified.faults, Vec::<String>::new());
        let page = self.store.audit_page(&AuditFilter::default(), None, 1_000).await.unwrap();
        let mut rows = page.rows;
        rows.sort_by_key(|row| (row.at_us, row.shard, row.sequence));
        rows.into_iter().map(|row| row.action).collect()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs openssl in the directory of the fixture; returns its output or its error.
    pub(crate) fn try_openssl(&self, arguments: &str) -> Result<String, String> {
        openssl(self.database.folder(), arguments)
    }

    /// [`Self::try_openssl`]; panics on an error.
    pub(crate) fn openssl(&self, arguments: &str) -> String {
        self.try_openssl(arguments).unwrap_or_else(|error| panic!("openssl {arguments}: {error}"))
    }
}

fn open(store: &Store, keystore: &KeyStore, clock: &Clock) -> Authority {
    let options = AuthorityOptions {
        base_url: "http://pki.example".to_owned(),
        cache_lifetime: Duration::ZERO,
        ..AuthorityOptions::default()
    };
    Authority::open(store.clone(), keystore.clone(), clock.clone(), options).unwrap()
}

fn ring(current: &Path, older: &[PathBuf]) -> Keyring {
    let file = |path: &Path| MasterKeySource::File { path: path.to_owned(), create: true };
    let older = older.iter().map(|path| file(path)).collect();
    Keyring::open(&KeyringConfig { current: file(current), older }).unwrap()
}

/// Runs openssl in a directory.
pub(crate) fn openssl(folder: &Path, arguments: &str) -> Result<String, String> {
    let run = Command::new("openssl").current_dir(folder).args(arguments.split_whitespace()).output();
    let run =
        run.unwrap_or_else(|error| panic!("this test needs openssl: apt-get install -y openssl ({error})"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if run.status.success() { Ok(text(&run.stdout)) } else { Err(text(&run.stdout) + &text(&run.stderr)) }
}

/// Returns certificates in PEM.
pub(crate) fn pem(ders: &[impl AsRef<[u8]>]) -> String {
    ders.iter().map(|der| x509::pem::encode("CERTIFICATE", der.as_ref())).collect()
}

/// Waits until `found` returns a value; returns it.
pub(crate) async fn eventually<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = found().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen");
}
