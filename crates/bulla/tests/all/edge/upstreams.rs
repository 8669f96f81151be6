//! Upstreams with several servers, their health checks, and TLS to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tokio::net::TcpSocket;

use super::P256;
use super::http::exchange;
use super::upstream::{saying, serve};
use super::world::{Edge, World, sum};
use crate::key_service::until;
use crate::world::{run, stderr};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
const UP: &str = "bulla_intercept_edge_upstream_server_up";
const USES: &str = "bulla_intercept_edge_upstream_server_uses_total";

/// Returns an address without a listener. It stays unused while the returned socket is held.
fn nobody() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

fn started(configuration: &str) -> (World, Edge) {
    let mut world = World::new(&[("a", P256, "DNS:a.example,DNS:*.a.example")]);
    world.serve(&[]);
    world.configure(configuration);
    let edge = world.edge(&["--config", "edge.toml"]);
    (world, edge)
}

/// Returns the bodies of `count` responses on one connection.
fn bodies(world: &World, edge: &Edge, count: usize) -> Vec<String> {
    let mut tls = world.connect(edge, "a.example");
    let answers = (0..count).map(|_| exchange(&mut tls, REQUEST));
    answers.map(|answer| answer.split_once("\r\n\r\n").unwrap().1.to_owned()).collect()
}

#[test]
fn servers_are_used_in_turn_and_a_dead_server_is_ejected() {
    let (one, two, (_reserved, dead)) = (saying("one"), saying("two"), nobody());
    let (world, edge) = started(&format!(
        "[edge]\nupstream = \"shop\"\nmode = \"http\"\naccess_log_file = \"access\"\n[[edge.upstreams]]\nname = \"shop\"\n\
         servers = [\"{one}\", \"{dead}\", \"{two}\"]\nhealth_interval_s = 0\neject_s = 3600\n\
         [[edge.routes]]\nnames = [\"tcp.a.example\"]\nupstream = \"shop\"\nmode = \"tcp\"\n"
    ));
    let answered = bodies(&world, &edge, 12);
    let count = |body: &str| answered.iter().filter(|answer| *answer == body).count();
    assert!(count("one") >= 3 && count("two") >= 3 && count("one") + count("two") == 12, "{answered:?}");
    // Tried three times in a row, then ejected.
    until("it is ejected", || {
        edge.figures().contains(&format!("{UP}{{upstream=\"shop\",server=\"{dead}\"}} 0"))
    });
    let figures = edge.figures();
    assert_eq!(sum(&figures, USES, &format!("server=\"{dead}\",outcome=\"failed\"")), 3.0, "{figures}");
    assert_eq!(sum(&figures, USES, "outcome=\"answered\""), 12.0, "{figures}");
    assert_eq!(sum(&figures, UP, ""), 2.0, "{figures}");
    for _ in 0..4 {
        assert!(["one", "two"].contains(&world.curl(&edge, "tcp.a.example", &[]).as_str()));
    }
    let log = || std::fs::read_to_string(world.fixture.path("access")).unwrap_or_default();
    let line = |server: &str| format!("\"upstream_server\":\"{server}\"");
    until("both are in the log", || log().contains(&line(&one)) && log().contains(&line(&two)));
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn server_with_failed_health_checks_gets_no_requests_until_healthy() {
    let is_well = Arc::new(AtomicBool::new(true));
    let checked = Arc::clone(&is_well);
    let ill = serve(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut path) = (String::new(), String::new());
        while reader.read_line(&mut line)? > 0 {
            if path.is_empty() {
                line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
            }
            if line == "\r\n" {
                let is_ill = path == "/healthz" && !checked.load(Ordering::SeqCst);
                let status = if is_ill { "503 Out" } else { "200 OK" };
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nill")?;
                path.clear();
            }
            line.clear();
        }
        Ok(())
    });
    let well = saying("well");
    let (world, edge) = started(&format!(
        "[edge]\nupstream = \"shop\"\nmode = \"http\"\n[[edge.upstreams]]\nname = \"shop\"\n\
         servers = [\"{ill}\", \"{well}\"]\nbalance = \"least-requests\"\nhealth_path = \"/healthz\"\nhealth_interval_s = 1\n\
         health_timeout_ms = 60000\nhealthy_after = 1\nunhealthy_after = 2\neject_after = 0\n"
    ));
    let both = bodies(&world, &edge, 6);
    assert!(both.contains(&"ill".to_owned()) && both.contains(&"well".to_owned()), "{both:?}");
    let is_up = || sum(&edge.figures(), UP, &ill) == 1.0;
    is_well.store(false, Ordering::SeqCst);
    until("its checks fail", || !is_up());
    assert_eq!(bodies(&world, &edge, 6), ["well"; 6]);
    is_well.store(true, Ordering::SeqCst);
    until("its checks pass", is_up);
    assert!(bodies(&world, &edge, 6).contains(&"ill".to_owned()));
}

/// Starts a TLS server for app.internal that requires a client certificate and answers each request.
fn over_tls(world: &World) -> String {
    let read = |name: &str| std::fs::read(world.fixture.path(name)).unwrap();
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(&read(name)).map(Result::unwrap).collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates("ca.pem"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(certificates("app.pem"), PrivateKeyDer::from_pem_slice(&read("app.key")).unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    serve(move |stream| {
        let tls = ServerConnection::new(Arc::clone(&config)).map_err(std::io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte)? > 0 {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                let name = stream.conn.server_name().unwrap_or("nobody").to_owned();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())?;
                head.clear();
            }
        }
        Ok(())
    })
}

#[test]
fn upstream_tls_verifies_name_and_ca_and_sends_a_client_certificate() {
    let names =
        ["good", "tcp", "stranger", "misnamed", "anonymous"].map(|name| format!("DNS:{name}.example"));
    let mut world = World::new(&[("a", P256, &names.join(","))]);
    world.serve(&[]);
    let ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    world.fixture.openssl(&format!("req -x509 {ec} -keyout other.key -out other.pem -subj /CN=other"));
    for (name, host) in [("app", "app.internal"), ("own", "edge.internal")] {
        world.fixture.openssl(&format!(
            "req -x509 {ec} -keyout {name}.key -out {name}.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=DNS:{host} -addext basicConstraints=critical,CA:FALSE"
        ));
    }
    let server = over_tls(&world);
    let own = "client_certificate_file = \"own.pem\"\nclient_key_file = \"own.key\"\n";
    let upstream = |name: &str, host: &str, ca: &str, more: &str| {
        format!(
            "[[edge.upstreams]]\nname = \"{name}\"\nservers = [\"{server}\"]\ntls = true\nserver_name = \"{host}\"\n\
             ca_files = [\"{ca}\"]\n{more}"
        )
    };
    let mut configuration = "[edge]\nmode = \"http\"\n".to_owned();
    configuration += &upstream("good", "app.internal", "ca.pem", own);
    configuration += &upstream("stranger", "app.internal", "other.pem", own);
    configuration += &upstream("misnamed", "other.internal", "ca.pem", own);
    configuration += &upstream("anonymous", "app.internal", "ca.pem", "");
    for (name, to, mode) in [
        ("good", "good", "http"),
        ("tcp", "good", "tcp"),
        ("stranger", "stranger", "http"),
        ("misnamed", "misnamed", "http"),
        ("anonymous", "anonymous", "http"),
    ] {
        configuration += &format!(
            "[[edge.routes]]\nnames = [\"{name}.example\"]\nupstream = \"{to}\"\nmode = \"{mode}\"\n"
        );
    }
    world.configure(&configuration);
    let edge = world.edge(&["--config", "edge.toml"]);
    let status = |name: &str| world.curl(&edge, name, &["-w", " %{http_code}"]);
    for name in ["good.example", "tcp.example"] {
        assert_eq!(status(name), "app.internal 200", "{name}");
    }
    for name in ["stranger.example", "misnamed.example", "anonymous.example"] {
        assert!(status(name).ends_with(" 502"), "{name}: {}", status(name));
    }
    let errors = |error: &str| sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", error);
    assert!(errors("tls_certificate_error") >= 2.0, "{}", edge.figures());
    // Health checks detect it too: they need a TLS handshake, not only a connection.
    until("it is down", || sum(&edge.figures(), UP, "upstream=\"stranger\"") == 0.0);
    assert_eq!(sum(&edge.figures(), UP, "upstream=\"good\""), 1.0);
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn invalid_upstream_settings_are_rejected_with_the_reason() {
    let world = World::new(&[]);
    for (entry, wanted) in [
        ("name = \"shop\"", "has no servers"),
        ("name = \"shop\"\nservers = [\"a:1\", \"a:1\"]", "is listed twice"),
        ("name = \"a:1\"\nservers = [\"a:1\"]", "contains a colon"),
        ("name = \"shop\"\nservers = [\"a:1\"]\nbalance = \"best\"", "expected one of `round-robin`"),
        ("name = \"shop\"\nservers = [\"a:1\"]\ntls = true", "tls needs server_name"),
        ("name = \"shop\"\nservers = [\"a:1\"]\nca_files = [\"ca.pem\"]", "need TLS"),
        ("name = \"shop\"\nservers = [\"a:1\"]\neject_s = 0", "eject_s must be from 1 to 3600"),
        (
            "name = \"shop\"\nservers = [\"a:1\"]\nhealth_path = \"healthz\"",
            "health_path does not begin with /",
        ),
    ] {
        world.configure(&format!("[edge]\nupstream = \"shop\"\n[[edge.upstreams]]\n{entry}\n"));
        let output = run(&mut world.command(&["--certificates", "certs", "--config", "edge.toml"]));
        assert!(!output.status.success() && stderr(&output).contains(wanted), "{entry}: {}", stderr(&output));
    }
}
