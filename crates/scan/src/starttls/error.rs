//! Errors of dialogues before TLS, and the server's text in them.

use crate::target::Protocol;

/// Maximum characters of the server's text in errors.
pub(super) const WORDS_MAX: usize = 200;

/// Reason why the dialogue did not lead to TLS. The server's text is truncated and has no control characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartTlsError {
    /// The server speaks the protocol but does not support TLS.
    #[error("the server offers no TLS{}", Words(.words))]
    NotOffered {
        /// The server's reply, if any.
        words: String,
    },
    /// The server supports TLS but rejects it now, or rejects the client altogether.
    #[error("the server refused STARTTLS{}", Words(.words))]
    Refused {
        /// The server's reply.
        words: String,
    },
    /// Another protocol is served on the port.
    #[error("the server does not speak {protocol}{}", Words(.first))]
    NotThatProtocol {
        /// The expected protocol.
        protocol: Protocol,
        /// The beginning of the reply.
        first: String,
    },
    /// The server violates the protocol.
    #[error("{what}{}", Words(.words))]
    Malformed {
        /// The malformed part.
        what: &'static str,
        /// The server's reply.
        words: String,
    },
    /// The server's text is longer than allowed ([`super::LINE_MAX`], [`super::DIALOGUE_MAX`], [`super::TDS_PACKET_MAX`]).
    #[error("the server's {what} is longer than {max} bytes")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// The limit in bytes.
        max: usize,
    },
}

struct Words<'a>(&'a str);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// Returns a server's text in a form that is safe for terminals: control characters and line ends become spaces, invalid UTF-8
/// becomes the replacement character, and at most [`WORDS_MAX`] characters are kept.
pub(super) fn words(bytes: &[u8]) -> String {
    // A character has four bytes at most.
    let bytes = &bytes[..bytes.len().min(4 * WORDS_MAX)];
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() || is_bidi_or_invisible(c) { ' ' } else { c })
        .take(WORDS_MAX)
        .collect();
    text.trim().to_owned()
}

/// Returns whether a character reorders or hides the text around it (UAX #9 and similar).
fn is_bidi_or_invisible(c: char) -> bool {
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
