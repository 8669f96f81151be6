//! Test environment: keys in one folder, chains in another, the key service, and terminators in front of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::SIGNED;
use crate::key_service::{Fixture, TIMEOUT, figures};
use crate::world::{bulla, connect_from, describe, proxy_header, run, stdout};

pub(super) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// The folder of the key service, and its startup output.
pub(super) struct World {
    pub(super) fixture: Fixture,
    service_printed: String,
    /// Seconds between two file checks of a terminator.
    pub(super) reload_s: u32,
}

/// A running terminator.
pub(super) struct Edge {
    pub(super) process: Child,
    pub(super) address: String,
    pub(super) printed: String,
}

impl World {
    /// Creates a key in the service's folder and a chain for each entry: name, kind of key, host names.
    pub(super) fn new(chains: &[(&str, &str, &str)]) -> Self {
        let fixture = Fixture::new();
        std::fs::create_dir(fixture.path("certs")).unwrap();
        fixture.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=ca",
        );
        let world = Self { fixture, service_printed: String::new(), reload_s: 1 };
        for (name, of, hosts) in chains {
            world.fixture.key(name, of);
            world.chain(name, hosts);
        }
        world
    }

    /// Issues a new certificate for a key.
    pub(super) fn chain(&self, name: &str, hosts: &str) {
        self.fixture.openssl(&format!(
            "req -x509 -key keys/{name}.key -out new.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName={hosts} -addext basicConstraints=critical,CA:FALSE"
        ));
        std::fs::rename(self.fixture.path("new.pem"), self.fixture.path(&format!("certs/{name}.pem")))
            .unwrap();
    }

    /// Replaces a file atomically, as a deployment does.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.fixture.path("put.new"), bytes).unwrap();
        std::fs::rename(self.fixture.path("put.new"), self.fixture.path(name)).unwrap();
    }

    pub(super) fn configure(&self, text: &str) {
        std::fs::write(self.fixture.path("edge.toml"), text).unwrap();
    }

    /// Starts the key service.
    pub(super) fn serve(&mut self, arguments: &[&str]) -> String {
        self.service_printed = self.fixture.serve(&[&["--dir", "keys"], arguments].concat());
        self.service_printed.clone()
    }

    /// Returns the number of signatures by the key service.
    pub(super) fn signed(&self) -> f64 {
        sum(&figures(&self.service_printed), SIGNED, "done")
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command
            .current_dir(self.fixture.folder.path())
            .env("HOME", self.fixture.folder.path())
            .env("BULLA_DATA", self.fixture.path("data"))
            .env("BULLA_EDGE_RELOAD_S", self.reload_s.to_string())
            // Core dumps are allowed, so that the test can read the memory as any user.
            .env("BULLA_SERVER_CORE_DUMPS", "true")
            .args(["edge", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .args(arguments);
        command
    }

    /// Starts a terminator.
    pub(super) fn edge(&self, arguments: &[&str]) -> Edge {
        let mut command = self.command(&["--certificates", "certs"]);
        let mut process = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("bulla terminates TLS") {
            assert!(errors.read_line(&mut printed).unwrap() > 0, "it ended: {printed}");
        }
        // Reads later output, so that the process never blocks on it.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let line = printed.split("bulla terminates TLS").nth(1).unwrap();
        let address = line.split(" at ").nth(1).unwrap().split(',').next().unwrap().to_owned();
        Edge { process, address, printed }
    }

    /// Returns the response that curl gets.
    pub(super) fn curl(&self, edge: &Edge, name: &str, arguments: &[&str]) -> String {
        self.curl_at(edge, &format!("{name}/"), arguments)
    }

    /// Like [`Self::curl`], with `fixture`: a name and a path.
    pub(super) fn curl_at(&self, edge: &Edge, fixture: &str, arguments: &[&str]) -> String {
        let (name, path) = fixture.split_once('/').unwrap();
        let port = edge.address.rsplit(':').next().unwrap();
        let mut command = Command::new("curl");
        command
            .current_dir(self.fixture.folder.path())
            .args(["-sS", "--max-time", "180", "--cacert"])
            .arg(self.fixture.path("ca.pem"))
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .args(arguments)
            .arg(format!("https://{name}:{port}/{path}"));
        let output = command.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"));
        assert!(output.status.success(), "{name} {arguments:?}: {}", describe(&output));
        stdout(&output)
    }

    /// Returns the whole output of `openssl s_client`.
    pub(super) fn s_client(&self, edge: &Edge, arguments: &str, input: &str) -> String {
        let mut command = Command::new("openssl");
        command
            .current_dir(self.fixture.folder.path())
            .args(["s_client", "-connect", &edge.address, "-CAfile", "ca.pem"])
            .args(arguments.split_whitespace())
            // Reads the response to its end.
            .args((!input.is_empty()).then_some("-ign_eof"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
        // The connection may already be rejected.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        format!("{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr))
    }

    /// Connects a rustls client, and completes the handshake.
    pub(super) fn connect(&self, edge: &Edge, name: &str) -> Tls {
        self.handshake(edge, name).unwrap()
    }

    fn handshake(&self, edge: &Edge, name: &str) -> Result<Tls, std::io::Error> {
        self.handshake_by(edge, name, &[])
    }

    /// Like [`Self::connect`], with HTTP/2.
    pub(super) fn connect_h2(&self, edge: &Edge, name: &str) -> Tls {
        let tls = self.handshake_by(edge, name, &["h2"]).unwrap();
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
        tls
    }

    fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let pem = std::fs::read(self.fixture.path("ca.pem")).unwrap();
        for (_, der) in x509::pem::certificates(&pem) {
            roots.add(CertificateDer::from(der)).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        builder.unwrap().with_root_certificates(roots).with_no_client_auth()
    }

    fn handshake_by(&self, edge: &Edge, name: &str, alpn: &[&str]) -> Result<Tls, std::io::Error> {
        let mut config = self.config();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = TcpStream::connect(&edge.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        self.shaken(config, name, stream)
    }

    /// Connects an HTTP/1.1 client at 127.0.0.`host` that sends a PROXY protocol header before its handshake.
    pub(super) fn introduced(
        &self,
        edge: &Edge,
        name: &str,
        (host, client): (u8, [u8; 4]),
    ) -> Result<Tls, std::io::Error> {
        let port = edge.address.rsplit(':').next().unwrap().parse().unwrap();
        let mut stream = connect_from(host, port)?;
        stream.write_all(&proxy_header(client))?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        self.shaken(self.config(), name, stream)
    }

    fn shaken(
        &self,
        config: ClientConfig,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> Result<Tls, std::io::Error> {
        let mut tls = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(tls)
    }

    /// Returns secrets that only the key service may have: numbers in both byte orders, and lines of text.
    pub(super) fn secrets(&self) -> Vec<(String, Vec<u8>)> {
        let mut secrets = Vec::new();
        for (name, fields) in
            [("ec", &["priv:"][..]), ("rsa", &["privateExponent:", "prime1:", "prime2:", "exponent1:"])]
        {
            let text = self.fixture.openssl(&format!("pkey -in keys/{name}.key -noout -text"));
            for field in fields {
                let number = number(&String::from_utf8(text.clone()).unwrap(), field);
                let backwards = number.iter().rev().copied().collect();
                secrets.push((format!("{name} {field}"), number));
                secrets.push((format!("{name} {field} backwards"), backwards));
            }
            let pem = std::fs::read_to_string(self.fixture.path(&format!("keys/{name}.key"))).unwrap();
            // The first line is the same for all keys of a kind.
            let line = pem.lines().filter(|line| !line.starts_with('-')).nth(1).unwrap();
            secrets.push((format!("{name} PEM"), line.as_bytes().to_vec()));
        }
        secrets
    }

    /// Returns the public values that every client gets.
    pub(super) fn publics(&self) -> Vec<(String, Vec<u8>)> {
        let fields = [("ec", "pub:"), ("rsa", "modulus:")];
        let public = |(name, field): (&str, &str)| {
            let text = self.fixture.openssl(&format!("pkey -in keys/{name}.key -noout -text"));
            (name.to_owned(), number(&String::from_utf8(text).unwrap(), field))
        };
        fields.map(public).to_vec()
    }
}

/// Parses a number from OpenSSL's text output, without leading zeros.
fn number(text: &str, field: &str) -> Vec<u8> {
    let after = text.lines().skip_while(|line| line.trim() != field).skip(1);
    let digits: String =
        after.take_while(|line| line.starts_with(' ')).flat_map(|line| line.trim().chars()).collect();
    let bytes = digits.split(':').filter(|byte| !byte.is_empty());
    let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let number: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
    assert!(number.len() >= 31, "{field} in {text}");
    number
}

impl Edge {
    pub(super) fn figures(&self) -> String {
        figures(&self.printed)
    }

    pub(super) fn signal(&self, name: &str) {
        let kill = run(Command::new("kill").args(["-s", name]).arg(self.process.id().to_string()));
        assert!(kill.status.success(), "{}", describe(&kill));
    }

    pub(super) fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.process.wait().unwrap().code()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the sum of the metrics whose line begins with `name` and contains `label`.
pub(super) fn sum(figures: &str, name: &str, label: &str) -> f64 {
    let lines = figures.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Returns whether a request on an open connection is answered.
pub(super) fn is_alive(tls: &mut Tls) -> bool {
    tls.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = vec![0; super::upstream::HELLO.len()];
    tls.read_exact(&mut answer).is_ok() && answer == super::upstream::HELLO.as_bytes()
}

/// Returns the alert that rejects a handshake.
pub(super) fn failure(world: &World, edge: &Edge, name: &str) -> AlertDescription {
    let error = world.handshake(edge, name).map(drop).unwrap_err();
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert,
        _ => panic!("{error}"),
    }
}
