//! Errors as a client gets them, and commands that the server gets in the place of refused ones.

use crate::sessions::{Failure, FailureKind};

/// The reply to a command that succeeded.
pub(super) const OK: &[u8] = b"+OK\r\n";
/// Bytes that no server accepts: it answers with an error, sends all its replies, and closes the connection.
const BROKEN_COMMAND: &[u8] = b"*1\r\n!\r\n";

/// Encodes a command with its arguments.
pub(super) fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_command(arguments, &mut bytes);
    bytes
}

/// Appends a command with its arguments to `bytes`.
pub(super) fn write_command(arguments: &[&[u8]], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Returns a command in the place of a refused one. Its name is unknown to every server, so the server answers with an error that
/// contains the name and the argument: what was refused, and why. Both are cut after 128 bytes by Redis 7.
pub(super) fn refused(what: &str, why: &str) -> Vec<u8> {
    command(&[format!("{what} refused by the proxy").as_bytes(), why.as_bytes()])
}

/// Returns bytes for the server after which it answers with an error and closes the connection.
pub(super) fn last_refused(what: &str, why: &str) -> Vec<u8> {
    [&refused(what, why)[..], BROKEN_COMMAND].concat()
}

/// Encodes an error reply: a code and a text.
pub(super) fn error(code: &str, text: &str) -> Vec<u8> {
    let text = text.replace(|c: char| c.is_control(), " ");
    format!("-{code} {text}\r\n").into_bytes()
}

/// Returns the first word of the reply for a failure.
pub(super) fn code_of(failure: &Failure) -> &'static str {
    match failure.kind {
        FailureKind::WrongToken => "WRONGPASS",
        FailureKind::Forbidden | FailureKind::Stopped => "NOPERM",
        FailureKind::Protocol
        | FailureKind::Unsupported
        | FailureKind::TooMany
        | FailureKind::Unavailable
        | FailureKind::Unreachable
        | FailureKind::Rejected
        | FailureKind::Broken => "ERR",
    }
}

/// Encodes a failure as an error reply.
pub(super) fn failure(failure: &Failure) -> Vec<u8> {
    error(code_of(failure), &format!("{}. {}", failure.message, failure.hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_one_line() {
        assert_eq!(error("ERR", "a\r\n+OK\r\nb\0"), b"-ERR a  +OK  b \r\n");
        assert_eq!(command(&[b"GET", b""]), b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    }
}
