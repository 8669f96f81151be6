//! Scripts of the server's side of every dialogue, from specifications and real servers. `openssl s_client` also reaches TLS with
//! the same scripts (`peers.rs`).

use crate::target::Protocol;

/// A step of a script: input that is expected from the client, or output of the server.
#[derive(Debug)]
pub(super) enum Turn {
    Say(&'static [u8]),
    Hear(ClientPattern),
}

/// The part of the expected input that all clients send unchanged.
#[derive(Debug)]
pub(super) enum ClientPattern {
    /// A line that starts with these words.
    Line(&'static str),
    /// These bytes, followed by further bytes up to the count.
    Bytes(&'static [u8], usize),
    /// Text that ends with this string.
    Until(&'static str),
}

impl ClientPattern {
    /// Returns whether `sent_bytes` matches exactly.
    pub(super) fn is_matched_by(&self, sent_bytes: &[u8]) -> bool {
        match self {
            Self::Line(start) => {
                let text = String::from_utf8_lossy(sent_bytes).to_ascii_uppercase();
                let lines = sent_bytes.iter().filter(|&&byte| byte == b'\n').count();
                // The client chooses the tag.
                text.contains(start) && sent_bytes.ends_with(b"\r\n") && lines == 1
            }
            Self::Bytes(start, count) => sent_bytes.starts_with(start) && sent_bytes.len() == *count,
            Self::Until(end) => sent_bytes.ends_with(end.as_bytes()),
        }
    }

    /// Returns whether `sent_bytes` is complete.
    pub(super) fn is_complete_in(&self, sent_bytes: &[u8]) -> bool {
        match self {
            Self::Line(_) => sent_bytes.ends_with(b"\n"),
            Self::Bytes(_, count) => sent_bytes.len() >= *count,
            Self::Until(end) => sent_bytes.ends_with(end.as_bytes()),
        }
    }
}

pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    /// Protocol name of `openssl s_client -starttls`, if it supports the protocol.
    pub(super) openssl: Option<&'static str>,
    pub(super) turns: &'static [Turn],
}

impl Script {
    /// Returns all bytes that the server sends.
    pub(super) fn sent_bytes(&self) -> impl Iterator<Item = u8> {
        self.turns.iter().flat_map(|turn| match turn {
            Turn::Say(bytes) => bytes.to_vec(),
            Turn::Hear(_) => Vec::new(),
        })
    }
}

use ClientPattern::{Bytes, Line, Until};
use Turn::{Hear, Say};

/// HandshakeV10 of MySQL 8.
const MYSQL_GREETING: &[u8] = b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0\
    abcdefgh\0\xff\xff\xff\x02\0\xff\xdf\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0caching_sha2_password\0";

pub(super) const DIALOGUES: &[Script] = &[
    Script {
        name: "smtp, several lines",
        protocol: Protocol::Smtp,
        openssl: Some("smtp"),
        turns: &[
            Say(b"220-mx.example ESMTP\r\n220 no spam\r\n"),
            Hear(Line("EHLO ")),
            Say(b"250-mx.example\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-STARTTLS\r\n250 8BITMIME\r\n"),
            Hear(Line("STARTTLS")),
            Say(b"220 2.0.0 Ready to start TLS\r\n"),
        ],
    },
    Script {
        name: "smtp, bare line feeds and lower case",
        protocol: Protocol::Smtp,
        openssl: None,
        turns: &[
            Say(b"220 mx\n"),
            Hear(Line("EHLO ")),
            Say(b"250-mx\n250 starttls\n"),
            Hear(Line("STARTTLS")),
            Say(b"220\n"),
        ],
    },
    Script {
        name: "lmtp",
        protocol: Protocol::Lmtp,
        openssl: Some("lmtp"),
        turns: &[
            Say(b"220 store.example LMTP\r\n"),
            Hear(Line("LHLO ")),
            Say(b"250-store.example\r\n250-STARTTLS\r\n250 ENHANCEDSTATUSCODES\r\n"),
            Hear(Line("STARTTLS")),
            Say(b"220 go\r\n"),
        ],
    },
    Script {
        name: "imap",
        protocol: Protocol::Imap,
        openssl: Some("imap"),
        turns: &[
            Say(b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n"),
            Hear(Line(" CAPABILITY")),
            Say(b"* CAPABILITY IMAP4rev1 SASL-IR STARTTLS LOGINDISABLED\r\na1 OK done\r\n"),
            Hear(Line(" STARTTLS")),
            Say(b"* OK still here\r\na2 OK begin TLS\r\n"),
        ],
    },
    Script {
        name: "pop3",
        protocol: Protocol::Pop3,
        openssl: None,
        turns: &[
            Say(b"+OK Dovecot ready.\r\n"),
            Hear(Line("CAPA")),
            Say(b"+OK\r\nTOP\r\nUIDL\r\nSTLS\r\n.\r\n"),
            Hear(Line("STLS")),
            Say(b"+OK Begin TLS\r\n"),
        ],
    },
    Script {
        name: "pop3 without CAPA",
        protocol: Protocol::Pop3,
        openssl: None,
        turns: &[
            Say(b"+OK old\r\n"),
            Hear(Line("CAPA")),
            Say(b"-ERR what?\r\n"),
            Hear(Line("STLS")),
            Say(b"+OK\r\n"),
        ],
    },
    Script {
        name: "managesieve",
        protocol: Protocol::Sieve,
        openssl: Some("sieve"),
        turns: &[
            Say(b"\"IMPLEMENTATION\" \"Dovecot Pigeonhole\"\r\n\"SIEVE\" \"fileinto reject\"\r\n\"STARTTLS\"\r\n\"VERSION\" \"1.0\"\r\nOK \"ready.\"\r\n"),
            Hear(Line("STARTTLS")),
            Say(b"OK \"Begin TLS negotiation now.\"\r\n"),
        ],
    },
    Script {
        name: "managesieve with a literal",
        protocol: Protocol::Sieve,
        openssl: None,
        turns: &[
            Say(b"\"IMPLEMENTATION\" {9+}\r\nab\r\nOK\r\n!\r\n\"STARTTLS\"\r\nOK\r\n"),
            Hear(Line("STARTTLS")),
            Say(b"OK\r\n"),
        ],
    },
    Script {
        name: "ftp, with a notice that holds anything",
        protocol: Protocol::Ftp,
        openssl: Some("ftp"),
        turns: &[
            Say(b"220-Welcome\r\nno code here\r\n 230 indented\r\n221 not the end\r\n220 ready\r\n"),
            Hear(Line("AUTH TLS")),
            Say(b"234 Proceed with negotiation.\r\n"),
        ],
    },
    Script {
        name: "ftp, in a minute",
        protocol: Protocol::Ftp,
        openssl: None,
        turns: &[
            Say(b"120 one minute\r\n220 ready\r\n"),
            Hear(Line("AUTH TLS")),
            Say(b"234 AUTH TLS OK.\r\n"),
        ],
    },
    Script {
        name: "nntp",
        protocol: Protocol::Nntp,
        openssl: Some("nntp"),
        turns: &[
            Say(b"200 news.example ready\r\n"),
            Hear(Line("CAPABILITIES")),
            Say(b"101 Capability list:\r\nVERSION 2\r\nREADER\r\nSTARTTLS\r\n.\r\n"),
            Hear(Line("STARTTLS")),
            Say(b"382 Begin TLS negotiation now\r\n"),
        ],
    },
    Script {
        name: "ldap",
        protocol: Protocol::Ldap,
        openssl: Some("ldap"),
        turns: &[
            Hear(Bytes(b"\x30\x1d\x02\x01\x01\x77\x18\x80\x16", 31)),
            Say(b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"),
        ],
    },
    Script {
        name: "ldap, Active Directory's long lengths and a name",
        protocol: Protocol::Ldap,
        openssl: None,
        turns: &[
            Hear(Bytes(b"\x30", 31)),
            Say(b"\x30\x84\x00\x00\x00\x28\x02\x01\x01\x78\x84\x00\x00\x00\x1f\x0a\x01\x00\x04\x00\x04\x00\x8a\x161.3.6.1.4.1.1466.20037"),
        ],
    },
    Script {
        name: "postgres",
        protocol: Protocol::Postgres,
        openssl: Some("postgres"),
        turns: &[Hear(Bytes(b"\0\0\0\x08\x04\xd2\x16\x2f", 8)), Say(b"S")],
    },
    Script {
        name: "mysql",
        protocol: Protocol::Mysql,
        openssl: Some("mysql"),
        turns: &[Say(MYSQL_GREETING), Hear(Bytes(b"\x20\0\0\x01", 36))],
    },
    Script {
        name: "mssql",
        protocol: Protocol::Mssql,
        openssl: None,
        turns: &[
            Hear(Bytes(b"\x12\x01\0\x2f", 47)),
            Say(b"\x04\x01\0\x2b\0\0\x01\0\0\0\x1a\0\x06\x01\0\x20\0\x01\x02\0\x21\0\x01\x03\0\x22\0\0\x04\0\x22\0\x01\xff\x10\0\x10\x53\0\0\x01\0\0"),
        ],
    },
    Script {
        name: "rdp with CredSSP",
        protocol: Protocol::Rdp,
        openssl: None,
        turns: &[
            Hear(Bytes(b"\x03\0\0\x13\x0e\xe0", 19)),
            Say(b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\x1f\x08\0\x02\0\0\0"),
        ],
    },
    Script {
        name: "xmpp",
        protocol: Protocol::Xmpp,
        openssl: Some("xmpp"),
        turns: &[
            Hear(Until(">")),
            Say(b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='a>b' version='1.0'>"),
            Say(b"<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>"),
            Hear(Until(">")),
            Say(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        ],
    },
    Script {
        name: "xmpp between servers, other prefixes and a comment",
        protocol: Protocol::XmppServer,
        openssl: None,
        turns: &[
            Hear(Until(">")),
            Say(b"\n<s:stream xmlns='jabber:server' xmlns:s='http://etherx.jabber.org/streams'>\n<!-- > -->"),
            Say(b"<s:features><starttls xmlns=\"urn:ietf:params:xml:ns:xmpp-tls\"/></s:features>"),
            Hear(Until(">")),
            Say(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'></proceed>"),
        ],
    },
    Script {
        name: "xmpp between servers",
        protocol: Protocol::XmppServer,
        openssl: Some("xmpp-server"),
        turns: &[
            Hear(Until(">")),
            Say(b"<?xml version='1.0'?><stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"),
            Say(b"<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/></stream:features>"),
            Hear(Until(">")),
            Say(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        ],
    },
];

/// `openssl s_client` does not request capabilities first.
pub(super) const POP3_WITHOUT_ASKING: Script = Script {
    name: "pop3 as openssl speaks it",
    protocol: Protocol::Pop3,
    openssl: Some("pop3"),
    turns: &[Say(b"+OK ready\r\n"), Hear(Line("STLS")), Say(b"+OK go\r\n")],
};
