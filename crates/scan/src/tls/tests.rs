//! Tests the probe with a simulated server that can send any bytes.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use proptest::prelude::*;

use super::cursor::{put_extension, put_u16, put_vec8, put_vec16};
use super::hello::{ServerHello, message};
use super::limits::{CERTIFICATE_MAX, CHAIN_MAX, HANDSHAKE_MAX, IDLE_RECORDS_MAX};
use super::record::{self, RecordProtection};
use super::schedule::{Hash, Secrets, Tls13Suite};
use super::*;

static SHARES: LazyLock<Arc<KeyShares>> = LazyLock::new(|| Arc::new(KeyShares::generate().unwrap()));
static KEY: LazyLock<EcdsaKeyPair> =
    LazyLock::new(|| EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap());

const CLIENT_RANDOM: [u8; 32] = [7; 32];
const SESSION_ID: [u8; 32] = [8; 32];
const SERVER_RANDOM: [u8; 32] = [9; 32];

/// Starts a handshake with known random values; returns its ClientHello without record header.
fn start(offer: &ClientHelloContent) -> (Handshake, Vec<u8>) {
    let (handshake, record) = Handshake::start_with(offer, &SHARES, CLIENT_RANDOM, SESSION_ID);
    (handshake, record[5..].to_vec())
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[tag, 0x82], &length[..], content].concat()
}

/// Returns a minimal certificate with a key.
fn certificate() -> Vec<u8> {
    let algorithm = tlv(
        0x30,
        &[tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), tlv(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7])]
            .concat(),
    );
    let point = [&[0], KEY.public_key().as_ref()].concat();
    let spki = tlv(0x30, &[algorithm, tlv(3, &point)].concat());
    let nothing = tlv(0x30, &[]);
    let tbs = [tlv(2, &[1]), nothing.repeat(4), spki].concat();
    tlv(0x30, &tlv(0x30, &tbs))
}

fn sign(message: &[u8]) -> Vec<u8> {
    KEY.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
}

fn handshake_message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

fn vec24(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], content].concat()
}

fn server_hello(version: u16, cipher: u16, random: [u8; 32], extensions: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put_u16(&mut body, version);
    body.extend_from_slice(&random);
    put_vec8(&mut body, &SESSION_ID);
    put_u16(&mut body, cipher);
    body.push(0);
    put_vec16(&mut body, |out| out.extend_from_slice(extensions));
    handshake_message(message::SERVER_HELLO, &body)
}

/// Encodes a certificate list of TLS 1.3.
fn certificate_13(certificates: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<u8> = certificates.iter().flat_map(|c| [vec24(c), vec![0, 0]].concat()).collect();
    handshake_message(message::CERTIFICATE, &[vec![0], vec24(&list)].concat())
}

fn certificate_12(certificates: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<u8> = certificates.iter().flat_map(|c| vec24(c)).collect();
    handshake_message(message::CERTIFICATE, &vec24(&list))
}

fn encrypted_extensions() -> Vec<u8> {
    handshake_message(message::ENCRYPTED_EXTENSIONS, &[0, 5 + 4, 0, 16, 0, 5, 0, 3, 2, b'h', b'2'])
}

/// A simulated TLS 1.3 server after the key exchange with a given ClientHello.
struct Server13 {
    sealer: RecordProtection,
    /// All messages so far.
    transcript: Vec<u8>,
    /// All records so far.
    flight: Vec<u8>,
}

impl Server13 {
    fn new(client_hello: &[u8]) -> Self {
        let ours = PrivateKey::generate(&agreement::X25519).unwrap();
        // The last 32 bytes of the ClientHello are the X25519 share.
        let theirs = &client_hello[client_hello.len() - 32..];
        let theirs = UnparsedPublicKey::new(&agreement::X25519, theirs);
        let agreed = agreement::agree(&ours, theirs, (), |agreed| Ok(agreed.to_vec())).unwrap();
        let mut extensions = vec![0, 43, 0, 2, 3, 4];
        put_extension(&mut extensions, extension::KEY_SHARE, |out| {
            put_u16(out, 0x001d);
            put_vec16(out, |out| {
                out.extend_from_slice(ours.compute_public_key().unwrap().as_ref());
            });
        });
        let hello = server_hello(0x0303, 0x1301, SERVER_RANDOM, &extensions);
        let transcript = [client_hello, &hello].concat();
        let secrets = Secrets::handshake(Hash::Sha256, &agreed, &sha256(&transcript));
        Self {
            sealer: Tls13Suite::new(0x1301).unwrap().protection(&secrets.server).unwrap(),
            flight: record::plain(record::HANDSHAKE, 0x0303, &hello),
            transcript,
        }
    }

    fn say(mut self, message: &[u8]) -> Self {
        self.transcript.extend_from_slice(message);
        self.seal(record::HANDSHAKE, message)
    }

    fn seal(mut self, kind: u8, content: &[u8]) -> Self {
        for fragment in content.chunks(16_000) {
            self.sealer.seal(kind, fragment, &mut self.flight).unwrap();
        }
        self
    }

    fn sign(self) -> Self {
        let mut signed = vec![b' '; 64];
        signed.extend_from_slice(b"TLS 1.3, server CertificateVerify\0");
        signed.extend_from_slice(&sha256(&self.transcript));
        let message = certificate_verify(&sign(&signed));
        self.say(&message)
    }
}

fn certificate_verify(signature: &[u8]) -> Vec<u8> {
    let mut body = vec![4, 3];
    put_vec16(&mut body, |out| out.extend_from_slice(signature));
    handshake_message(message::CERTIFICATE_VERIFY, &body)
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().to_vec()
}

/// Returns the complete flight of a TLS 1.3 server in order.
fn flight_13(client_hello: &[u8]) -> Vec<u8> {
    let server = Server13::new(client_hello);
    server.say(&encrypted_extensions()).say(&certificate_13(&[certificate()])).sign().flight
}

fn certificate_status() -> Vec<u8> {
    handshake_message(message::CERTIFICATE_STATUS, &[&[1], &vec24(&[0x30, 0])[..]].concat())
}

/// Returns the messages of a TLS 1.2 server in order.
fn messages_12() -> Vec<u8> {
    let mut parameters = vec![3, 0, 0x17];
    put_vec8(&mut parameters, &[4; 65]);
    let signature = sign(&[&CLIENT_RANDOM[..], &SERVER_RANDOM, &parameters].concat());
    let mut exchange = [&parameters[..], &[4, 3]].concat();
    put_vec16(&mut exchange, |out| out.extend_from_slice(&signature));
    [
        server_hello(0x0303, 0xc02b, SERVER_RANDOM, &[0, 35, 0, 0]),
        certificate_12(&[certificate()]),
        certificate_status(),
        handshake_message(message::SERVER_KEY_EXCHANGE, &exchange),
        handshake_message(message::SERVER_HELLO_DONE, &[]),
    ]
    .concat()
}

fn in_records(messages: &[u8], size: usize) -> Vec<u8> {
    messages.chunks(size).flat_map(|c| record::plain(record::HANDSHAKE, 0x0303, c)).collect()
}

fn modern() -> ClientHelloContent {
    ClientHelloContent {
        server_name: Some("a.example".into()),
        alpn: &["h2"],
        ..ClientHelloContent::default()
    }
}

/// Feeds the bytes in pieces of `size`; returns the last step.
fn feed(handshake: &mut Handshake, bytes: &[u8], size: usize) -> Step {
    let mut last = Step::More;
    for chunk in bytes.chunks(size.max(1)) {
        last = match handshake.receive(chunk) {
            Step::Done(_) => return Step::Done(Vec::new()),
            failed @ Step::Failed(_) => return failed,
            step => step,
        };
    }
    last
}

#[test]
fn tls_1_2_and_1_3_handshakes_are_verified() {
    let (mut handshake, hello) = start(&modern());
    assert_eq!(feed(&mut handshake, &flight_13(&hello), usize::MAX), Step::Done(Vec::new()));
    let seen = handshake.into_evidence();
    assert_eq!((seen.version, seen.proof), (Some(0x0304), Proof::Verified));
    assert_eq!(seen.alpn.as_deref(), Some("h2"));
    assert_eq!(seen.chain, [certificate()]);

    let (mut handshake, _) = start(&modern());
    let flight = in_records(&messages_12(), 100);
    assert_eq!(feed(&mut handshake, &flight, usize::MAX), Step::Done(Vec::new()));
    let seen = handshake.into_evidence();
    assert_eq!((seen.version, seen.proof), (Some(0x0303), Proof::Verified));
    assert_eq!(seen.ocsp_staple, Some(vec![0x30, 0]));
    assert_eq!(seen.session_ticket, TicketOffer::Offered);
}

#[test]
fn signature_over_another_handshake_is_invalid() {
    let replayed = {
        let (_, hello) = start(&ClientHelloContent::default());
        let server = Server13::new(&hello);
        let mut signed = vec![b' '; 64];
        signed.extend_from_slice(b"TLS 1.3, server CertificateVerify\0");
        signed.extend_from_slice(&sha256(&server.transcript));
        certificate_verify(&sign(&signed))
    };
    let (mut handshake, hello) = start(&ClientHelloContent::default());
    let server = Server13::new(&hello).say(&encrypted_extensions());
    let flight = server.say(&certificate_13(&[certificate()])).say(&replayed).flight;
    assert_eq!(feed(&mut handshake, &flight, usize::MAX), Step::Done(Vec::new()));
    assert!(matches!(handshake.evidence().proof, Proof::Invalid(_)));

    let (mut handshake, _) =
        Handshake::start_with(&ClientHelloContent::default(), &SHARES, [1; 32], SESSION_ID);
    assert_eq!(feed(&mut handshake, &in_records(&messages_12(), 9_999), usize::MAX), Step::Done(Vec::new()));
    assert!(matches!(handshake.evidence().proof, Proof::Invalid(_)));
}

#[test]
fn unexpected_handshake_messages_are_named() {
    type Case = (fn(Server13) -> Server13, Failure);
    let cases: &[Case] = &[
        (
            |s| s.say(&encrypted_extensions()).say(&handshake_message(25, &[0; 8])),
            Failure::UnexpectedMessage { expected: "certificate", found: 25 },
        ),
        (
            |s| s.say(&certificate_13(&[certificate()])),
            Failure::UnexpectedMessage { expected: "encrypted_extensions", found: 11 },
        ),
        (
            |s| s.say(&encrypted_extensions()).say(&handshake_message(20, &[0; 32])),
            Failure::NoCertificate("the server used a pre-shared key"),
        ),
        (
            |s| s.say(&encrypted_extensions()).say(&certificate_13(&[])),
            Failure::NoCertificate("the list of certificates is empty"),
        ),
        (
            |s| s.say(&encrypted_extensions()).say(&certificate_13(&[vec![]])),
            Failure::Malformed("Certificate: an empty certificate"),
        ),
        (
            |s| {
                let chain = vec![certificate(); CHAIN_MAX + 1];
                s.say(&encrypted_extensions()).say(&certificate_13(&chain))
            },
            Failure::LimitExceeded { what: "certificates", limit: CHAIN_MAX },
        ),
        (
            |s| {
                let long = vec![0; CERTIFICATE_MAX + 1];
                s.say(&encrypted_extensions()).say(&certificate_13(&[long]))
            },
            Failure::LimitExceeded { what: "bytes in a certificate", limit: CERTIFICATE_MAX },
        ),
        (
            |s| s.say(&[11, 0xff, 0xff, 0xff]),
            Failure::LimitExceeded { what: "bytes of handshake messages", limit: HANDSHAKE_MAX },
        ),
        (
            |s| (0..=IDLE_RECORDS_MAX).fold(s, |s, _| s.seal(record::HEARTBEAT, &[0])),
            Failure::LimitExceeded {
                what: "records that do not advance the handshake",
                limit: IDLE_RECORDS_MAX,
            },
        ),
        (|s| s.seal(record::ALERT, &[1, 40]), Failure::Alert { level: 1, description: 40 }),
        (
            |s| s.seal(record::APPLICATION_DATA, b"hello"),
            Failure::Malformed("application data before the end of the handshake"),
        ),
    ];
    for (say, failure) in cases {
        let (mut handshake, hello) = start(&modern());
        let flight = say(Server13::new(&hello)).flight;
        assert_eq!(feed(&mut handshake, &flight, usize::MAX), Step::Failed(failure.clone()));
        // Further input does not change the failure.
        assert_eq!(handshake.receive(b"more"), Step::Failed(failure.clone()));
    }
}

#[test]
fn non_tls_servers_are_recognized() {
    let cases: &[(&[u8], Failure)] = &[
        (b"HTTP/1.1 400 Bad Request\r\n", not_tls(b"HTTP/1.1 400 Bad Request\r\n", Some("HTTP"))),
        (b"SSH-2.0-OpenSSH_9.9\r\n", not_tls(b"SSH-2.0-OpenSSH_9.9\r\n", Some("SSH"))),
        (b"220 mail ready\r\n", not_tls(b"220 mail ready\r\n", Some("SMTP or FTP"))),
        (b"* OK IMAP4rev1", not_tls(b"* OK IMAP4rev1", Some("IMAP"))),
        (b"+OK POP3", not_tls(b"+OK POP3", Some("POP3"))),
        (b"\x4a\0\0\0\x0a8.0.36\0", not_tls(b"\x4a\0\0\0\x0a8.0.36\0", Some("MySQL"))),
        (b"\xff\xff\xff\xff\xff", not_tls(b"\xff\xff\xff\xff\xff", None)),
        (b"\x80\x2e\x04\x00\x01", Failure::Ssl2),
        (b"\x15\x03\x01\x00\x02\x02\x28", Failure::Alert { level: 2, description: 40 }),
        (b"\x15\x03\x01\x00\x02\x01\x00", Failure::Alert { level: 1, description: 0 }),
        (
            b"\x16\x03\x01\xff\xff",
            Failure::LimitExceeded { what: "bytes in a record", limit: limits::RECORD_MAX },
        ),
    ];
    for (bytes, failure) in cases {
        let (mut handshake, _) = start(&modern());
        assert_eq!(handshake.receive(bytes), Step::Failed(failure.clone()));
    }
    let banner = [b'x'; 500];
    let (mut handshake, _) = start(&modern());
    let Step::Failed(Failure::NotTls { first, .. }) = handshake.receive(&banner) else {
        panic!("not recognised");
    };
    assert_eq!(first.len(), limits::FIRST_BYTES_MAX);
}

fn not_tls(first: &[u8], guess: Option<&'static str>) -> Failure {
    Failure::NotTls { first: first.to_vec(), guess }
}

#[test]
fn warning_alerts_are_ignored_recorded_and_limited() {
    let warning = record::plain(record::ALERT, 0x0301, &[1, 112]);
    let (mut handshake, _) = start(&modern());
    let flight = [warning.clone(), in_records(&messages_12(), 9_999)].concat();
    assert_eq!(feed(&mut handshake, &flight, usize::MAX), Step::Done(Vec::new()));
    assert_eq!(handshake.evidence().warning, Some(112));

    // The number of ignored warnings is limited.
    let (mut handshake, _) = start(&modern());
    let flight = warning.repeat(IDLE_RECORDS_MAX + 1);
    assert!(matches!(
        feed(&mut handshake, &flight, usize::MAX),
        Step::Failed(Failure::LimitExceeded { what: "records that do not advance the handshake", .. })
    ));
}

#[test]
fn endless_handshake_messages_stop_at_a_limit() {
    let (mut handshake, _) = start(&modern());
    let endless = in_records(&server_hello(0x0303, 0xc02b, SERVER_RANDOM, &[]), 9_999);
    assert_eq!(handshake.receive(&endless), Step::More);
    let filler = in_records(&handshake_message(23, &[0; 16_000]), 16_384);
    let sent = (0..1_000).find_map(|n| match handshake.receive(&filler) {
        Step::Failed(failure) => Some((n, failure)),
        _ => None,
    });
    let (sent, failure) = sent.unwrap();
    assert!(sent <= HANDSHAKE_MAX / 16_000 + 1);
    assert_eq!(failure, Failure::LimitExceeded { what: "bytes of handshake messages", limit: HANDSHAKE_MAX });
}

#[test]
fn server_that_claims_to_resume_is_rejected() {
    let (mut handshake, _) = start(&modern());
    let mut flight = in_records(&server_hello(0x0303, 0xc02b, SERVER_RANDOM, &[]), 9_999);
    flight.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
    assert_eq!(
        handshake.receive(&flight),
        Step::Failed(Failure::NoCertificate("the server resumes a session that does not exist"))
    );
    // A pre-shared key in TLS 1.3 does not replace a certificate.
    let (mut handshake, _) = start(&modern());
    let extensions = [0, 43, 0, 2, 3, 4, 0, 41, 0, 2, 0, 0];
    let flight = in_records(&server_hello(0x0303, 0x1301, SERVER_RANDOM, &extensions), 9_999);
    assert_eq!(
        handshake.receive(&flight),
        Step::Failed(Failure::NoCertificate("the server chose a pre-shared key"))
    );
}

#[test]
fn repeated_server_key_exchange_is_rejected() {
    let messages = messages_12();
    let done_at = messages.len() - 4;
    let status = certificate_status();
    let exchange_at = messages.windows(status.len()).position(|w| w == status).unwrap() + status.len();
    let twice = [&messages[..done_at], &messages[exchange_at..]].concat();
    let (mut handshake, _) = start(&modern());
    assert_eq!(
        feed(&mut handshake, &in_records(&twice, 9_999), usize::MAX),
        Step::Failed(Failure::UnexpectedMessage { expected: "server_hello_done", found: 12 })
    );
    assert_eq!(handshake.evidence().proof, Proof::Verified);
}

#[test]
fn downgrade_is_detected_only_if_tls_1_3_was_offered() {
    for (profile, downgraded) in [(Profile::Modern, true), (Profile::Legacy, false)] {
        let mut random = SERVER_RANDOM;
        random[24..].copy_from_slice(b"DOWNGRD\x01");
        let (mut handshake, _) = start(&ClientHelloContent { profile, ..modern() });
        handshake.receive(&in_records(&server_hello(0x0303, 0xc02b, random, &[]), 9_999));
        assert_eq!(handshake.evidence().downgraded, downgraded);
    }
}

/// Encodes a record with a HelloRetryRequest and these extensions.
fn retry_request(extensions: &[u8]) -> Vec<u8> {
    let random: [u8; 32] = sha256(b"HelloRetryRequest").try_into().unwrap();
    let versions = [0, 43, 0, 2, 3, 4];
    in_records(&server_hello(0x0303, 0x1301, random, &[&versions[..], extensions].concat()), 9_999)
}

#[test]
fn second_client_hello_has_the_cookie_and_the_requested_share() {
    let cookie = [0, 44, 0, 7, 0, 5, b'c', b'o', b'o', b'k', b'y'];
    let p256 = [0, 51, 0, 2, 0, 0x17];
    for (extensions, group, share) in
        [([&p256[..], &cookie].concat(), 0x0017_u16, 65_usize), (cookie.to_vec(), 0x11ec, 1_216)]
    {
        let (mut handshake, first) = start(&modern());
        let Step::Send(out) = handshake.receive(&retry_request(&extensions)) else {
            panic!("no second hello");
        };
        assert_eq!(out[..6], [20, 3, 3, 0, 1, 1]);
        let second = &out[6 + 5..];
        assert_eq!(second[4..70], first[4..70], "version and random stay");
        assert!(second.ends_with(&cookie));
        let wanted = [group.to_be_bytes(), u16::try_from(share).unwrap().to_be_bytes()].concat();
        assert!(second.windows(4).any(|window| window == wanted));
        // The lengths are consistent: the extensions end where the message ends.
        let length = usize::from(second[2]) << 8 | usize::from(second[3]);
        assert_eq!(length + 4, second.len());
        assert!(handshake.evidence().hello_retry);
        // A third ClientHello is never sent.
        assert!(matches!(
            handshake.receive(&retry_request(&extensions)),
            Step::Failed(Failure::Malformed(_))
        ));
    }
    for (extensions, failure) in [
        (vec![], Failure::Malformed("HelloRetryRequest: requests no change")),
        (vec![0, 51, 0, 2, 1, 0], Failure::NotOffered("a key exchange group")),
    ] {
        let (mut handshake, _) = start(&modern());
        assert_eq!(handshake.receive(&retry_request(&extensions)), Step::Failed(failure));
    }
}

#[test]
fn client_hello_length_is_never_256_to_511_bytes() {
    for profile in [Profile::Modern, Profile::Compact, Profile::Legacy] {
        for name in 1..=253 {
            let server_name = Some("n".repeat(name));
            for alpn in [&[][..], &["h2", "http/1.1"]] {
                let offer =
                    ClientHelloContent { server_name: server_name.clone(), alpn, profile, finish: false };
                let (_, hello) = start(&offer);
                assert!(!(256..512).contains(&hello.len()), "{profile:?} {name}");
                assert_eq!(usize::from(hello[2]) << 8 | usize::from(hello[3]), hello.len() - 4);
            }
        }
    }
}

#[test]
fn ip_address_is_never_sent_as_sni() {
    for (name, sent) in [("a.example.", true), ("192.0.2.1", false), ("2001:db8::1", false), ("[::1]", false)]
    {
        let (_, hello) =
            start(&ClientHelloContent { server_name: Some(name.into()), ..ClientHelloContent::default() });
        let bare = name.trim_end_matches('.').as_bytes();
        assert_eq!(hello.windows(bare.len()).any(|window| window == bare), sent, "{name}");
    }
}

#[test]
fn key_schedule_matches_rfc_8448() {
    // RFC 8448 section 3, "Simple 1-RTT Handshake".
    let agreed = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
    let to_server_hello = hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
    let to_finished = hex("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13");
    let handshake = Secrets::handshake(Hash::Sha256, &agreed, &to_server_hello);
    let client = hex("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21");
    let server = hex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
    assert_eq!(handshake.client.as_slice(), client);
    assert_eq!(handshake.server.as_slice(), server);
    let application = handshake.application(&to_finished);
    let client = hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
    let server = hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
    assert_eq!(application.client.as_slice(), client);
    assert_eq!(application.server.as_slice(), server);
}

#[test]
fn hello_retry_request_is_recognized_by_its_random() {
    let record = retry_request(&[]);
    assert!(ServerHello::read(&record[9..]).unwrap().is_retry_request());
}

fn hex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
}

/// Modifications of the transmitted bytes.
#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(i, o)| Damage::Set(i, o)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Remove),
        1 => (any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(i, o)| Damage::Insert(i, o)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
    ];
    proptest::collection::vec(one, 0..4)
}

fn damaged(mut bytes: Vec<u8>, changes: &[Damage]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        match change {
            Damage::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Damage::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
            Damage::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

/// Checks that evidence and result are the same for input in small pieces and in one piece. Only the length of the recorded banner
/// may differ.
fn same_in_pieces(offer: &ClientHelloContent, flight: &[u8], size: usize) {
    let outcome = |size| {
        let (mut handshake, _) = start(offer);
        let end = match feed(&mut handshake, flight, size) {
            Step::Failed(Failure::NotTls { guess, .. }) => {
                Step::Failed(Failure::NotTls { guess, first: Vec::new() })
            }
            Step::Send(_) => Step::More,
            end => end,
        };
        (end, Evidence { bytes_in: 0, ..handshake.into_evidence() })
    };
    assert_eq!(outcome(size), outcome(usize::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_parse_equally_in_any_chunking(bytes: Vec<u8>, size in 1_usize..50) {
        same_in_pieces(&modern(), &bytes, size);
    }

    #[test]
    fn damaged_plaintext_flight_parses_equally_in_any_chunking(
        changes in damage(), fragment in 1_usize..2_000, size in 1_usize..50, whole: bool,
    ) {
        // Modifies the messages, or the records around them.
        let flight = if whole {
            damaged(in_records(&messages_12(), fragment), &changes)
        } else {
            in_records(&damaged(messages_12(), &changes), fragment)
        };
        same_in_pieces(&modern(), &flight, size);
    }

    #[test]
    fn damaged_encrypted_flight_parses_equally_in_any_chunking(
        changes in damage(), fragment in 1_usize..2_000, size in 1_usize..50, finish: bool,
    ) {
        let offer = ClientHelloContent { finish, ..modern() };
        let (_, hello) = start(&offer);
        let messages = [
            encrypted_extensions(),
            handshake_message(message::CERTIFICATE_REQUEST, &[0, 0, 0]),
            certificate_13(&[certificate(), certificate()]),
            certificate_verify(&[1; 70]),
            handshake_message(message::FINISHED, &[0; 32]),
        ]
        .concat();
        let messages = damaged(messages, &changes);
        let server = Server13::new(&hello);
        let flight = messages.chunks(fragment).fold(server, Server13::say).flight;
        same_in_pieces(&offer, &flight, size);
    }

    #[test]
    fn damaged_encrypted_records_parse_equally_in_any_chunking(changes in damage(), size in 1_usize..50) {
        let (_, hello) = start(&modern());
        let flight = damaged(flight_13(&hello), &changes);
        same_in_pieces(&modern(), &flight, size);
    }
}
