//! The protocol's tables: every opcode with every key type, every error, both TLS versions and the Unix socket.

use keyless::wire::{ErrorCode, MessageItems, PADDED, Ski, opcode};
use keys::{Hash, Scheme, Signer};

use crate::peer::{World, key, keys, openssl_verifies, ski};
use keys::KeyType;

/// The signing opcodes of the reference, listed here independently of the implementation.
const SIGNING: [(u8, Scheme); 16] = [
    (0x02, Scheme::RsaPkcs1(Hash::Md5Sha1)),
    (0x03, Scheme::RsaPkcs1(Hash::Sha1)),
    (0x04, Scheme::RsaPkcs1(Hash::Sha224)),
    (0x05, Scheme::RsaPkcs1(Hash::Sha256)),
    (0x06, Scheme::RsaPkcs1(Hash::Sha384)),
    (0x07, Scheme::RsaPkcs1(Hash::Sha512)),
    (0x12, Scheme::Ecdsa(Hash::Md5Sha1)),
    (0x13, Scheme::Ecdsa(Hash::Sha1)),
    (0x14, Scheme::Ecdsa(Hash::Sha224)),
    (0x15, Scheme::Ecdsa(Hash::Sha256)),
    (0x16, Scheme::Ecdsa(Hash::Sha384)),
    (0x17, Scheme::Ecdsa(Hash::Sha512)),
    (0x18, Scheme::Ed25519),
    (0x35, Scheme::RsaPss(Hash::Sha256)),
    (0x36, Scheme::RsaPss(Hash::Sha384)),
    (0x37, Scheme::RsaPss(Hash::Sha512)),
];

const LENGTHS: [usize; 8] = [0, 20, 28, 32, 36, 48, 64, 100];

/// Returns whether this opcode must sign with this key type and a payload of this length.
fn is_served(scheme: Scheme, kind: KeyType, octets: usize) -> bool {
    let rsa = matches!(kind, KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096);
    match scheme {
        // Broken hash functions, documented as unsupported.
        Scheme::RsaPkcs1(Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224) => false,
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) => rsa && octets == hash.octets(),
        Scheme::Ecdsa(hash) => !rsa && kind != KeyType::Ed25519 && octets == hash.octets(),
        Scheme::Ed25519 => kind == KeyType::Ed25519,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_opcode_key_and_length_is_signed_or_rejected() {
    let world = World::new().await;
    let mut peer = world.connect().await;
    let (mut served, mut refused) = (0, 0);
    for (opcode, scheme) in SIGNING {
        for key in keys() {
            for octets in LENGTHS {
                let payload: Vec<u8> = (0..octets).map(|at| 0xfe - at as u8).collect();
                let reply = peer.sign(opcode, ski(key), &payload).await;
                let what = format!("{opcode:#x} {} {octets}", key.key_type());
                assert_eq!(reply.length, PADDED, "{what}");
                if is_served(scheme, key.key_type(), octets) {
                    assert_eq!(reply.error(), None, "{what}");
                    // OpenSSL does not read empty message files.
                    assert!(
                        octets == 0 || openssl_verifies(key.spki(), scheme, &payload, &reply.payload),
                        "{what}"
                    );
                    served += 1;
                } else {
                    assert_eq!(reply.error(), Some(ErrorCode::Cryptography as u8), "{what}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((served, refused), (6 * 3 + 6 * 3 + LENGTHS.len(), 16 * 7 * 8 - 44));
    assert_eq!(world.figure("bulla_keyless_requests_in_flight{opcode=\"pss-sha256\"}"), 0.0);
    assert_eq!(world.figure("bulla_keyless_request_duration_seconds_count{opcode=\"ed25519\"}"), 56.0);
    world.running.stop().await;
}

/// Thirteen requests that a server without the check would sign: correct digest with the wrong label, or no digest at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_rejects_opcodes_of_other_algorithms() {
    let world = World::new().await;
    let mut peer = world.connect().await;
    let (rsa, ec, ed) = (key(KeyType::Rsa2048), key(KeyType::P256), key(KeyType::Ed25519));
    let mut deputies = Vec::new();
    for (opcode, octets) in [(0x13, 20), (0x15, 32), (0x16, 48), (0x17, 64), (0x18, 36), (0x18, 32)] {
        deputies.push((rsa, opcode, octets));
    }
    for (opcode, octets) in
        [(0x03, 20), (0x05, 32), (0x06, 48), (0x07, 64), (0x35, 32), (0x36, 48), (0x18, 32)]
    {
        deputies.push((ec, opcode, octets));
    }
    assert_eq!(deputies.len(), 13);
    deputies.extend([(ed, 0x05, 32), (ed, 0x15, 32), (ed, 0x35, 32)]);
    for (key, opcode, octets) in deputies {
        let reply = peer.sign(opcode, ski(key), &vec![1; octets]).await;
        assert_eq!(reply.error(), Some(1), "{opcode:#x} under {}", key.key_type());
    }
    for cost in ["light", "medium", "heavy"] {
        let done =
            world.figure(&format!("bulla_keyless_stage_jobs_total{{cost=\"{cost}\",outcome=\"done\"}}"));
        assert_eq!(done, 0.0, "no key was touched");
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_codes_match_the_protocol_table() {
    let world = World::new().await;
    let mut peer = world.connect().await;
    let known = ski(key(KeyType::P256));
    let at =
        |opcode: u8| MessageItems { opcode, ski: Some(known), payload: &[7; 32], ..MessageItems::default() };
    for (items, code) in [
        (MessageItems { ski: Some(Ski([9; 20])), ..at(0x15) }, ErrorCode::KeyNotFound),
        (MessageItems { ski: None, ..at(0x15) }, ErrorCode::Internal),
        (at(0xf0), ErrorCode::UnexpectedOpcode),
        (at(0xf2), ErrorCode::UnexpectedOpcode),
        (at(0xff), ErrorCode::UnexpectedOpcode),
        (at(0x00), ErrorCode::BadOpcode),
        (at(0x08), ErrorCode::BadOpcode),
        (at(0x20), ErrorCode::BadOpcode),
        (at(0x23), ErrorCode::BadOpcode),
        (MessageItems { function: Some(b"f"), ..at(0x24) }, ErrorCode::BadOpcode),
        (at(0x34), ErrorCode::BadOpcode),
        (at(0xf3), ErrorCode::BadOpcode),
        (MessageItems { ski: Some(ski(key(KeyType::Rsa2048))), ..at(0x01) }, ErrorCode::Cryptography),
    ] {
        let reply = peer.call(&items).await;
        assert_eq!((reply.error(), reply.length), (Some(code as u8), PADDED), "{items:?}");
    }
    // A message without an opcode, then a message of another major version, whose body is not parsed.
    peer.send(&[1, 0, 0, 0, 0, 0, 0, 7]).await.unwrap();
    assert_eq!(peer.next().await.map(|reply| (reply.id, reply.error())), Some((7, Some(5))));
    peer.send(&[2, 0, 0, 3, 0, 0, 0, 8, 0x11, 0xff, 0xff]).await.unwrap();
    assert_eq!(peer.next().await.map(|reply| (reply.id, reply.error())), Some((8, Some(4))));
    peer.send(&[1, 9, 0, 4, 0, 0, 0, 9, 0x11, 0, 1, 0xf1]).await.unwrap();
    assert_eq!(peer.next().await.map(|reply| (reply.id, reply.opcode)), Some((9, opcode::PONG)));
    let unknown = "bulla_keyless_errors_total{opcode=\"ecdsa-sha256\",error=\"key-not-found\"}";
    assert_eq!(world.figure(unknown), 1.0);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls12_tls13_and_socket_serve_the_same_replies() {
    let world = World::new().await;
    for mut peer in [world.connect().await, world.connect_tls12().await, world.connect_socket().await] {
        for length in [0, 1, 1_000, 60_000, 65_528] {
            let payload = vec![3; length];
            let reply = peer
                .call(&MessageItems { opcode: opcode::PING, payload: &payload, ..MessageItems::default() })
                .await;
            assert_eq!((reply.opcode, reply.payload), (opcode::PONG, payload));
        }
        let all = MessageItems {
            opcode: 0x15,
            ski: Some(ski(key(KeyType::P256))),
            payload: &[5; 32],
            certificate_digest: Some([1; 32]),
            server_name: Some(b"a.example"),
            client_ip: Some("192.0.2.1".parse().unwrap()),
            server_ip: Some("2001:db8::1".parse().unwrap()),
            certificate_id: Some(b"c"),
            function: None,
            extra: Some(b"e"),
            trace: Some(b"3b:1:0:1"),
            context: Some(br#"{"request_id":"r-1"}"#),
            compliance_region: 1,
        };
        let reply = peer.call(&all).await;
        let scheme = Scheme::Ecdsa(Hash::Sha256);
        assert!(openssl_verifies(key(KeyType::P256).spki(), scheme, &[5; 32], &reply.payload));
    }
    world.running.stop().await;
}

fn call(opcode: u8, payload: &[u8]) -> MessageItems<'_> {
    MessageItems { opcode, payload, ..MessageItems::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_tickets_are_sealed_and_opened_on_all_connections() {
    let world = World::new().await;
    let (mut one, mut two) = (world.connect().await, world.connect_socket().await);
    let sealed = one.call(&call(0x21, b"session")).await.payload;
    assert_eq!(two.call(&call(0x22, &sealed)).await.payload, b"session");
    let mut forged = sealed.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(one.call(&call(0x22, &forged)).await.error(), Some(ErrorCode::Cryptography as u8));
    assert_eq!(one.call(&call(0x22, b"short")).await.error(), Some(ErrorCode::Cryptography as u8));
    let mut other = sealed;
    other[0] ^= 1;
    assert_eq!(one.call(&call(0x22, &other)).await.error(), Some(ErrorCode::Expired as u8), "another's key");
    // A ticket too large for a message once sealed.
    assert_eq!(one.call(&call(0x21, &vec![0; 65_500])).await.error(), Some(ErrorCode::Format as u8));
    world.running.stop().await;

    let options = keyless::server::Options { ticket_life: std::time::Duration::ZERO, ..Default::default() };
    let world = World::with(options, Vec::new()).await;
    let reply = world.connect_socket().await.call(&call(0x21, b"session")).await;
    assert_eq!(reply.error(), Some(ErrorCode::Internal as u8), "not sealed here");
    world.running.stop().await;
}
