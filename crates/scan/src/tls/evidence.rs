//! Evidence from a handshake, and how it can end.

use super::names;

/// Everything a server sent until the handshake was stopped. Incomplete if the handshake failed.
///
/// The handshake is never resumed: no ticket, session or pre-shared key is offered, so all data was sent in this handshake.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Evidence {
    /// The negotiated version on the wire ([`names::version`]).
    pub version: Option<u16>,
    /// The negotiated cipher suite ([`names::cipher_suite`]).
    pub cipher: Option<u16>,
    /// The named group of the key exchange ([`names::group`]).
    pub group: Option<u16>,
    /// Bits of the Diffie-Hellman prime, or of the RSA export key, for suites of these kinds.
    pub exchange_bits: Option<u32>,
    /// The server's signature scheme ([`names::signature_scheme`]); `None` up to TLS 1.1, which does not transmit it.
    pub signature_scheme: Option<u16>,
    /// The negotiated application protocol (RFC 7301); invalid UTF-8 is replaced.
    pub alpn: Option<String>,
    /// Whether the server sent a HelloRetryRequest (RFC 8446 section 4.1.4).
    pub hello_retry: bool,
    /// Certificates as sent, DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// The stapled OCSP response (RFC 6066 section 8), DER.
    pub ocsp_staple: Option<Vec<u8>>,
    /// The SignedCertificateTimestampList sent in the handshake (RFC 6962 section 3.3).
    pub scts: Option<Vec<u8>>,
    /// Whether the server requested a client certificate; `None` when the handshake ended before that.
    pub client_certificate: Option<bool>,
    /// Whether the server offers session tickets.
    pub session_ticket: TicketOffer,
    /// Whether the server has proved possession of the leaf's key.
    pub proof: Proof,
    /// Whether the server indicates support for a newer version than it chose (RFC 8446 section 4.1.3), although the newer version
    /// was offered. Either an intermediary tampers, or the server is inconsistent.
    pub downgraded: bool,
    /// Number of the last warning alert ([`names::alert`]). Warnings have no other effect.
    pub warning: Option<u8>,
    /// The alert that the server sent after the client's Finished, for completed handshakes (116 from a server that requires a
    /// client certificate).
    pub rejected: Option<u8>,
    /// Number of received bytes.
    pub bytes_in: u64,
}

/// Whether the server issues session tickets (RFC 5077; RFC 8446 section 4.6.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TicketOffer {
    /// Unknown: TLS 1.3 sends tickets after the handshake, which was stopped before.
    #[default]
    Unknown,
    /// A ticket was promised or sent.
    Offered,
    /// No ticket was promised or sent.
    NotOffered,
}

/// Whether the server has the key of its certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Proof {
    /// The handshake ended before the server sent a proof.
    #[default]
    None,
    /// A signature over this handshake's random values was verified with the leaf's key.
    Verified,
    /// There was no signature, or it could not be verified; contains the reason.
    Unverifiable(&'static str),
    /// The signature is invalid; contains a description.
    Invalid(String),
}

/// Reason why a TLS handshake failed. Data received before the failure is in the [`Evidence`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The peer speaks another protocol, possibly the guessed one.
    #[error("the peer does not speak TLS ({})", guess.unwrap_or("unknown protocol"))]
    NotTls {
        /// The first bytes, up to [`super::limits::FIRST_BYTES_MAX`].
        first: Vec<u8>,
        /// Name of the protocol that the peer probably speaks.
        guess: Option<&'static str>,
    },
    /// The peer responded with SSL 2.0, which has another record format.
    #[error("the peer answered with SSL 2.0")]
    Ssl2,
    /// The peer sent an alert that ends the handshake.
    #[error("alert {} ({description})", names::alert(*description))]
    Alert {
        /// Level of the alert: 1 is a warning, 2 is fatal.
        level: u8,
        /// Number of the alert description: see [`names::alert`].
        description: u8,
    },
    /// A message violates the protocol; contains the location.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The peer exceeds a limit that no valid peer reaches.
    #[error("more than {limit} {what}")]
    LimitExceeded {
        /// What the limit counts, for the error text, such as `bytes in a record`.
        what: &'static str,
        /// The limit that was exceeded.
        limit: usize,
    },
    /// A message arrived in the wrong order.
    #[error("received {} instead of {expected}", names::message(*found))]
    UnexpectedMessage {
        /// Name of the expected message.
        expected: &'static str,
        /// Type of the received message: see [`names::message`].
        found: u8,
    },
    /// The server chose something that was not offered, so the handshake cannot continue.
    #[error("the server chose {0}, which was not offered")]
    NotOffered(&'static str),
    /// The server sends no certificate in this handshake; contains the reason.
    #[error("no certificate: {0}")]
    NoCertificate(&'static str),
    /// The cryptographic library returned an error; contains the operation. A cause may be an invalid key share of the server.
    #[error("{0} failed")]
    Cryptography(&'static str),
}
