//! `bulla proxy`, with curl as the client and OpenSSL as the upstream.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::key_service::Fixture;
use crate::world::{bulla, describe, run, stdout};

/// A running proxy with its own folder.
pub(crate) struct Proxy {
    process: Child,
    pub(crate) address: String,
    pub(crate) figures: String,
    /// Address of the minting service.
    pub(crate) minting: Option<String>,
    /// Port of the first listener for PostgreSQL clients.
    pub(crate) postgresql: Option<u16>,
    pub(crate) redis: Option<u16>,
}

impl Proxy {
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns `bulla proxy` on free ports, in the folder of `fixture`.
pub(crate) fn proxy_command(fixture: &Fixture) -> Command {
    let mut command = bulla();
    command
        .current_dir(fixture.folder.path())
        .env("HOME", fixture.folder.path())
        .env("BULLA_DATA", fixture.path("data"))
        .args(["proxy", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    command
}

/// Returns curl through the proxy at `address`. It trusts only the proxy's CA.
pub(crate) fn curl(address: &str, authority: &Path) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--noproxy", "", "--proxy", address, "--cacert"]).arg(authority);
    command
}

pub(crate) struct World {
    pub(crate) fixture: Fixture,
    upstream: Child,
    pub(crate) port: u16,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.upstream.kill();
        let _ = self.upstream.wait();
    }
}

impl World {
    /// Starts an upstream that prints what was negotiated.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts an upstream with additional arguments.
    pub(crate) fn with(more: &[&str]) -> Self {
        let fixture = Fixture::new();
        fixture.certified("DNS:localhost");
        let mut command = Command::new("openssl");
        command
            .current_dir(fixture.folder.path())
            .args(["s_server", "-accept", "127.0.0.1:0", "-cert", "up.pem", "-key", "up.key", "-www"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut upstream =
            command.spawn().unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
        let mut printed = BufReader::new(upstream.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("ACCEPT") {
            line.clear();
            assert!(printed.read_line(&mut line).unwrap() > 0, "openssl s_server ended");
        }
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { fixture, upstream, port }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = proxy_command(&self.fixture);
        command.args(["--upstream-ca", "ca.pem"]).args(arguments);
        command
    }

    pub(crate) fn proxy(&self, arguments: &[&str]) -> Proxy {
        Self::start(&mut self.command(arguments))
    }

    pub(crate) fn start(command: &mut Command) -> Proxy {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("try: curl") {
            assert!(errors.read_line(&mut printed).unwrap() > 0, "it ended: {printed}");
        }
        std::thread::spawn(move || errors.read_to_end(&mut Vec::new()));
        let after = |mark: &str| printed.split(mark).nth(1).unwrap().lines().next().unwrap().to_owned();
        let minting = printed
            .contains("the minting service listens on")
            .then(|| after("the minting service listens on "));
        let listener_of = |clients: &str| {
            let line = printed.split(clients).nth(1).and_then(|rest| rest.lines().next());
            line.map(|line| line.rsplit(':').next().unwrap().parse().unwrap())
        };
        let (postgresql, redis) = (listener_of("PostgreSQL clients of "), listener_of("Redis clients of "));
        let (address, figures) = (after("the proxy listens on "), after("metrics at "));
        Proxy { process, address, figures, minting, postgresql, redis }
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.fixture.path("data/proxy-ca.pem")
    }

    pub(crate) fn curl(&self, proxy: &Proxy, arguments: &[&str]) -> std::process::Output {
        let mut command = curl(&proxy.address, &self.authority());
        command.args(arguments).arg(format!("https://localhost:{}/", self.port));
        command.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
    }
}

#[test]
fn proxy_intercepts_curl_and_keeps_its_ca_across_restarts() {
    let world = World::new();
    let proxy = world.proxy(&[]);
    for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"], &["--http1.1"]] {
        let output = world.curl(&proxy, version);
        assert!(
            output.status.success() && stdout(&output).contains("s_server"),
            "{version:?}: {}",
            describe(&output)
        );
    }
    let first = std::fs::read(world.authority()).unwrap();
    let key = std::fs::metadata(world.fixture.path("data/proxy-ca.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777, 0o600);
    let output = Command::new("curl").args(["-sS", &proxy.figures]).output().unwrap();
    let figures = stdout(&output);
    assert!(figures.contains("bulla_intercept_leaves_minted_total 1\n"), "{figures}");
    drop(proxy);
    // After a restart the CA is the same, so that clients keep working.
    let proxy = world.proxy(&[]);
    assert_eq!(std::fs::read(world.authority()).unwrap(), first);
    assert!(world.curl(&proxy, &[]).status.success());
    // If the CA certificate is missing, a new one is created with the same name and key. Clients that trust the old one accept it.
    drop(proxy);
    std::fs::rename(world.authority(), world.fixture.path("trusted.pem")).unwrap();
    let proxy = world.proxy(&[]);
    let trusted = world.fixture.path("trusted.pem");
    assert!(world.curl(&proxy, &["--cacert", trusted.to_str().unwrap()]).status.success());
    // A client that does not trust the CA rejects the connection.
    let refused = world.curl(&proxy, &["--cacert", "/etc/ssl/certs/ca-certificates.crt"]);
    assert_eq!(refused.status.code(), Some(60), "{}", describe(&refused));
}

/// Each proxy finds no CA and creates one. In the end all must use the same CA.
#[test]
fn proxies_started_at_once_share_one_ca() {
    let world = World::new();
    let proxies: Vec<Proxy> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| world.proxy(&[]))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for proxy in &proxies {
        assert!(world.curl(proxy, &[]).status.success());
    }
}

#[test]
fn tunnel_and_reject_lists_apply_and_sigterm_ends_the_proxy() {
    let world = World::new();
    let mut proxy = world.proxy(&["--tunnel", "localhost"]);
    let ca = world.fixture.path("ca.pem");
    let output = world.curl(&proxy, &["--cacert", ca.to_str().unwrap()]);
    assert!(output.status.success(), "the upstream's own certificate is seen: {}", describe(&output));
    let pid = proxy.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(proxy.process.wait().unwrap().code(), Some(0));
    let proxy = world.proxy(&["--reject", "localhost"]);
    let output = world.curl(&proxy, &[]);
    assert!(describe(&output).contains("403"), "{}", describe(&output));
}

#[test]
fn invalid_ca_and_host_lists_are_rejected_with_a_hint() {
    let world = World::new();
    for (arguments, wanted) in [
        (["--ca-certificate", "up.pem", "--ca-key", "up.key"], "is not a CA certificate: it needs"),
        (["--ca-certificate", "ca.pem", "--ca-key", "up.key"], "the key does not match the certificate of"),
        (["--tunnel", "a*.example", "--reject", "b.example"], "is not a host name, address or network"),
    ] {
        let output = run(&mut world.command(&arguments));
        let printed = describe(&output);
        assert!(
            output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"),
            "{printed}"
        );
    }
}
