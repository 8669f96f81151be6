//! Tests of the STARTTLS dialogue and the probe with a real PostgreSQL server, with and without TLS.

// clippy's exception for tests covers only functions that are marked as tests.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scan::starttls::{Dialogue, StartTlsError, Step};
use scan::target::Protocol;
use scan::tls::{self, ClientHelloContent, Handshake, KeyShares, Profile, Proof};

const INSTALL: &str = "this test needs a PostgreSQL server: apt-get install -y postgresql openssl";
/// A server starts within a second; reached only by a broken test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A PostgreSQL cluster in a temporary directory that is removed after the test.
struct Cluster {
    folder: tempfile::TempDir,
    server: Option<Child>,
    port: u16,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("bulla-pg").tempdir().unwrap();
        if is_root() {
            assert!(Command::new("chown").arg("postgres").arg(folder.path()).status().unwrap().success());
        }
        let cluster = Self { folder, server: None, port: 0 };
        cluster.run(&postgres_program("initdb"), &["--auth=trust", "--no-sync", "-D", "data"]);
        let subject = "-subj /CN=db.example -days 30 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256";
        let request = format!("req -x509 {subject} -keyout data/server.key -out data/server.crt");
        cluster.run(Path::new("openssl"), &request.split(' ').collect::<Vec<_>>());
        cluster.run(
            Path::new("openssl"),
            &["x509", "-in", "data/server.crt", "-outform", "DER", "-out", "server.der"],
        );
        cluster
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(if is_root() { Path::new("setpriv") } else { program });
        if is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
        }
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn run(&self, program: &Path, arguments: &[&str]) {
        let output = self.command(program).args(arguments).output().expect(INSTALL);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {errors}", program.display());
    }

    fn serve(&mut self, ssl: &str) {
        self.stop();
        self.port = fleet::free_port();
        let (port, ssl) = (format!("port={}", self.port), format!("ssl={ssl}"));
        let mut command = self.command(&postgres_program("postgres"));
        command.args(["-D", "data", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        command.args(["-c", &port, "-c", &ssl, "-c", "fsync=off"]).stderr(Stdio::null());
        self.server = Some(command.spawn().expect(INSTALL));
    }

    fn connect(&self) -> TcpStream {
        let began = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    return stream;
                }
                Err(error) => assert!(began.elapsed() < TIMEOUT, "PostgreSQL does not start: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let data = ["stop", "-m", "immediate", "-D", "data"];
            let _ = self.command(&postgres_program("pg_ctl")).args(data).stderr(Stdio::null()).status();
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the path of a PostgreSQL program: Debian's path if it exists, otherwise found through PATH.
fn postgres_program(name: &str) -> PathBuf {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        debian.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| name.into())
}

/// Runs the plaintext dialogue until TLS begins, or returns why the server offers no TLS.
fn start_tls(stream: &mut TcpStream) -> Result<(), StartTlsError> {
    let mut dialogue = Dialogue::new(Protocol::Postgres, "db.example").unwrap();
    stream.write_all(&dialogue.opening().unwrap()).unwrap();
    loop {
        let mut received = [0; 1_024];
        let count = stream.read(&mut received).unwrap();
        assert!(count > 0, "PostgreSQL hung up");
        match dialogue.receive(&received[..count]) {
            Step::More => {}
            Step::Send(bytes) => stream.write_all(&bytes).unwrap(),
            Step::Ready { injected, .. } => {
                assert!(!injected);
                return Ok(());
            }
            Step::Failed(error) => return Err(error),
        }
    }
}

fn handshake(stream: &mut TcpStream) -> tls::Evidence {
    let offer = ClientHelloContent {
        server_name: Some("db.example".to_owned()),
        alpn: Protocol::Postgres.alpn(),
        profile: Profile::Modern,
        finish: false,
    };
    let shares = Arc::new(KeyShares::generate().unwrap());
    let (mut handshake, hello) = Handshake::start(&offer, &shares).unwrap();
    stream.write_all(&hello).unwrap();
    loop {
        let mut received = [0; 16_384];
        let count = stream.read(&mut received).unwrap();
        assert!(count > 0, "PostgreSQL hung up");
        match handshake.receive(&received[..count]) {
            tls::Step::More => {}
            tls::Step::Send(bytes) => stream.write_all(&bytes).unwrap(),
            tls::Step::Done(_) => return handshake.into_evidence(),
            tls::Step::Failed(failure) => panic!("{failure:?}"),
        }
    }
}

#[test]
fn postgresql_certificate_is_read_and_missing_tls_reported() {
    let mut cluster = Cluster::new();
    cluster.serve("on");
    let mut stream = cluster.connect();
    start_tls(&mut stream).unwrap();
    let evidence = handshake(&mut stream);
    assert_eq!(evidence.proof, Proof::Verified);
    let served: &[u8] = &evidence.chain[0];
    assert_eq!(served, std::fs::read(cluster.folder.path().join("server.der")).unwrap());

    cluster.serve("off");
    let refused = start_tls(&mut cluster.connect()).unwrap_err();
    assert!(matches!(refused, StartTlsError::NotOffered { .. }), "{refused}");
}
