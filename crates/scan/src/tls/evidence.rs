//! What a handshake showed, and how it can end.

use super::names;

/// Everything a server said until the handshake was stopped; partial when it failed on the way.
///
/// It is never from a resumed session: no ticket, session or pre-shared key is ever offered, so a
/// server that would resume has nothing to resume, and what stands here was sent in this handshake.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Evidence {
    /// The version chosen, as on the wire ([`names::version`]).
    pub version: Option<u16>,
    /// The cipher suite chosen ([`names::cipher_suite`]).
    pub cipher: Option<u16>,
    /// The named group of the key exchange ([`names::group`]).
    pub group: Option<u16>,
    /// Bits of the Diffie-Hellman prime, or of the RSA export key, where a suite of that kind was
    /// chosen.
    pub exchange_bits: Option<u32>,
    /// How the server signed ([`names::signature_scheme`]); absent up to TLS 1.1, which does not
    /// say.
    pub signature_scheme: Option<u16>,
    /// The application protocol chosen (RFC 7301), bytes that are no text replaced.
    pub alpn: Option<String>,
    /// The server asked for a second ClientHello (RFC 8446 section 4.1.4).
    pub hello_retry: bool,
    /// Certificates in DER, as sent: the leaf first.
    pub chain: Vec<Vec<u8>>,
    /// The stapled OCSP response (RFC 6066 section 8), in DER.
    pub ocsp_staple: Option<Vec<u8>>,
    /// The SignedCertificateTimestampList sent in the handshake (RFC 6962 section 3.3).
    pub scts: Option<Vec<u8>>,
    /// Whether a client certificate was demanded; `None` when the handshake ended before that.
    pub client_certificate: Option<bool>,
    /// Whether the server offers tickets.
    pub session_ticket: TicketOffer,
    /// Whether the server has shown that it holds the leaf's key.
    pub proof: Proof,
    /// The server knows a newer version and says it was kept from using it (RFC 8446 section
    /// 4.1.3), though it was offered: something on the way tampers, or the server is at odds with
    /// itself.
    pub downgraded: bool,
    /// Warning alerts that were read and passed over, the last one's description.
    pub warning: Option<u8>,
    /// The alert that answered our Finished, where the handshake was finished (116 from a server
    /// that insists on a client certificate).
    pub rejected: Option<u8>,
    /// Bytes received.
    pub bytes_in: u64,
}

/// Session tickets (RFC 5077; RFC 8446 section 4.6.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TicketOffer {
    /// TLS 1.3 sends tickets after the handshake, which was stopped before: unknown.
    #[default]
    NotAsked,
    /// A ticket was promised or sent.
    Offered,
    /// None was.
    NotOffered,
}

/// Whether the server holds the key of its certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Proof {
    /// The handshake ended before any proof.
    #[default]
    None,
    /// A signature over this handshake's randoms was checked with the leaf's key.
    Verified,
    /// There was nothing to check, or nothing to check it with; why.
    Unverifiable(&'static str),
    /// The signature is wrong; in what way.
    Invalid(String),
}

/// Why a handshake ended early. What was seen up to there stays in the [`Evidence`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The peer speaks something else; try the protocol guessed.
    #[error("the peer does not speak TLS ({})", guess.unwrap_or("unknown protocol"))]
    NotTls {
        /// The first bytes, up to [`super::limits::FIRST_OCTETS_MAX`].
        first: Vec<u8>,
        /// The likely implementation.
        guess: Option<&'static str>,
    },
    /// The peer answered in SSL 2.0, whose records no newer hello can use.
    #[error("the peer answered in SSL 2.0")]
    Ssl2,
    /// The peer ended the handshake itself.
    #[error("alert {} ({description})", names::alert(*description))]
    Alert {
        /// 1 is a warning, 2 is fatal.
        level: u8,
        /// See [`names::alert`].
        description: u8,
    },
    /// Bytes that break the protocol; where.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The peer sends more than any honest one.
    #[error("more than {limit} {what}")]
    LimitExceeded {
        /// The counted item.
        what: &'static str,
        /// How many are accepted.
        limit: usize,
    },
    /// A message that has no place there.
    #[error("{} where {expected} belongs", names::message(*found))]
    UnexpectedMessage {
        /// The message that belongs there.
        expected: &'static str,
        /// See [`names::message`].
        found: u8,
    },
    /// The server chose what was not offered, so that nothing more can be read.
    #[error("the server chose {0}, which was not offered")]
    NotOffered(&'static str),
    /// The handshake goes on without a certificate; how.
    #[error("no certificate: {0}")]
    NoCertificate(&'static str),
    /// The cryptographic library refused; what. A server's key share may be invalid.
    #[error("{0} failed")]
    Cryptography(&'static str),
}
