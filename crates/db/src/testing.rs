//! Test support: temporary PostgreSQL servers, and access to SQLite files.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::database::Database;
use crate::error::StoreError;
use crate::url::StoreUrl;

const INSTALL: &str = "this test needs a PostgreSQL server: apt-get install -y postgresql";

/// Timeout of a server start. A start takes a second, but longer under load.
const START_MAX: Duration = Duration::from_secs(120);

/// Renames a table, so that reads of it fail until it is renamed back.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn rename_table(database: &Database, from: &str, to: &str) -> Result<(), StoreError> {
    database
        .execute(&format!("-- rename_table\nALTER TABLE {from} RENAME TO {to}"), Vec::new())
        .await
        .map(drop)
}

/// Returns a self-signed certificate for `localhost` and its key (PEM), created by openssl.
///
/// # Panics
/// When openssl is missing or fails.
#[must_use]
pub fn localhost_certificate() -> (String, String) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-out", "-", "-keyout", "-"])
        .output()
        .unwrap_or_else(|error| panic!("this test needs openssl: apt-get install -y openssl ({error})"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8_lossy(&made.stdout);
    // Both are on the standard output, in either order.
    let block = |kind: &str| {
        let begin = text.find(&format!("-----BEGIN {kind}")).unwrap_or_else(|| panic!("no {kind}: {text}"));
        let end = format!("-----END {kind}-----\n");
        let length = text[begin..].find(&end).unwrap_or_else(|| panic!("no end of {kind}: {text}"));
        text[begin..begin + length + end.len()].to_owned()
    };
    (block("CERTIFICATE"), block("PRIVATE KEY"))
}

/// A PostgreSQL cluster in a temporary directory with a Unix socket. Stopped and deleted on drop.
pub struct Cluster {
    folder: PathBuf,
    bin: PathBuf,
    server: Mutex<Option<Child>>,
    databases: Mutex<u32>,
    template: OnceLock<StoreUrl>,
}

impl Cluster {
    /// Returns a cluster that concurrent tests of this process share.
    ///
    /// # Panics
    /// When PostgreSQL is missing (with the command that installs it), or the cluster does not start.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Self::start());
        *shared = Arc::downgrade(&cluster);
        cluster
    }

    /// Starts a cluster for a single test, which may stop it.
    ///
    /// # Panics
    /// Same as [`Cluster::shared`].
    #[must_use]
    pub fn start() -> Self {
        let bin = postgres_bin_dir().unwrap_or_else(|| panic!("{INSTALL}"));
        let folder = create_private_dir().unwrap_or_else(|error| panic!("no folder for PostgreSQL: {error}"));
        let cluster = Self::new(folder, bin);
        let made = cluster
            .command("initdb")
            .args(["--username=bulla", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D"])
            .arg(cluster.data())
            .stdout(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let settings = cluster.data().join("postgresql.conf");
        fs::write(settings, "listen_addresses=''\nport=5432\n").unwrap_or_else(|error| panic!("{error}"));
        cluster.resume();
        cluster
    }

    fn new(folder: PathBuf, bin: PathBuf) -> Self {
        Self { folder, bin, server: Mutex::new(None), databases: Mutex::new(0), template: OnceLock::new() }
    }

    /// Creates an empty database.
    ///
    /// # Panics
    /// When the server cannot create it.
    #[must_use]
    pub fn database(&self) -> StoreUrl {
        self.create_database("")
    }

    /// Creates a copy of a database that `migrate` has filled, once for this cluster. `migrate` must close its connections.
    ///
    /// # Panics
    /// When the server cannot create it.
    #[must_use]
    pub fn migrated_database(&self, migrate: impl FnOnce(&StoreUrl)) -> StoreUrl {
        let template = self.template.get_or_init(|| {
            let template = self.database();
            migrate(&template);
            template
        });
        // The server waits up to five seconds for connections to the template that are being closed.
        self.create_database(&format!("TEMPLATE {}", database_name(template)))
    }

    fn create_database(&self, options: &str) -> StoreUrl {
        let number = {
            let mut count = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            *count
        };
        let name = format!("bulla_{number}");
        let made = self.psql("postgres", &format!("CREATE DATABASE {name} {options}"));
        assert!(made, "cannot create the database {name}");
        format!("postgres://bulla@/{name}?host={}", self.folder.display())
            .parse()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a standby that replicates this server.
    ///
    /// # Panics
    /// When the standby cannot be created or started.
    #[must_use]
    pub fn standby(&self) -> Self {
        let folder = create_private_dir().unwrap_or_else(|error| panic!("no folder for PostgreSQL: {error}"));
        let standby = Self::new(folder, self.bin.clone());
        let copied = self
            .command("pg_basebackup")
            .args(["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync"])
            .args(["-U", "bulla", "-p", &self.port(), "-h"])
            .arg(&self.folder)
            .arg("-D")
            .arg(standby.data())
            .output()
            .unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        standby.resume();
        standby
    }

    /// Blocks transactions that write to a table, until the result is dropped. Reads proceed.
    ///
    /// # Panics
    /// When the lock cannot be taken.
    #[must_use]
    pub fn lock_writes(&self, database: &StoreUrl, table: &str) -> WriteLock {
        let name = database_name(database);
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "bulla", "-d", &name]);
        psql.arg("-h").arg(&self.folder).arg("-p").arg(self.port());
        let session = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut session = session.unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        let lock = format!("BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE; SELECT 'locked';\n");
        let sent = session.stdin.as_mut().map(|input| input.write_all(lock.as_bytes()));
        let mut answer = String::new();
        let read = session.stdout.as_mut().map(|output| BufReader::new(output).read_line(&mut answer));
        let write_lock = WriteLock::Session(session);
        assert!(matches!(sent, Some(Ok(()))) && matches!(read, Some(Ok(_))), "cannot lock {table}");
        assert_eq!(answer.trim(), "locked", "{table}");
        write_lock
    }

    /// Converts the URL of a primary's database to the URL of its replica in this cluster.
    ///
    /// # Panics
    /// When the URL is not of a cluster's database.
    #[must_use]
    pub fn replica_url(&self, primary: &StoreUrl) -> StoreUrl {
        let database = database_name(primary);
        let replica = format!("postgres://bulla@/{database}?host={}", self.folder.display());
        replica.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until a standby has received all commits of this server.
    ///
    /// # Panics
    /// When the standby has not received them in time.
    pub fn wait_for_standby(&self, standby: &Self) {
        let at = self.query_value("SELECT pg_current_wal_lsn()");
        let began = Instant::now();
        while standby.query_value(&format!("SELECT pg_last_wal_replay_lsn() >= '{at}'")) != "t" {
            assert!(began.elapsed() < START_MAX, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the single value of a query.
    fn query_value(&self, query: &str) -> String {
        let mut psql = self.command("psql");
        psql.args(["-X", "-A", "-t", "-U", "bulla", "-d", "postgres", "-c", query, "-p", &self.port(), "-h"]);
        let output = psql.arg(&self.folder).output().unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs SQL in a database. Returns whether it succeeded.
    #[must_use]
    pub fn psql(&self, database: &str, statement: &str) -> bool {
        let mut psql = self.command("psql");
        psql.args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "bulla",
            "-d",
            database,
            "-c",
            statement,
            "-h",
        ]);
        psql.arg(&self.folder).arg("-p").arg(self.port()).stdout(Stdio::null()).stderr(Stdio::null());
        psql.status().is_ok_and(|status| status.success())
    }

    /// Enables TLS on a loopback port with this certificate and key (PEM), from the server's next start on. Returns the port.
    ///
    /// # Panics
    /// When the files cannot be written or no port is free.
    #[must_use]
    pub fn enable_tls(&self, certificate: &str, key: &str) -> u16 {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap_or_else(|error| panic!("no free port: {error}"))
            .port();
        let settings = format!(
            "\nlisten_addresses='127.0.0.1'\nport={port}\nssl=on\nssl_cert_file='server.pem'\nssl_key_file='server.key'\n"
        );
        let write = || -> io::Result<()> {
            fs::write(self.data().join("server.pem"), certificate)?;
            let key_file = self.data().join("server.key");
            fs::write(&key_file, key)?;
            // The server rejects a key that other users may read, unless root owns it. It reads the key as its own user.
            fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600))?;
            if is_root() {
                Command::new("chown").arg("postgres").arg(&key_file).status()?;
            }
            let file = self.data().join("postgresql.conf");
            fs::write(&file, fs::read_to_string(&file)? + &settings)
        };
        write().unwrap_or_else(|error| panic!("{error}"));
        port
    }

    /// Listens on a loopback port, where every role needs its password, from the server's next start on. Returns the port.
    ///
    /// # Panics
    /// When the files cannot be written or no port is free.
    #[must_use]
    pub fn require_passwords(&self) -> u16 {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap_or_else(|error| panic!("no free port: {error}"))
            .port();
        let write = || -> io::Result<()> {
            let file = self.data().join("postgresql.conf");
            let settings = format!("\nlisten_addresses='127.0.0.1'\nport={port}\n");
            fs::write(&file, fs::read_to_string(&file)? + &settings)?;
            let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
            fs::write(self.data().join("pg_hba.conf"), rules)
        };
        write().unwrap_or_else(|error| panic!("{error}"));
        port
    }

    /// Stops the server immediately, like a crash: all connections are lost, but no committed data.
    pub fn stop(&self) {
        if let Some(mut server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = self
                .command("pg_ctl")
                .args(["stop", "-m", "immediate", "-D"])
                .arg(self.data())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts the server again and returns once the server responds.
    ///
    /// # Panics
    /// When the server does not respond in time.
    pub fn resume(&self) {
        let log = fs::File::create(self.folder.join("log")).unwrap_or_else(|error| panic!("{error}"));
        let socket = format!("unix_socket_directories={}", self.folder.display());
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-c", &socket, "-c", "max_connections=200", "-c", "fsync=off"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let began = Instant::now();
        while !self.psql("postgres", "SELECT 1") {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < START_MAX, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the current port, which is also part of the socket's name.
    fn port(&self) -> String {
        let settings = fs::read_to_string(self.data().join("postgresql.conf")).unwrap_or_default();
        settings.lines().rev().find_map(|line| line.strip_prefix("port=")).unwrap_or("5432").to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Builds a command for a PostgreSQL program, run as an unprivileged user.
    fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.folder).stdin(Stdio::null()).env_remove("PGHOST").env_remove("PGDATABASE");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the directory of the newest installed version, or `None` to use the search path.
fn postgres_bin_dir() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    versions.sort();
    if let Some((_, newest)) = versions.pop() {
        return Some(newest);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}

/// Creates a directory that the server's user owns, with a short path (a socket path has at most 107 bytes). Other users may enter
/// the directory: a client run by root may lack the capability to ignore permissions.
fn create_private_dir() -> io::Result<PathBuf> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
    let folder =
        std::env::temp_dir().join(format!("bulla-pg-{}-{}", std::process::id(), nanos % 1_000_000_000));
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
    if is_root() {
        let owned = Command::new("chown").arg("postgres").arg(&folder).status()?;
        if !owned.success() {
            return Err(io::Error::other(INSTALL));
        }
    }
    Ok(folder)
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/proc/self")).is_ok_and(|me| me.uid() == 0)
}

/// Returns the name of a cluster's database.
fn database_name(url: &StoreUrl) -> String {
    let text = url.to_string();
    let name =
        text.split_once("@/").and_then(|(_, rest)| rest.split_once('?')).map(|(name, _)| name.to_owned());
    name.unwrap_or_else(|| panic!("{text} is no database of a cluster"))
}

/// A lock that blocks writes, released on drop.
#[derive(Debug)]
pub enum WriteLock {
    /// A SQLite connection with an open write transaction.
    File(rusqlite::Connection),
    /// A psql session with an open transaction.
    Session(Child),
}

impl WriteLock {
    /// Blocks all write transactions of a SQLite database. Each fails after five seconds. Reads proceed.
    ///
    /// # Panics
    /// When the lock cannot be taken.
    #[must_use]
    pub fn of_file(file: &Path) -> Self {
        let begun = rusqlite::Connection::open(file).and_then(|database| {
            database.busy_timeout(START_MAX)?;
            database.execute_batch("BEGIN IMMEDIATE")?;
            Ok(database)
        });
        Self::File(begun.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        if let Self::Session(session) = self {
            // Closing the input ends psql. Before psql exits, the server rolls the transaction back.
            drop(session.stdin.take());
            let _ = session.wait();
        }
    }
}

/// Executes a statement on a SQLite file through a separate connection, as another program would.
///
/// # Panics
/// When the statement fails.
pub fn execute(file: &Path, statement: &str) {
    let done = rusqlite::Connection::open(file).and_then(|database| database.execute(statement, ()));
    done.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Returns every row of every table of a SQLite database as text, including its log. The content of a virtual table is in its
/// shadow tables.
///
/// # Panics
/// When the database cannot be read.
#[must_use]
pub fn rows_of(file: &Path) -> String {
    let read = || -> rusqlite::Result<String> {
        let database = rusqlite::Connection::open(file)?;
        let mut tables = database.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL %' ORDER BY name",
        )?;
        let tables: Vec<String> = tables.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut text = String::new();
        for table in tables {
            let mut rows = database.prepare(&format!("SELECT * FROM \"{table}\""))?;
            let columns = rows.column_count();
            let mut rows = rows.query(())?;
            while let Some(row) = rows.next()? {
                let values: Vec<_> = (0..columns).map(|at| row.get_ref(at)).collect::<Result<_, _>>()?;
                text.push_str(&format!("{table} {values:?}\n"));
            }
        }
        Ok(text)
    };
    read().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
