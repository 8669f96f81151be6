//! Errors of dialogues before TLS, and the server's text in them.

use crate::target::Protocol;

/// Maximum characters of the server's text in errors.
pub(super) const EXCERPT_MAX: usize = 200;

/// Reason why the dialogue did not lead to TLS. The server's text is truncated and has no control characters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartTlsError {
    /// The server speaks the protocol but does not support TLS.
    #[error("the server offers no TLS{}", Excerpt(.excerpt))]
    NotOffered {
        /// The server's reply, if any.
        excerpt: String,
    },
    /// The server supports TLS but rejects it now, or rejects the client altogether.
    #[error("the server refused STARTTLS{}", Excerpt(.excerpt))]
    Refused {
        /// The server's reply.
        excerpt: String,
    },
    /// Another protocol is served on the port.
    #[error("the server does not speak {protocol}{}", Excerpt(.first))]
    NotThatProtocol {
        /// The expected protocol.
        protocol: Protocol,
        /// The beginning of the reply.
        first: String,
    },
    /// The server violates the protocol.
    #[error("{what}{}", Excerpt(.excerpt))]
    Malformed {
        /// The malformed part.
        what: &'static str,
        /// The server's reply.
        excerpt: String,
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

struct Excerpt<'a>(&'a str);

impl std::fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// Returns a server's text in a form that is safe for terminals: control characters and line ends become spaces, invalid UTF-8
/// becomes the replacement character, and at most [`EXCERPT_MAX`] characters are kept.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // A character has four bytes at most.
    let bytes = &bytes[..bytes.len().min(4 * EXCERPT_MAX)];
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() || is_bidi_or_invisible(c) { ' ' } else { c })
        .take(EXCERPT_MAX)
        .collect();
    text.trim().to_owned()
}

/// Returns whether a character reorders or hides the text around it (UAX #9 and similar).
fn is_bidi_or_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

pub(super) fn not_offered(server_text: &[u8]) -> StartTlsError {
    StartTlsError::NotOffered { excerpt: excerpt(server_text) }
}

pub(super) fn refused(server_text: &[u8]) -> StartTlsError {
    StartTlsError::Refused { excerpt: excerpt(server_text) }
}

pub(super) fn malformed(what: &'static str, server_text: &[u8]) -> StartTlsError {
    StartTlsError::Malformed { what, excerpt: excerpt(server_text) }
}
