//! Simulated endpoints, a temporary folder, and the binary.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fleet::{Fleet, Latency, Mix, Plan};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Number of endpoints in an ordinary test: enough to test order and counts.
pub(crate) const ENDPOINTS: usize = 40;

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    fleet: Option<Fleet>,
    folder: TempDir,
}

impl World {
    /// Creates healthy endpoints that answer immediately.
    pub(crate) fn healthy() -> Self {
        Self::new(&Plan {
            endpoints: ENDPOINTS,
            mix: Mix::Healthy,
            dead_fraction: 0.0,
            latency: Latency::None,
            ..Plan::default()
        })
    }

    pub(crate) fn new(plan: &Plan) -> Self {
        let runtime = Runtime::new().unwrap();
        let fleet = runtime.block_on(Fleet::start(plan)).unwrap();
        let world = Self { runtime, fleet: Some(fleet), folder: TempDir::new().unwrap() };
        std::fs::write(world.path("roots.pem"), world.fleet().roots_pem()).unwrap();
        let targets: Vec<_> = world.targets();
        std::fs::write(world.path("targets.txt"), targets.join("\n")).unwrap();
        world
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().unwrap()
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        self.fleet().truth().into_iter().map(|truth| truth.target.clone()).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the binary, without settings of this machine.
    pub(crate) fn bulla(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command
            .env("BULLA_DATA", self.path("data"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .args(arguments);
        command
    }

    /// Returns `bulla scan` for this test, without targets. Its timeouts allow for a slow machine.
    pub(crate) fn scan(&self, arguments: &[&str]) -> Command {
        let mut command = self.bulla(&["scan", "--no-system-roots", "--ca", "roots.pem", "--timeout", "60s"]);
        command.arg("--dns").arg(self.fleet().dns().to_string()).args(arguments);
        command
    }

    /// Scans everything, and must succeed.
    pub(crate) fn scan_all(&self, arguments: &[&str]) -> Output {
        let output = run(self.scan(&["@targets.txt"]).args(arguments));
        assert!(output.status.success(), "{}", describe(&output));
        output
    }

    /// Returns the number of rows stored by the latest scan so far. 0 without an inventory.
    pub(crate) fn observations(&self, arguments: &[&str]) -> u64 {
        let scans = run(self.bulla(&["inventory", "scans", "--output", "json"]).args(arguments));
        let document: serde_json::Value = serde_json::from_slice(&scans.stdout).unwrap_or_default();
        document["rows"][0]["observations"].as_u64().unwrap_or(0)
    }

    /// Waits until the running scan has stored a row.
    pub(crate) fn wait_for_rows(&self, arguments: &[&str]) {
        /// Maximum wait, also on a loaded machine.
        const TIMEOUT: Duration = Duration::from_secs(60);
        let began = Instant::now();
        while self.observations(arguments) == 0 {
            assert!(began.elapsed() < TIMEOUT, "nothing was stored");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that every endpoint is in the inventory exactly once.
    pub(crate) fn assert_each_stored_once(&self, arguments: &[&str]) {
        let all = self.targets().len();
        assert_eq!(self.observations(arguments), all as u64);
        let listed = self.inventory(&[&["list", "--all"], arguments].concat());
        let rows = listed["rows"].as_array().unwrap();
        let endpoints: BTreeSet<_> = rows.iter().map(|row| row["endpoint"].as_str().unwrap()).collect();
        assert_eq!((rows.len(), endpoints.len()), (all, all));
    }

    /// Returns the JSON output of `bulla inventory …`.
    pub(crate) fn inventory(&self, arguments: &[&str]) -> serde_json::Value {
        let output = run(self.bulla(&["inventory"]).args(arguments).args(["--output", "json"]));
        assert!(output.status.success(), "{}", describe(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

/// Returns the binary with a clean environment: the binary of this build, or the one in `BULLA_BINARY`.
pub(crate) fn bulla() -> Command {
    let built = || env!("CARGO_BIN_EXE_bulla").into();
    bulla_at(std::env::var_os("BULLA_BINARY").unwrap_or_else(built))
}

/// Returns a command of another binary.
pub(crate) fn bulla_at(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn describe(output: &Output) -> String {
    /// Maximum length of shown output, in characters.
    const CHARS_MAX: usize = 3_000;
    let cut = |text: String| text.chars().take(CHARS_MAX).collect::<String>();
    format!("{}\n{}\n{}", output.status, cut(stdout(output)), cut(stderr(output)))
}

/// Connects from 127.0.0.`host` to a port of 127.0.0.1. Reads and writes time out after a minute.
pub(crate) fn connect_from(host: u8, port: u16) -> std::io::Result<std::net::TcpStream> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, host], 0).into())?;
        socket.connect(([127, 0, 0, 1], port).into()).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns a PROXY protocol version 2 header for a connection of `client`.
pub(crate) fn proxy_header(client: [u8; 4]) -> Vec<u8> {
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &client, &[127, 0, 0, 1, 0xc0, 1, 1, 0xbb]].concat()
}
