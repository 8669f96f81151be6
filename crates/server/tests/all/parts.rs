//! The components of a server that issue and renew certificates.

use std::time::Duration;

use authority::keystore::KeyStore;
use authority::names::{DnsRule, NameRules, SuffixRule};
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions};
use issuers::{HostPolicy, IssuerContext, Issuers, Responders};
use keys::Keyring;
use lifecycle::{Lifecycle, LifecycleOptions};
use outbound::resolve::Resolver;
use store::{Clock, Store};

/// A CA, the issuers and the lifecycle on one database.
pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) keystore: KeyStore,
    pub(crate) authority: Authority,
    pub(crate) issuers: Issuers,
    pub(crate) lifecycle: Lifecycle,
}

impl Parts {
    /// Returns the components with the root CA `root`.
    pub(crate) async fn on(store: &Store, options: LifecycleOptions) -> Self {
        let clock = Clock::system();
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let authority =
            Authority::open(store.clone(), keystore.clone(), clock.clone(), AuthorityOptions::default())
                .unwrap();
        authority.create_root(&NewCa::root("root", "CN=Root"), "test").await.unwrap();
        let issuers = Issuers::new(IssuerContext {
            store: store.clone(),
            clock: clock.clone(),
            authority: authority.clone(),
            keystore: keystore.clone(),
            resolver: Resolver::with_upstreams(Vec::new()),
            host: HostPolicy::default(),
            responders: Responders::new(store.clone(), clock.clone()),
        });
        let lifecycle = Lifecycle::open(
            store.clone(),
            authority.clone(),
            issuers.clone(),
            keystore.clone(),
            clock.clone(),
            options,
        );
        Self { clock, keystore, authority, issuers, lifecycle }
    }

    /// Returns the components with the CA `issuing` below `root`, and ten scheduler runs per second.
    pub(crate) async fn with_issuing(store: &Store) -> Self {
        let tick = Duration::from_millis(100);
        let parts = Self::on(store, LifecycleOptions { tick, ..LifecycleOptions::default() }).await;
        let issuing = NewCa::intermediate("issuing", "CN=Issuing");
        parts.authority.create_intermediate("root", &issuing, "test").await.unwrap();
        parts
    }
}

/// Allows names up to five labels below `suffix`, and `suffix` itself.
pub(crate) fn names_under(suffix: &str) -> NameRules {
    let rule = DnsRule::Suffix(SuffixRule {
        suffix: suffix.to_owned(),
        itself: true,
        depth_max: 5,
        wildcards: false,
        wildcard_depth_min: 2,
        wildcard_depth_max: 5,
    });
    NameRules { dns_allowed: vec![rule], ..NameRules::default() }
}
