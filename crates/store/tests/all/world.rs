//! A fresh database, and observations to put into it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use store::testing::Cluster;
use store::{
    Cursor, EndpointKey, Fault, NewCertificate, NewObservation, Page, Recorded, Store, StoreError,
    StoreOptions, StoreUrl,
};
use uuid::Uuid;

/// 2026-11-21, µs.
pub(crate) const NOW: i64 = 1_795_219_200_000_000;
pub(crate) const DAY: i64 = 86_400_000_000;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) url: StoreUrl,
    pub(crate) options: StoreOptions,
    clock: AtomicI64,
    folder: Option<tempfile::TempDir>,
    // Last: the store's connections go before the server.
    _cluster: Option<Arc<Cluster>>,
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self::sqlite_with(StoreOptions::default()).await
    }

    pub(crate) async fn sqlite_with(options: StoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(folder.path().join("data").join("inventory.db"));
        let store = Store::open_with(&url, &options).await.unwrap();
        Self { store, url, options, clock: AtomicI64::new(NOW), folder: Some(folder), _cluster: None }
    }

    pub(crate) async fn postgres() -> Self {
        let cluster = tokio::task::spawn_blocking(Cluster::shared).await.unwrap();
        Self::postgres_in(cluster).await
    }

    pub(crate) async fn postgres_in(cluster: Arc<Cluster>) -> Self {
        let url = cluster.database();
        let options = StoreOptions::default();
        let store = Store::open_with(&url, &options).await.unwrap();
        Self { store, url, options, clock: AtomicI64::new(NOW), folder: None, _cluster: Some(cluster) }
    }

    pub(crate) fn sqlite_path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("data").join("inventory.db")
    }

    /// A scan, each an hour after the one before.
    pub(crate) async fn scan(&self) -> Scan<'_> {
        let started = self.clock.fetch_add(3_600_000_000, Ordering::SeqCst);
        let id = Uuid::now_v7();
        self.store.scans().begin(id, started, r#"{"targets":["example"]}"#).await.unwrap();
        Scan { world: self, id, at: started }
    }

    pub(crate) fn fail_next(&self, fault: Fault) {
        self.options.fault.store(fault as u8, Ordering::SeqCst);
    }
}

pub(crate) struct Scan<'w> {
    pub(crate) world: &'w World,
    pub(crate) id: Uuid,
    pub(crate) at: i64,
}

impl Scan<'_> {
    pub(crate) async fn record(&self, batch: &[NewObservation]) -> Recorded {
        self.world.store.scans().record(self.id, batch).await.unwrap()
    }

    pub(crate) async fn try_record(&self, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        self.world.store.scans().record(self.id, batch).await
    }

    pub(crate) fn saw(&self, host: &str, leaf: &Arc<NewCertificate>) -> NewObservation {
        answered(host, leaf, self.at)
    }

    pub(crate) fn silent(&self, host: &str) -> NewObservation {
        silent(host, self.at)
    }
}

pub(crate) fn key(host: &str) -> EndpointKey {
    EndpointKey {
        host: host.to_owned(),
        port: 443,
        protocol: "tls".to_owned(),
        server_name: host.to_owned(),
        address: String::new(),
    }
}

/// A certificate that nobody checks: the store does not read the DER.
pub(crate) fn certificate(name: &str, issuer: &str, not_after_us: i64) -> Arc<NewCertificate> {
    let mut sha256 = [0_u8; 32];
    let seed = format!("{name}|{issuer}|{not_after_us}");
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for (at, byte) in sha256.iter_mut().enumerate() {
        for letter in seed.bytes().chain([at as u8]) {
            state = (state ^ u64::from(letter)).wrapping_mul(0x0100_0000_01b3);
        }
        *byte = (state >> 24) as u8;
    }
    Arc::new(NewCertificate {
        sha256,
        der: seed.as_bytes().into(),
        subject: format!("CN={name}"),
        issuer: issuer.to_owned(),
        serial: "0a0b".to_owned(),
        not_before_us: not_after_us - 90 * DAY,
        not_after_us,
        key_algorithm: "EC P-256".to_owned(),
        key_bits: 256,
        spki_sha256: [7; 32],
        names: vec![name.to_owned(), format!("www.{name}")],
    })
}

pub(crate) fn issuing() -> Arc<NewCertificate> {
    certificate("Issuing CA", "CN=Root", NOW + 1000 * DAY)
}

pub(crate) fn answered(host: &str, leaf: &Arc<NewCertificate>, at: i64) -> NewObservation {
    NewObservation {
        endpoint: key(host),
        address: Some("192.0.2.1".parse().unwrap()),
        observed_at_us: at,
        outcome: "ok".to_owned(),
        answered: true,
        tls_version: Some(0x0304),
        cipher_suite: Some(0x1301),
        chain: vec![Arc::clone(leaf), issuing()],
        trust: "trusted".to_owned(),
        severity: Some(1),
        findings: r#"[{"code":"wildcard"}]"#.to_owned(),
        detail: "{}".to_owned(),
    }
}

pub(crate) fn silent(host: &str, at: i64) -> NewObservation {
    NewObservation {
        address: None,
        outcome: "connect-refused".to_owned(),
        answered: false,
        tls_version: None,
        cipher_suite: None,
        chain: Vec::new(),
        trust: "unknown".to_owned(),
        severity: None,
        findings: "[]".to_owned(),
        ..answered(host, &issuing(), at)
    }
}

/// Every row of a listing, in pages of `$limit`.
macro_rules! walk {
    ($limit:expr, |$after:ident, $size:ident| $page:expr) => {{
        let mut rows = Vec::new();
        let mut cursor: Option<store::Cursor> = None;
        loop {
            let $after = cursor.as_ref();
            let $size = $limit;
            let page = $page.await.unwrap();
            assert!(page.rows.len() <= $size);
            rows.extend(page.rows);
            match crate::world::through_text(page.next) {
                Some(next) => cursor = Some(next),
                None => break rows,
            }
        }
    }};
}
pub(crate) use walk;

/// A cursor as it comes back from a user.
pub(crate) fn through_text(cursor: Option<Cursor>) -> Option<Cursor> {
    cursor.map(|cursor| cursor.to_string().parse().unwrap())
}

pub(crate) fn hosts<T>(page: &Page<T>, host: impl Fn(&T) -> String) -> Vec<String> {
    page.rows.iter().map(host).collect()
}
