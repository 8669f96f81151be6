mod peers;
mod scripts;

use proptest::prelude::*;
use scripts::{DIALOGUES, Script, Turn};

use super::error::{EXCERPT_MAX, excerpt, not_offered};
use super::*;

/// Describes the end of a dialogue in one line.
fn end(step: &Step) -> String {
    match step {
        Step::More | Step::Send(_) => "waiting".into(),
        Step::Ready { injected: false, .. } => "ready".into(),
        Step::Ready { injected: true, .. } => "ready, clear text injected".into(),
        Step::Failed(StartTlsError::NotOffered { excerpt }) => format!("not offered: {excerpt}"),
        Step::Failed(StartTlsError::Refused { excerpt }) => format!("refused: {excerpt}"),
        Step::Failed(StartTlsError::NotThatProtocol { first, .. }) => format!("not that: {first}"),
        Step::Failed(StartTlsError::Malformed { what, .. }) => format!("malformed: {what}"),
        Step::Failed(StartTlsError::TooLong { what, .. }) => format!("too long: {what}"),
    }
}

/// Plays the server's side of a script, split into pieces of `size` bytes. All output of the client must match the script.
fn play(script: &Script, size: usize) -> Step {
    let mut dialogue = Dialogue::new(script.protocol, "chat.example").unwrap();
    let mut sent = dialogue.opening().unwrap_or_default();
    let mut step = Step::More;
    for turn in script.turns {
        match turn {
            Turn::Hear(expected) => {
                let sent_bytes = String::from_utf8_lossy(&sent).into_owned();
                assert!(expected.is_matched_by(&sent), "{}: {sent_bytes:?}", script.name);
                sent.clear();
            }
            Turn::Say(bytes) => {
                for chunk in bytes.chunks(size) {
                    step = dialogue.receive(chunk);
                    match &step {
                        Step::Send(bytes) => sent.extend_from_slice(bytes),
                        Step::Ready { send, .. } => sent.extend_from_slice(send),
                        Step::More | Step::Failed(_) => {}
                    }
                }
            }
        }
    }
    assert!(sent.is_empty(), "{}: {:?} too much", script.name, String::from_utf8_lossy(&sent));
    step
}

#[test]
fn every_starttls_dialogue_succeeds_for_any_chunk_size() {
    for script in DIALOGUES {
        for size in [1, 2, 3, 7, 1_000] {
            assert_eq!(end(&play(script, size)), "ready", "{} in pieces of {size}", script.name);
        }
    }
}

#[test]
fn plaintext_after_starttls_is_reported() {
    for script in DIALOGUES {
        let mut dialogue = Dialogue::new(script.protocol, "chat.example").unwrap();
        let all: Vec<u8> = script.sent_bytes().chain(*b"220 injected\r\n").collect();
        let step = dialogue.receive(&all);
        assert_eq!(end(&step), "ready, clear text injected", "{}", script.name);
        assert_eq!(end(&dialogue.receive(b"more")), "ready, clear text injected");
    }
}

/// Responses of servers that refuse TLS, by protocol, and the expected error.
const REFUSALS: &[(Protocol, &[u8], &str)] = &[
    (Protocol::Smtp, b"220 mx\r\n250 mx\r\n", "not offered: "),
    (Protocol::Smtp, b"220 mx\r\n250-mx\r\n250 XSTARTTLS\r\n", "not offered: "),
    (Protocol::Smtp, b"220 mx\r\n502 what?\r\n", "not offered: 502 what?"),
    (
        Protocol::Smtp,
        b"220 mx\r\n250-mx\r\n250 STARTTLS\r\n454 TLS not available\r\n",
        "refused: 454 TLS not available",
    ),
    (Protocol::Smtp, b"220 mx\r\n250-mx\r\n250 STARTTLS\r\n500 eh\r\n", "not offered: 500 eh"),
    (Protocol::Smtp, b"554-go\r\n554 away\x1b[2J\r\n", "refused: 554 go away [2J"),
    (Protocol::Smtp, b"421 busy\r\n", "refused: 421 busy"),
    (Protocol::Smtp, b"SSH-2.0-OpenSSH_9.2\r\n", "not that: SSH-2.0-OpenSSH_9.2"),
    (Protocol::Smtp, b"220-mx\r\n250 mx\r\n", "malformed: a reply changes its code between lines"),
    (Protocol::Smtp, b"220-mx\r\nmx\r\n", "malformed: a reply changes its code between lines"),
    (Protocol::Lmtp, b"220 mx\r\n250 mx\r\n", "not offered: "),
    (Protocol::Imap, b"* OK hi\r\n* CAPABILITY IMAP4rev1 LOGINDISABLED\r\na1 OK done\r\n", "not offered: "),
    (Protocol::Imap, b"* OK hi\r\n* CAPABILITY STARTTLS\r\na1 OK\r\na2 BAD no\r\n", "refused: a2 BAD no"),
    (Protocol::Imap, b"* BYE too many\r\n", "refused: * BYE too many"),
    (Protocol::Imap, b"* PREAUTH hi\r\n", "refused: * PREAUTH hi"),
    (Protocol::Imap, b"* HTTP\r\n", "not that: * HTTP"),
    (Protocol::Imap, b"+OK\r\n", "not that: +OK"),
    (Protocol::Imap, b"* OK hi\r\na9 OK\r\n", "malformed: not an answer to CAPABILITY"),
    (Protocol::Pop3, b"+OK\r\n+OK\r\nUSER\r\n.\r\n", "not offered: "),
    (Protocol::Pop3, b"+OK\r\n-ERR\r\n-ERR unknown\r\n", "not offered: -ERR unknown"),
    (Protocol::Pop3, b"+OK\r\n+OK\r\nSTLS\r\n.\r\n-ERR later\r\n", "refused: -ERR later"),
    (Protocol::Pop3, b"-ERR busy\r\n", "refused: -ERR busy"),
    (Protocol::Pop3, b"220 mx\r\n", "not that: 220 mx"),
    (Protocol::Sieve, b"\"IMPLEMENTATION\" \"x\"\r\nOK\r\n", "not offered: "),
    (Protocol::Sieve, b"\"STARTTLS\"\r\nOK\r\nNO \"later\"\r\n", "refused: NO \"later\""),
    (Protocol::Sieve, b"BYE \"busy\"\r\n", "refused: BYE \"busy\""),
    (Protocol::Sieve, b"HTTP/1.1 400 Bad Request\r\n", "not that: HTTP/1.1 400 Bad Request"),
    // A literal that contains the text of a capability is not the capability.
    (Protocol::Sieve, b"\"IMPLEMENTATION\" {12}\r\n\"STARTTLS\"\r\n\r\nOK\r\n", "not offered: "),
    (
        Protocol::Ftp,
        b"220 ftp\r\n530 Please login with USER and PASS.\r\n",
        "not offered: 530 Please login with USER and PASS.",
    ),
    (Protocol::Ftp, b"220 ftp\r\n534 policy\r\n", "refused: 534 policy"),
    (Protocol::Ftp, b"421 busy\r\n", "refused: 421 busy"),
    (Protocol::Ftp, b"hello\r\n", "not that: hello"),
    (Protocol::Nntp, b"200 hi\r\n101 list\r\nREADER\r\n.\r\n", "not offered: "),
    (Protocol::Nntp, b"200 hi\r\n500 what\r\n500 what\r\n", "not offered: 500 what"),
    (Protocol::Nntp, b"200 hi\r\n101 list\r\nSTARTTLS\r\n.\r\n580 no\r\n", "refused: 580 no"),
    (Protocol::Nntp, b"400 closed\r\n", "refused: 400 closed"),
    (
        Protocol::Ldap,
        b"\x30\x1e\x02\x01\x01\x78\x19\x0a\x01\x02\x04\x00\x04\x12unsupported extend",
        "not offered: unsupported extend",
    ),
    (
        Protocol::Ldap,
        b"\x30\x0f\x02\x01\x01\x78\x0a\x0a\x01\x34\x04\x00\x04\x03bad",
        "refused: result 52 bad",
    ),
    (
        Protocol::Ldap,
        b"\x30\x84\x00\x00\x00\x0f\x02\x01\x00\x78\x84\x00\x00\x00\x06\x0a\x01\x34\x04\x00\x04\x00",
        "malformed: not an answer to StartTLS",
    ),
    (Protocol::Ldap, b"\x30\x05\x02\x01\x01\x61\x00", "malformed: not an answer to StartTLS"),
    (Protocol::Ldap, b"\x30\x88", "malformed: a length that LDAP does not allow"),
    (Protocol::Ldap, b"HTTP/1.1 400\r\n", "not that: HTTP/1.1 400"),
    (Protocol::Postgres, b"N", "not offered: "),
    (Protocol::Postgres, b"E\0\0\0\x1dSFATAL\0C53300\0Mtoo many\0\0", "refused: too many"),
    (Protocol::Postgres, b"E\0\x0f\0\0", "not that: E"),
    (Protocol::Postgres, b"HTTP/1.1 400\r\n", "not that: HTTP/1.1 400"),
    (Protocol::Mysql, b"\x19\0\0\0\x0a8.0\0\0\0\0\0aaaaaaaa\0\xff\xf7\0\0\0\0\0", "not offered: 8.0"),
    (Protocol::Mysql, b"\x10\0\0\0\xff\x69\x04Host blocked\0", "refused: Host blocked"),
    (Protocol::Mysql, b"\x05\0\0\0\x0a8.0\0", "malformed: a truncated greeting"),
    (Protocol::Mysql, b"SSH-2.0-OpenSSH_9.2\r\n", "not that: SSH-2.0-OpenSSH_9.2"),
    (
        Protocol::Mssql,
        b"\x04\x01\0\x0f\0\0\0\0\x01\0\x06\0\x01\xff\x02",
        "not offered: encryption is not supported",
    ),
    (
        Protocol::Mssql,
        b"\x04\x01\0\x0f\0\0\0\0\x02\0\x06\0\x01\xff\x02",
        "malformed: an answer without an encryption option",
    ),
    (Protocol::Mssql, b"HTTP/1.1 400\r\n", "not that: HTTP/1.1 400"),
    (Protocol::Rdp, b"\x03\0\0\x0b\x06\xd0\0\0\0\0\0", "not offered: only RDP's own security"),
    (
        Protocol::Rdp,
        b"\x03\0\0\x13\x0e\xd0\0\0\0\0\0\x03\0\x08\0\x03\0\0\0",
        "refused: SSL_CERT_NOT_ON_SERVER",
    ),
    (
        Protocol::Rdp,
        b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x03\0\x08\0\x03\0\0\0",
        "malformed: not a connection confirm",
    ),
    (Protocol::Rdp, b"HTTP/1.1 400\r\n", "not that: HTTP/1.1 400"),
    (Protocol::Xmpp, b"<stream:stream xmlns='jabber:client'><stream:features/>", "not offered: "),
    (Protocol::Xmpp, b"<stream:stream><stream:features><auth/></stream:features>", "not offered: "),
    (
        Protocol::Xmpp,
        b"<stream:stream><stream:error><host-unknown xmlns='x'/></stream:error>",
        "refused: host-unknown",
    ),
    (Protocol::Xmpp, b"<s:stream><s:features><starttls/></s:features><failure/>", "refused: failure"),
    (Protocol::Xmpp, b"<stream:stream></stream:stream>", "refused: stream"),
    (Protocol::Xmpp, b"<html>", "not that: html"),
    (Protocol::Xmpp, b"<!DOCTYPE html>", "malformed: a document type declaration, which XMPP forbids"),
    (Protocol::XmppServer, b"HTTP/1.1 400\r\n", "not that: HTTP/1.1 400"),
];

#[test]
fn starttls_refusals_are_classified() {
    for &(protocol, sent_bytes, expected) in REFUSALS {
        let mut dialogue = Dialogue::new(protocol, "chat.example").unwrap();
        let step = dialogue.receive(sent_bytes);
        assert_eq!(end(&step), expected, "{protocol}: {:?}", String::from_utf8_lossy(sent_bytes));
        assert_eq!(dialogue.receive(b"220 more\r\n"), step, "{protocol}: failed is failed");
    }
}

#[test]
fn endless_server_dialogues_are_aborted() {
    let mut endless_lines = b"220-mx\r\n".repeat(20_000);
    endless_lines.extend(b"220 mx\r\n");
    let cases: [(Protocol, Vec<u8>, &str); 7] = [
        (Protocol::Smtp, vec![b'2'; 100_000], "too long: line"),
        (Protocol::Smtp, endless_lines, "too long: dialogue before TLS"),
        (
            Protocol::Imap,
            [b"* OK\r\n".to_vec(), b"* X\r\n".repeat(50_000)].concat(),
            "too long: dialogue before TLS",
        ),
        (
            Protocol::Sieve,
            b"\"X\" {99999999}\r\n".iter().copied().chain([0; 100_000]).collect(),
            "too long: dialogue before TLS",
        ),
        (Protocol::Ldap, b"\x30\x83\x10\x00\x00".to_vec(), "too long: message"),
        (Protocol::Xmpp, [b"<".to_vec(), vec![b'a'; 100_000]].concat(), "too long: tag"),
        (
            Protocol::Xmpp,
            [b"<stream:stream>".to_vec(), vec![b' '; 100_000]].concat(),
            "too long: dialogue before TLS",
        ),
    ];
    for (protocol, sent_bytes, expected) in cases {
        for size in [1_000, 1_000_000] {
            let mut dialogue = Dialogue::new(protocol, "chat.example").unwrap();
            let mut step = Step::More;
            for chunk in sent_bytes.chunks(size) {
                step = dialogue.receive(chunk);
            }
            assert_eq!(end(&step), expected, "{protocol} in pieces of {size}");
        }
    }
}

#[test]
fn server_text_is_sanitized_and_truncated() {
    let shown = excerpt(b"\x1b]0;evil\x07 \xff\r\n\xe2\x80\xaetxt ");
    assert!(!shown.contains(|c: char| c.is_control()) && !shown.contains('\u{202e}'), "{shown:?}");
    assert_eq!(excerpt(&[b'a'; 5_000]).chars().count(), EXCERPT_MAX);
    let error = StartTlsError::Refused { excerpt: excerpt(b"454 later\r\n") };
    assert_eq!(error.to_string(), "the server refused STARTTLS: 454 later");
    assert_eq!(not_offered(b"").to_string(), "the server offers no TLS");
}

#[test]
fn tls_is_wrapped_in_tds_packets() {
    let tls: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
    let wire = TlsFraming::new(Protocol::Mssql).wrap(tls.clone());
    assert_eq!(wire.len(), 10_000 + 3 * 8);
    assert_eq!(wire[..8], [0x12, 0, 0x10, 0, 0, 0, 0, 0]);
    for size in [1, 5, 4_096, 20_000] {
        let mut wrapping = TlsFraming::new(Protocol::Mssql);
        let clear: Vec<u8> =
            wire.chunks(size).flat_map(|chunk| wrapping.unwrap(chunk).unwrap().to_vec()).collect();
        assert_eq!(clear, tls, "in pieces of {size}");
    }
    let mut wrapping = TlsFraming::new(Protocol::Mssql);
    assert!(wrapping.unwrap(b"\x16\x03\x03").is_err());
    let mut bare = TlsFraming::new(Protocol::Tls);
    assert_eq!(bare.wrap(b"\x16".to_vec()), b"\x16");
    assert_eq!(bare.unwrap(b"\x16").unwrap(), b"\x16");
}

fn protocols() -> impl Strategy<Value = Protocol> {
    proptest::sample::select(Protocol::UPGRADED.to_vec())
}

/// Runs a dialogue with the server input `bytes` in pieces of `size`; returns what the client sent, and how the dialogue ended.
fn outcome(protocol: Protocol, bytes: &[u8], size: usize) -> (Vec<u8>, String) {
    let mut dialogue = Dialogue::new(protocol, "chat.example").unwrap();
    let mut sent = Vec::new();
    let mut last = Step::More;
    for chunk in bytes.chunks(size) {
        last = dialogue.receive(chunk);
        if let Step::Send(bytes) | Step::Ready { send: bytes, .. } = &last {
            sent.extend_from_slice(bytes);
        }
    }
    // The text in the error depends on the input received so far, so only the kind is compared.
    let kind = end(&last).split(':').next().unwrap_or_default().to_owned();
    (sent, kind)
}

proptest! {
    #[test]
    fn dialogue_outcome_does_not_depend_on_chunking(
        protocol in protocols(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (cut, whole) = (outcome(protocol, &bytes, 1), outcome(protocol, &bytes, usize::MAX));
        prop_assert!(cut.0.starts_with(&whole.0), "{:?} {:?}", cut, whole);
        prop_assert_eq!(cut.1, whole.1);
    }

    /// Real dialogues with a few changed bytes reach more states than random bytes.
    #[test]
    fn modified_dialogues_do_not_depend_on_chunking(
        which in 0..DIALOGUES.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        size in 1_usize..9,
    ) {
        let script = &DIALOGUES[which];
        let mut sent_bytes: Vec<u8> = script.sent_bytes().collect();
        for (at, byte) in changes {
            let at = at.index(sent_bytes.len());
            sent_bytes[at] = byte;
        }
        let whole = outcome(script.protocol, &sent_bytes, usize::MAX);
        let cut = outcome(script.protocol, &sent_bytes, size);
        // If a failure occurs in the same piece as a reply, the client does not send its answer.
        prop_assert!(cut.0.starts_with(&whole.0), "{:?} {:?}", cut, whole);
        prop_assert_eq!(cut.1, whole.1);
    }

    #[test]
    fn arbitrary_tds_bytes_do_not_panic(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
        let mut wrapping = TlsFraming::new(Protocol::Mssql);
        for chunk in chunks {
            let _ = wrapping.unwrap(&chunk);
        }
    }
}
