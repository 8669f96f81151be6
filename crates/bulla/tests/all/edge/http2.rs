//! HTTP/2 requests: frame by frame on the client's side (RFC 9113), clear-text nginx as the upstream.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::http::{send_request, world};
use super::recording_server::RecordingServer;
use super::upstream::serve;
use super::world::{Tls, World, sum};
use crate::key_service::until;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
/// `:status: 200` is one byte in the HPACK static table (RFC 7541 appendix A).
const OK: u8 = 0x88;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL = 1 (RFC 8441 section 3).
const CONNECT_PROTOCOL: [u8; 6] = [0, 8, 0, 0, 0, 1];

/// An HTTP/2 client.
struct Client(Tls);

impl Client {
    fn new(mut tls: Tls) -> Self {
        tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut client = Self(tls);
        client.write(SETTINGS, 0, 0, &[]);
        client
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
        let frame = [&[l0, l1, l2, kind, flags][..], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&frame).unwrap();
    }

    /// Sends fields as literals without indexing (RFC 7541 section 6.2.2).
    fn send_request(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
        let block: Vec<u8> =
            fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
        self.write(HEADERS, flags | END_HEADERS, stream, &block);
    }

    fn read(&mut self) -> (u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).unwrap();
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        self.0.read_exact(&mut payload).unwrap();
        if kind == SETTINGS && flags == 0 {
            self.write(SETTINGS, 1, 0, &[]);
        }
        (kind, u32::from_be_bytes([s0, s1, s2, s3]), payload)
    }

    /// Waits for the next frame of a type on a stream.
    fn wait(&mut self, kind: u8, stream: u32) -> Vec<u8> {
        loop {
            let (is, on, payload) = self.read();
            if (is, on) == (kind, stream) {
                return payload;
            }
            assert_ne!((is, on), (RESET, stream), "{payload:?}");
        }
    }
}

const CHAT: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat"),
    (":authority", "a.example"),
    ("sec-websocket-version", "13"),
];

fn get(authority: &str) -> [(&str, &str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", authority)]
}

#[test]
fn websocket_over_http2_shares_the_connection_with_requests() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    let mut client = Client::new(world.connect_h2(&edge, "a.example"));
    let settings = client.wait(SETTINGS, 0);
    assert!(settings.chunks(6).any(|setting| setting == CONNECT_PROTOCOL), "{settings:?}");
    client.send_request(1, 0, &CHAT);
    assert_eq!(client.wait(HEADERS, 1)[0], OK);
    for text in [&b"to"[..], b"and fro"] {
        client.write(DATA, 0, 1, text);
        assert_eq!(client.wait(DATA, 1), text);
    }
    client.send_request(3, 1, &get("a.example"));
    assert_eq!(client.wait(HEADERS, 3)[0], OK, "beside another request");
    let head = upstream.received().remove(0).to_ascii_lowercase();
    assert!(head.starts_with("get /chat http/1.1\r\n"), "{head}");
    for wanted in [
        "upgrade: websocket\r\n",
        "connection: upgrade\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
        "sec-websocket-key: ",
    ] {
        assert!(head.contains(wanted), "{wanted}: {head}");
    }
    client.write(DATA, 1, 1, b"over");
    assert_eq!(client.wait(DATA, 1), b"over");
}

#[test]
fn misdirected_http2_request_does_not_close_the_connection() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    let mut client = Client::new(world.connect_h2(&edge, "a.example"));
    client.send_request(1, 1, &get("b.example"));
    assert_ne!(client.wait(HEADERS, 1)[0], OK);
    assert!(String::from_utf8_lossy(&client.wait(DATA, 1)).contains("open a new connection for b.example"));
    // Connection-specific HTTP/1.1 fields are a stream error (RFC 9113 section 8.2.2).
    client.send_request(3, 1, &[&get("a.example")[..], &[("transfer-encoding", "chunked")]].concat());
    client.wait(RESET, 3);
    client.send_request(5, 1, &get("a.example"));
    assert_eq!(client.wait(HEADERS, 5)[0], OK);
    assert_eq!(upstream.received().len(), 1);
    assert_eq!(sum(&edge.figures(), "bulla_intercept_edge_request_duration_seconds_count", "4xx"), 1.0);
}

/// Starts an upstream that speaks only HTTP/2. It answers each stream with 200, and echoes the data. `says`: its settings.
fn chatting(says: &'static [u8]) -> String {
    serve(move |mut stream| {
        stream.read_exact(&mut [0; 24])?;
        stream.write_all(&[&[0, 0, says.len() as u8, SETTINGS, 0, 0, 0, 0, 0], says].concat())?;
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head)?;
            let [l0, l1, l2, kind, flags, id @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
            stream.read_exact(&mut payload)?;
            match kind {
                SETTINGS if flags == 0 => stream.write_all(&[0, 0, 0, SETTINGS, 1, 0, 0, 0, 0])?,
                HEADERS if flags & 1 == 0 => {
                    stream.write_all(&[&[0, 0, 1, HEADERS, END_HEADERS], &id[..], &[OK]].concat())?;
                }
                DATA => stream.write_all(&[&head[..], &payload].concat())?,
                _ => {}
            }
        }
    })
}

#[test]
fn websocket_is_forwarded_to_an_http2_only_upstream() {
    let (upstream, refusing) = (chatting(&CONNECT_PROTOCOL), chatting(&[]));
    let mut world = World::new(&[("a", super::P256, "DNS:a.example,DNS:b.example")]);
    world.serve(&[]);
    world.configure(&format!(
        "[edge]\nmode = \"http\"\nalpn = [\"h2\"]\nupstream = \"{upstream}\"\n[[edge.routes]]\nnames = [\"b.example\"]\n\
         upstream = \"{refusing}\"\n"
    ));
    let edge = world.edge(&["--config", "edge.toml"]);
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \
                 dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let mut tls = world.connect(&edge, "a.example");
    let answer = send_request(&mut tls, upgrade, "\r\n\r\n").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
    assert_eq!(send_request(&mut tls, "to and fro", "to and fro"), "to and fro");
    let mut tls = world.connect(&edge, "b.example");
    let answer = send_request(&mut tls, &upgrade.replace("a.example", "b.example"), "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("error=http_upgrade_failed"), "{answer}");
}

/// A clear-text nginx that runs until it is dropped.
struct Nginx {
    process: Child,
    address: String,
}

impl Nginx {
    fn start(world: &World, protocol: &str) -> Self {
        let address = format!("127.0.0.1:{}", fleet::free_port());
        let folder = world.fixture.folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n\
             uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 3;\n\
             server {{ listen {address}{protocol}; root {folder}/www;\n\
             location = /who {{ return 200 \"$server_protocol $host $http_x_forwarded_for $http_x_forwarded_proto\"; }} }} }}\n"
        );
        std::fs::write(world.fixture.path("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command
            .arg("-c")
            .arg(world.fixture.path("nginx.conf"))
            .arg("-e")
            .arg(world.fixture.path("nginx.log"));
        let process = command.stdin(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("apt-get install -y nginx-light ({error})"));
        let nginx = Self { process, address };
        until("nginx listens", || std::net::TcpStream::connect(&nginx.address).is_ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn nginx_upstream_works_over_http1_and_http2() {
    const SIZE: usize = 24 << 20;
    for (protocol, alpn, version) in [("", "http/1.1", "HTTP/1.1"), (" http2", "h2", "HTTP/2.0")] {
        let mut world = World::new(&[("a", super::P256, "DNS:a.example")]);
        world.serve(&[]);
        std::fs::create_dir(world.fixture.path("www")).unwrap();
        let large: Vec<u8> = (0..SIZE).map(|at| (at / 251) as u8).collect();
        std::fs::write(world.fixture.path("www/large"), &large).unwrap();
        let nginx = Nginx::start(&world, protocol);
        let edge = world.edge(&["--upstream", &nginx.address, "--mode", "http", "--alpn", alpn]);
        for http in ["--http1.1", "--http2"] {
            for _ in 0..8 {
                // nginx closes a connection after three requests.
                let printed = world.curl_at(&edge, "a.example/who", &[http]);
                assert_eq!(printed, format!("{version} a.example 127.0.0.1 https"), "{alpn} {http}");
            }
            world.curl_at(&edge, "a.example/large", &[http, "-o", "fetched"]);
            assert!(std::fs::read(world.fixture.path("fetched")).unwrap() == large, "{alpn} {http}");
        }
        let printed = world.curl_at(&edge, "a.example/nothing", &["-w", "%{http_code}"]);
        assert!(printed.ends_with("404"), "{printed}");
        assert_eq!(sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", ""), 0.0);
        assert_eq!(edge.stop(), Some(0));
    }
}
