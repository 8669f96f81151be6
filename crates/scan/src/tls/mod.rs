//! The probe: one ClientHello for everything from TLS 1.0 to 1.3, read until the server has proved
//! that it holds its certificate's key, then ended.
//!
//! It is ours because no library does this: they refuse old versions, suites and keys (which are
//! just what has to be found), they verify chains on the way (which is done elsewhere, once per
//! chain), and they make new keys for every connection. Without I/O and without a clock.

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

pub use acceptance::{Accepted, Inquiry, Question, ServerReply, Weakness, weaknesses};
pub use evidence::{Evidence, Failure, Proof, TicketOffer};
pub use handshake::{Handshake, Step};
pub use shares::{KeyShares, NoRandomness};

/// What to say to a server.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The name to ask for; none is sent for address literals (RFC 6066 section 3).
    pub server_name: Option<String>,
    /// Application protocols, preferred first; the extension is left out when empty.
    pub alpn: &'static [&'static str],
    /// Which hello to send.
    pub profile: Profile,
    /// Finish a TLS 1.3 handshake, to see whether tickets are issued and whether the server insists on a
    /// client certificate. It costs a round trip and the server's work; in return the server's log
    /// shows a whole handshake. Earlier versions say in ServerHello whether they issue tickets and are
    /// never finished.
    pub finish: bool,
}

/// Kinds of ClientHello. All ask for TLS 1.2 and before with every kind of suite.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Profile {
    /// TLS 1.0 to 1.3, with X25519 and X25519MLKEM768 shares, so that hardly a server needs a second
    /// round trip. About 1,700 bytes.
    #[default]
    Modern,
    /// The same without post-quantum key exchange, in one packet, for what is between here and a
    /// server and drops hellos of two.
    Compact,
    /// Nothing newer than TLS 1.2: for servers that fail on what they do not know.
    Legacy,
}

impl Profile {
    /// The name an observation records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Compact => "compact",
            Self::Legacy => "legacy",
        }
    }
}
