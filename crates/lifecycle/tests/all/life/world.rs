//! A lifecycle whose clock, issuers, CA and database faults are controlled by the test.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use agent::tables::{AgentFacts, AgentRow, insert_agent};
use authority::keystore::KeyStore;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use issuers::{DeliveredChain, Issuer, IssuerError, IssuerKind, Order, Window};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use lifecycle::managed::{ManagedCertificate, NewCertificate};
use lifecycle::{
    AuthorityError, DataError, InternalAuthority, IssuerSource, Lifecycle, LifecycleOptions, ProfileFacts,
};
use parking_lot::Mutex;
use store::{Clock, Fault, Store, StoreOptions};
use testbed::Database;
use uuid::Uuid;
use x509::build::{CertificateSpec, Extension, signed, tbs_certificate};
use x509::crl::Reason;
use x509::csr::CertificateRequest;
use x509::{BasicConstraints, Certificate, DistinguishedName, Fingerprint, SerialNumber, UnixTime};

/// Saturday 2026-11-21 00:00 UTC, µs.
pub(crate) const NOW: i64 = 1_795_219_200_000_000;
pub(crate) const HOUR: i64 = 3_600_000_000;
pub(crate) const DAY: i64 = 24 * HOUR;
/// The lifetime of certificates from the issuers of these tests.
pub(crate) const LIFE: i64 = 90 * DAY;

/// The behavior of an issuer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Well,
    Down,
    Slow(Duration),
    /// Blocks every order until this many are waiting at the same time.
    Crowded(usize),
    /// Delivers a certificate for another key.
    Lying,
    /// Delivers a certificate for another name.
    Confused,
    Refusing,
    Deferred(Duration),
    Panicking,
}

/// A simulated issuer in this process.
#[derive(Debug)]
pub(crate) struct Fake {
    kind: IssuerKind,
    key: PrivateKey,
    clock: Clock,
    hooks: Arc<Hooks>,
    pub(crate) mood: Mutex<Mood>,
    /// Issued certificates, by order and public key.
    made: Mutex<HashMap<(String, Vec<u8>), Vec<u8>>>,
    pub(crate) requests: AtomicUsize,
    pub(crate) at_once: AtomicUsize,
    pub(crate) at_once_max: AtomicUsize,
    pub(crate) revoked: Mutex<Vec<Fingerprint>>,
    pub(crate) replaced: Mutex<Vec<Option<Fingerprint>>>,
    pub(crate) window: Mutex<Option<Window>>,
    pub(crate) window_requests: AtomicUsize,
    pub(crate) life_us: Mutex<i64>,
}

impl Fake {
    fn new(kind: IssuerKind, clock: Clock, hooks: Arc<Hooks>) -> Self {
        Self {
            kind,
            key: PrivateKey::generate(KeyType::P256).unwrap(),
            clock,
            hooks,
            mood: Mutex::new(Mood::Well),
            made: Mutex::default(),
            requests: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
            revoked: Mutex::default(),
            replaced: Mutex::default(),
            window: Mutex::default(),
            window_requests: AtomicUsize::new(0),
            life_us: Mutex::new(LIFE),
        }
    }

    /// Returns the number of different certificates issued.
    pub(crate) fn made(&self) -> usize {
        self.made.lock().len()
    }

    fn make(&self, names: &[x509::GeneralName], spki: &[u8]) -> Vec<u8> {
        let now = UnixTime(self.clock.now_seconds());
        let issuer = DistinguishedName::from_text("CN=Issuer of tests").unwrap();
        let life = *self.life_us.lock() / 1_000_000;
        let extensions = [
            Extension::subject_alt_names(names).critical(true),
            Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }),
        ];
        let serial = SerialNumber::from_random(*Uuid::new_v4().as_bytes());
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &serial,
            signature: self.key.algorithm(),
            issuer: &issuer.der,
            subject: &DistinguishedName::empty().der,
            not_before: now,
            not_after: now.plus(life),
            spki,
            extensions: &extensions,
        });
        signed(&tbs, &self.key.algorithm(), &self.key.sign_now(&tbs).unwrap())
    }

    async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(now, Ordering::SeqCst);
        let outcome = self.decide(order).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        self.hooks.pass(Step::Finish);
        outcome
    }

    async fn decide(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let mood = *self.mood.lock();
        let request = CertificateRequest::parse(&order.csr_der).unwrap();
        request.verify().unwrap();
        let spki = request.public_key.spki.to_vec();
        match mood {
            Mood::Well => {}
            Mood::Down => {
                return Err(IssuerError::Unavailable {
                    reason: "nobody there".to_owned(),
                    retry_after: None,
                });
            }
            Mood::Refusing => return Err(IssuerError::Refused { reason: "not this name".to_owned() }),
            Mood::Deferred(retry_after) => {
                return Err(IssuerError::Deferred { retry_after, reason: "resting".to_owned() });
            }
            Mood::Slow(pause) => tokio::time::sleep(pause).await,
            Mood::Crowded(wanted) => {
                let pause = Duration::from_millis(5);
                tokio::time::sleep(pause).await;
                while self.at_once_max.load(Ordering::SeqCst) < wanted {
                    tokio::time::sleep(pause).await;
                }
            }
            Mood::Panicking => panic!("an issuer of tests panics because it was told to"),
            Mood::Lying => {
                let other = PrivateKey::generate(KeyType::P256).unwrap();
                return Ok(DeliveredChain { chain: vec![self.make(&order.names, other.spki())] });
            }
            Mood::Confused => {
                let other = [x509::GeneralName::parse("evil.example").unwrap()];
                return Ok(DeliveredChain { chain: vec![self.make(&other, &spki)] });
            }
        }
        self.replaced.lock().push(order.replaces.as_deref().map(Fingerprint::of));
        let mut made = self.made.lock();
        let leaf = made
            .entry((order.key.clone(), spki.clone()))
            .or_insert_with(|| self.make(&order.names, &spki))
            .clone();
        Ok(DeliveredChain { chain: vec![leaf] })
    }
}

impl Issuer for Fake {
    fn kind(&self) -> IssuerKind {
        self.kind
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.obtain(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        _: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        async move {
            if *self.mood.lock() == Mood::Down {
                return Err(IssuerError::Unavailable {
                    reason: "nobody there".to_owned(),
                    retry_after: None,
                });
            }
            self.revoked.lock().push(certificate.fingerprint);
            self.hooks.pass(Step::RevokeFinish);
            Ok(())
        }
        .boxed()
    }

    fn renewal_window<'a>(
        &'a self,
        _: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        async move {
            self.window_requests.fetch_add(1, Ordering::SeqCst);
            if *self.mood.lock() == Mood::Down {
                return Err(IssuerError::Unavailable {
                    reason: "nobody there".to_owned(),
                    retry_after: None,
                });
            }
            Ok(self.window.lock().clone())
        }
        .boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        async { Ok("well".to_owned()) }.boxed()
    }
}

/// The step of a run just before a transaction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Step {
    Claim,
    Begin,
    Finish,
    RevokeFinish,
}

/// Faults by step. The next transaction after the step fails with the fault.
#[derive(Debug)]
pub(crate) struct Hooks {
    switch: Arc<AtomicU8>,
    armed: Mutex<HashMap<Step, Fault>>,
}

impl Hooks {
    fn pass(&self, step: Step) {
        if let Some(fault) = self.armed.lock().remove(&step) {
            self.switch.store(fault as u8, Ordering::SeqCst);
        }
    }
}

/// Issuers by name. `internal` and `other` always exist.
pub(crate) struct Fakes {
    all: Mutex<BTreeMap<String, Arc<Fake>>>,
    pub(crate) concurrency: AtomicUsize,
    hooks: Arc<Hooks>,
}

impl IssuerSource for Fakes {
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>> {
        async move {
            let found = self.all.lock().get(name).cloned();
            let found =
                found.ok_or_else(|| IssuerError::Misconfigured { reason: format!("no issuer {name}") });
            found.map(|fake| fake as Arc<dyn Issuer>)
        }
        .boxed()
    }

    fn concurrency<'a>(&'a self, _: &'a str) -> BoxFuture<'a, usize> {
        self.hooks.pass(Step::Claim);
        async move { self.concurrency.load(Ordering::SeqCst) }.boxed()
    }
}

/// A simulation of our own CA, reduced to the functions that these tests use.
pub(crate) struct Own {
    pub(crate) profiles: Mutex<HashMap<String, ProfileFacts>>,
    /// The number of certificates and the reason of each call.
    pub(crate) revoked: Mutex<Vec<(usize, Reason)>>,
    pub(crate) unavailable: Mutex<bool>,
    hooks: Arc<Hooks>,
}

impl InternalAuthority for Own {
    fn profile<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, DataError>> {
        self.hooks.pass(Step::Begin);
        async move { Ok(self.profiles.lock().get(name).copied()) }.boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificates: &'a [Fingerprint],
        reason: Reason,
        _: &'a str,
    ) -> BoxFuture<'a, Result<usize, AuthorityError>> {
        async move {
            if *self.unavailable.lock() {
                return Err(AuthorityError::Issuer(IssuerError::Unavailable {
                    reason: "away".to_owned(),
                    retry_after: None,
                }));
            }
            self.revoked.lock().push((certificates.len(), reason));
            self.hooks.pass(Step::RevokeFinish);
            Ok(certificates.len())
        }
        .boxed()
    }
}

pub(crate) struct World {
    pub(crate) life: Lifecycle,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) fakes: Arc<Fakes>,
    pub(crate) own: Arc<Own>,
    pub(crate) keystore: KeyStore,
    pub(crate) hooks: Arc<Hooks>,
    options: LifecycleOptions,
    // Last field: connections of the store are dropped before the database.
    pub(crate) database: Database,
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self::over(Database::sqlite()).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::over(Database::postgres().await).await
    }

    async fn over(database: Database) -> Self {
        let store_options = StoreOptions::default();
        let store = database.open_with(&store_options).await;
        let clock = Clock::manual(NOW);
        let hooks = Arc::new(Hooks { switch: Arc::clone(&store_options.fault), armed: Mutex::default() });
        let fake = |kind| Arc::new(Fake::new(kind, clock.clone(), Arc::clone(&hooks)));
        let all = BTreeMap::from([
            ("internal".to_owned(), fake(IssuerKind::Internal)),
            ("other".to_owned(), fake(IssuerKind::Webhook)),
            ("acme".to_owned(), fake(IssuerKind::Acme)),
        ]);
        let fakes = Arc::new(Fakes {
            all: Mutex::new(all),
            concurrency: AtomicUsize::new(8),
            hooks: Arc::clone(&hooks),
        });
        let plain = ProfileFacts { requires_approval: false, renew_at: 2.0 / 3.0 };
        let careful = ProfileFacts { requires_approval: true, renew_at: 2.0 / 3.0 };
        let own = Arc::new(Own {
            profiles: Mutex::new(HashMap::from([("web".to_owned(), plain), ("careful".to_owned(), careful)])),
            revoked: Mutex::default(),
            unavailable: Mutex::new(false),
            hooks: Arc::clone(&hooks),
        });
        let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
        let options = LifecycleOptions {
            tick: Duration::from_millis(50),
            cache_lifetime: Duration::ZERO,
            order_timeout: Duration::from_secs(20),
            ..LifecycleOptions::default()
        };
        let life = Lifecycle::open_with(
            store.clone(),
            Arc::clone(&own) as Arc<dyn InternalAuthority>,
            Arc::clone(&fakes) as Arc<dyn IssuerSource>,
            keystore.clone(),
            clock.clone(),
            options.clone(),
        );
        Self { life, store, clock, fakes, own, keystore, hooks, options, database }
    }

    /// Returns the lifecycle of another process on the same database.
    pub(crate) async fn second(&self) -> Lifecycle {
        let store = self.database.open().await;
        Lifecycle::open_with(
            store,
            Arc::clone(&self.own) as Arc<dyn InternalAuthority>,
            Arc::clone(&self.fakes) as Arc<dyn IssuerSource>,
            self.keystore.clone(),
            self.clock.clone(),
            self.options.clone(),
        )
    }

    /// Returns this world's lifecycle with other options.
    pub(crate) fn with(&self, change: impl FnOnce(&mut LifecycleOptions)) -> Lifecycle {
        let mut options = self.options.clone();
        change(&mut options);
        Lifecycle::open_with(
            self.store.clone(),
            Arc::clone(&self.own) as Arc<dyn InternalAuthority>,
            Arc::clone(&self.fakes) as Arc<dyn IssuerSource>,
            self.keystore.clone(),
            self.clock.clone(),
            options,
        )
    }

    pub(crate) fn issuer(&self, name: &str) -> Arc<Fake> {
        self.fakes.all.lock().get(name).cloned().unwrap()
    }

    pub(crate) fn advance(&self, by_us: i64) {
        self.clock.set(self.clock.now_us() + by_us);
    }

    /// Makes the next transaction fail with the fault.
    pub(crate) fn fail_next(&self, fault: Fault) {
        self.hooks.switch.store(fault as u8, Ordering::SeqCst);
    }

    /// Makes the next transaction after a step fail with the fault, once.
    pub(crate) fn fail_at(&self, step: Step, fault: Fault) {
        self.hooks.armed.lock().insert(step, fault);
    }

    /// Enrols an agent.
    pub(crate) async fn agent(&self) -> Uuid {
        let id = Uuid::now_v7();
        let now = self.clock.now_us();
        let agent = AgentRow {
            id,
            name: id.to_string(),
            labels: "{}".to_owned(),
            spki_sha256: *Fingerprint::of(id.as_bytes()).as_bytes(),
            not_after_us: now + DAY,
            facts: AgentFacts { addresses: "[]".to_owned(), ..AgentFacts::default() },
            revision: 1,
            enrolled_at_us: now,
            last_seen_at_us: now,
            retired_at_us: None,
        };
        let stored =
            self.store.write("agent", move |tx| async move { insert_agent(tx, &agent, &[]).await }.boxed());
        assert!(stored.await.unwrap());
        id
    }

    /// Issues a certificate with this name.
    pub(crate) async fn issued(&self, name: &str) -> ManagedCertificate {
        let created = self.life.create(NewCertificate::new(&[name], "web"), "user:ann").await.unwrap();
        self.life.tick().await.unwrap();
        let certificate = self.life.get(created.certificate).await.unwrap();
        assert!(certificate.current.is_some(), "{certificate:?}");
        certificate
    }

    /// Issues `count` certificates.
    pub(crate) async fn many(&self, count: usize) -> Vec<Uuid> {
        let new =
            (0..count).map(|number| NewCertificate::new(&[&format!("n{number:04}.example.org")], "web"));
        let created = self.life.create_many(new.collect(), "user:ann").await;
        let ids = created.into_iter().map(|one| one.unwrap().certificate).collect();
        self.life.tick().await.unwrap();
        ids
    }

    /// Ticks repeatedly, a few minutes apart, so that leases and pauses expire.
    pub(crate) async fn settle(&self) {
        for _ in 0..6 {
            self.advance(10 * 60 * 1_000_000);
            let _ = self.life.tick().await;
        }
    }

    /// Checks invariants: counts equal the rows, and the audit log verifies.
    pub(crate) async fn check(&self) {
        let outcome = self.store.audit_verify().await.unwrap();
        assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
        let counts = self.life.counts().await.unwrap();
        let mut states = BTreeMap::new();
        let mut ends = BTreeMap::new();
        let mut cursor = None;
        loop {
            let filter = lifecycle::tables::managed::ManagedFilter::default();
            let order = lifecycle::tables::managed::ManagedOrder::Created;
            let page = self.life.page(&filter, order, cursor.as_ref(), 100).await.unwrap();
            for one in &page.rows {
                *states.entry(one.state).or_insert(0_u64) += 1;
                if let Some(ends_at_us) = one.ends_at_us()
                    && one.state != lifecycle::state::State::Archived
                {
                    *ends.entry(ends_at_us.div_euclid(DAY)).or_insert(0_u64) += 1;
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(counts.states, states);
        assert_eq!(counts.by_day, ends);
    }
}
