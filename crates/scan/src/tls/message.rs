//! Assembles handshake messages from the content of records.

use std::ops::Range;

use super::cursor::Cursor;
use super::evidence::Failure;
use super::limits::{CERTIFICATE_MAX, HANDSHAKE_MAX};

/// Whether the handshake continues after a message.
pub(super) enum Flow {
    More,
    Done,
}

/// A handshake message (RFC 8446 section 4).
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    /// Header and body, for the transcript hash.
    pub(super) whole: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn body(&self) -> &'a [u8] {
        &self.whole[Messages::HEADER..]
    }
}

/// A buffer that assembles fragmented messages.
#[derive(Default)]
pub(super) struct Messages {
    buffer: Vec<u8>,
    /// Offset of the first unread message.
    position: usize,
    total: usize,
}

impl Messages {
    const HEADER: usize = 4;

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.total += bytes.len();
        if self.total > HANDSHAKE_MAX {
            return Err(TOO_LONG);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the range of the next complete message; `None` when more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, Failure> {
        let mut rest = Cursor::new(&self.buffer[self.position..]);
        let (Some(_kind), Some(length)) = (rest.u8(), rest.u24()) else {
            self.discard_read();
            return Ok(None);
        };
        if length > HANDSHAKE_MAX {
            return Err(TOO_LONG);
        }
        if rest.rest().len() < length {
            self.discard_read();
            return Ok(None);
        }
        let range = self.position..self.position + Self::HEADER + length;
        self.position = range.end;
        Ok(Some(range))
    }

    pub(super) fn get(&self, range: &Range<usize>) -> Message<'_> {
        let whole = &self.buffer[range.clone()];
        Message { kind: whole[0], whole }
    }

    /// Fails if a message spans a change of keys (RFC 8446 section 5.1).
    pub(super) fn check_no_partial_message(&self) -> Result<(), Failure> {
        if self.position == self.buffer.len() {
            Ok(())
        } else {
            Err(Failure::Malformed("record: messages across a key change"))
        }
    }

    fn discard_read(&mut self) {
        self.buffer.drain(..self.position);
        self.position = 0;
    }
}

const TOO_LONG: Failure =
    Failure::LimitExceeded { what: "bytes of handshake messages", limit: HANDSHAKE_MAX };

/// Reads the next certificate of a list. Its bytes are encoded in the same way in all TLS versions. The extensions that follow it
/// in TLS 1.3 are not read.
pub(super) fn read_certificate(list: &mut Cursor<'_>) -> Result<Vec<u8>, Failure> {
    let certificate = list.vec24().ok_or(Failure::Malformed("Certificate"))?;
    if certificate.len() > CERTIFICATE_MAX {
        let (what, limit) = ("bytes in a certificate", CERTIFICATE_MAX);
        return Err(Failure::LimitExceeded { what, limit });
    }
    if certificate.is_empty() {
        return Err(Failure::Malformed("Certificate: an empty certificate"));
    }
    Ok(certificate.to_vec())
}
