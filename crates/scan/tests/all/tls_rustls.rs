//! Tests of the probe with rustls, which supports post-quantum key exchange.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

use std::process::Command;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{AlertDescription, HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};
use scan::tls::{
    ClientHelloContent, Evidence, Handshake, KeyShares, Profile, Proof, Step, TicketOffer, names,
};

const NEEDS_OPENSSL: &str = "openssl is needed: apt-get install -y openssl";

fn server(groups: Vec<&'static dyn rustls::crypto::SupportedKxGroup>) -> (Arc<ServerConfig>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new("openssl").current_dir(&folder).args(arguments).output().expect(NEEDS_OPENSSL);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let subject = ["-subj", "/CN=a.example", "-addext", "subjectAltName=DNS:a.example"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"];
    run(&[&["req", "-x509", "-outform", "DER", "-out", "cert.der"], &key[..], &subject].concat());
    run(&["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-outform", "DER", "-out", "key.der"]);
    let certificate = std::fs::read(folder.path().join("cert.der")).unwrap();
    let key = std::fs::read(folder.path().join("key.der")).unwrap();
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = groups;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.clone())],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
        )
        .unwrap();
    config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (Arc::new(config), certificate)
}

/// Runs the probe to its end; returns the evidence and the server's connection.
fn talk(config: &Arc<ServerConfig>, offer: &ClientHelloContent) -> (Evidence, ServerConnection) {
    let shares = Arc::new(KeyShares::generate().unwrap());
    let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
    let (mut handshake, mut out) = Handshake::start(offer, &shares).unwrap();
    loop {
        let mut bytes = out.as_slice();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut flight = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut flight).unwrap();
        }
        if flight.is_empty() && handshake.can_close() {
            return (handshake.into_evidence(), server);
        }
        match handshake.receive(&flight) {
            Step::More => out = Vec::new(),
            Step::Send(bytes) => out = bytes,
            Step::Done(closing_alerts) => {
                assert!(understood(&mut server, &closing_alerts));
                return (handshake.into_evidence(), server);
            }
            Step::Failed(failure) => panic!("{failure}: {:?}", handshake.evidence()),
        }
    }
}

/// Returns whether the server could decrypt our close_notify alert and accepted it.
fn understood(server: &mut ServerConnection, mut closing_alerts: &[u8]) -> bool {
    while !closing_alerts.is_empty() {
        server.read_tls(&mut closing_alerts).unwrap();
    }
    match server.process_new_packets() {
        // Before TLS 1.3 the alert is in plaintext, so anyone could have sent it. The server reads and ignores it.
        Ok(state) => state.peer_has_closed() || server.protocol_version() == Some(ProtocolVersion::TLSv1_2),
        Err(error) => error == rustls::Error::AlertReceived(AlertDescription::CloseNotify),
    }
}

fn offer() -> ClientHelloContent {
    ClientHelloContent {
        server_name: Some("a.example".to_owned()),
        alpn: &["h2", "http/1.1"],
        ..ClientHelloContent::default()
    }
}

#[test]
fn post_quantum_key_exchange_needs_no_hello_retry() {
    let (config, certificate) = server(vec![kx_group::X25519MLKEM768]);
    let (seen, _) = talk(&config, &offer());
    assert_eq!(seen.group.map(names::group).as_deref(), Some("X25519MLKEM768"));
    assert!(!seen.hello_retry);
    assert_eq!(seen.chain, [certificate]);
    assert_eq!(seen.proof, Proof::Verified);
    assert_eq!(seen.alpn.as_deref(), Some("h2"));
}

#[test]
fn every_supported_group_is_negotiated() {
    for (group, retry) in
        [(kx_group::X25519, false), (kx_group::SECP256R1, true), (kx_group::SECP384R1, true)]
    {
        let (config, _) = server(vec![group]);
        for profile in [Profile::Modern, Profile::Compact] {
            let (seen, _) = talk(&config, &ClientHelloContent { profile, ..offer() });
            assert_eq!((seen.hello_retry, seen.proof), (retry, Proof::Verified), "{:?}", group.name());
        }
    }
}

#[test]
fn finished_handshake_is_never_resumed() {
    let (config, _) = server(vec![kx_group::X25519MLKEM768]);
    for _ in 0..3 {
        let (seen, server) = talk(&config, &ClientHelloContent { finish: true, ..offer() });
        assert_eq!(seen.session_ticket, TicketOffer::Offered);
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full), "as the server counts");
    }
}

#[test]
fn no_downgrade_is_reported_if_tls_1_3_was_not_offered() {
    let (config, _) = server(vec![kx_group::X25519]);
    let (seen, _) = talk(&config, &ClientHelloContent { profile: Profile::Legacy, ..offer() });
    assert_eq!((seen.version, seen.downgraded), (Some(0x0303), false));
    assert_eq!(seen.proof, Proof::Verified);
}
