//! Result of one parsing step of a protocol.

use super::error::StartTlsError;

/// Result of one parsing step; an error ends the dialogue.
pub(super) enum Move {
    /// More input is needed.
    Wait,
    /// Input was consumed. The dialogue continues with the next input.
    On,
    Send(Vec<u8>),
    Ready(Vec<u8>),
}

pub(super) type Turn = Result<Move, StartTlsError>;
