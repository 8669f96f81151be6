//! Runs Pebble, Let's Encrypt's ACME test server, with BIND as its resolver.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use serde_json::{Value, json};
use x509::{Certificate, GeneralName};

use crate::authority_of_tests::{Leaf, TestCa, request};
use crate::named::Named;
use crate::world::run;

/// The configuration of Pebble.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Key identifier and MAC key for external account binding. If set, the binding is required.
    pub(crate) external: Option<(String, String)>,
    /// The percentage of valid nonces that Pebble rejects.
    pub(crate) nonce_rejects: u8,
}

/// A running Pebble. Stops when dropped.
pub(crate) struct Pebble {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) named: Named,
    pub(crate) directory: String,
    management: String,
    pub(crate) http_port: u16,
    pub(crate) tls_port: u16,
    root: TestCa,
    setup: Setup,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pebble {
    pub(crate) fn start(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let named = Named::start();
        let [listen, management, http_port, tls_port] = [(); 4].map(|()| free_port());
        let now = x509::UnixTime(store::Clock::system().now_seconds());
        let root = TestCa::root("HTTPS of Pebble", now);
        let (csr, key) = request(&["localhost", "127.0.0.1"]);
        let leaf = Leaf {
            names: vec![GeneralName::parse("localhost").unwrap(), GeneralName::parse("127.0.0.1").unwrap()],
            ..Leaf::of(&csr, now)
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("cert.pem", &x509::pem::encode("CERTIFICATE", &root.sign(&leaf)));
        write("key.pem", &key.to_pkcs8_pem());
        write("root.pem", &root.pem());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let keys: Value = setup.external.iter().map(|(id, key)| (id.clone(), json!(key))).collect();
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{listen}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": path("cert.pem"), "privateKey": path("key.pem"),
            "httpPort": http_port, "tlsPort": tls_port, "ocspResponderURL": "",
            "externalAccountBindingRequired": setup.external.is_some(), "externalAccountMACKeys": keys,
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {
                "default": {"description": "usual", "validityPeriod": 7_776_000},
                "shortlived": {"description": "six days", "validityPeriod": 518_400},
            },
        }});
        write("pebble.json", &config.to_string());
        let child = launch(&folder, &named, &setup);
        let pebble = Self {
            child,
            directory: format!("https://127.0.0.1:{listen}/dir"),
            management: format!("https://127.0.0.1:{management}"),
            folder,
            named,
            http_port,
            tls_port,
            root,
            setup,
        };
        pebble.await_ready();
        pebble
    }

    /// Restarts Pebble, which loses all its state.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = launch(&self.folder, &self.named, &self.setup);
        self.await_ready();
    }

    fn await_ready(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.curl(&self.directory).is_none() {
            assert!(Instant::now() < until, "Pebble does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn curl(&self, url: &str) -> Option<String> {
        let root = self.folder.path().join("root.pem");
        let ran = Command::new("curl").args(["-sf", "--cacert", root.to_str().unwrap(), url]).output();
        let ran = ran.unwrap_or_else(|error| panic!("curl: {error}; apt-get install -y curl"));
        ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap())
    }

    /// Returns the issuing root with the index `at`, in PEM.
    pub(crate) fn issuing_root(&self, at: usize) -> String {
        self.curl(&format!("{}/roots/{at}", self.management)).unwrap()
    }

    /// Returns the common name of that root.
    pub(crate) fn issuing_root_name(&self, at: usize) -> String {
        let pem = self.issuing_root(at);
        let der = x509::pem::certificates(pem.as_bytes()).next().unwrap().1;
        Certificate::parse(&der).unwrap().subject.common_names[0].clone()
    }

    /// Returns whether Pebble considers a certificate revoked.
    pub(crate) fn is_revoked(&self, certificate: &Certificate) -> bool {
        let serial = certificate.serial.to_string();
        let url = format!("{}/cert-status-by-serial/{}", self.management, serial.trim_start_matches('0'));
        let text = self.curl(&url).unwrap();
        let status: Value = serde_json::from_str(&text).unwrap();
        status["Status"] == json!("Revoked")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the number of certificates issued since the first start.
    pub(crate) fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// Returns an issuer configuration for Pebble: http-01 and tls-alpn-01 on its ports, dns-01 by updates of BIND.
    pub(crate) fn config(&self, challenges: &[&str]) -> Value {
        json!({
            "type": "acme", "directory": self.directory, "terms_agreed": true, "contact": ["mailto:admin@example.test"],
            "challenges": challenges, "http": {"roots": self.root.pem()},
            "listen": {
                "http01": SocketAddr::from(([127, 0, 0, 1], self.http_port)),
                "tls_alpn01": SocketAddr::from(([127, 0, 0, 1], self.tls_port)),
            },
            "dns01": {"publisher": self.named.publisher(), "propagation": self.named.propagation(), "ttl": 1},
            "verify": {"roots": self.issuing_root(0)},
        })
    }
}

fn launch(folder: &tempfile::TempDir, named: &Named, setup: &Setup) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    let config = folder.path().join("pebble.json");
    Command::new("pebble")
        .args(["-strict", "-config", config.to_str().unwrap(), "-dnsserver", &named.address.to_string()])
        .env("PEBBLE_VA_NOSLEEP", "1")
        .env("PEBBLE_ALTERNATE_ROOTS", "1")
        .env("PEBBLE_CHAIN_LENGTH", "2")
        .env("PEBBLE_AUTHZREUSE", "0")
        .env("PEBBLE_WFE_NONCEREJECT", setup.nonce_rejects.to_string())
        .stdout(Stdio::from(log.try_clone().unwrap()))
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap_or_else(|error| panic!("pebble: {error}; run .ci/interop, which builds it"))
}

/// Verifies a delivered chain against this root with OpenSSL.
pub(crate) fn openssl_verifies(root: &str, chain: &[Vec<u8>]) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("root"), root).unwrap();
    let pem = |der: &Vec<u8>| x509::pem::encode("CERTIFICATE", der);
    std::fs::write(path("leaf"), pem(&chain[0])).unwrap();
    std::fs::write(path("above"), chain[1..].iter().map(pem).collect::<String>()).unwrap();
    run(
        "openssl",
        &["verify", "-CAfile", &path("root"), "-untrusted", &path("above"), &path("leaf")],
        "openssl",
    );
}
