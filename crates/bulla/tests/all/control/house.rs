//! A test server with all its files in a temporary folder, and a DNS server for it.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use serde_json::Value;
use tempfile::TempDir;

use super::crashes::{Role, Shim};
use crate::world::{bulla, bulla_at, describe, run};

/// A job of a killed server resumes when its lease of two minutes expires. A loaded machine may need longer.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct House {
    folder: TempDir,
    server: Option<Child>,
    /// The server's address.
    address: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) public_port: u16,
    /// Port for http-01 validation.
    pub(crate) http_port: u16,
    database: Option<String>,
    /// Another version of the program than the tested one.
    version: Option<PathBuf>,
    /// Additional environment variables of the server.
    environment: Vec<(String, String)>,
    /// The configuration without the text added by [`House::configure`].
    base: String,
    shim: Option<Shim>,
    /// Whether the shim attacks the server.
    attacked: bool,
}

impl House {
    /// Starts a server with SQLite in its folder.
    pub(crate) fn up() -> Self {
        Self::up_with("", None)
    }

    /// Starts a server with more configuration, and optionally another database.
    pub(crate) fn up_with(configuration: &str, database: Option<String>) -> Self {
        let mut house = Self::prepared(configuration, database);
        house.start();
        house
    }

    /// Starts a server with SQLite that listens on this address.
    #[cfg(target_os = "linux")]
    pub(crate) fn up_at(address: Ipv4Addr, configuration: &str) -> Self {
        let mut house = Self::prepared_at(address, configuration, None);
        house.start();
        house
    }

    /// Creates everything needed to start the server.
    pub(crate) fn prepared(configuration: &str, database: Option<String>) -> Self {
        Self::prepared_at(Ipv4Addr::LOCALHOST, configuration, database)
    }

    fn prepared_at(address: Ipv4Addr, configuration: &str, database: Option<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let (port, public_port, http_port) = (free_port(), free_port(), free_port());
        let credential_port = free_port();
        let dns = name_server();
        let text = format!(
            "roles = [\"server\"]\n[server]\nlisten = \"{address}:{port}\"\npublic_listen = \"127.0.0.1:{public_port}\"\nstop_s = 5\n\
             [credentials]\nlisten = \"127.0.0.1:{credential_port}\"\n\
             [acme.validation]\nname_servers = [\"{dns}\"]\nhttp_port = {http_port}\n\
             allow_networks = [\"127.0.0.0/8\"]\n{configuration}"
        );
        std::fs::write(folder.path().join("bulla.toml"), &text).unwrap();
        let environment = Vec::new();
        let (shim, attacked) = (None, false);
        let server = None;
        Self {
            folder,
            server,
            address,
            port,
            public_port,
            http_port,
            database,
            version: None,
            environment,
            base: text,
            shim,
            attacked,
        }
    }

    /// Loads the shim into every later process. `attacked`: the shim attacks the server.
    pub(crate) fn put(&mut self, shim: Shim, attacked: bool) {
        (self.shim, self.attacked) = (Some(shim), attacked);
    }

    pub(crate) fn shim(&self) -> &Shim {
        self.shim.as_ref().unwrap()
    }

    /// Replaces the additional configuration for the next start.
    pub(crate) fn configure(&mut self, more: &str) {
        std::fs::write(self.path("bulla.toml"), format!("{}{more}", self.base)).unwrap();
    }

    /// Runs this program from now on, or the tested one with `None`.
    pub(crate) fn run_version(&mut self, program: Option<PathBuf>) {
        self.version = program;
    }

    /// Sets an environment variable for the next start.
    pub(crate) fn environment(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn start(&mut self) {
        self.start_and_listen();
    }

    /// Like [`Self::start`]. Returns the output until the server is up.
    pub(crate) fn start_and_listen(&mut self) -> String {
        self.started().unwrap_or_else(|printed| panic!("the server did not start:\n{printed}"))
    }

    /// Starts the server, and waits until it answers. Returns the output if the server exits instead. Retries if another process on
    /// this machine uses one of the ports.
    pub(crate) fn try_start(&mut self) -> Result<(), String> {
        self.started().map(drop)
    }

    fn started(&mut self) -> Result<String, String> {
        let began = Instant::now();
        loop {
            match self.start_once() {
                Err(printed) if printed.contains("Address already in use") && began.elapsed() < TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                other => return other,
            }
        }
    }

    fn start_once(&mut self) -> Result<String, String> {
        self.bury();
        let mut command = self.bulla(&["up"]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(database) = &self.database {
            command.args(["--db", database]);
        } else if let Some(shim) = self.shim.as_ref().filter(|_| self.attacked) {
            shim.attack(&mut command, Role::Database);
        }
        let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let mut printed = String::new();
        loop {
            let Some(Ok(line)) = lines.next() else {
                server.wait().unwrap();
                return Err(printed);
            };
            printed.push_str(&line);
            printed.push('\n');
            if line.starts_with("bulla is up at ") {
                break;
            }
        }
        // Reads all later output, so that the server never blocks on it.
        std::thread::spawn(move || lines.for_each(|line| eprintln!("server: {}", line.unwrap_or_default())));
        self.server = Some(server);
        Ok(printed)
    }

    /// Waits for the server to end, and returns whether it has ended by itself or by the shim. A process killed in a write ends
    /// after that write: a slow disk delays this.
    pub(crate) fn fell(&mut self) -> bool {
        self.fell_within(TIMEOUT)
    }

    /// Like [`Self::fell`], with a time limit, for a server that may keep running.
    pub(crate) fn fell_within(&mut self, limit: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < limit {
            let Some(server) = &mut self.server else { return true };
            if server.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Drops the handle of a server that has ended.
    fn bury(&mut self) {
        if let Some(mut server) = self.server.take() {
            assert!(server.try_wait().unwrap().is_some(), "it runs");
        }
    }

    /// Returns the process id of the server.
    pub(crate) fn process(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Stops the server with SIGTERM. Returns the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut server = self.server.take().unwrap();
        let stopped = Command::new("kill").arg(server.id().to_string()).status().unwrap();
        assert!(stopped.success());
        server.wait().unwrap().code()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("data/root.pem")
    }

    pub(crate) fn url(&self) -> String {
        if self.address.is_loopback() {
            format!("https://localhost:{}", self.port)
        } else {
            format!("https://{}:{}", self.address, self.port)
        }
    }

    /// Returns a command with this server's configuration and folder.
    pub(crate) fn bulla(&self, arguments: &[&str]) -> Command {
        let mut command = self.version.as_ref().map_or_else(bulla, bulla_at);
        command
            .env("BULLA_DATA", self.path("data"))
            .env("BULLA_CONFIG", self.path("bulla.toml"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .args(arguments);
        if let Some(shim) = &self.shim {
            shim.enter(&mut command);
        }
        command
    }

    /// Runs a command that must succeed.
    pub(crate) fn does(&self, arguments: &[&str]) -> Output {
        let output = run(&mut self.bulla(arguments));
        assert!(output.status.success(), "bulla {}: {}", arguments.join(" "), describe(&output));
        output
    }

    /// Runs a command and parses its JSON output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.does(&[arguments, &["--output", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs another program in this server's folder. If it is missing, the error says how to install it.
    pub(crate) fn program(&self, name: &str, install: &str, arguments: &[&str]) -> Output {
        let output = Command::new(name).current_dir(self.folder.path()).args(arguments).output();
        output.unwrap_or_else(|error| panic!("this test needs {name}: {install} ({error})"))
    }

    /// Runs openssl, which must succeed.
    pub(crate) fn openssl(&self, arguments: &[&str]) -> String {
        let output = self.program("openssl", "apt-get install -y openssl", arguments);
        assert!(output.status.success(), "openssl {}: {}", arguments.join(" "), describe(&output));
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// Waits until `done` returns true.
    pub(crate) fn until(&self, what: &str, done: impl FnMut() -> bool) {
        testbed::until_blocking(what, done);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Starts a DNS server that resolves every name to 127.0.0.1. It ends with the process.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer_to(&buffer[..length]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    address
}

/// Returns the answer to a DNS question (RFC 1035 section 4): an address for type A, nothing for other types.
fn answer_to(question: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let mut end = HEADER;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    let kind = u16::from_be_bytes([*question.get(end + 1)?, *question.get(end + 2)?]);
    let address = kind == 1;
    let mut answer = question[..2].to_vec();
    answer.extend([0x85, 0x80, 0, 1, 0, u8::from(address), 0, 0, 0, 0]);
    answer.extend(&question[HEADER..end + 5]);
    if address {
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some(answer)
}
