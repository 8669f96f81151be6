//! Tests which versions and suites a server accepts in addition to those that it chooses. The handshakes offer only values that no
//! server should accept, and end at the ServerHello.

use super::hello::{self, ServerHello, TLS_1_2, message};
use super::names;
use super::record::{ALERT, HANDSHAKE};

/// Bytes read of a response: a ServerHello has about 100, followed by the server's certificates.
const ANSWER_MAX: usize = 16 * 1_024;
/// Bytes of a record header.
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// Kind of a short handshake, by the versions and suites that the handshake offers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Question {
    /// TLS 1.1 and earlier, with every cipher suite.
    ObsoleteVersion,
    /// Broken cipher suites, and suites without forward secrecy, up to TLS 1.2.
    WeakSuite,
    /// Broken cipher suites only, for servers that prefer a suite that only lacks forward secrecy.
    BrokenSuite,
    /// Offers only static RSA suites with strong ciphers. Detects support that [`Self::WeakSuite`] cannot show when the server
    /// prefers a broken suite.
    StaticRsaSuite,
}

/// A server's response to a [`Question`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerReply {
    /// The server continues the handshake.
    Accepted {
        /// Version number on the wire ([`names::version`]).
        version: u16,
        /// Cipher suite number on the wire ([`names::cipher_suite`]).
        suite: u16,
    },
    /// The server sent an alert, or chose something that was not offered.
    Refused,
}

/// Versions, suites and groups that a server accepts in addition to the negotiated ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Accepted {
    /// The newest accepted version up to TLS 1.1.
    pub obsolete_version: Option<u16>,
    /// One accepted suite for each weakness: broken, without forward secrecy.
    pub weak_suites: Vec<u16>,
}

/// Weakness of a cipher suite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Weakness {
    /// RC4, DES, 3DES, export, no encryption, no authentication.
    Broken,
    /// Static RSA key exchange.
    NoForwardSecrecy,
}

/// Returns the weaknesses of a cipher suite, by its number on the wire. Empty for a strong suite.
#[must_use]
pub fn weaknesses(suite: u16) -> Vec<Weakness> {
    const BROKEN: [&str; 7] = ["RC4", "_DES_", "DES40", "3DES", "NULL", "EXPORT", "anon"];
    let name = names::cipher_suite(suite);
    let mut found = Vec::new();
    if BROKEN.iter().any(|word| name.contains(word)) {
        found.push(Weakness::Broken);
    }
    if name.starts_with("TLS_RSA_") {
        found.push(Weakness::NoForwardSecrecy);
    }
    found
}

/// A short handshake, without I/O.
pub struct ProbeHandshake {
    question: Question,
    /// Received bytes of the record layer.
    received: Vec<u8>,
    /// Handshake messages received so far.
    messages: Vec<u8>,
}

impl ProbeHandshake {
    /// Starts a handshake that asks `question`. Returns the handshake and its ClientHello.
    #[must_use]
    pub fn start(
        question: Question,
        server_name: Option<&str>,
        alpn: &[&str],
        random: &[u8; 32],
    ) -> (Self, Vec<u8>) {
        let hello = hello::old(question.version(), question.suites(), server_name, alpn, random);
        (Self { question, received: Vec::new(), messages: Vec::new() }, hello)
    }

    /// Processes bytes from the server; `None` while the response is incomplete.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<ServerReply> {
        if self.received.len() + bytes.len() > ANSWER_MAX {
            return Some(ServerReply::Refused);
        }
        self.received.extend_from_slice(bytes);
        while let Some(&[kind, major, _, high, low]) = self.received.first_chunk::<RECORD_HEADER>() {
            if major != 3 {
                return Some(ServerReply::Refused);
            }
            let end = RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
            if self.received.len() < end {
                return None;
            }
            let content: Vec<u8> = self.received.drain(..end).skip(RECORD_HEADER).collect();
            if let Some(answer) = self.on_record(kind, &content) {
                return Some(answer);
            }
        }
        None
    }

    fn on_record(&mut self, kind: u8, content: &[u8]) -> Option<ServerReply> {
        const WARNING: u8 = 1;
        const CLOSE_NOTIFY: u8 = 0;
        match kind {
            // A warning, such as unrecognized_name, after which servers continue.
            ALERT if matches!(content, [WARNING, description] if *description != CLOSE_NOTIFY) => None,
            HANDSHAKE => {
                self.messages.extend_from_slice(content);
                self.parse_server_reply()
            }
            _ => Some(ServerReply::Refused),
        }
    }

    fn parse_server_reply(&self) -> Option<ServerReply> {
        let &[kind, a, b, c] = self.messages.first_chunk::<MESSAGE_HEADER>()?;
        if kind != message::SERVER_HELLO {
            return Some(ServerReply::Refused);
        }
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?;
        if length > ANSWER_MAX {
            return Some(ServerReply::Refused);
        }
        let body = self.messages.get(MESSAGE_HEADER..MESSAGE_HEADER + length)?;
        let Some(hello) = ServerHello::read(body) else { return Some(ServerReply::Refused) };
        let offered =
            hello.version <= self.question.version() && self.question.suites().contains(&hello.cipher);
        Some(match offered {
            true => ServerReply::Accepted { version: hello.version, suite: hello.cipher },
            false => ServerReply::Refused,
        })
    }
}

impl Question {
    /// Returns the newest offered version.
    fn version(self) -> u16 {
        match self {
            Self::ObsoleteVersion => 0x0302,
            Self::WeakSuite | Self::BrokenSuite | Self::StaticRsaSuite => TLS_1_2,
        }
    }

    fn suites(self) -> &'static [u16] {
        match self {
            Self::ObsoleteVersion => hello::OLD_SUITES,
            Self::WeakSuite => WEAK_SUITES,
            Self::BrokenSuite => &WEAK_SUITES[..BROKEN_SUITES],
            Self::StaticRsaSuite => &WEAK_SUITES[BROKEN_SUITES..],
        }
    }
}

/// Weak cipher suites. Broken suites are first, so that servers that follow the client's order show the worst suite that they
/// accept.
#[rustfmt::skip]
const WEAK_SUITES: &[u16] = &[
    // 3DES, RC4, DES, export, no encryption
    0xc008, 0xc012, 0x0016, 0x000a, 0x0013, 0xc007, 0xc011, 0x0005, 0x0004, 0x0015, 0x0012, 0x0009,
    0x0014, 0x0011, 0x0008, 0x0006, 0x0003, 0xc006, 0xc010, 0x003b, 0x0002, 0x0001,
    // No authentication.
    0x0018, 0x001b, 0x0034, 0x003a, 0x006c, 0x006d, 0x00a6, 0x00a7, 0xc015, 0xc016, 0xc017, 0xc018, 0xc019,
    // Static RSA.
    0x009c, 0x009d, 0xc09c, 0xc09d, 0xc0a0, 0xc0a1, 0x003c, 0x003d, 0x002f, 0x0035, 0x0041, 0x0084, 0x0096,
];
/// Number of broken suites at the start of [`WEAK_SUITES`].
const BROKEN_SUITES: usize = 35;

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a record with a ServerHello.
    fn server_hello(version: u16, suite: u16) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        body.extend([7; 32]);
        body.push(0);
        body.extend(suite.to_be_bytes());
        body.push(0);
        let mut message = vec![message::SERVER_HELLO, 0, 0, body.len() as u8];
        message.extend(body);
        let mut record = vec![HANDSHAKE, 3, 1, 0, message.len() as u8];
        record.extend(message);
        record
    }

    fn answer(question: Question, bytes: &[u8]) -> Option<ServerReply> {
        ProbeHandshake::start(question, Some("a.example"), &[], &[0; 32]).0.receive(bytes)
    }

    #[test]
    fn weak_suites_are_graded_by_their_weakness() {
        assert_eq!(WEAK_SUITES.len(), 48);
        for suite in &WEAK_SUITES[..BROKEN_SUITES] {
            assert!(weaknesses(*suite).contains(&Weakness::Broken), "{}", names::cipher_suite(*suite));
        }
        for suite in &WEAK_SUITES[BROKEN_SUITES..] {
            let name = names::cipher_suite(*suite);
            assert_eq!(weaknesses(*suite), [Weakness::NoForwardSecrecy], "{name}");
        }
    }

    #[test]
    fn only_offered_versions_and_suites_count_as_accepted() {
        use Question::{BrokenSuite, ObsoleteVersion, WeakSuite};
        let accepted = |version, suite| Some(ServerReply::Accepted { version, suite });
        let table = [
            (ObsoleteVersion, server_hello(0x0302, 0xc013), accepted(0x0302, 0xc013)),
            (ObsoleteVersion, server_hello(0x0301, 0x002f), accepted(0x0301, 0x002f)),
            (ObsoleteVersion, server_hello(0x0303, 0xc02f), Some(ServerReply::Refused)),
            (WeakSuite, server_hello(0x0303, 0x009c), accepted(0x0303, 0x009c)),
            (WeakSuite, server_hello(0x0303, 0xc02f), Some(ServerReply::Refused)),
            (BrokenSuite, server_hello(0x0303, 0x009c), Some(ServerReply::Refused)),
            (BrokenSuite, server_hello(0x0303, 0x000a), accepted(0x0303, 0x000a)),
            (ObsoleteVersion, vec![ALERT, 3, 1, 0, 2, 2, 70], Some(ServerReply::Refused)),
            (ObsoleteVersion, vec![ALERT, 3, 1, 0, 2, 1, 112], None),
            (ObsoleteVersion, b"HTTP/1.1 400".to_vec(), Some(ServerReply::Refused)),
        ];
        for (question, bytes, want) in table {
            assert_eq!(answer(question, &bytes), want, "{question:?} {bytes:?}");
        }
    }

    #[test]
    fn server_reply_is_parsed_byte_by_byte() {
        let (mut inquiry, _) = ProbeHandshake::start(Question::ObsoleteVersion, None, &[], &[0; 32]);
        let mut bytes = vec![ALERT, 3, 1, 0, 2, 1, 112];
        bytes.extend(server_hello(0x0301, 0x000a));
        let (last, before) = bytes.split_last().unwrap();
        for byte in before {
            assert_eq!(inquiry.receive(&[*byte]), None);
        }
        let want = ServerReply::Accepted { version: 0x0301, suite: 0x000a };
        assert_eq!(inquiry.receive(&[*last]), Some(want));
    }
}
