//! `bulla key serve`: keys of a folder, on a socket and over TLS, reloaded while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use crate::world::{bulla, describe, run, stderr};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments for TLS with the certificates of [`Fixture::certificate`].
pub(crate) const TLS: [&str; 8] = [
    "--listen",
    "127.0.0.1:0",
    "--certificate",
    "server.pem",
    "--key",
    "server.key",
    "--client-ca",
    "ca.pem",
];

/// A folder with keys and certificates, and the service while it runs.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) service: Option<Child>,
    /// The SoftHSM configuration, if there is a token.
    softhsm: Option<PathBuf>,
    /// Environment variables of the service.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The output of the service after startup.
    log: Arc<Mutex<String>>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::at(TempDir::new().unwrap())
    }

    /// Like [`Self::new`], but never in shared memory, which a sandboxed program cannot see.
    pub(crate) fn on_disk() -> Self {
        Self::at(TempDir::new_in("/var/tmp").unwrap())
    }

    fn at(folder: TempDir) -> Self {
        let fixture =
            Self { folder, service: None, softhsm: None, environment: Vec::new(), log: Arc::default() };
        std::fs::create_dir(fixture.path("keys")).unwrap();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn openssl(&self, arguments: &str) -> Vec<u8> {
        let mut command = Command::new("openssl");
        let run = command.current_dir(self.folder.path()).args(arguments.split_whitespace()).output();
        let run = run.unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
        run.stdout
    }

    /// Creates a CA, `ca.pem`, and a certificate with these names, `up.pem`, whose key is `up.key`.
    pub(crate) fn certified(&self, names: &str) {
        let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        self.openssl(&format!("{key} -keyout ca.key -out ca.pem -subj /CN=ca"));
        self.openssl(&format!(
            "{key} -keyout up.key -out up.pem -subj /CN=up -CA ca.pem -CAkey ca.key \
             -addext subjectAltName={names} -addext basicConstraints=critical,CA:FALSE"
        ));
    }

    /// Generates a key for the service. Returns its key identifier.
    pub(crate) fn key(&self, name: &str, of: &str) -> [u8; 20] {
        self.openssl(&format!("genpkey {of} -out keys/{name}.new"));
        // Replaces the file atomically, as a deployment does.
        std::fs::rename(self.path(&format!("keys/{name}.new")), self.path(&format!("keys/{name}.key")))
            .unwrap();
        self.openssl(&format!("pkey -in keys/{name}.key -pubout -out keys/{name}.pub"));
        let spki = self.openssl(&format!("pkey -in keys/{name}.key -pubout -outform DER"));
        x509::build::key_sha1(&spki)
    }

    /// Creates `NAME.pem` and `NAME.key`, signed by `ca.pem`.
    pub(crate) fn certificate(&self, name: &str, purpose: &str) {
        if !self.path("ca.pem").exists() {
            self.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=ca");
        }
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.pem \
             -subj /CN={name} -CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:localhost \
             -addext extendedKeyUsage={purpose} -addext basicConstraints=critical,CA:FALSE"
        ));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("BULLA_KEYS_RELOAD_S", "1");
        command.env("BULLA_DATA", self.path("data")).args([
            "keys",
            "serve",
            "--metrics-listen",
            "127.0.0.1:0",
        ]);
        command.envs(self.softhsm.iter().map(|path| ("SOFTHSM2_CONF", path)));
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).args(arguments);
        command
    }

    /// Starts the service. Returns the output until it signs.
    pub(crate) fn serve(&mut self, arguments: &[&str]) -> String {
        let mut child = self.command(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        self.service = Some(child);
        let mut printed = String::new();
        while !printed.contains("bulla signs with") {
            assert!(errors.read_line(&mut printed).unwrap() > 0, "it ended: {printed}");
        }
        // Reads later output, so that the service never blocks on it.
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                *log.lock().unwrap() += &(line + "\n");
            }
        });
        printed
    }

    /// Returns the output after startup.
    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut child = self.service.take().unwrap();
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        child.wait().unwrap().code()
    }

    pub(crate) fn socket(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("data/keys.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mut child) = self.service.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a raw signature request. Returns the opcode and payload of the reply.
pub(crate) fn sign(stream: &mut UnixStream, opcode: u8, ski: &[u8; 20], digest: &[u8]) -> (u8, Vec<u8>) {
    let length = u16::try_from(digest.len()).unwrap().to_be_bytes();
    let body = [&[0x11, 0, 1, opcode, 0x04, 0, 20][..], ski, &[0x12], &length, digest].concat();
    let of_body = u16::try_from(body.len()).unwrap().to_be_bytes();
    stream.write_all(&[1, 0, of_body[0], of_body[1], 0, 0, 0, 9]).unwrap();
    stream.write_all(&body).unwrap();
    let mut reply = vec![0; 1024];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((&reply[4..8], &reply[8..11], reply[12]), (&[0, 0, 0, 9][..], &[0x11, 0, 1][..], 0x12));
    let length = usize::from(u16::from_be_bytes([reply[13], reply[14]]));
    (reply[11], reply[15..15 + length].to_vec())
}

pub(crate) fn figures(printed: &str) -> String {
    let address = printed.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text
}

pub(crate) use testbed::until_blocking as until;

#[test]
fn key_folder_is_sufficient_and_is_reloaded_while_running() {
    let mut fixture = Fixture::new();
    let p256 = fixture.key("p256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
    std::fs::write(fixture.path("keys/broken.key"), "half a key").unwrap();
    let printed = fixture.serve(&["--dir", "keys"]);
    assert!(printed.contains("bulla signs with 1 key at unix:"), "{printed}");
    assert!(printed.contains("warning: no key in keys/broken.key"), "{printed}");
    let mut stream = fixture.socket();
    let digest = [7; 32];
    let (opcode, signature) = sign(&mut stream, 0x15, &p256, &digest);
    assert_eq!(opcode, 0xf0);
    std::fs::write(fixture.path("digest"), digest).unwrap();
    std::fs::write(fixture.path("signature"), &signature).unwrap();
    fixture.openssl("pkeyutl -verify -pubin -inkey keys/p256.pub -in digest -sigfile signature");
    assert_eq!(sign(&mut stream, 0x05, &p256, &digest), (0xff, vec![1]), "another algorithm's");

    // Keys are added and removed.
    let ed25519 = fixture.key("ed25519", "-algorithm ED25519");
    until("the new key", || sign(&mut stream, 0x18, &ed25519, b"m").0 == 0xf0);
    std::fs::remove_file(fixture.path("keys/p256.key")).unwrap();
    until("the end of the old key", || sign(&mut stream, 0x15, &p256, &digest) == (0xff, vec![2]));

    let figures = figures(&printed);
    for line in [
        "bulla_keyless_keys 1",
        "bulla_keyless_broken_key_files 1",
        "bulla_keyless_errors_total{opcode=\"rsa-sha256\",error=\"cryptography\"} 1",
        "bulla_keyless_connections 1",
        "bulla_keyless_connections_max ",
        "bulla_keyless_tenant_requests_in_flight_max{tenant=\"default\"} 8192",
        "bulla_keyless_tenant_request_seconds_total{tenant=\"default\"} ",
        "bulla_keyless_stage_queue_seconds_total{cost=\"light\"} ",
        "bulla_keyless_opcode_refusals_total{opcode=\"ed25519\"} 0",
        "bulla_keyless_elsewhere_in_flight_max 16384",
        "bulla_keyless_traces_dropped_total 0",
        "bulla_tasks_live{kind=\"keyless-connection\"} 1",
    ] {
        assert!(figures.contains(line), "{line} is missing in\n{figures}");
    }
    assert_eq!(fixture.stop(), Some(0));
    assert!(!fixture.path("data/keys.sock").exists());
}

#[test]
fn service_without_usable_keys_logs_the_reasons() {
    let mut fixture = Fixture::new();
    std::fs::write(fixture.path("keys/broken.key"), "half a key").unwrap();
    std::fs::create_dir(fixture.path("empty")).unwrap();
    let printed = fixture.serve(&["--dir", "keys", "--dir", "empty"]);
    assert!(printed.contains("bulla signs with 0 keys at unix:"), "{printed}");
    for line in [
        "the service cannot sign, because it has no usable key:",
        "keys: none of 1 *.key files contains a usable key; the errors are above",
        "empty: the folder has no *.key files",
    ] {
        until(line, || fixture.log().contains(line));
    }
}

#[test]
fn invalid_arguments_are_rejected_with_a_hint() {
    let fixture = Fixture::new();
    fixture.certificate("server", "serverAuth");
    for (arguments, exit, hint) in [
        (&[][..], 2, "--dir"),
        (&["--dir", "none"], 5, "--dir"),
        (&["--dir", "keys", "--certificate", "server.pem"], 2, ""),
        (&["--dir", "keys", "--certificate", "server.pem", "--key", "server.key"], 2, "--client-ca"),
        (
            &["--dir", "keys", "--certificate", "server.pem", "--key", "ca.key", "--client-ca", "ca.pem"],
            2,
            "keys.key_file",
        ),
        (&["--dir", "keys", "--socket", "none"], 5, "--socket"),
        (&["--dir", "keys", "--socket", "server.pem"], 5, "--socket"),
    ] {
        let output = run(&mut fixture.command(arguments));
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {}", describe(&output));
        assert!(stderr(&output).contains(hint), "{arguments:?}: {}", describe(&output));
    }
}

/// Sends requests over the native protocol. Returns the result of each.
fn native(
    runtime: &tokio::runtime::Runtime,
    client: &keyless::native::Client,
    ski: [u8; 20],
    count: u64,
) -> Vec<Result<Vec<u8>, String>> {
    use keyless::native::proto::{Scheme, SignRequest, sign_request::Key};
    let requests = (0..count).map(|id| SignRequest {
        id,
        key: Some(Key::Ski(ski.to_vec())),
        scheme: Scheme::EcdsaSha256.into(),
        input: vec![7; 32],
        ..SignRequest::default()
    });
    let batch = client.sign_batch(requests.collect(), keyless::native::CallOptions::within(TIMEOUT));
    let replies = runtime.block_on(batch).unwrap();
    replies.into_iter().map(|reply| reply.map_err(|status| status.message().to_owned())).collect()
}

#[test]
fn tenant_keys_and_limits_apply_to_the_native_protocol() {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let mut fixture = Fixture::new();
    let web = fixture.key("web-1", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
    let mail = fixture.key("mail", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
    for (name, purpose) in [("server", "serverAuth"), ("client", "clientAuth")] {
        fixture.certificate(name, purpose);
    }
    let folder = fixture.folder.path().to_owned();
    let configure = |tenant: &str| {
        let text = format!(
            "[keys]\ndirectories = [\"keys\"]\nlisten = \"127.0.0.1:0\"\nnative_listen = \"127.0.0.1:0\"\n\
             native_socket = \"native.sock\"\ncertificate_file = \"server.pem\"\nkey_file = \"server.key\"\n\
             client_ca_files = [\"ca.pem\"]\n[[keys.tenant]]\nname = \"socket\"\n\
             [[keys.tenant]]\nname = \"a\"\nclients = [\"localhost\"]\n{tenant}\n"
        );
        // Replaces the file atomically, as a deployment does.
        std::fs::write(folder.join("bulla.toml.new"), text).unwrap();
        std::fs::rename(folder.join("bulla.toml.new"), folder.join("bulla.toml")).unwrap();
    };
    configure("keys = [\"web-*\"]\nrate_per_s = 1\nburst = 5");
    let printed = fixture.serve(&["--config", "bulla.toml"]);
    let address = printed.split("grpc://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(printed.contains("grpc+unix:native.sock"), "{printed}");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(fixture.path("client.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(fixture.path("client.key")).unwrap(),
        )
        .unwrap();
    let (client, local) = runtime.block_on(async {
        let client = keyless::native::Client::tls(&address, "localhost", &tls).unwrap();
        (client, keyless::native::Client::socket(fixture.path("native.sock")))
    });
    let made = native(&runtime, &client, web, 100);
    let done = made.iter().filter(|made| made.is_ok()).count();
    assert!((5..50).contains(&done), "{done}");
    assert!(made.contains(&Err("overloaded: the tenant's rate limit is reached".to_owned())));
    std::fs::write(fixture.path("digest"), [7; 32]).unwrap();
    std::fs::write(fixture.path("signature"), made.into_iter().find_map(Result::ok).unwrap()).unwrap();
    fixture.openssl("pkeyutl -verify -pubin -inkey keys/web-1.pub -in digest -sigfile signature");
    assert!(
        native(&runtime, &local, mail, 100).iter().all(Result::is_ok),
        "the tenant of the socket has no limit"
    );

    // Limits change on the same connection.
    configure("keys = [\"web-*\"]");
    until("the end of the limit", || native(&runtime, &client, web, 100).iter().all(Result::is_ok));
    let unknown = "unknown key, or the client is not allowed to use it";
    assert_eq!(native(&runtime, &client, mail, 1), [Err(unknown.to_owned())]);
    // Invalid settings prevent a start, and change nothing in a running service.
    configure("share = 0");
    let checked = run(fixture.command(&[]).args(["--config", "bulla.toml"]));
    assert_eq!(checked.status.code(), Some(2), "{}", describe(&checked));
    assert!(stderr(&checked).contains("share must be 1 to 100"), "{}", describe(&checked));

    // A file that is incomplete or missing changes nothing either. Without tenants every client could use every key.
    for is_missing in [false, true] {
        let file = folder.join("bulla.toml");
        if is_missing {
            std::fs::remove_file(file).unwrap()
        } else {
            std::fs::write(file, "").unwrap()
        }
        let unchanged_reloads = || fixture.log().matches("the tenants are unchanged").count();
        let before = unchanged_reloads();
        until("a look at it", || unchanged_reloads() > before);
        assert_eq!(native(&runtime, &client, mail, 1), [Err(unknown.to_owned())]);
        configure("keys = [\"web-*\"]");
    }
    configure("share = 2");
    until("every key", || native(&runtime, &client, mail, 1)[0].is_ok());

    let figures = figures(&printed);
    for line in [
        "bulla_keyless_tenant_refusals_total{tenant=\"a\",kind=\"rate\"}",
        "bulla_keyless_tenant_requests_total{tenant=\"socket\"} 100",
        "bulla_keyless_littles_law_ratio{tenant=\"a\"}",
    ] {
        assert!(figures.contains(line), "{line} is missing in\n{figures}");
    }
    assert_eq!(fixture.stop(), Some(0));
    assert!(!fixture.path("native.sock").exists());
}

/// The client in `clients/go` verifies every signature with Go's own cryptography. See `.ci/interop keyless`.
#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn every_signature_is_verified_by_the_go_client() {
    let mut fixture = Fixture::new();
    for (name, of) in [
        ("rsa2048", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
        ("rsa3072", "-algorithm RSA -pkeyopt rsa_keygen_bits:3072"),
        ("rsa4096", "-algorithm RSA -pkeyopt rsa_keygen_bits:4096"),
        ("p256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
        ("p384", "-algorithm EC -pkeyopt ec_paramgen_curve:P-384"),
        ("p521", "-algorithm EC -pkeyopt ec_paramgen_curve:P-521"),
        ("ed25519", "-algorithm ED25519"),
    ] {
        fixture.key(name, of);
    }
    for (name, purpose) in [("server", "serverAuth"), ("client", "clientAuth"), ("deputy", "serverAuth")] {
        fixture.certificate(name, purpose);
    }
    let printed = fixture.serve(&[&["--dir", "keys"], &TLS[..]].concat());
    let address = printed.split("tls://").nth(1).unwrap().split(' ').next().unwrap();
    let go = Command::new("keyless-check")
        .current_dir(fixture.folder.path())
        .args(["-address", address, "-ca", "ca.pem", "-cert", "client.pem", "-key", "client.key"])
        .args(["-keys", "keys", "-refused", "deputy", "-socket"])
        .arg(fixture.path("data/keys.sock"))
        .output()
        .unwrap_or_else(|error| panic!("keyless-check is built by .ci/interop keyless ({error})"));
    assert!(go.status.success(), "{}", describe(&go));
    let report = String::from_utf8_lossy(&go.stdout).into_owned();
    let checks: u32 = report.split(' ').next().unwrap().parse().unwrap();
    assert!(checks > 500, "{report}");
    assert_eq!(fixture.stop(), Some(0));
}

/// A client generated by the gRPC tools. See `.ci/interop native`.
#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn native_protocol_works_with_grpc_for_python() {
    let mut fixture = Fixture::new();
    for (name, of) in [
        ("rsa2048", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
        ("p256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
        ("p384", "-algorithm EC -pkeyopt ec_paramgen_curve:P-384"),
        ("ed25519", "-algorithm ED25519"),
    ] {
        fixture.key(name, of);
    }
    for (name, purpose) in [("server", "serverAuth"), ("client", "clientAuth")] {
        fixture.certificate(name, purpose);
    }
    let printed = fixture.serve(&[&["--dir", "keys", "--native-listen", "127.0.0.1:0"], &TLS[..]].concat());
    let address = printed.split("grpc://").nth(1).unwrap().split(' ').next().unwrap().trim();
    let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let python = Command::new("python-grpc")
        .current_dir(fixture.folder.path())
        .arg(format!("{home}/clients/python/native_check.py"))
        .arg(format!("{home}/crates/keyless/proto"))
        .args([address, "ca.pem", "client.pem", "client.key", "keys"])
        .output()
        .unwrap_or_else(|error| panic!("python-grpc is installed by .ci/interop native ({error})"));
    assert!(python.status.success(), "{}", describe(&python));
    // Each key and scheme, by a batch and by a stream.
    assert_eq!(
        String::from_utf8_lossy(&python.stdout).split(' ').next(),
        Some("80"),
        "{}",
        describe(&python)
    );
    assert_eq!(fixture.stop(), Some(0));
}

#[test]
fn pkcs11_keys_sign_and_decrypt() {
    let mut fixture = Fixture::new();
    std::fs::create_dir(fixture.path("tokens")).unwrap();
    let tokens = fixture.path("tokens").display().to_string();
    std::fs::write(
        fixture.path("softhsm2.conf"),
        format!("directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n"),
    )
    .unwrap();
    let conf = fixture.path("softhsm2.conf");
    let softhsm = |arguments: &str| {
        let mut command = Command::new("softhsm2-util");
        let run = command.current_dir(fixture.folder.path()).env("SOFTHSM2_CONF", &conf);
        let run = run.args(arguments.split_whitespace()).output();
        let run = run.unwrap_or_else(|error| panic!("apt-get install -y softhsm2 ({error})"));
        assert!(run.status.success(), "softhsm2-util: {}", String::from_utf8_lossy(&run.stderr));
    };
    softhsm("--init-token --free --label bulla --pin 1234 --so-pin 5678");
    let rsa = fixture.key("rsa", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048");
    let p256 = fixture.key("p256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
    softhsm("--import keys/rsa.key --token bulla --label rsa --id a1 --pin 1234");
    softhsm("--import keys/p256.key --token bulla --label p256 --id a2 --pin 1234");
    std::fs::write(fixture.path("pin"), "1234").unwrap();
    let module = ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so"];
    let module = module.into_iter().find(|path| std::path::Path::new(path).exists());
    std::fs::write(
        fixture.path("bulla.toml"),
        format!(
            "[pkcs11]\nmodule = {:?}\ntoken_label = \"bulla\"\npin_file = \"pin\"\n\
             [keys]\npkcs11_labels = [\"rsa\", \"p256\"]\nrsa_decrypt = true\n",
            module.expect("apt-get install -y softhsm2")
        ),
    )
    .unwrap();
    fixture.softhsm = Some(conf);
    let printed = fixture.serve(&["--config", "bulla.toml"]);
    assert!(printed.contains("bulla signs with 2 keys"), "{printed}");
    let mut stream = fixture.socket();
    for (opcode, ski, name, length, options) in [
        (0x15, &p256, "p256", 32, ""),
        (0x17, &p256, "p256", 64, ""),
        (0x05, &rsa, "rsa", 32, "-pkeyopt digest:sha256"),
        (0x03, &rsa, "rsa", 20, "-pkeyopt digest:sha1"),
        (
            0x36,
            &rsa,
            "rsa",
            48,
            "-pkeyopt digest:sha384 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:digest",
        ),
    ] {
        let digest = vec![7; length];
        let (reply, signature) = sign(&mut stream, opcode, ski, &digest);
        assert_eq!(reply, 0xf0, "{opcode:#x}: {signature:?}");
        std::fs::write(fixture.path("digest"), digest).unwrap();
        std::fs::write(fixture.path("signature"), &signature).unwrap();
        let verify = "pkeyutl -verify -pubin -in digest -sigfile signature";
        fixture.openssl(&format!("{verify} -inkey keys/{name}.pub {options}"));
    }
    assert_eq!(sign(&mut stream, 0x05, &p256, &[7; 32]), (0xff, vec![1]), "another algorithm's");
    // Raw RSA decryption without padding keeps leading zeros.
    let clear = [&[0, 2][..], &[7; 254]].concat();
    std::fs::write(fixture.path("clear"), &clear).unwrap();
    fixture.openssl(
        "pkeyutl -encrypt -pubin -inkey keys/rsa.pub -in clear -out c -pkeyopt rsa_padding_mode:none",
    );
    let c = std::fs::read(fixture.path("c")).unwrap();
    assert_eq!(sign(&mut stream, 0x01, &rsa, &c), (0xf0, clear));
    assert_eq!(sign(&mut stream, 0x01, &rsa, &c[1..]), (0xff, vec![1]), "no whole number");
    assert_eq!(sign(&mut stream, 0x01, &p256, &c), (0xff, vec![1]), "another algorithm's");
    // Invalid requests are not sent to the token.
    let figures = figures(&printed);
    for (name, value) in [("request_duration_seconds_count", 6), ("requests_in_flight", 0), ("calls_max", 8)]
    {
        let line = format!("bulla_keyless_destination_{name}{{destination=\"pkcs11:bulla\"}} {value}\n");
        assert!(figures.contains(&line), "{line}: {figures}");
    }
    assert_eq!(fixture.stop(), Some(0));
}
