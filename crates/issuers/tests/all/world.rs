//! A database, keys and issuers for tests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use authority::keystore::KeyStore;
use authority::{Authority, AuthorityOptions};
use issuers::{
    HostPolicy, Issuer, IssuerContext, Issuers, NewIssuer, Order, ProgramConfig, Programs, ReadableFiles,
    Responders,
};
use keys::Keyring;
use outbound::resolve::Resolver;
use serde_json::{Value, json};
use store::{Clock, Store, StoreUrl};
use x509::{GeneralName, UnixTime};

use super::authority_of_tests::request;

/// A temporary environment for issuers.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) context: IssuerContext,
    pub(crate) issuers: Issuers,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    /// Creates a world with the system clock.
    pub(crate) async fn new() -> Self {
        Self::with(Clock::system(), Vec::new()).await
    }

    /// Creates a world with this clock and these name servers. By default, the name servers of this machine are used.
    pub(crate) async fn with(clock: Clock, names: Vec<SocketAddr>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("bulla.db"))).await.unwrap();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options = AuthorityOptions::default();
        let authority = Authority::open(store.clone(), keystore.clone(), clock.clone(), options).unwrap();
        let resolver =
            if names.is_empty() { Resolver::system().unwrap() } else { Resolver::with_upstreams(names) };
        let context = IssuerContext {
            store: store.clone(),
            clock: clock.clone(),
            authority,
            keystore,
            resolver,
            host: HostPolicy {
                programs: programs(&[("true", &["/bin/true"]), ("false", &["/bin/false"])]),
                ..HostPolicy::default()
            },
            responders: Responders::new(store.clone(), clock.clone()),
        };
        let issuers = Issuers::new(context.clone());
        Self { store, clock, context, issuers, folder }
    }

    /// Returns the world on a host whose configuration has these programs and no others.
    pub(crate) fn with_programs(mut self, named: &[(&str, &[&str])]) -> Self {
        self.context.host.programs = programs(named);
        self.issuers = self.other_process();
        self
    }

    /// Returns the world on a host that lets requests name files below this directory of the world.
    pub(crate) fn with_readable(mut self, folder: &str) -> Self {
        self.context.host.files = ReadableFiles::below(vec![self.folder.path().join(folder)]);
        self.issuers = self.other_process();
        self
    }

    /// Returns the issuers of another process on the same database. No memory is shared.
    pub(crate) fn other_process(&self) -> Issuers {
        let responders = Responders::new(self.store.clone(), self.clock.clone());
        Issuers::new(IssuerContext { responders, ..self.context.clone() })
    }

    pub(crate) async fn add(&self, name: &str, config: Value) -> std::sync::Arc<dyn Issuer> {
        let new = NewIssuer { name: name.to_owned(), config, enabled: true };
        self.issuers.create(new, "user:test").await.unwrap();
        self.issuers.get(name).await.unwrap()
    }

    pub(crate) fn now(&self) -> UnixTime {
        UnixTime(self.clock.now_seconds())
    }
}

/// Returns programs as defined in the server's configuration.
pub(crate) fn programs(named: &[(&str, &[&str])]) -> Programs {
    let config = |argv: &[&str]| serde_json::from_value::<ProgramConfig>(json!({ "argv": argv })).unwrap();
    Programs::new(&named.iter().map(|(name, argv)| ((*name).to_owned(), config(argv))).collect()).unwrap()
}

/// Returns an order for these names with a new key.
pub(crate) fn order(key: &str, names: &[&str]) -> Order {
    Order {
        key: key.to_owned(),
        csr_der: request(names).0,
        names: names.iter().map(|name| GeneralName::parse(name).unwrap()).collect(),
        profile: None,
        certificate_profile: None,
        ca: None,
        lifetime_seconds: None,
        replaces: None,
        deadline: Instant::now() + Duration::from_secs(60),
        requester: "user:test".to_owned(),
    }
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn run(program: &str, arguments: &[&str], install: &str) -> String {
    let ran = std::process::Command::new(program).args(arguments).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}; apt-get install -y {install}"));
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}
