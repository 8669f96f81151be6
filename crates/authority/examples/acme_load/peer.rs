//! step-ca for comparison: a new installation with its file database.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{Failure, PROOF_PORT, Server};

/// Timeout of the start, which usually takes one or two seconds.
const START_MAX: Duration = Duration::from_secs(60);

/// Starts step-ca on a free port with a root CA, an intermediate CA and one ACME provisioner.
pub(crate) fn start() -> Result<Server, Failure> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let ca =
        ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"];
    let made = ["-x509", "-days", "3650"];
    let root = ["-subj", "/CN=Load Root", "-keyout", "root.key", "-out", "root.pem"];
    openssl(at, &[&made[..], &key, &root, &ca[2..]].concat())?;
    let below = [
        "-CA",
        "root.pem",
        "-CAkey",
        "root.key",
        "-subj",
        "/CN=Load CA",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    ];
    openssl(at, &[&made[..], &key, &below, &ca].concat())?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let path = |name: &str| at.join(name).display().to_string();
    let config = json!({
        "root": path("root.pem"), "crt": path("ca.pem"), "key": path("ca.key"),
        "address": format!("127.0.0.1:{port}"), "dnsNames": ["127.0.0.1"],
        "db": {"type": "badgerv2", "dataSource": path("db")},
        "authority": {"provisioners": [{"type": "ACME", "name": "acme"}]},
    });
    std::fs::write(at.join("ca.json"), config.to_string())?;
    let log = File::create(at.join("log"))?;
    let child = Command::new("step-ca")
        .args(["--insecure", &format!("--acme-http-port={PROOF_PORT}")])
        .arg(path("ca.json"))
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(|error| {
            format!("step-ca: {error}; run .ci/interop, which builds it into target/interop/bin")
        })?;
    let directory = format!("https://127.0.0.1:{port}/acme/acme/directory");
    let server = Server { name: "step-ca", directory, child, _folder: Some(folder) };
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if began.elapsed() > START_MAX {
            let log =
                server._folder.as_ref().map(|folder| std::fs::read_to_string(folder.path().join("log")));
            return Err(format!("step-ca does not listen: {log:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(server)
}

fn openssl(folder: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let made = Command::new("openssl").arg("req").args(arguments).current_dir(folder).output();
    let made = made.map_err(|error| format!("openssl: {error}; apt-get install -y openssl"))?;
    if made.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&made.stderr).into_owned().into())
    }
}
