//! A CA with a root, an issuing CA and profiles, on a new database that can simulate failures.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use authority::issue::{IssueRequest, Issued, Source};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::tree::{Ca, NewCa};
use authority::{Authority, AuthorityOptions};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use store::{Clock, Fault, Store, StoreOptions};
use testbed::Database;
use x509::GeneralName;

use crate::fixture::{openssl, pem};

/// Time for which profiles are cached, as in production. Another node sees a change after this time.
const CACHED_FOR: Duration = Duration::from_millis(50);

/// Runs each test on both databases: `both! { case … }`, each `async fn case(office: Office)`.
macro_rules! both {
    ($($case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let office = $crate::office::Office::sqlite(super::options()).await;
                super::$case(office).await;
            }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let office = $crate::office::Office::postgres(super::options()).await;
                super::$case(office).await;
            }
        )* }
    };
}
pub(crate) use both;

pub(crate) struct Office {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) authority: Authority,
    pub(crate) root: Arc<Ca>,
    pub(crate) ca: Arc<Ca>,
    keystore: KeyStore,
    options: AuthorityOptions,
    store_options: StoreOptions,
    // Last: the store's connections go before it.
    database: Database,
}

/// Returns options that suit most tests.
pub(crate) fn options() -> AuthorityOptions {
    AuthorityOptions {
        base_url: "http://pki.example".to_owned(),
        cache_lifetime: CACHED_FOR,
        ..AuthorityOptions::default()
    }
}

impl Office {
    pub(crate) async fn sqlite(options: AuthorityOptions) -> Self {
        Self::over(Database::sqlite(), options).await
    }

    pub(crate) async fn postgres(options: AuthorityOptions) -> Self {
        Self::over(Database::postgres().await, options).await
    }

    async fn over(database: Database, options: AuthorityOptions) -> Self {
        let store_options = StoreOptions::default();
        let store = database.open_with(&store_options).await;
        // The clock starts at the current time, because openssl's OCSP client always uses it.
        let clock = Clock::manual(Clock::system().now_us());
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let authority =
            Authority::open(store.clone(), keystore.clone(), clock.clone(), options.clone()).unwrap();
        let root = NewCa { key_type: KeyType::P256, ..NewCa::root("root", "CN=Test Root") };
        let root = authority.create_root(&root, "user:test").await.unwrap();
        let ca = NewCa::intermediate("web", "CN=Test Web CA, O=Example");
        let ca = authority.create_intermediate("root", &ca, "user:test").await.unwrap();
        let this = Self { store, clock, authority, root, ca, keystore, options, store_options, database };
        this.profile(serde_json::json!({"name": "web", "names": {"dns_allowed": [".example"]}})).await;
        this
    }

    /// Returns another node of the cluster.
    pub(crate) fn another_node(&self) -> Authority {
        self.node_with(self.options.clone())
    }

    /// Returns another node of the cluster with its own options.
    pub(crate) fn node_with(&self, options: AuthorityOptions) -> Authority {
        let (store, keystore) = (self.store.clone(), self.keystore.clone());
        Authority::open(store, keystore, self.clock.clone(), options).unwrap()
    }

    pub(crate) async fn profile(&self, profile: serde_json::Value) -> Profile {
        let profile = Profile::from_json(&profile.to_string()).unwrap();
        self.authority.put_profile(profile.clone(), None, "user:test").await.unwrap();
        profile
    }

    pub(crate) async fn issue(&self, profile: &str, names: &[&str]) -> Issued {
        self.authority.issue(request(profile, names)).await.unwrap()
    }

    pub(crate) fn fail_next(&self, fault: Fault) {
        self.store_options.fault.store(fault as u8, Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.database.folder()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.database.path(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Runs openssl in the directory of the office. Panics if it fails.
    pub(crate) fn openssl(&self, arguments: &str) -> String {
        openssl(self.folder(), arguments).unwrap_or_else(|error| panic!("openssl {arguments}: {error}"))
    }

    /// Runs openssl in the directory of the office; returns its output or its error.
    pub(crate) fn try_openssl(&self, arguments: &str) -> Result<String, String> {
        openssl(self.folder(), arguments)
    }

    /// Writes `root.pem` and `ca.pem`.
    pub(crate) fn write_chain(&self) {
        self.write("root.pem", pem(&[&self.root.certificate.der]));
        self.write("ca.pem", pem(&[&self.ca.certificate.der]));
    }

    /// Returns the actions in the audit log with their counts, and verifies the hash chains.
    pub(crate) async fn audited(&self) -> HashMap<String, usize> {
        let verified = self.store.audit_verify().await.unwrap();
        assert_eq!(verified.faults, Vec::<String>::new());
        let mut counts = HashMap::new();
        let mut after = None;
        loop {
            let filter = store::AuditFilter::default();
            let page = self.store.audit_page(&filter, after.as_ref(), 10_000).await.unwrap();
            for row in page.rows {
                *counts.entry(row.action).or_default() += 1;
            }
            after = page.next;
            if after.is_none() {
                return counts;
            }
        }
    }
}

pub(crate) fn new_spki() -> Vec<u8> {
    PrivateKey::generate(KeyType::P256).unwrap().spki().to_vec()
}

/// Returns a request with a new key.
pub(crate) fn request(profile: &str, names: &[&str]) -> IssueRequest {
    let names = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    IssueRequest::new(profile, new_spki(), names, Source::Api, "user:alice")
}
