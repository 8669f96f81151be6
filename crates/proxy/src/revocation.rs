//! Revocation of client certificates by CRLs (RFC 5280 section 5), which are reloaded at runtime.
//!
//! If there are CRLs, a certificate is rejected when its issuer has no CRL. An unreadable or invalid CRL changes nothing, and an
//! outdated CRL stays in use until there is a newer one; both are logged. Of several CRLs of one issuer, the newest is used. A
//! connection ends when its client's certificate is revoked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_relay::clock::now;
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
use x509::crl::{CrlSet, CrlVerdict};

/// Interval of checks for changed CRL files.
const LOOK: Duration = Duration::from_secs(2);

/// Source of the CRLs. Its functions may block: they run outside of the threads that serve connections.
#[derive(Clone)]
pub struct RevocationLists {
    files: Arc<Files>,
    ders: Arc<DecodeCrls>,
}

type Files = dyn Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync;
type DecodeCrls = dyn Fn(&[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> + Send + Sync;

impl fmt::Debug for RevocationLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationLists").finish_non_exhaustive()
    }
}

impl RevocationLists {
    /// Creates a source. `files` returns the current bytes of the CRL files. After a change, `ders` extracts the CRLs (DER) from
    /// these bytes. Both may return an error.
    pub fn new(
        files: impl Fn() -> Result<Vec<Vec<u8>>, String> + Send + Sync + 'static,
        ders: impl Fn(&[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { files: Arc::new(files), ders: Arc::new(ders) }
    }
}

/// The CRLs cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("invalid certificate revocation lists (CRLs): {0}")]
pub struct BadCrls(String);

/// The loaded CRLs, and the files that they were read from.
#[derive(Default)]
pub(crate) struct LoadedCrls {
    /// The CRLs in use, newest first: the TLS library uses the first one for a certificate.
    pub(crate) ders: Vec<Vec<u8>>,
    /// Contents of the CRL files, to detect a change.
    files: Arc<Vec<Vec<u8>>>,
    set: CrlSet,
}

impl LoadedCrls {
    /// Loads the CRLs from `source`. Without a source there are no CRLs.
    pub(crate) fn of(source: Option<&RevocationLists>) -> Result<Self, BadCrls> {
        let Some(source) = source else { return Ok(Self::default()) };
        let files = (source.files)().map_err(BadCrls)?;
        Self::parse_files(source, Arc::new(files)).map_err(BadCrls)
    }

    fn parse_files(source: &RevocationLists, files: Arc<Vec<Vec<u8>>>) -> Result<Self, String> {
        let ders = (source.ders)(&files)?;
        let set = CrlSet::parse(&ders).map_err(|error| error.to_string())?;
        for issuer in set.superseded() {
            tracing::warn!(
                issuer,
                "an older CRL is ignored, because a newer one of the same CA is configured"
            );
        }
        let ders = set.lists().map(|list| list.der.to_vec()).collect();
        Ok(Self { ders, files, set })
    }

    fn revoke(&self, certificate: &Certificate) -> bool {
        self.set.verdict(certificate) == CrlVerdict::Revoked
    }

    /// Returns the number of outdated CRLs.
    fn outdated(&self) -> usize {
        self.set.outdated(now())
    }
}

/// Function that builds a TLS configuration that checks clients against CRLs.
type BuildServerConfig = Box<dyn Fn(&[Vec<u8>]) -> Result<ServerConfig, String> + Send + Sync>;
/// Contents of the CRL files, and the result of loading them.
type LoadResult = (Arc<Vec<Vec<u8>>>, Result<(), String>);

/// TLS configuration for client certificates with the current CRLs.
pub(crate) struct RevocationGuard {
    tls: RwLock<Arc<ServerConfig>>,
    lists: watch::Sender<Arc<LoadedCrls>>,
    source: Option<RevocationLists>,
    build: Arc<BuildServerConfig>,
    metrics: RevocationMetrics,
    door: &'static str,
}

impl RevocationGuard {
    /// Creates the guard. `tls` is the result of `build` for `lists`, loaded from `source`; `door` identifies the listener in
    /// metrics and logs.
    pub(crate) fn new(
        tls: ServerConfig,
        lists: LoadedCrls,
        source: Option<RevocationLists>,
        build: BuildServerConfig,
        (metrics, door): (RevocationMetrics, &'static str),
    ) -> Self {
        let (lists, _) = watch::channel(Arc::new(lists));
        Self { tls: RwLock::new(Arc::new(tls)), lists, source, build: Arc::new(build), metrics, door }
    }

    /// Returns the configuration for a new handshake.
    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls.read())
    }

    /// Completes when `certificate` is revoked.
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
            "a client's certificate was revoked: closing its connection"
        );
    }

    /// Reloads the CRLs when they change, until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let Some(source) = self.source.clone() else { return };
        let _live = telemetry::tasks::guard("client-crls");
        let mut last_failure = String::new();
        let mut last: LoadResult = (Arc::clone(&self.lists.borrow().files), Ok(()));
        loop {
            let outdated = self.lists.borrow().outdated();
            let failure = self.reload_changed(source.clone(), &mut last).await.err();
            self.metrics.checked(self.door, failure.is_none(), outdated);
            let why = match &failure {
                Some(why) => why.clone(),
                None if outdated > 0 => format!("{outdated} CRLs are past their nextUpdate"),
                None => String::new(),
            };
            if last_failure != why && !why.is_empty() {
                tracing::error!(
                    door = self.door,
                    why,
                    "client CRLs are outdated or cannot be loaded; the loaded CRLs stay in use"
                );
            }
            last_failure = why;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Reloads the CRLs if the files have changed since the `last` attempt.
    async fn reload_changed(&self, source: RevocationLists, last: &mut LoadResult) -> Result<(), String> {
        let (build, before) = (Arc::clone(&self.build), Arc::clone(&last.0));
        let check = move || {
            let files = (source.files)()?;
            if files == *before {
                return Ok(None);
            }
            let files = Arc::new(files);
            let made = LoadedCrls::parse_files(&source, Arc::clone(&files))
                .and_then(|lists| build(&lists.ders).map(|tls| (lists, tls)));
            Ok::<_, String>(Some((files, made)))
        };
        let checked = tokio::task::spawn_blocking(check).await.map_err(|error| error.to_string())??;
        let Some((files, made)) = checked else { return last.1.clone() };
        *last = (files, made.as_ref().map(drop).map_err(Clone::clone));
        let (lists, tls) = made?;
        *self.tls.write() = Arc::new(tls);
        self.metrics.reloaded(self.door);
        tracing::info!(door = self.door, lists = lists.ders.len(), "loaded new CRLs");
        self.lists.send_replace(Arc::new(lists));
        Ok(())
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DoorLabel {
    door: &'static str,
}

/// Metrics of CRLs. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevocationMetrics {
    reloads: Family<DoorLabel, Counter>,
    outdated: Family<DoorLabel, Gauge>,
    broken: Family<DoorLabel, Gauge>,
    ended: Family<DoorLabel, Counter>,
}

impl RevocationMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("bulla_intercept_client_crls");
        registry.register("reloads", "CRL reloads that found new CRLs", self.reloads.clone());
        registry.register(
            "outdated",
            "CRLs that are past their nextUpdate but stay in use",
            self.outdated.clone(),
        );
        registry.register("broken", "1 if the configured CRLs cannot be loaded", self.broken.clone());
        registry.register(
            "ended_connections",
            "Connections closed because their client certificate was revoked",
            self.ended.clone(),
        );
    }

    fn reloaded(&self, door: &'static str) {
        self.reloads.get_or_create(&DoorLabel { door }).inc();
    }

    fn checked(&self, door: &'static str, is_well: bool, outdated: usize) {
        self.outdated.get_or_create(&DoorLabel { door }).set(outdated as i64);
        self.broken.get_or_create(&DoorLabel { door }).set(i64::from(!is_well));
    }

    fn ended(&self, door: &'static str) {
        self.ended.get_or_create(&DoorLabel { door }).inc();
    }
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey, Signer};
    use parking_lot::Mutex;
    use x509::build::{self, Attribute, CertificateSpec};
    use x509::crl::{CrlSpec, Revoked, Scope, tbs_crl};
    use x509::{SerialNumber, UnixTime};

    use super::*;

    struct Issuer {
        key: PrivateKey,
        name: Arc<[u8]>,
    }

    impl Issuer {
        fn new(name: &str) -> Self {
            let name = build::distinguished_name(&[(Attribute::CommonName, name.to_owned())]);
            Self { key: PrivateKey::generate(KeyType::P256).unwrap(), name: name.der }
        }

        fn certificate(&self, serial: u8) -> Certificate {
            let spec = CertificateSpec {
                serial: &SerialNumber::from_content(&[serial]),
                signature: self.key.algorithm(),
                issuer: &self.name,
                subject: &self.name,
                not_before: UnixTime(0),
                not_after: UnixTime(1),
                spki: self.key.spki(),
                extensions: &[],
            };
            let tbs = build::tbs_certificate(&spec);
            let der = build::signed(&tbs, &spec.signature, &self.key.sign_now(&tbs).unwrap());
            Certificate::parse(&der).unwrap()
        }

        /// Creates a CRL issued at `at`.
        fn list(&self, at: i64, number: u64, point: Option<&str>, serials: &[u8]) -> Vec<u8> {
            let spec = CrlSpec {
                signature: self.key.algorithm(),
                issuer: &self.name,
                this_update: UnixTime(at),
                next_update: UnixTime(at + 1),
                number,
                authority_key_id: &[1],
                base: None,
                distribution_point: point,
                scope: Scope::All,
                freshest: None,
            };
            let revoked = |serial: &u8| Revoked {
                // A leading zero does not change the number.
                serial: SerialNumber::from_content(&[0, *serial]),
                at: UnixTime(at),
                reason: None,
                invalidity_date: None,
            };
            let revoked: Vec<Revoked> = serials.iter().map(revoked).collect();
            let tbs = tbs_crl(&spec, &revoked);
            build::signed(&tbs, &spec.signature, &self.key.sign_now(&tbs).unwrap())
        }
    }

    fn source(files: Vec<Vec<u8>>) -> RevocationLists {
        RevocationLists::new(move || Ok(files.clone()), |files| Ok(files.to_vec()))
    }

    #[test]
    fn newest_crl_of_each_issuer_is_used_in_any_file_order() {
        let (issuer, another) = (Issuer::new("a"), Issuer::new("b"));
        let older = issuer.list(1_000, 1, None, &[1]);
        for newer in [issuer.list(2_000, 1, None, &[7]), issuer.list(1_000, 256, None, &[7])] {
            let of_another = another.list(500, 9, None, &[2]);
            for files in [[&older, &newer, &of_another], [&newer, &of_another, &older]] {
                let lists = LoadedCrls::of(Some(&source(files.map(Clone::clone).into()))).unwrap();
                assert_eq!(lists.ders, [newer.clone(), of_another.clone()]);
                assert!(lists.revoke(&issuer.certificate(7)) && !lists.revoke(&issuer.certificate(1)));
                assert!(lists.revoke(&another.certificate(2)) && !lists.revoke(&another.certificate(7)));
                assert_eq!(lists.outdated(), 2);
            }
        }
        // Partial CRLs of one issuer do not replace each other.
        let parts = ["http://a.example/1", "http://a.example/2"];
        let files = parts.map(|point| issuer.list(1_000, 1, Some(point), &[3 + point.len() as u8 % 2]));
        assert_eq!(LoadedCrls::of(Some(&source(files.into()))).unwrap().ders.len(), 2);
    }

    #[tokio::test]
    async fn crl_files_are_parsed_only_when_they_change() {
        let issuer = Issuer::new("a");
        let files = Arc::new(Mutex::new(vec![issuer.list(1_000, 1, None, &[])]));
        let (read, parsed) = (Arc::clone(&files), Arc::new(Mutex::new(0)));
        let counted = Arc::clone(&parsed);
        let source = RevocationLists::new(
            move || Ok(read.lock().clone()),
            move |files| {
                *counted.lock() += 1;
                Ok(files.to_vec())
            },
        );
        let lists = LoadedCrls::of(Some(&source)).unwrap();
        let tls = || {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder =
                ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let none = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
            builder.with_no_client_auth().with_cert_resolver(none)
        };
        let build: BuildServerConfig = Box::new(move |_| Ok(tls()));
        let tls = build(&[]).unwrap();
        let mut last = (Arc::clone(&lists.files), Ok(()));
        let guarded = RevocationGuard::new(
            tls,
            lists,
            Some(source.clone()),
            build,
            (RevocationMetrics::default(), "a"),
        );
        for _ in 0..2 {
            guarded.reload_changed(source.clone(), &mut last).await.unwrap();
        }
        assert_eq!(*parsed.lock(), 1);
        *files.lock() = vec![b"no list".to_vec()];
        for _ in 0..2 {
            guarded.reload_changed(source.clone(), &mut last).await.unwrap_err();
        }
        assert_eq!(*parsed.lock(), 2, "what is broken is told again, and not read again");
        *files.lock() = vec![issuer.list(1_001, 2, None, &[5])];
        guarded.reload_changed(source.clone(), &mut last).await.unwrap();
        assert!(guarded.lists.borrow().revoke(&issuer.certificate(5)));
    }
}
