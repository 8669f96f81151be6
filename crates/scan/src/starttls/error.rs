//! Why a dialogue led to no TLS, and the words of servers in errors.

use crate::target::Protocol;

/// Characters of the server's own words repeated in errors.
pub(super) const WORDS_MAX: usize = 200;

/// Why no TLS came about. The server's words are free of control characters and shortened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartTlsError {
    /// The server speaks the protocol, but has no TLS on it.
    #[error("the server offers no TLS{}", Words(.words))]
    NotOffered {
        /// The server's reply, if any.
        words: String,
    },
    /// The server knows TLS and will not do it now, or turns us away altogether.
    #[error("the server refused{}", Words(.words))]
    Refused {
        /// The server's reply.
        words: String,
    },
    /// Something else answers on that port.
    #[error("not {protocol}{}", Words(.first))]
    NotThatProtocol {
        /// The expected protocol.
        protocol: Protocol,
        /// The beginning of the reply.
        first: String,
    },
    /// The protocol, broken.
    #[error("{what}{}", Words(.words))]
    Malformed {
        /// The malformed part.
        what: &'static str,
        /// The server's reply.
        words: String,
    },
    /// More than any real server says ([`super::LINE_MAX`], [`super::DIALOGUE_MAX`], [`super::TDS_PACKET_MAX`]).
    #[error("the server's {what} is longer than {max} bytes")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// The bound, in bytes.
        max: usize,
    },
}

struct Words<'a>(&'a str);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// A server's words as they may be shown on a terminal: control characters and ends of lines become
/// spaces, what is not UTF-8 the replacement character, and no more than [`WORDS_MAX`] characters.
pub(super) fn words(bytes: &[u8]) -> String {
    // Four bytes a character at most.
    let bytes = &bytes[..bytes.len().min(4 * WORDS_MAX)];
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() || is_layout(c) { ' ' } else { c })
        .take(WORDS_MAX)
        .collect();
    text.trim().to_owned()
}

/// Characters that reorder or hide the text around them (UAX #9 and relatives).
fn is_layout(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

pub(super) fn not_offered(said: &[u8]) -> StartTlsError {
    StartTlsError::NotOffered { words: words(said) }
}

pub(super) fn refused(said: &[u8]) -> StartTlsError {
    StartTlsError::Refused { words: words(said) }
}

pub(super) fn malformed(what: &'static str, said: &[u8]) -> StartTlsError {
    StartTlsError::Malformed { what, words: words(said) }
}
