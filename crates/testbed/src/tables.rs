//! A fresh database for tests of tables, and observations to store in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub use store::Cursor;
use store::testing::Cluster;
use store::{
    EndpointKey, Fault, NewCertificate, NewObservation, Page, Recorded, Store, StoreError, StoreOptions,
    StoreUrl,
};
use uuid::Uuid;

use crate::database::{migrated_database, migrated_file};

/// The current time of tests: 2026-11-21, in microseconds since 1970.
pub const NOW: i64 = 1_795_219_200_000_000;
/// A day in microseconds.
pub const DAY: i64 = 86_400_000_000;

/// A database for one test, opened as a store.
pub struct World {
    /// The store, opened on the new database.
    pub store: Store,
    /// The database's address.
    pub url: StoreUrl,
    /// The options that the store was opened with.
    pub options: StoreOptions,
    clock: AtomicI64,
    folder: Option<tempfile::TempDir>,
    // Declared last, so that the store's connections are dropped before the server.
    _cluster: Option<Arc<Cluster>>,
}

impl World {
    /// Creates a test database: a SQLite file in a temporary folder.
    pub async fn sqlite() -> Self {
        Self::sqlite_with(StoreOptions::default()).await
    }

    /// Like [`Self::sqlite`], with options.
    pub async fn sqlite_with(options: StoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data").join("inventory.db");
        migrated_file(&file);
        let url = StoreUrl::sqlite(file);
        let store = Store::open_with(&url, &options).await.unwrap();
        Self { store, url, options, clock: AtomicI64::new(NOW), folder: Some(folder), _cluster: None }
    }

    /// Creates a test database on the PostgreSQL server that all tests of this process share.
    pub async fn postgres() -> Self {
        let cluster = tokio::task::spawn_blocking(Cluster::shared).await.unwrap();
        Self::postgres_on_cluster(cluster).await
    }

    /// Creates a test database on this PostgreSQL server.
    pub async fn postgres_on_cluster(cluster: Arc<Cluster>) -> Self {
        let url = migrated_database(&cluster);
        let options = StoreOptions::default();
        let store = Store::open_with(&url, &options).await.unwrap();
        Self { store, url, options, clock: AtomicI64::new(NOW), folder: None, _cluster: Some(cluster) }
    }

    /// Returns the path of the SQLite file.
    ///
    /// # Panics
    /// The database is PostgreSQL.
    #[must_use]
    pub fn sqlite_path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("data").join("inventory.db")
    }

    /// Begins a scan, one hour after the previous one.
    pub async fn scan(&self) -> Scan<'_> {
        self.scan_of(r#"{"targets":["example"]}"#).await
    }

    /// Like [`Self::scan`], with other settings.
    pub async fn scan_of(&self, spec: &str) -> Scan<'_> {
        let started = self.clock.fetch_add(3_600_000_000, Ordering::SeqCst);
        let id = Uuid::now_v7();
        store::Scans::of(&self.store).begin(id, started, spec).await.unwrap();
        Scan { world: self, id, at: started }
    }

    /// Makes the next transaction fail with `fault`.
    pub fn fail_next(&self, fault: Fault) {
        self.options.fault.store(fault as u8, Ordering::SeqCst);
    }
}

/// A scan that records observations.
pub struct Scan<'w> {
    /// The database that the scan writes to.
    pub world: &'w World,
    /// The scan's id.
    pub id: Uuid,
    /// Start of the scan, in microseconds since 1970.
    pub at: i64,
}

impl Scan<'_> {
    /// Stores these observations as results of the scan.
    pub async fn record(&self, batch: &[NewObservation]) -> Recorded {
        store::Scans::of(&self.world.store).record(self.id, batch).await.unwrap()
    }

    /// Like [`Self::record`], but returns errors.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn try_record(&self, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        store::Scans::of(&self.world.store).record(self.id, batch).await
    }

    /// Creates the observation of a host that presented this leaf.
    #[must_use]
    pub fn leaf_observation(&self, host: &str, leaf: &Arc<NewCertificate>) -> NewObservation {
        answered(host, leaf, self.at)
    }

    /// Creates the observation of a host that refused the connection.
    #[must_use]
    pub fn silent(&self, host: &str) -> NewObservation {
        silent(host, self.at)
    }
}

/// Returns the endpoint at port 443 of a host.
#[must_use]
pub fn key(host: &str) -> EndpointKey {
    EndpointKey {
        host: host.to_owned(),
        port: 443,
        protocol: "tls".to_owned(),
        server_name: host.to_owned(),
        address: String::new(),
    }
}

/// Creates a certificate whose DER is not valid. The store does not parse it.
#[must_use]
pub fn certificate(name: &str, issuer: &str, not_after_us: i64) -> Arc<NewCertificate> {
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

/// Returns the CA certificate that signed all leaves of [`answered`].
#[must_use]
pub fn issuing() -> Arc<NewCertificate> {
    certificate("Issuing CA", "CN=Root", NOW + 1000 * DAY)
}

/// Creates an observation of a host that presented this leaf.
#[must_use]
pub fn answered(host: &str, leaf: &Arc<NewCertificate>, at: i64) -> NewObservation {
    NewObservation {
        endpoint: key(host),
        address: Some("192.0.2.1".parse().unwrap()),
        observed_at_us: at,
        outcome: events::ProbeOutcome::Answered,
        answered: true,
        tls_version: Some(0x0304),
        cipher_suite: Some(0x1301),
        chain: vec![Arc::clone(leaf), issuing()],
        trust: "trusted".to_owned(),
        severity: Some(x509::Severity::Low),
        findings: r#"[{"code":"wildcard"}]"#.to_owned(),
        detail: "{}".to_owned(),
    }
}

/// Creates an observation of a host that refused the connection.
#[must_use]
pub fn silent(host: &str, at: i64) -> NewObservation {
    NewObservation {
        address: None,
        outcome: events::ProbeOutcome::Refused,
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

/// Returns every row of a listing, read in pages of `$limit`: `walk!(2, |after, size| Jobs::of(&store).page(after, size))`.
#[macro_export]
macro_rules! walk {
    ($limit:expr, |$after:ident, $size:ident| $page:expr) => {{
        let mut rows = Vec::new();
        let mut cursor: Option<$crate::tables::Cursor> = None;
        loop {
            let $after = cursor.as_ref();
            let $size = $limit;
            let page = $page.await.unwrap();
            assert!(page.rows.len() <= $size);
            rows.extend(page.rows);
            match $crate::tables::round_trip_cursor(page.next) {
                Some(next) => cursor = Some(next),
                None => break rows,
            }
        }
    }};
}

/// Returns a cursor after formatting and parsing, as from a user.
#[must_use]
pub fn round_trip_cursor(cursor: Option<Cursor>) -> Option<Cursor> {
    cursor.map(|cursor| cursor.to_string().parse().unwrap())
}

/// Returns the hosts of a page.
pub fn hosts<T>(page: &Page<T>, host: impl Fn(&T) -> String) -> Vec<String> {
    page.rows.iter().map(host).collect()
}
