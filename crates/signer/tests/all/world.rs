//! A server and a signer with one database and a socket between them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use authority::ca_keys::CaKeys;
use authority::issue::{IssueError, IssueRequest, Issued, Source};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::signer_checks::{ApprovalSource, CheckedCaKeys, NoApprovals, SignerRules};
use authority::tree::{Ca, NewCa};
use authority::{Authority, AuthorityOptions};
use keys::{KeyType, Keyring, PrivateKey, SignError, Signer};
use signer::{SealedKeys, SignerClient, SignerOptions, SignerServer, SocketAccess};
use store::{Clock, Store};
use testbed::Database;
use tokio_util::sync::CancellationToken;
use x509::GeneralName;

use crate::taken_over::{Forgery, TakenOver};

/// 2026-11-21, seconds.
const NOW: i64 = 1_795_219_200;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// The server's view of the CA.
    pub(crate) authority: Authority,
    pub(crate) keystore: KeyStore,
    pub(crate) taken_over: Arc<TakenOver>,
    pub(crate) client: Arc<SignerClient>,
    pub(crate) root: Arc<Ca>,
    pub(crate) ca: Arc<Ca>,
    pub(crate) consents: Arc<dyn ApprovalSource>,
    pub(crate) rules: SignerRules,
    ring: Arc<Keyring>,
    signer: Option<SignerServer>,
    // Last, so that the stores' connections are dropped first.
    database: Database,
}

fn options() -> AuthorityOptions {
    AuthorityOptions {
        base_url: "http://pki.example".to_owned(),
        cache_lifetime: Duration::ZERO,
        ..AuthorityOptions::default()
    }
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        let store = database.open().await;
        let clock = Clock::manual(NOW * 1_000_000);
        let folder = database.path("run");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let ring = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone()).ring();
        let client = Arc::new(SignerClient::new(&folder.join("socket")));
        let taken_over = Arc::new(TakenOver::new(Arc::clone(&client)));
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let keys: Arc<dyn CaKeys> = taken_over.clone();
        let authority =
            Authority::open_with_keys(store.clone(), keystore.clone(), keys, clock.clone(), options())
                .unwrap();
        let signer =
            serve(&database, &clock, &ring, SignerRules::default(), Arc::new(NoApprovals), own_user()).await;
        let root = NewCa { key_type: KeyType::P256, ..NewCa::root("root", "CN=Test Root") };
        let root = authority.create_root(&root, "user:test").await.unwrap();
        let ca = NewCa { key_type: KeyType::P256, ..NewCa::intermediate("web", "CN=Test CA") };
        let ca = authority.create_intermediate("root", &ca, "user:test").await.unwrap();
        let world = Self {
            store,
            clock,
            authority,
            keystore,
            taken_over,
            client,
            root,
            ca,
            consents: Arc::new(NoApprovals),
            rules: SignerRules::default(),
            ring,
            signer: Some(signer),
            database,
        };
        world.profile(serde_json::json!({"name": "web", "names": {"dns_allowed": [".example"]}})).await;
        world
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.database.path("run").join("socket")
    }

    /// Stops the signer and removes its socket.
    pub(crate) async fn stop_signer(&mut self) {
        assert!(self.signer.take().unwrap().stop().await, "no order was cut off");
    }

    /// Starts a new signer without cached state, for these users.
    pub(crate) async fn start_signer_for(&mut self, users: BTreeSet<u32>) {
        let (rules, consents) = (self.rules.clone(), Arc::clone(&self.consents));
        self.signer = Some(serve(&self.database, &self.clock, &self.ring, rules, consents, users).await);
    }

    pub(crate) async fn restart_signer(&mut self) {
        self.stop_signer().await;
        self.start_signer_for(own_user()).await;
    }

    pub(crate) async fn profile(&self, profile: serde_json::Value) {
        let profile = Profile::from_json(&profile.to_string()).unwrap();
        self.authority.put_profile(profile, None, "user:test").await.unwrap();
    }

    /// Returns the SHA-256 of a stored profile, as pinned in the configuration.
    pub(crate) async fn version(&self, name: &str) -> authority::plan::DocumentVersion {
        let row = authority::tables::Profiles::of(&self.store).get(name).await.unwrap().unwrap();
        authority::plan::DocumentVersion::of(row.revision, &row.body)
    }

    pub(crate) async fn issue(&self, profile: &str, names: &[&str]) -> Result<Issued, IssueError> {
        self.authority.issue(request(profile, names)).await
    }

    /// Returns the signer's error for a forged order.
    pub(crate) async fn refusal(&self, forgery: Forgery, request: IssueRequest) -> String {
        self.taken_over.next(forgery);
        refused(self.authority.issue(request).await)
    }
}

/// Returns the signer's error.
pub(crate) fn refused(outcome: Result<Issued, IssueError>) -> String {
    match outcome {
        Err(IssueError::Sign(SignError::Failed(reason))) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) fn own_user() -> BTreeSet<u32> {
    BTreeSet::from([rustix::process::geteuid().as_raw()])
}

async fn serve(
    database: &Database,
    clock: &Clock,
    ring: &Arc<Keyring>,
    rules: SignerRules,
    consents: Arc<dyn ApprovalSource>,
    users: BTreeSet<u32>,
) -> SignerServer {
    let store = database.open().await;
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    keystore.add_provider(Arc::new(SealedKeys::new(Arc::clone(ring))));
    let authority = Authority::open(store, keystore, clock.clone(), options()).unwrap();
    let checked = Arc::new(CheckedCaKeys::new(authority, rules, consents));
    let path = database.path("run").join("socket");
    let options = SignerOptions { path, users, access: SocketAccess::Owner };
    SignerServer::start(options, checked, CancellationToken::new()).await.unwrap()
}

/// Returns a request with a new key.
pub(crate) fn request(profile: &str, names: &[&str]) -> IssueRequest {
    let names = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    IssueRequest::new(profile, new_spki(), names, Source::Api, "user:alice")
}

pub(crate) fn new_spki() -> Vec<u8> {
    PrivateKey::generate(KeyType::P256).unwrap().spki().to_vec()
}
