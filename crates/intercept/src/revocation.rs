//! Certificates of clients that were revoked: lists (CRLs, RFC 5280 section 5) that are read again while connections are there.
//!
//! Where there are lists, a certificate whose authority has none lets nobody in: nobody could tell whether it is revoked. A list
//! that cannot be read, or cannot be used, changes nothing, and one that is past its time counts until there is a newer one; both are
//! told. A connection ends when the certificate it was made by is revoked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use x509::Certificate;
use x509::crl::Crl;

use crate::clock::now;

/// Between two looks at where lists are from.
const LOOK: Duration = Duration::from_secs(2);

/// Where lists (DER) are from. Asked off the threads that serve.
#[derive(Clone)]
pub struct RevocationLists(Arc<Reads>);

type Reads = dyn Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync;

impl fmt::Debug for RevocationLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationLists").finish_non_exhaustive()
    }
}

impl RevocationLists {
    /// What `reads` finds each time, or why nothing.
    pub fn new(reads: impl Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(reads))
    }
}

/// Lists that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("lists of revoked certificates: {0}")]
pub struct BadLists(String);

/// What they say now.
#[derive(Default)]
pub(crate) struct Lists {
    /// As they came.
    pub(crate) ders: Vec<Vec<u8>>,
    read: Vec<Crl>,
}

impl Lists {
    /// None where there is no source.
    pub(crate) fn of(source: Option<&RevocationLists>) -> Result<Self, BadLists> {
        let Some(source) = source else { return Ok(Self::default()) };
        let ders = (source.0)().map_err(BadLists)?;
        let read: Result<Vec<_>, _> = ders.iter().map(|der| Crl::parse(der)).collect();
        Ok(Self { read: read.map_err(|error| BadLists(error.to_string()))?, ders })
    }

    fn revoke(&self, certificate: &Certificate) -> bool {
        let has = |list: &Crl| {
            list.issuer.der == certificate.issuer.der && list.find(&certificate.serial).is_some()
        };
        self.read.iter().any(has)
    }

    /// How many are past their time.
    fn outdated(&self) -> usize {
        let now = now();
        self.read.iter().filter(|list| list.next_update.is_some_and(|until| until < now)).count()
    }
}

/// Makes TLS that holds clients against lists.
type Build = Box<dyn Fn(&[Vec<u8>]) -> Result<ServerConfig, String> + Send + Sync>;

/// TLS with clients that show certificates, by the lists that count now.
pub(crate) struct Guarded {
    tls: RwLock<Arc<ServerConfig>>,
    lists: watch::Sender<Arc<Lists>>,
    source: Option<RevocationLists>,
    build: Build,
    metrics: RevocationMetrics,
    door: &'static str,
}

impl Guarded {
    /// `tls` is what `build` makes of `lists`, which `source` had; `door` tells it from others.
    pub(crate) fn new(
        tls: ServerConfig,
        lists: Lists,
        source: Option<RevocationLists>,
        build: Build,
        (metrics, door): (RevocationMetrics, &'static str),
    ) -> Self {
        let (lists, _) = watch::channel(Arc::new(lists));
        Self { tls: RwLock::new(Arc::new(tls)), lists, source, build, metrics, door }
    }

    /// For a handshake that begins now.
    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls.read())
    }

    /// Ends once `certificate` is revoked.
    pub(crate) async fn revoked(&self, certificate: Option<CertificateDer<'static>>) {
        let certificate = certificate.filter(|_| self.source.is_some());
        let certificate = certificate.and_then(|der| Certificate::parse(&der).ok());
        let Some(certificate) = certificate else { return std::future::pending().await };
        let mut lists = self.lists.subscribe();
        while !lists.borrow_and_update().revoke(&certificate) {
            if lists.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        self.metrics.ended(self.door);
        tracing::warn!(
            subject = certificate.subject.text,
            "a client's certificate was revoked: its connection ends"
        );
    }

    /// Has lists count as they change, until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let Some(source) = self.source.clone() else { return };
        let _live = telemetry::tasks::guard("client-crls");
        let mut told = String::new();
        loop {
            let outdated = self.lists.borrow().outdated();
            let failure = self.look(source.clone()).await.err();
            self.metrics.looked(self.door, failure.is_none(), outdated);
            let why = match &failure {
                Some(why) => why.clone(),
                None if outdated > 0 => format!("{outdated} past their time (nextUpdate)"),
                None => String::new(),
            };
            if told != why && !why.is_empty() {
                tracing::error!(door = self.door, why, "lists of revoked certificates count as they were");
            }
            told = why;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn look(&self, source: RevocationLists) -> Result<(), String> {
        let read = tokio::task::spawn_blocking(move || Lists::of(Some(&source))).await;
        let lists = read.map_err(|error| error.to_string())?.map_err(|BadLists(why)| why)?;
        if lists.ders == self.lists.borrow().ders {
            return Ok(());
        }
        let tls = (self.build)(&lists.ders)?;
        *self.tls.write() = Arc::new(tls);
        self.metrics.reloaded(self.door);
        tracing::info!(
            door = self.door,
            lists = lists.ders.len(),
            "other lists of revoked certificates count from now on"
        );
        self.lists.send_replace(Arc::new(lists));
        Ok(())
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DoorLabel {
    door: &'static str,
}

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevocationMetrics {
    reloads: Family<DoorLabel, Counter>,
    outdated: Family<DoorLabel, Gauge>,
    broken: Family<DoorLabel, Gauge>,
    ended: Family<DoorLabel, Counter>,
}

impl RevocationMetrics {
    /// Makes them part of what is served.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("bulla_intercept_client_crls");
        registry.register("reloads", "Other lists of revoked certificates that count", self.reloads.clone());
        registry.register("outdated", "Lists that are past their time, and count", self.outdated.clone());
        registry.register("broken", "Whether those there are now cannot be used", self.broken.clone());
        registry.register(
            "ended_connections",
            "Connections whose certificate was revoked",
            self.ended.clone(),
        );
    }

    fn reloaded(&self, door: &'static str) {
        self.reloads.get_or_create(&DoorLabel { door }).inc();
    }

    fn looked(&self, door: &'static str, is_well: bool, outdated: usize) {
        self.outdated.get_or_create(&DoorLabel { door }).set(outdated as i64);
        self.broken.get_or_create(&DoorLabel { door }).set(i64::from(!is_well));
    }

    fn ended(&self, door: &'static str) {
        self.ended.get_or_create(&DoorLabel { door }).inc();
    }
}
