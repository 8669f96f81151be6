//! Result of one parsing step of a protocol.

use super::error::StartTlsError;

/// Result of one parsing step; an error ends the dialogue.
pub(super) enum Action {
    /// More input is needed.
    Wait,
    /// Input was consumed. The dialogue continues with the next input.
    Continue,
    Send(Vec<u8>),
    Ready(Vec<u8>),
}

pub(super) type ActionResult = Result<Action, StartTlsError>;
