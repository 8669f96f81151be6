//! A fresh database for one test.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use store::testing::{Cluster, WriteLock};
use store::{Store, StoreOptions, StoreUrl};
use tempfile::TempDir;

/// A database with empty tables, and a temporary folder. Drop it after the stores that it opened.
pub struct Database {
    /// The database's address.
    pub url: StoreUrl,
    folder: TempDir,
    cluster: Option<Arc<Cluster>>,
}

impl Database {
    /// Creates a SQLite file in the temporary folder, below `data`.
    #[must_use]
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data").join("bulla.db");
        migrated_file(&file);
        Self { url: StoreUrl::sqlite(file), folder, cluster: None }
    }

    /// Creates a database on the PostgreSQL server that all tests of this process share.
    pub async fn postgres() -> Self {
        Self::on(tokio::task::spawn_blocking(Cluster::shared).await.unwrap())
    }

    /// Creates a database on a separate PostgreSQL server, which the test may stop.
    pub async fn dedicated_postgres() -> Self {
        Self::on(Arc::new(tokio::task::spawn_blocking(Cluster::start).await.unwrap()))
    }

    fn on(cluster: Arc<Cluster>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: migrated_database(&cluster), folder, cluster: Some(cluster) }
    }

    /// Opens a store with its own connections, like another process.
    pub async fn open(&self) -> Store {
        self.open_with(&StoreOptions::default()).await
    }

    /// Like [`Self::open`], with options.
    pub async fn open_with(&self, options: &StoreOptions) -> Store {
        Store::open_with(&self.url, options).await.unwrap()
    }

    /// Returns the temporary folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path in the temporary folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Blocks transactions that write to a table, until the result is dropped. On SQLite, blocks all write transactions, which fail
    /// after five seconds. Reads proceed.
    #[must_use]
    pub fn lock_writes(&self, table: &str) -> WriteLock {
        match &self.cluster {
            Some(cluster) => cluster.lock_writes(&self.url, table),
            None => WriteLock::of_file(&self.folder.path().join("data").join("bulla.db")),
        }
    }

    /// Returns the PostgreSQL server.
    ///
    /// # Panics
    /// The database is SQLite.
    #[must_use]
    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(self.cluster.as_ref().unwrap())
    }

    /// Stops the PostgreSQL server.
    pub async fn stop(&self) {
        let cluster = self.cluster();
        tokio::task::spawn_blocking(move || cluster.stop()).await.unwrap();
    }

    /// Starts the PostgreSQL server again.
    pub async fn resume(&self) {
        let cluster = self.cluster();
        tokio::task::spawn_blocking(move || cluster.resume()).await.unwrap();
    }
}

/// Creates a database on a PostgreSQL server. All migrations run once for the server: a copy takes a fraction of their time.
pub(crate) fn migrated_database(cluster: &Cluster) -> StoreUrl {
    cluster.migrated_database(migrate)
}

/// Writes a SQLite database to a file. All migrations run once in this process.
pub(crate) fn migrated_file(file: &Path) {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    let content = CONTENT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (original, copy) = (folder.path().join("bulla.db"), folder.path().join("copy.db"));
        migrate(&StoreUrl::sqlite(original.clone()));
        // The copy is complete without the log of the original.
        store::testing::execute(&original, &format!("VACUUM INTO '{}'", copy.display()));
        std::fs::read(copy).unwrap()
    });
    std::fs::DirBuilder::new().mode(0o700).create(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Opens a database, which creates its tables, and closes it. On a thread of its own, because the caller may belong to a runtime.
fn migrate(url: &StoreUrl) {
    std::thread::scope(|scope| {
        let open = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            drop(runtime.block_on(Store::open(url)).unwrap());
        };
        scope.spawn(open).join().unwrap();
    });
}

/// Runs each case on both databases: `on_both! { crate::world::World: module::case … }`, each `async fn case(world: World)`.
/// The type has `async fn sqlite()` and `async fn postgres()`; cases of the same file are named without a module.
#[macro_export]
macro_rules! on_both {
    ($world:ty: $($case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(<$world>::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(<$world>::postgres().await).await; }
        )* }
    };
    ($world:ty: $($module:ident::$case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(<$world>::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(<$world>::postgres().await).await; }
        )* }
    };
}
