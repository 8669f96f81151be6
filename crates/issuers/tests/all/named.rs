//! Runs BIND for a test.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::free_port;
use serde_json::{Value, json};

pub(crate) const SECRET_256: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
pub(crate) const SECRET_512: &str =
    "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0NTY3ODk=";

/// BIND with two zones. Stops when dropped.
pub(crate) struct Named {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Named {
    fn drop(&mut self) {
        // Some tests have already stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Named {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        write_zones(folder.path(), port);
        let child = Command::new("named")
            .args(["-f", "-4", "-c", folder.path().join("named.conf").to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("named: {error}; apt-get install -y bind9"));
        let named = Self { child, address: ([127, 0, 0, 1], port).into(), _folder: folder };
        let until = Instant::now() + Duration::from_secs(60);
        while named.texts("ready.example.test").is_empty() {
            assert!(Instant::now() < until, "named does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        named
    }

    /// Returns the TXT records of a name, queried with dig.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let (port, address) = (self.address.port().to_string(), self.address.ip().to_string());
        let ran = Command::new("dig")
            .args(["+short", "+time=5", "+tries=3", "-p", &port, &format!("@{address}"), name, "TXT"])
            .output()
            .unwrap_or_else(|error| panic!("dig: {error}; apt-get install -y bind9-dnsutils"));
        let text = String::from_utf8(ran.stdout).unwrap();
        let quoted = text.lines().filter(|line| line.starts_with('"'));
        let mut texts: Vec<String> = quoted.map(|line| line.trim_matches('"').to_owned()).collect();
        texts.sort();
        texts
    }

    pub(crate) fn publisher(&self) -> Value {
        json!({
            "type": "rfc2136", "server": self.address, "tsig_name": "acme-key", "tsig_secret": SECRET_256,
        })
    }

    pub(crate) fn propagation(&self) -> Value {
        json!({"resolvers": [self.address], "port": self.address.port(), "wait_seconds": 10, "interval_ms": 50})
    }
}

fn write_zones(folder: &Path, port: u16) {
    let at = folder.display();
    let zone = |name: &str, more: &str| {
        let text = format!(
            "$TTL 1\n@ IN SOA ns.{name}. admin.{name}. 1 3600 600 86400 1\n@ IN NS ns.{name}.\nns IN A 127.0.0.1\n{more}"
        );
        std::fs::write(folder.join(format!("{name}.zone")), text).unwrap();
        format!(
            "zone \"{name}\" {{ type primary; file \"{at}/{name}.zone\"; update-policy {{\n\
             grant acme-key zonesub TXT; grant long-key zonesub TXT; }}; }};\n"
        )
    };
    let alias = "* IN A 127.0.0.1\nw IN A 127.0.0.1\nready IN TXT \"yes\"\n_acme-challenge.alias IN CNAME alias.delegated.test.\n";
    let zones = zone("example.test", alias) + &zone("delegated.test", "");
    let conf = format!(
        "key acme-key {{ algorithm hmac-sha256; secret \"{SECRET_256}\"; }};\n\
         key long-key {{ algorithm hmac-sha512; secret \"{SECRET_512}\"; }};\n\
         key idle-key {{ algorithm hmac-sha256; secret \"{SECRET_256}\"; }};\n\
         options {{ directory \"{at}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
         pid-file none; session-keyfile none; recursion yes; allow-query {{ any; }}; dnssec-validation no; }};\n\
         controls {{ }};\n{zones}"
    );
    std::fs::write(folder.join("named.conf"), conf).unwrap();
}
