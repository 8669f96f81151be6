//! What a protocol does with the next piece of input.

use super::error::StartTlsError;

/// What a machine does with its input; an error ends the dialogue.
pub(super) enum Move {
    /// Nothing without more input.
    Wait,
    /// Something was taken from the input; go on.
    On,
    Send(Vec<u8>),
    Ready(Vec<u8>),
}

pub(super) type Turn = Result<Move, StartTlsError>;
