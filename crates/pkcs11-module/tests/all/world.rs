//! A key service, certificates for its keys, and the module in a separate process.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use keyless::server::{Options, Running, TlsOptions, start};
use keyless::{KeySet, Metrics};
use keys::{KeyRef, KeyType, PrivateKey, Scheme, Signer};
use tokio::runtime::Runtime;
use x509::build::{CertificateSpec, signed, tbs_certificate};
use x509::{DistinguishedName, SerialNumber, UnixTime};

/// A longer wait means that the test hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);
/// Timeout of a whole case. It is longer than all waits of a case, so that the case itself reports the failure.
const CASE: Duration = Duration::from_secs(600);

/// The key types that the module shows. RSA with 3,072 and 4,096 bits is left out, because its keys take long to generate.
pub(crate) const KINDS: [KeyType; 5] =
    [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::P521, KeyType::Ed25519];

/// The module finds its settings by an environment variable, which a test must not change in its own process, and exists once per
/// process. Each case therefore runs in a separate process, which the test of the same name starts.
pub(crate) fn in_a_process(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    // A file instead of a pipe, because nothing reads a pipe meanwhile.
    let path = folder.path().join("said");
    let file = File::create(&path).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", case, "--ignored", "--nocapture"])
        .env("BULLA_PKCS11_CONFIG", folder.path().join("pkcs11.toml"))
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > CASE {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
    assert!(
        status.success() && output.contains("1 passed"),
        "{case}: {status} after {:?}\n{output}",
        began.elapsed()
    );
}

/// Returns the library that cargo built in the directory of this program.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let paths = [folder, folder.parent().unwrap()].map(|folder| folder.join("libbulla_pkcs11.so"));
    paths.into_iter().find(|path| path.exists()).expect("cargo build -p pkcs11-module")
}

pub(crate) struct World {
    runtime: Runtime,
    running: Option<Running>,
    keys: KeySet,
    folder: PathBuf,
}

impl World {
    /// Starts a key service on a socket with a key and certificate of each type, and writes the module's settings. No timeout
    /// expires on a slow machine.
    pub(crate) fn new() -> Self {
        Self::with("sign_timeout_ms = 60000\ned25519 = true")
    }

    /// As [`Self::new`], with only these additional settings.
    pub(crate) fn with(more: &str) -> Self {
        let settings = PathBuf::from(std::env::var_os("BULLA_PKCS11_CONFIG").unwrap());
        let folder = settings.parent().unwrap().to_owned();
        let chains = folder.join("chains");
        std::fs::create_dir(&chains).unwrap();
        let mut world =
            Self { runtime: Runtime::new().unwrap(), running: None, keys: KeySet::default(), folder };
        world.settle(&format!("unix:{}", world.folder.join("keys.sock").display()), more);
        let all: Vec<PrivateKey> = KINDS.iter().map(|kind| PrivateKey::generate(*kind).unwrap()).collect();
        for key in &all {
            world.certify(key.key_type().name(), key);
        }
        world.keys.put("kinds", all.into_iter().map(|key| Arc::new(key) as KeyRef).collect());
        world.serve();
        world
    }

    /// As [`Self::new`], over TLS. The module's certificate belongs in `own.pem` of [`Self::folder`], its key in `own.key`, the
    /// service's CA in `ca.pem`.
    pub(crate) fn over_tls(tls: TlsOptions) -> Self {
        let mut world = Self::new();
        world.stop();
        let address = "127.0.0.1:0".parse().unwrap();
        world.serve_by(Options { tls: Some((address, tls)), deadline: TIMEOUT, ..Options::default() });
        let address = world.address();
        let [chain, key, ca] =
            ["own.pem", "own.key", "ca.pem"].map(|name| world.folder.join(name).display().to_string());
        let more = format!(
            "sign_timeout_ms = 5000\nkeys_certificate_file = '{chain}'\nkeys_key_file = '{key}'\nkeys_ca_files = ['{ca}']"
        );
        world.settle(&format!("tls:localhost:{}", address.port()), &more);
        world
    }

    /// Writes the module's settings: the key services, and additional lines.
    fn settle(&self, keys: &str, more: &str) {
        let text = format!("keys = ['{keys}']\ncertificates = ['{}/*.pem']\n{more}", self.chains().display());
        std::fs::write(std::env::var_os("BULLA_PKCS11_CONFIG").unwrap(), text).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Changes the trusted clients and the certificate of the service.
    pub(crate) fn change_tls(&self, tls: &TlsOptions) {
        let _entered = self.runtime.enter();
        self.running.as_ref().unwrap().change_tls(tls).unwrap();
    }

    fn address(&self) -> SocketAddr {
        self.running.as_ref().and_then(|running| running.address).unwrap()
    }

    /// Restarts the service over TLS at the same address. All connections close.
    pub(crate) fn begin_anew(&mut self, tls: TlsOptions) {
        let address = self.address();
        self.stop();
        self.serve_by(Options { tls: Some((address, tls)), deadline: TIMEOUT, ..Options::default() });
    }

    pub(crate) fn chains(&self) -> PathBuf {
        self.folder.join("chains")
    }

    /// Adds keys to the service.
    pub(crate) fn put(&self, keys: Vec<KeyRef>) {
        self.keys.put("more", keys);
    }

    pub(crate) fn serve(&mut self) {
        let socket = Some(self.folder.join("keys.sock"));
        self.serve_by(Options { socket, deadline: TIMEOUT, ..Options::default() });
    }

    fn serve_by(&mut self, options: Options) {
        let serving = start(options, self.keys.clone(), Metrics::default());
        self.running = Some(self.runtime.block_on(serving).unwrap());
    }

    pub(crate) fn stop(&mut self) {
        self.runtime.block_on(self.running.take().unwrap().stop());
    }

    /// Writes a certificate for a key to `NAME.pem`.
    pub(crate) fn certify(&self, name: &str, key: &PrivateKey) {
        let subject = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
        let tbs = tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_random([7; 16]),
            signature: key.algorithm(),
            issuer: &subject.der,
            subject: &subject.der,
            not_before: UnixTime(1_700_000_000),
            not_after: UnixTime(2_500_000_000),
            spki: key.spki(),
            extensions: &[],
        });
        let der = signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap());
        let path = self.chains().join(format!("{name}.new"));
        std::fs::write(&path, x509::pem::encode("CERTIFICATE", &der)).unwrap();
        // Atomically, as a deployment does.
        std::fs::rename(&path, self.chains().join(format!("{name}.pem"))).unwrap();
    }
}

/// Returns the module, initialized in this process.
pub(crate) fn initialised() -> Pkcs11 {
    let module = Pkcs11::new(library()).unwrap();
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).unwrap();
    module
}

pub(crate) fn session(module: &Pkcs11) -> Session {
    let slots = module.get_slots_with_token().unwrap();
    assert_eq!(slots.len(), 1);
    module.open_ro_session(slots[0]).unwrap()
}

/// Returns the private key with this label.
pub(crate) fn private_key(session: &Session, label: &str) -> ObjectHandle {
    let wanted = [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Label(label.into())];
    let found = session.find_objects(&wanted).unwrap();
    assert_eq!(found.len(), 1, "{label}");
    found[0]
}

/// Returns the public key of the certificate with this label.
pub(crate) fn spki(world: &World, label: &str) -> Vec<u8> {
    let text = std::fs::read(world.chains().join(format!("{label}.pem"))).unwrap();
    let (_, der) = x509::pem::certificates(&text).next().unwrap();
    x509::Certificate::parse(&der).unwrap().public_key.spki.to_vec()
}

/// Returns whether OpenSSL verifies the signature over this digest, or for Ed25519 this message. ECDSA signatures are r followed by
/// s.
pub(crate) fn openssl_verifies(spki: &[u8], scheme: Scheme, digest: &[u8], signature: &[u8]) -> bool {
    match scheme {
        Scheme::Ecdsa(_) => testbed::openssl_verifies(spki, scheme, digest, &der_of(signature)),
        _ => testbed::openssl_verifies(spki, scheme, digest, signature),
    }
}

fn der_of(raw: &[u8]) -> Vec<u8> {
    let (r, s) = raw.split_at(raw.len() / 2);
    x509::der::write(|der| {
        der.sequence(|parts| {
            parts.unsigned(r).unsigned(s);
        });
    })
}

pub(crate) use testbed::until_blocking as until;
