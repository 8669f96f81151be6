//! Clients that authenticate with certificates.

use std::process::{Command, Output};

use super::P256;
use super::recording_server::RecordingServer;
use super::world::{Edge, World, sum};
use crate::key_service::until;
use crate::world::{run, stdout};

const CA: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncrlnumber = crlnumber\ndefault_md = sha256\n\
                  certificate = clients.pem\nprivate_key = clients.key\n";

/// Creates a client CA with a CRL, the clients `good` and `bad`, and a client of another CA with the same name.
fn clients(world: &World) {
    let ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for ca in ["clients", "others"] {
        world.fixture.openssl(&format!("req -x509 {ec} -keyout {ca}.key -out {ca}.pem -subj /CN={ca}"));
    }
    for (name, ca) in [("good", "clients"), ("bad", "clients"), ("stranger", "others")] {
        world.fixture.openssl(&format!(
            "req -x509 {ec} -keyout {name}.key -out {name}.pem -subj /CN={name} -CA {ca}.pem -CAkey {ca}.key \
             -addext subjectAltName=URI:spiffe://example/{name} -addext basicConstraints=critical,CA:FALSE"
        ));
    }
    world.put("ca.cnf", CA.as_bytes());
    world.put("index.txt", b"");
    world.put("crlnumber", b"01\n");
    crl(world);
}

fn crl(world: &World) {
    world.fixture.openssl("ca -config ca.cnf -gencrl -crldays 30 -out crl.new");
    std::fs::rename(world.fixture.path("crl.new"), world.fixture.path("clients.crl")).unwrap();
}

fn started(mode: &str, upstream: &str) -> (World, Edge) {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    clients(&world);
    world.serve(&[]);
    world.configure(&format!(
        "[edge]\nmode = \"http\"\nupstream = \"{upstream}\"\naccess_log_file = \"access\"\nclient_certificates = \"{mode}\"\n\
         client_ca_files = [\"clients.pem\"]\nclient_crl_files = [\"clients.crl\"]\n"
    ));
    let edge = world.edge(&["--config", "edge.toml"]);
    (world, edge)
}

/// Sends a request with the certificate of `name` and forged client-certificate headers.
fn request(world: &World, edge: &Edge, name: Option<&str>, version: &str) -> Output {
    let port = edge.address.rsplit(':').next().unwrap();
    let mut command = Command::new("curl");
    command
        .current_dir(world.fixture.folder.path())
        .args(["-sS", "--max-time", "180", "--cacert", "ca.pem", version])
        .args(["--tls-max", version.trim_start_matches("--tlsv")])
        .args(["--resolve", &format!("a.example:{port}:127.0.0.1")])
        .args([
            "-HClient-Cert: :Zm9yZ2Vk:",
            "-HClient_Cert: forged",
            "-HX-Forwarded-Client-Cert: Hash=forged",
        ])
        .arg(format!("https://a.example:{port}/"));
    if let Some(name) = name {
        command.args(["--cert", &format!("{name}.pem"), "--key", &format!("{name}.key")]);
    }
    run(&mut command)
}

/// Returns the values of a header in a request head.
fn values(head: &str, field: &str) -> Vec<String> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value.to_owned()).collect()
}

const VERSIONS: [&str; 2] = ["--tlsv1.2", "--tlsv1.3"];

#[test]
fn client_certificates_are_required_and_forwarded_to_upstreams() {
    let upstream = RecordingServer::start();
    let (world, edge) = started("required", &upstream.address);
    let pem = std::fs::read(world.fixture.path("good.pem")).unwrap();
    let (_, der) = x509::pem::certificates(&pem).next().unwrap();
    for version in VERSIONS {
        let before = upstream.received().len();
        assert!(!request(&world, &edge, None, version).status.success(), "{version}: without a certificate");
        assert!(!request(&world, &edge, Some("stranger"), version).status.success(), "{version}");
        assert_eq!(upstream.received().len(), before, "nothing of them is passed on");
        assert!(request(&world, &edge, Some("good"), version).status.success(), "{version}");
        let head = upstream.received().pop().unwrap();
        let forwarded = values(&head, "Client-Cert");
        let wanted = format!(":{}:", data_encoding::BASE64.encode(&der));
        assert_eq!(forwarded, [wanted], "{head}");
        let forwarded = values(&head, "X-Forwarded-Client-Cert");
        assert!(forwarded.len() == 1 && forwarded[0].starts_with("Hash="), "{head}");
        assert!(forwarded[0].ends_with(";Subject=\"CN=good\";URI=spiffe://example/good"), "{head}");
        assert!(!head.contains("forged"), "{head}");
    }
    let log = || std::fs::read_to_string(world.fixture.path("access")).unwrap_or_default();
    until("the log has the client", || log().contains("\"user\":\"CN=good\""));
    // No session tickets are issued with client certificates.
    for version in ["-tls1_2", "-tls1_3"] {
        let arguments = format!("{version} -servername a.example -cert good.pem -key good.key");
        let printed = world.s_client(
            &edge,
            &arguments,
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        );
        assert!(printed.contains("200 OK") && !printed.contains("ession ticket:"), "{printed}");
    }
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn revoked_client_is_rejected_after_the_crl_is_reloaded() {
    let upstream = RecordingServer::start();
    let (world, edge) = started("required", &upstream.address);
    assert!(request(&world, &edge, Some("bad"), VERSIONS[0]).status.success());
    world.fixture.openssl("ca -config ca.cnf -revoke bad.pem");
    crl(&world);
    until("it counts", || !request(&world, &edge, Some("bad"), VERSIONS[0]).status.success());
    let before = upstream.received().len();
    for version in VERSIONS {
        assert!(!request(&world, &edge, Some("bad"), version).status.success(), "{version}");
        assert!(request(&world, &edge, Some("good"), version).status.success(), "{version}");
    }
    assert_eq!(upstream.received().len(), before + 2);
    let refused = sum(&edge.figures(), "bulla_intercept_edge_connection_ends_total", "client-refused");
    assert!(refused >= 3.0, "{}", edge.figures());
    // An unreadable CRL is ignored.
    world.put("clients.crl", b"nonsense");
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert!(!request(&world, &edge, Some("bad"), VERSIONS[1]).status.success());
    assert!(request(&world, &edge, Some("good"), VERSIONS[1]).status.success());
}

#[test]
fn forged_client_certificate_headers_are_removed_when_optional() {
    let upstream = RecordingServer::start();
    let (world, edge) = started("optional", &upstream.address);
    for version in VERSIONS {
        let output = request(&world, &edge, None, version);
        assert!(output.status.success(), "{}", stdout(&output));
        let head = upstream.received().pop().unwrap();
        assert!(!head.contains("forged") && values(&head, "Client-Cert").is_empty(), "{head}");
        assert!(request(&world, &edge, Some("good"), version).status.success());
        assert_eq!(values(&upstream.received().pop().unwrap(), "Client-Cert").len(), 1);
        assert!(!request(&world, &edge, Some("stranger"), version).status.success(), "{version}");
    }
}
