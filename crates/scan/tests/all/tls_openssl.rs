//! Tests of the probe with `openssl s_server`: every version, every key type and every extension.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use scan::tls::{
    ClientHelloContent, Evidence, Failure, Handshake, KeyShares, Profile, Proof, Step, TicketOffer, names,
};

/// Far longer than needed on loopback; reached only by a broken test.
const TIMEOUT: Duration = Duration::from_secs(20);
const NEEDS_OPENSSL: &str = "openssl is needed: apt-get install -y openssl";

static SHARES: LazyLock<Arc<KeyShares>> = LazyLock::new(|| Arc::new(KeyShares::generate().unwrap()));

/// A directory of keys and certificates that is removed after the test.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a self-signed certificate for `name`; returns its DER.
    fn certificate(&self, name: &str, key: &[&str]) -> Vec<u8> {
        self.run(&[&["genpkey", "-out", &format!("{name}.key")], key].concat());
        self.certificate_for_key(name, &[])
    }

    fn certificate_for_key(&self, name: &str, more: &[&str]) -> Vec<u8> {
        let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
        let subject = format!("/CN={name}.example");
        let base = ["req", "-x509", "-key", &key, "-subj", &subject, "-days", "30", "-out", &pem];
        self.run(&[&base[..], more].concat());
        self.run(&["x509", "-in", &pem, "-outform", "DER", "-out", &format!("{name}.der")]);
        std::fs::read(self.path(&format!("{name}.der"))).unwrap()
    }

    fn run(&self, arguments: &[&str]) {
        let output =
            Command::new("openssl").current_dir(&self.0).args(arguments).output().expect(NEEDS_OPENSSL);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {errors}");
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0".parse().unwrap(), arguments)
    }

    fn serve_at(&self, address: SocketAddr, arguments: &[&str]) -> Server {
        Server::start(self.0.path(), address, arguments)
    }
}

/// A running `openssl s_server` that is stopped after the test.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts the server. Port 0 selects a free port.
    fn start(folder: &Path, address: SocketAddr, arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .current_dir(folder)
            .args(["s_server", "-accept", &address.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(NEEDS_OPENSSL);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let chosen = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT").map(|chosen| chosen.trim().to_owned()))
            .unwrap_or_else(|| panic!("openssl s_server {arguments:?} does not start"));
        // Continues to read, so that the server does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        // The server prints the port only if it selected the port.
        Self { child, address: chosen.parse().unwrap_or(address) }
    }

    fn probe(&self, offer: &ClientHelloContent) -> (Result<(), Failure>, Evidence) {
        probe(self.address, offer)
    }

    /// Runs a probe that must succeed.
    fn probe_ok(&self) -> Evidence {
        let (end, evidence) = self.probe(&offer());
        assert_eq!(end, Ok(()), "{evidence:?}");
        evidence
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn offer() -> ClientHelloContent {
    ClientHelloContent {
        server_name: Some("probe.example".to_owned()),
        alpn: &["h2", "http/1.1"],
        ..ClientHelloContent::default()
    }
}

fn probe(address: SocketAddr, offer: &ClientHelloContent) -> (Result<(), Failure>, Evidence) {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut handshake, hello) = Handshake::start(offer, &SHARES).unwrap();
    stream.write_all(&hello).unwrap();
    let mut chunk = [0; 4_096];
    loop {
        let read = match stream.read(&mut chunk) {
            Ok(0) if handshake.can_close() => return (Ok(()), handshake.into_evidence()),
            Ok(0) => panic!("closed early: {:?}", handshake.evidence()),
            Ok(read) => read,
            Err(_) if handshake.can_close() => return (Ok(()), handshake.into_evidence()),
            Err(error) => panic!("{error}: {:?}", handshake.evidence()),
        };
        match handshake.receive(&chunk[..read]) {
            Step::More => {}
            Step::Send(bytes) => stream.write_all(&bytes).unwrap(),
            Step::Done(closing_alerts) => {
                let _ = stream.write_all(&closing_alerts);
                return (Ok(()), handshake.into_evidence());
            }
            Step::Failed(failure) => return (Err(failure), handshake.into_evidence()),
        }
    }
}

const P256: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
const P384: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"];
const P521: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"];
const SECP256K1: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"];
const BRAINPOOL: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1"];
const RSA_2048: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
const RSA_1024: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"];
const RSA_512: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:512"];
const RSA_PSS: &[&str] = &["-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"];
const ED25519: &[&str] = &["-algorithm", "ED25519"];
const ED448: &[&str] = &["-algorithm", "ED448"];

const ANYTHING: &str = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";

#[test]
fn tls_1_3_handshake_succeeds_with_every_key_type() {
    // Key, signature scheme of the server, whether we can verify it.
    let kinds: &[(&[&str], &str, bool)] = &[
        (P256, "ecdsa_secp256r1_sha256", true),
        (P384, "ecdsa_secp384r1_sha384", true),
        (P521, "ecdsa_secp521r1_sha512", true),
        (RSA_2048, "rsa_pss_rsae_sha256", true),
        (RSA_PSS, "rsa_pss_pss_sha256", true),
        (ED25519, "ed25519", true),
        (ED448, "ed448", false),
    ];
    let workshop = Workshop::new();
    for (key, scheme, checked) in kinds {
        let der = workshop.certificate("a", key);
        let server = workshop.serve(&["-cert", "a.pem", "-key", "a.key", "-tls1_3"]);
        let seen = server.probe_ok();
        assert_eq!(seen.version, Some(0x0304));
        assert_eq!(seen.chain, [der]);
        assert_eq!(seen.signature_scheme.map(names::signature_scheme).as_deref(), Some(*scheme));
        assert_eq!(matches!(seen.proof, Proof::Verified), *checked, "{scheme}: {:?}", seen.proof);
        assert!(!matches!(seen.proof, Proof::Invalid(_) | Proof::None), "{scheme}");
        assert_eq!(seen.group.map(names::group).as_deref(), Some("x25519"));
        assert_eq!(seen.client_certificate, Some(false));
        assert_eq!(seen.session_ticket, TicketOffer::Unknown);
        assert!(!seen.hello_retry && !seen.downgraded);
    }
}

#[test]
fn tls_1_3_handshake_succeeds_with_every_cipher_suite() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] {
        let server = workshop.serve(&["-cert", "a.pem", "-key", "a.key", "-ciphersuites", suite]);
        for finish in [false, true] {
            let (end, seen) = server.probe(&ClientHelloContent { finish, ..offer() });
            assert_eq!(end, Ok(()), "{suite} {seen:?}");
            assert_eq!(seen.cipher.map(names::cipher_suite).as_deref(), Some(suite));
            assert_eq!(seen.proof, Proof::Verified);
        }
    }
}

#[test]
fn unshared_key_exchange_group_causes_one_hello_retry() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    for (group, name) in [("P-256", "secp256r1"), ("P-384", "secp384r1"), ("P-521", "secp521r1")] {
        for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
            let arguments = ["-cert", "a.pem", "-key", "a.key", "-tls1_3"];
            let more = ["-groups", group, "-ciphersuites", suite];
            let server = workshop.serve(&[&arguments[..], &more].concat());
            let seen = server.probe_ok();
            assert!(seen.hello_retry);
            assert_eq!(seen.group.map(names::group).as_deref(), Some(name));
            assert_eq!(seen.proof, Proof::Verified);
        }
    }
}

#[test]
fn server_without_a_supported_group_sends_a_failure_alert() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    let server = workshop.serve(&["-cert", "a.pem", "-key", "a.key", "-tls1_3", "-groups", "X448"]);
    let (end, _) = server.probe(&offer());
    assert_eq!(end, Err(Failure::Alert { level: 2, description: 40 }));
}

#[test]
fn tls_1_2_and_older_handshakes_succeed_with_every_key_type() {
    // Key, arguments, version, suite, proof.
    type Row = (&'static [&'static str], &'static [&'static str], u16, &'static str, Expected);
    enum Expected {
        Verified,
        Not,
    }
    use Expected::{Not, Verified};
    let rows: &[Row] = &[
        (P256, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Verified),
        (P384, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Verified),
        (P521, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Verified),
        (SECP256K1, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Verified),
        (BRAINPOOL, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Not),
        (ED25519, &["-tls1_2"], 0x0303, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Verified),
        (RSA_2048, &["-tls1_2"], 0x0303, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Verified),
        (RSA_PSS, &["-tls1_2"], 0x0303, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Verified),
        (
            RSA_1024,
            &["-tls1_2", "-cipher", "DHE-RSA-AES256-SHA:@SECLEVEL=0"],
            0x0303,
            "TLS_DHE_RSA_WITH_AES_256_CBC_SHA",
            Verified,
        ),
        (RSA_2048, &["-tls1_2", "-cipher", "DHE"], 0x0303, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", Verified),
        (RSA_2048, &["-tls1_2", "-cipher", "AES128-SHA"], 0x0303, "TLS_RSA_WITH_AES_128_CBC_SHA", Not),
        (
            RSA_2048,
            &["-tls1_2", "-cipher", "NULL-SHA256:@SECLEVEL=0"],
            0x0303,
            "TLS_RSA_WITH_NULL_SHA256",
            Not,
        ),
        (
            RSA_512,
            &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"],
            0x0303,
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            Not,
        ),
        (
            RSA_2048,
            &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"],
            0x0302,
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            Not,
        ),
        (
            P256,
            &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"],
            0x0302,
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
            Verified,
        ),
        (
            RSA_1024,
            &["-tls1", "-cipher", "DEFAULT:@SECLEVEL=0"],
            0x0301,
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            Not,
        ),
        (
            P256,
            &["-tls1", "-cipher", "DEFAULT:@SECLEVEL=0"],
            0x0301,
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
            Verified,
        ),
    ];
    let workshop = Workshop::new();
    for (key, arguments, version, suite, proof) in rows {
        let der = workshop.certificate("a", key);
        let base = ["-cert", "a.pem", "-key", "a.key"];
        let mut all = [&base[..], arguments].concat();
        if !arguments.contains(&"-cipher") {
            all.extend(["-cipher", "ALL:@SECLEVEL=0"]);
        }
        let server = workshop.serve(&all);
        for profile in [Profile::Modern, Profile::Compact, Profile::Legacy] {
            let (end, seen) = server.probe(&ClientHelloContent { profile, ..offer() });
            let row = format!("{key:?} {arguments:?} {profile:?}: {seen:?}");
            assert_eq!(end, Ok(()), "{row}");
            assert_eq!(seen.version, Some(*version), "{row}");
            assert_eq!(seen.chain, std::slice::from_ref(&der), "{row}");
            assert_eq!(seen.cipher.map(names::cipher_suite).as_deref(), Some(*suite), "{row}");
            match proof {
                Verified => assert_eq!(seen.proof, Proof::Verified, "{row}"),
                Not => assert!(matches!(seen.proof, Proof::Unverifiable(_)), "{row}"),
            }
            assert_eq!(seen.client_certificate, Some(false), "{row}");
        }
    }
}

#[test]
fn dsa_and_md5_certificates_are_read() {
    let workshop = Workshop::new();
    workshop.run(&[
        "genpkey",
        "-genparam",
        "-algorithm",
        "DSA",
        "-pkeyopt",
        "dsa_paramgen_bits:1024",
        "-out",
        "dsa.params",
    ]);
    workshop.run(&["genpkey", "-paramfile", "dsa.params", "-out", "dsa.key"]);
    let dsa = workshop.certificate_for_key("dsa", &["-sha1"]);
    let base = ["-cert", "dsa.pem", "-key", "dsa.key", "-cipher", "ALL:@SECLEVEL=0"];
    for version in ["-tls1_2", "-tls1"] {
        let seen = workshop.serve(&[&base[..], &[version]].concat()).probe_ok();
        assert_eq!(seen.chain, std::slice::from_ref(&dsa));
        assert!(matches!(seen.proof, Proof::Unverifiable(_)));
        assert!(seen.exchange_bits.is_some_and(|bits| bits >= 1_024), "{seen:?}");
    }

    workshop.run(&[&["genpkey", "-out", "md5.key"], RSA_512].concat());
    let md5 = workshop.certificate_for_key("md5", &["-md5"]);
    let base = ["-cert", "md5.pem", "-key", "md5.key", "-cipher", "kRSA:@SECLEVEL=0"];
    let seen = workshop.serve(&[&base[..], &["-tls1"]].concat()).probe_ok();
    assert_eq!(seen.chain, [md5]);
}

#[test]
fn no_downgrade_is_reported_if_tls_1_3_was_not_offered() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    let server = workshop.serve(&["-cert", "a.pem", "-key", "a.key"]);
    let (_, seen) = server.probe(&ClientHelloContent { profile: Profile::Legacy, ..offer() });
    assert_eq!(seen.version, Some(0x0303));
    assert!(!seen.downgraded, "TLS 1.3 was not offered, so nobody tampered");
}

#[test]
fn client_certificate_request_is_reported() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    for (version, flag) in
        [("-tls1_3", "-verify"), ("-tls1_3", "-Verify"), ("-tls1_2", "-verify"), ("-tls1_2", "-Verify")]
    {
        let server = workshop.serve(&["-cert", "a.pem", "-key", "a.key", version, flag, "1"]);
        let seen = server.probe_ok();
        assert_eq!(seen.client_certificate, Some(true));
        assert_eq!(seen.proof, Proof::Verified);
        if version == "-tls1_3" {
            let (end, seen) = server.probe(&ClientHelloContent { finish: true, ..offer() });
            assert_eq!(end, Ok(()));
            // Only a server that requires the certificate ends the handshake: certificate_required.
            assert_eq!(seen.rejected, (flag == "-Verify").then_some(116));
        }
    }
}

#[test]
fn session_tickets_are_reported() {
    let workshop = Workshop::new();
    workshop.certificate("a", P256);
    let base = ["-cert", "a.pem", "-key", "a.key"];
    for (more, expected) in
        [(&["-num_tickets", "2"], TicketOffer::Offered), (&["-num_tickets", "0"], TicketOffer::NotOffered)]
    {
        let server = workshop.serve(&[&base[..], more].concat());
        let (end, seen) = server.probe(&ClientHelloContent { finish: true, ..offer() });
        assert_eq!((end, seen.session_ticket), (Ok(()), expected));
    }
    let old = workshop.serve(&[&base[..], &["-tls1_2"]].concat()).probe_ok();
    assert_eq!(old.session_ticket, TicketOffer::Offered);
    let none = workshop.serve(&[&base[..], &["-tls1_2", "-no_ticket"]].concat()).probe_ok();
    assert_eq!(none.session_ticket, TicketOffer::NotOffered);
}

#[test]
fn replaced_certificate_is_seen_despite_session_tickets() {
    let workshop = Workshop::new();
    let first = workshop.certificate("a", P256);
    let base = ["-cert", "a.pem", "-key", "a.key", "-num_tickets", "2"];
    let server = workshop.serve(&base);
    let address = server.address;
    let finish = ClientHelloContent { finish: true, ..offer() };
    let (_, seen) = server.probe(&finish);
    assert_eq!((seen.chain, seen.session_ticket), (vec![first], TicketOffer::Offered));
    drop(server);

    let second = workshop.certificate("a", P256);
    let server = workshop.serve_at(address, &base);
    let (_, seen) = server.probe(&finish);
    assert_eq!(seen.chain, [second]);
    assert_eq!(seen.proof, Proof::Verified);
}

#[test]
fn sni_alpn_and_ocsp_staple_are_reported() {
    let workshop = Workshop::new();
    let default = workshop.certificate("a", P256);
    let other = workshop.certificate("b", P256);
    std::fs::write(workshop.path("staple.der"), STAPLE).unwrap();
    for version in ["-tls1_3", "-tls1_2"] {
        let base = ["-cert", "a.pem", "-key", "a.key", "-cert2", "b.pem", "-key2", "b.key"];
        let more = ["-servername", "b.example", "-alpn", "http/1.1", "-status_file", "staple.der", version];
        let server = workshop.serve(&[&base[..], &more].concat());
        let probe_name = |name: &str| {
            let (end, seen) =
                server.probe(&ClientHelloContent { server_name: Some(name.to_owned()), ..offer() });
            assert_eq!(end, Ok(()), "{name}");
            seen
        };
        // For an unknown name some OpenSSL versions send a warning. None of them ends the handshake.
        assert_eq!(probe_name("127.0.0.1").chain, std::slice::from_ref(&default));
        assert_eq!(probe_name("b.example").chain, std::slice::from_ref(&other));
        let seen = probe_name("elsewhere.example");
        assert_eq!(seen.chain, std::slice::from_ref(&default));
        assert_eq!(seen.alpn.as_deref(), Some("http/1.1"));
        assert_eq!(seen.ocsp_staple.as_deref(), Some(STAPLE));
    }
}

/// An OCSP response with the status "tryLater", the shortest valid response.
const STAPLE: &[u8] = &[0x30, 3, 10, 1, 3];

#[test]
fn anonymous_server_yields_no_certificate() {
    let workshop = Workshop::new();
    let server = workshop.serve(&["-nocert", "-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"]);
    let (end, seen) = server.probe(&offer());
    assert_eq!(end, Err(Failure::Alert { level: 2, description: 40 }));
    assert!(seen.chain.is_empty());
}

#[test]
fn certificate_is_read_with_all_openssl_suites_enabled() {
    let workshop = Workshop::new();
    let der = workshop.certificate("a", RSA_2048);
    let base = ["-cert", "a.pem", "-key", "a.key", "-tls1_2", "-cipher", ANYTHING, "-serverpref"];
    let seen = workshop.serve(&base).probe_ok();
    assert_eq!(seen.chain, [der]);
}

/// Returns the codes of the protocol findings of each server, sorted and without duplicates.
async fn protocol_findings(servers: &[&Server]) -> Vec<(Vec<&'static str>, Option<scan::tls::Accepted>)> {
    use scan::{Scanner, Trusted};
    let resolver = outbound::resolve::Resolver::with_upstreams(Vec::new());
    let scanner =
        Scanner::new(crate::limits::long_timeout_options(), resolver, Trusted::trusting_none()).unwrap();
    let targets: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    let seen = crate::world::scan_with(&scanner, &targets).await;
    let of = |target: &String| {
        let observation = seen.of(target).expect("every target is observed");
        assert_eq!(observation.outcome, scan::ProbeOutcome::Answered, "{observation:?}");
        let mut codes: Vec<_> = observation.findings.iter().map(|finding| finding.rule.code).collect();
        codes.retain(|code| code.starts_with("protocol."));
        codes.sort_unstable();
        codes.dedup();
        (codes, observation.accepted.clone())
    };
    targets.iter().map(of).collect()
}

/// All servers answer the first ClientHello in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_weak_versions_and_suites_are_found_on_strong_servers() {
    let workshop = Workshop::new();
    workshop.certificate("a", RSA_2048);
    let serve = |more: &[&str]| workshop.serve(&[&["-cert", "a.pem", "-key", "a.key"], more].concat());
    let strong = "ECDHE+AESGCM:ECDHE+AES";
    let modern = serve(&["-cipher", "ECDHE+AESGCM"]);
    let newest = serve(&["-tls1_3"]);
    let old = serve(&["-min_protocol", "TLSv1", "-cipher", &format!("{strong}:@SECLEVEL=0")]);
    let static_rsa = serve(&["-cipher", "ECDHE+AESGCM:AES128-GCM-SHA256", "-serverpref"]);
    let null = serve(&["-cipher", "ECDHE+AESGCM:AES128-GCM-SHA256:NULL-SHA256:@SECLEVEL=0", "-serverpref"]);
    let all = serve(&["-min_protocol", "TLSv1", "-cipher", ANYTHING]);
    let found = protocol_findings(&[&modern, &newest, &old, &static_rsa, &null, &all]).await;
    let codes: Vec<_> = found.iter().map(|(codes, _)| codes.clone()).collect();
    let (obsolete, weak, static_suite) =
        ("protocol.obsolete", "protocol.weak-cipher", "protocol.no-forward-secrecy");
    assert_eq!(
        codes,
        [
            vec![],
            vec![],
            vec![obsolete],
            vec![static_suite],
            vec![static_suite, weak],
            vec![static_suite, obsolete, weak],
        ],
        "{found:?}"
    );
    assert!(found[2].1.as_ref().is_some_and(|accepted| accepted.weak_suites.is_empty()), "{found:?}");
}
