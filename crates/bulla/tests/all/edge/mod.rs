//! `bulla edge` in front of `bulla key serve`: certificates in the edge, their keys in the key service.

mod client_certificates;
mod http;
mod http2;
mod memory;
mod recording_server;
mod routes;
mod staples;
mod upstream;
mod upstreams;
mod world;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::key_service::{TIMEOUT, TLS, until};
use crate::world::{describe, run, stderr};
use upstream::{HELLO, echo, hello};
use world::{World, failure, is_alive, sum};

const P256: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
const RSA: &str = "-algorithm RSA -pkeyopt rsa_keygen_bits:2048";
/// Signatures made by the key service.
const SIGNED: &str = "bulla_keyless_stage_jobs_total";
const VERSIONS: [&str; 2] = ["tls1_2", "tls1_3"];

#[test]
fn key_service_signs_every_handshake() {
    let mut world = World::new(&[("ec", P256, "DNS:ec.example"), ("rsa", RSA, "DNS:rsa.example")]);
    let upstream = hello();
    world.serve(&[]);
    world.configure(&format!(
        "[edge]\nupstream = \"{upstream}\"\n[[edge.routes]]\nnames = [\"rsa.example\"]\nupstream = \"{upstream}\"\n\
         alpn = [\"h2\", \"http/1.1\"]\n"
    ));
    let edge = world.edge(&["--config", "edge.toml"]);
    assert!(edge.printed.contains("with 2 certificates at 127.0.0.1:"), "{}", edge.printed);
    let mut handshakes = 0.0;
    for (name, http, wanted) in [
        ("ec.example", "--http2", "hello 1.1"),
        ("rsa.example", "--http2", "hello 2 2"),
        ("rsa.example", "--http1.1", "hello 1.1"),
    ] {
        for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            let printed = world.curl(&edge, name, &[&[http, "-w", " %{http_version}"], version].concat());
            assert_eq!(printed, wanted, "{name} {version:?}");
            handshakes += 1.0;
        }
    }
    let figures = edge.figures();
    assert_eq!(sum(&figures, "bulla_intercept_edge_handshakes_total", "full"), handshakes);
    assert_eq!(sum(&figures, "bulla_keyless_client_connects_total", ""), 1.0, "one connection for all");
    assert_eq!(world.signed(), handshakes);
    until("the connections end", || sum(&edge.figures(), "bulla_intercept_edge_connections ", "") == 0.0);
    assert_eq!(edge.stop(), Some(0));
    assert_eq!(world.fixture.stop(), Some(0));
}

#[test]
fn key_service_on_another_host_is_used_over_tls() {
    let mut world = World::new(&[("ec", P256, "DNS:ec.example")]);
    world.fixture.certificate("server", "serverAuth");
    world.fixture.certificate("client", "clientAuth");
    let printed = world.serve(&TLS);
    let address = printed.split("tls://").nth(1).unwrap().split(' ').next().unwrap();
    let keys = format!("tls:localhost:{}", address.rsplit(':').next().unwrap());
    let edge = world.edge(&[
        "--upstream",
        &hello(),
        "--keys",
        &keys,
        "--keys-certificate",
        "client.pem",
        "--keys-key",
        "client.key",
        "--keys-ca",
        "ca.pem",
    ]);
    assert_eq!(world.curl(&edge, "ec.example", &[]), "hello");
}

#[test]
fn certificate_is_selected_by_sni_and_signature_algorithm() {
    let mut world = World::new(&[
        ("exact", P256, "DNS:a.example"),
        ("wild", P256, "DNS:*.example,DNS:example"),
        ("both", RSA, "DNS:a.example"),
        ("default", P256, "DNS:default.example"),
    ]);
    world.serve(&[]);
    let upstream = hello();
    let edge = world.edge(&["--upstream", &upstream]);
    let shown = |name: &str, more: &str| {
        let printed = world.s_client(&edge, &format!("-servername {name} {more}"), "");
        printed.lines().find_map(|line| line.strip_prefix("subject=CN = ")).map(str::to_owned)
    };
    let ecdsa = "-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256";
    for (name, more, wanted) in [
        ("a.example", ecdsa, "exact"),
        ("A.EXAMPLE", ecdsa, "exact"),
        ("a.example", "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", "both"),
        ("a.example", "-tls1_3 -sigalgs rsa_pss_rsae_sha256", "both"),
        ("b.example", "", "wild"),
        ("example", "", "wild"),
    ] {
        assert_eq!(shown(name, more).as_deref(), Some(wanted), "{name} {more}");
    }
    for version in VERSIONS {
        let refused = |names: &str| world.s_client(&edge, &format!("-{version} {names}"), "");
        for (names, alert) in [
            ("-servername b.c.example", "SSL alert number 112"),
            ("-servername elsewhere", "SSL alert number 112"),
            ("-noservername", "SSL alert number 109"),
        ] {
            let printed = refused(names);
            assert!(printed.contains(alert), "{version} {names}: {printed}");
        }
    }
    let figures = edge.figures();
    assert_eq!(sum(&figures, "bulla_intercept_edge_handshakes_total", "unknown-name"), 4.0);
    assert_eq!(sum(&figures, "bulla_intercept_edge_handshakes_total", "no-name"), 2.0);
    drop(edge);

    world.configure("[edge]\nunknown_names = \"default\"\n");
    let edge =
        world.edge(&["--config", "edge.toml", "--upstream", &upstream, "--default-certificate", "default"]);
    for names in ["-servername elsewhere", "-noservername"] {
        let printed = world.s_client(&edge, names, "");
        assert!(printed.contains("subject=CN = default"), "{names}: {printed}");
    }
}

#[test]
fn certificates_and_ocsp_staples_are_reloaded_while_running() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    let edge = world.edge(&["--upstream", &hello()]);
    let serial = || {
        let printed = world.s_client(&edge, "-servername a.example", "");
        std::fs::write(world.fixture.path("shown.pem"), printed).unwrap();
        String::from_utf8(world.fixture.openssl("x509 -in shown.pem -noout -serial")).unwrap()
    };
    let broken = || sum(&edge.figures(), "bulla_intercept_edge_broken_certificate_files", "");
    let first = serial();

    world.chain("a", "DNS:a.example");
    until("a new certificate is presented", || serial() != first);
    let second = serial();
    std::fs::write(world.fixture.path("certs/a.pem"), "half a certificate").unwrap();
    until("the file is found broken", || broken() == 1.0);
    assert_eq!(serial(), second, "the one before stays");

    // A private key in a certificate file is an error.
    let key = std::fs::read(world.fixture.path("keys/a.key")).unwrap();
    world.chain("a", "DNS:a.example");
    until("it is whole again", || broken() == 0.0);
    let third = serial();
    assert_ne!(third, second);
    let chain = std::fs::read(world.fixture.path("certs/a.pem")).unwrap();
    std::fs::write(world.fixture.path("certs/a.pem"), [chain.clone(), key].concat()).unwrap();
    until("the file with a key is refused", || broken() == 1.0);
    world.put("certs/a.pem", &chain);
    until("it is whole again", || broken() == 0.0);

    let stapled = || world.s_client(&edge, "-servername a.example -status", "").contains("Cert Status: good");
    assert!(!stapled());
    let number = third.trim().strip_prefix("serial=").unwrap();
    std::fs::write(world.fixture.path("index"), format!("V\t350101000000Z\t\t{number}\tunknown\t/CN=a\n"))
        .unwrap();
    world.fixture.openssl(&format!(
        "ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -issuer ca.pem -serial 0x{number} -ndays 1 \
         -respout staple -noverify"
    ));
    let staple = std::fs::read(world.fixture.path("staple")).unwrap();
    world.put("certs/a.ocsp", &staple);
    until("it is stapled", stapled);
    let printed = world.s_client(&edge, "-servername a.example -status -tls1_2", "");
    assert!(printed.contains("Cert Status: good"), "{printed}");
    world.put("certs/a.ocsp", b"no response");
    until("the staple is found broken", || broken() == 1.0);
    assert!(stapled(), "the one before stays");

    // A renewed chain is presented even if the staple next to it is for the old one.
    world.put("certs/a.ocsp", &staple);
    until("it is whole again", || broken() == 0.0);
    world.chain("a", "DNS:a.example");
    until("the newer one is presented", || serial() != third);
    until("the staple of the older one is found", || broken() == 1.0);
    assert!(!stapled());
    drop(edge);
    let edge = world.edge(&["--upstream", &hello()]);
    let printed = world.s_client(&edge, "-servername a.example", "");
    assert!(printed.contains("BEGIN CERTIFICATE"), "after a restart, too: {printed}");
}

#[test]
fn hup_reloads_certificates() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    world.reload_s = 3_600;
    let edge = world.edge(&["--upstream", &hello()]);
    world.chain("a", "DNS:a.example,DNS:b.example");
    edge.signal("HUP");
    until("the new name is known", || !world.s_client(&edge, "-servername b.example", "").contains("alert"));
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn resumed_session_needs_no_signature() {
    let mut world = World::new(&[("a", P256, "DNS:a.example"), ("b", RSA, "DNS:b.example")]);
    world.serve(&[]);
    world.put("tickets", format!("{}\n", "5a".repeat(32)).as_bytes());
    let upstream = hello();
    let arguments = ["--upstream", &upstream, "--ticket-keys", "tickets"];
    let (edge, sibling) = (world.edge(&arguments), world.edge(&arguments));
    let stranger = world.edge(&["--upstream", &upstream]);
    for version in VERSIONS {
        let handshake = |of: &world::Edge, name: &str, session: &str| {
            let printed = world.s_client(
                of,
                &format!("-servername {name} -{version} {session}"),
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            );
            assert!(printed.contains("hello"), "{printed}");
            (printed.contains("Reused, TLS"), world.signed())
        };
        let (reused, before) = handshake(&edge, "a.example", "-sess_out session");
        assert!(!reused);
        for of in [&edge, &sibling] {
            assert_eq!(
                handshake(of, "a.example", "-sess_in session"),
                (true, before),
                "{version}: no signature"
            );
        }
        assert_eq!(
            handshake(&edge, "b.example", "-sess_in session"),
            (false, before + 1.0),
            "{version}: another name"
        );
        assert_eq!(
            handshake(&stranger, "a.example", "-sess_in session"),
            (false, before + 2.0),
            "{version}: other keys"
        );
    }
    assert_eq!(sum(&edge.figures(), "bulla_intercept_edge_handshakes_total", "resumed"), 2.0);

    // The newest key encrypts tickets, the previous key still decrypts them.
    let handshake = |session: &str| {
        let names = format!("-servername a.example -tls1_3 {session}");
        world.s_client(&edge, &names, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    };
    handshake("-sess_out old");
    world.put("tickets", format!("{}\n{}\n", "a5".repeat(32), "5a".repeat(32)).as_bytes());
    until("the new key seals", || {
        handshake("-sess_out new");
        !world
            .s_client(&sibling_without(&world, &upstream), "-servername a.example -tls1_3 -sess_in new", "")
            .contains("Reused")
    });
    assert!(handshake("-sess_in old").contains("Reused"));
    world.put("tickets", format!("{}\n", "a5".repeat(32)).as_bytes());
    until("the old key opens no more", || !handshake("-sess_in old").contains("Reused"));
    assert!(handshake("-sess_in new").contains("Reused"));
}

/// Starts a terminator that has only the first ticket key.
fn sibling_without(world: &World, upstream: &str) -> world::Edge {
    world.put("first", format!("{}\n", "5a".repeat(32)).as_bytes());
    world.edge(&["--upstream", upstream, "--ticket-keys", "first"])
}

#[test]
fn edge_recovers_after_a_key_service_outage() {
    let mut world = World::new(&[("a", P256, "DNS:a.example"), ("b", RSA, "DNS:b.example")]);
    world.serve(&[]);
    let edge = world.edge(&["--upstream", &hello()]);
    let mut open = world.connect(&edge, "a.example");
    assert!(is_alive(&mut open));
    let mut service = world.fixture.service.take().unwrap();
    service.kill().unwrap();
    service.wait().unwrap();
    until("it is known to be away", || {
        sum(&edge.figures(), "bulla_keyless_client_connects_total", "failed") > 0.0
    });
    for version in VERSIONS {
        for name in ["a.example", "b.example"] {
            let began = Instant::now();
            let printed = world.s_client(&edge, &format!("-servername {name} -{version}"), "");
            assert!(printed.contains("SSL alert number 80"), "{version} {name}: {printed}");
            assert!(began.elapsed() < TIMEOUT / 3, "{version}: {:?}", began.elapsed());
        }
    }
    assert!(is_alive(&mut open), "who is connected stays so");
    let figures = edge.figures();
    assert_eq!(sum(&figures, "bulla_intercept_edge_handshakes_total", "not-signed"), 4.0);
    assert_eq!(sum(&figures, "bulla_intercept_edge_signatures_total", "unavailable"), 4.0);
    assert_eq!(sum(&figures, "bulla_keyless_client_up", ""), 0.0);

    world.serve(&[]);
    until("it is found again", || sum(&edge.figures(), "bulla_keyless_client_up", "") == 1.0);
    assert_eq!(world.curl(&edge, "a.example", &[]), "hello");
    assert!(is_alive(&mut open));
}

#[test]
fn stop_drains_open_connections() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    world.configure("[edge]\nstop_s = 60\n");
    let mut edge = world.edge(&["--config", "edge.toml", "--upstream", &hello()]);
    let mut open = world.connect(&edge, "a.example");
    assert!(is_alive(&mut open));
    edge.signal("TERM");
    until("nobody is let in", || TcpStream::connect(&edge.address).is_err());
    assert!(is_alive(&mut open), "who is there is served on");
    assert_eq!(edge.process.try_wait().unwrap(), None);
    drop(open);
    assert_eq!(edge.process.wait().unwrap().code(), Some(0));

    world.configure("[edge]\nstop_s = 0\n");
    let edge = world.edge(&["--config", "edge.toml", "--upstream", &hello()]);
    let mut open = world.connect(&edge, "a.example");
    assert!(is_alive(&mut open));
    assert_eq!(edge.stop(), Some(0));
    assert!(open.read(&mut [0; 1]).map_or(true, |count| count == 0), "cut off");
}

#[test]
fn slow_clients_and_excess_connections_are_closed() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    // The maximum value: a connection that is closed earlier was not closed by this timeout.
    const HANDSHAKE_S: u64 = 60;
    world.configure(&format!(
        "[edge]\nhandshake_timeout_ms = {}\nconnections_max = 2\nconnections_per_address_max = 2\n",
        HANDSHAKE_S * 1_000
    ));
    let edge = world.edge(&["--config", "edge.toml", "--upstream", &hello()]);
    let connect = || {
        let stream = TcpStream::connect(&edge.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    };
    // Reset or closed, without a byte.
    let is_closed_silently = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest.is_empty()
    };
    let open = || sum(&edge.figures(), "bulla_intercept_edge_connections ", "");
    let refused = || sum(&edge.figures(), "bulla_intercept_edge_refused_connections_total", "");
    let late = || sum(&edge.figures(), "bulla_intercept_edge_handshakes_total", "late");
    let began = Instant::now();
    // A stall of this machine may let the first client's time for a ClientHello end before the second one connects.
    until("the client that has been silent the longest makes room for another", || {
        let mut slow = connect();
        slow.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        let silent = connect();
        assert!(is_closed_silently(slow), "nothing is said to who makes room");
        assert!(is_closed_silently(silent), "nothing is said to who says nothing");
        refused() >= 1.0
    });
    until("a ClientHello is waited for no longer", || late() >= 1.0 && open() == 0.0);
    assert!(began.elapsed().as_secs() < HANDSHAKE_S, "{:?}", began.elapsed());
    let before = refused();
    // Connections with a completed handshake are not evicted. The client completes the handshake before the terminator does. A
    // response shows that both have completed it.
    let connections = [(); 2].map(|()| {
        let mut tls = world.connect(&edge, "a.example");
        tls.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        tls.read_exact(&mut [0; HELLO.len()]).unwrap();
        tls
    });
    if let Ok(third) = TcpStream::connect(&edge.address) {
        third.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!(is_closed_silently(third), "there is no place");
    }
    until("it is counted too", || refused() > before);
    drop(connections);
    until("both are gone", || open() == 0.0);
    assert_eq!(world.curl(&edge, "a.example", &[]), "hello");
}

#[test]
fn upstream_gets_proxy_protocol_header_and_all_data_on_half_close() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    let edge = world.edge(&["--upstream", &echo(), "--alpn", "h2,http/1.1", "--proxy-protocol"]);
    let mut tls = world.connect(&edge, "a.example");
    tls.write_all(b"a question").unwrap();
    // The client closes its direction before the upstream has sent anything.
    tls.conn.send_close_notify();
    tls.flush().unwrap();
    let mut received = Vec::new();
    tls.read_to_end(&mut received).unwrap();
    assert!(received.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11"), "{received:?}");
    let client = tls.sock.local_addr().unwrap();
    assert_eq!(received[24..26], client.port().to_be_bytes());
    assert!(received.ends_with(b"\x02\x00\x09a.examplea question"), "{received:?}");
    until("it ended well", || {
        sum(&edge.figures(), "bulla_intercept_edge_connection_ends_total", "closed") == 1.0
    });
}

#[test]
fn unreachable_upstream_closes_only_the_connection() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    // A port that the system never assigns.
    let edge = world.edge(&["--upstream", "127.0.0.1:1"]);
    let mut tls = world.connect(&edge, "a.example");
    let mut printed = Vec::new();
    tls.read_to_end(&mut printed).expect("closed in good order");
    assert_eq!(printed, b"");
    until("it is counted", || {
        sum(&edge.figures(), "bulla_intercept_edge_connection_ends_total", "no-upstream") == 1.0
    });
}

#[test]
fn edge_process_memory_contains_no_private_key() {
    let mut world = World::new(&[("ec", P256, "DNS:ec.example"), ("rsa", RSA, "DNS:rsa.example")]);
    world.serve(&[]);
    let edge = world.edge(&["--upstream", &hello()]);
    for name in ["ec.example", "rsa.example"] {
        for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            assert_eq!(world.curl(&edge, name, version), "hello");
        }
    }
    let open = world.connect(&edge, "rsa.example");
    let secrets = world.secrets();
    assert!(secrets.len() >= 12, "{}", secrets.len());
    let found = memory::found(edge.process.id(), &secrets);
    assert!(found.is_empty(), "the terminator has {found:?}");
    // A check of the search itself: it finds the public values here, and the keys in the key service.
    let public = memory::found(edge.process.id(), &world.publics());
    assert_eq!(public.len(), 2, "{public:?}");
    let service = world.fixture.service.as_ref().unwrap().id();
    assert!(!memory::found(service, &secrets).is_empty());
    drop(open);
}

const BELIEVES_NOBODY: [&str; 10] = [
    "--certificates",
    "certs",
    "--upstream",
    "a:1",
    "--keys",
    "tls:a:1",
    "--keys-certificate",
    "ca.pem",
    "--keys-key",
    "ca.key",
];

#[test]
fn invalid_edge_arguments_are_rejected_with_a_hint() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.fixture.openssl("genpkey -algorithm ED25519 -out ed.key");
    world.fixture.openssl("req -x509 -key ed.key -out certs/ed.pem -subj /CN=ed.example");
    for (arguments, exit, hint) in [
        (&["--upstream", "127.0.0.1:1"][..], 2, "--certificates"),
        (&["--certificates", "certs"], 2, "--upstream"),
        (&["--certificates", "nowhere", "--upstream", "127.0.0.1:1"], 5, "--certificates"),
        (&["--certificates", "certs", "--upstream", "nonsense"], 2, "HOST:PORT"),
        (&["--certificates", "certs", "--upstream", "a:1", "--keys", "keys.sock"], 2, "unix:PATH"),
        (&["--certificates", "certs", "--upstream", "a:1", "--keys", "tls:a"], 2, "--keys-certificate"),
        (&BELIEVES_NOBODY, 2, "--keys-ca"),
        (&["--certificates", "certs", "--upstream", "a:1", "--default-certificate", "b"], 5, "b.pem"),
        (
            &["--certificates", "certs", "--upstream", "a:1", "--ticket-keys", "ca.pem"],
            5,
            "openssl rand -hex 32",
        ),
    ] {
        let output = run(&mut world.command(arguments));
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {}", describe(&output));
        assert!(stderr(&output).contains(hint), "{arguments:?}: {}", describe(&output));
    }
    world.serve(&[]);
    let edge = world.edge(&["--upstream", "127.0.0.1:1"]);
    assert!(edge.printed.contains("warning: no certificate in certs/ed.pem"), "{}", edge.printed);
    assert!(edge.printed.contains("only RSA and ECDSA keys are supported: the"), "{}", edge.printed);
    assert_eq!(failure(&world, &edge, "elsewhere"), rustls::AlertDescription::UnrecognisedName);
}

/// In TLS 1.3 the terminator uses a group for which the client sent a key share, and needs no extra round trip.
#[test]
fn x25519_is_preferred_over_p256() {
    let mut world = World::new(&[("a", P256, "DNS:a.example")]);
    world.serve(&[]);
    world.configure(&format!("[edge]\nupstream = \"{}\"\n", hello()));
    let edge = world.edge(&["--config", "edge.toml"]);
    let printed = world.s_client(&edge, "-tls1_2 -servername a.example -curves P-256:X25519", "");
    let group = printed.lines().find(|line| line.contains("Temp Key:"));
    assert!(group.is_some_and(|line| line.contains("X25519")), "{printed}");
}
