//! Test fixture: a credential store in a new database.

use std::path::Path;
use std::time::Duration;

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use credentials::{Credentials, CredentialsOptions, Kind, Name, Requester, SetRequest, Version};
use keys::{Keyring, KeyringConfig, MasterKeySource};
use serde_json::Value as Json;
use store::testing::WriteLock;
use store::{AuditFilter, Clock, Store};
use testbed::Database;

/// 2026-11-21 in Unix seconds.
pub(crate) const NOW: i64 = 1_795_219_200;

/// The base URL of CRLs and OCSP.
pub(crate) const PUBLISHED: &str = "http://pki.example";

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) credentials: Credentials,
    pub(crate) authority: Authority,
    // Keep this field last: the store must be dropped before the database.
    database: Database,
}

/// Returns a requester with all permissions.
pub(crate) fn admin() -> Requester {
    Requester::manager("uaa-client:admin")
}

/// Returns a requester with only the permissions granted to this client.
pub(crate) fn client(name: &str) -> Requester {
    Requester::actor(&format!("uaa-client:{name}"))
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
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
        let keystore = KeyStore::new(store.clone(), ring(database.folder(), &["master"]), clock.clone());
        let (credentials, authority) = open(&store, &keystore, &clock, CredentialsOptions::default());
        Self { store, clock, credentials, authority, database }
    }

    /// Returns the credential store after a restart with these master keys, the current one first.
    pub(crate) fn with_masters(&self, masters: &[&str]) -> (KeyStore, Credentials) {
        let ring = ring(self.database.folder(), masters);
        let keystore = KeyStore::new(self.store.clone(), ring, self.clock.clone());
        let (credentials, _) = open(&self.store, &keystore, &self.clock, CredentialsOptions::default());
        (keystore, credentials)
    }

    /// Returns the credential store after a restart with other options.
    pub(crate) fn with_options(&self, options: CredentialsOptions) -> Credentials {
        let keystore =
            KeyStore::new(self.store.clone(), ring(self.database.folder(), &["master"]), self.clock.clone());
        open(&self.store, &keystore, &self.clock, options).0
    }

    pub(crate) fn master(&self, name: &str) -> MasterKeySource {
        MasterKeySource::File { path: self.database.path(name), create: true }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.database.path(name)
    }

    /// Holds back writes to a table until the result is dropped.
    pub(crate) fn lock_writes(&self, table: &str) -> WriteLock {
        self.database.lock_writes(table)
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) async fn set(&self, at: &str, kind: Kind, value: Json) -> Version {
        let request = SetRequest::new(name(at), kind, value);
        self.credentials.set(&admin(), request).await.unwrap()
    }

    /// Returns the audit log as text. Asserts that its chains verify.
    pub(crate) async fn log(&self) -> Vec<String> {
        let verified = self.store.audit_verify().await.unwrap();
        assert_eq!(verified.faults, Vec::<String>::new());
        let page = self.store.audit_page(&AuditFilter::default(), None, 1_000).await.unwrap();
        page.rows
            .into_iter()
            .map(|row| format!("{} {} {} {}", row.actor, row.action, row.resource, row.details))
            .collect()
    }
}

fn open(
    store: &Store,
    keystore: &KeyStore,
    clock: &Clock,
    options: CredentialsOptions,
) -> (Credentials, Authority) {
    let credentials = Credentials::open(store.clone(), keystore.clone(), clock.clone(), options);
    let published = AuthorityOptions { base_url: PUBLISHED.to_owned(), ..AuthorityOptions::default() };
    let authority = Authority::open(store.clone(), keystore.clone(), clock.clone(), published).unwrap();
    credentials.set_publishing_authority(authority.clone());
    (credentials, authority)
}

pub(crate) fn ring(folder: &Path, masters: &[&str]) -> Keyring {
    let file = |name: &&str| MasterKeySource::File { path: folder.join(name), create: true };
    let config = KeyringConfig { current: file(&masters[0]), older: masters[1..].iter().map(file).collect() };
    Keyring::open(&config).unwrap()
}
