//! The TLS probe: one ClientHello for TLS 1.0 to 1.3. The handshake is read until the server has proved possession of its
//! certificate's key, then ended.
//!
//! Existing libraries are not suitable. They reject old versions, suites and keys, which a scanner must detect. They verify chains
//! during the handshake, but the scanner verifies each chain only once. They generate new keys for every connection. This module
//! performs no I/O and uses no clock.

mod acceptance;
mod cursor;
mod evidence;
mod extension;
mod handshake;
mod hello;
pub mod limits;
mod message;
pub mod names;
mod proof;
mod record;
mod schedule;
mod shares;
#[cfg(test)]
mod tests;
mod tls12;
mod tls13;

pub use acceptance::{Accepted, ProbeHandshake, Question, ServerReply, Weakness, weaknesses};
pub use evidence::{Evidence, Failure, Proof, TicketOffer};
pub use handshake::{Handshake, Step};
pub use shares::{KeyShares, NoRandomness};

/// Parameters of a handshake: server name, ALPN protocols, kind of ClientHello, and whether to finish.
#[derive(Clone, Debug, Default)]
pub struct ClientHelloContent {
    /// Server name to request; not sent for address literals (RFC 6066 section 3).
    pub server_name: Option<String>,
    /// Application protocols in order of preference; without any, the extension is omitted.
    pub alpn: &'static [&'static str],
    /// Kind of ClientHello to send.
    pub profile: Profile,
    /// Whether to complete a TLS 1.3 handshake, to detect session tickets and required client certificates. This costs a round trip
    /// and work of the server, but the server logs a complete handshake. Earlier versions announce tickets in the ServerHello, so
    /// their handshakes are never completed.
    pub finish: bool,
}

/// Kinds of ClientHello. All offer TLS 1.2 and earlier with all kinds of suites.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Profile {
    /// TLS 1.0 to 1.3 with key shares for X25519 and X25519MLKEM768, so that few servers need a second round trip. About 1,700
    /// bytes.
    #[default]
    Modern,
    /// A ClientHello like [`Self::Modern`] without post-quantum key exchange, in a single packet, for middleboxes that drop a
    /// ClientHello in two packets.
    Compact,
    /// At most TLS 1.2, for servers that fail on unknown versions or extensions.
    Legacy,
}

impl Profile {
    /// Returns the name stored in observations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Compact => "compact",
            Self::Legacy => "legacy",
        }
    }
}
