//! Received bytes that are not parsed yet.

use super::error::{StartTlsError, excerpt};
use crate::target::Protocol;

/// Maximum bytes of one line, packet or tag. RFC 5321 section 4.5.3.1 allows 512 in a reply; IMAP greetings with capabilities reach
/// about 1,000.
pub const LINE_MAX: usize = 8_192;
/// Maximum bytes from the server in the whole dialogue. The longest greetings (legal notices of FTP servers) have less than 10,000.
pub const DIALOGUE_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct Input {
    protocol: Protocol,
    pending: Vec<u8>,
    /// Number of bytes of `pending` that contain no line end.
    searched: usize,
    consumed: usize,
}

impl Input {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, pending: Vec::new(), searched: 0, consumed: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Fails when more than [`DIALOGUE_MAX`] bytes were needed. Bytes beyond the limit count only when they are needed, so that the result
    /// does not depend on how the input was split.
    pub(super) fn check_total(&self) -> Result<(), StartTlsError> {
        if self.consumed > DIALOGUE_MAX {
            return Err(StartTlsError::TooLong { what: "dialogue before TLS", max: DIALOGUE_MAX });
        }
        Ok(())
    }

    fn wait<T>(&self) -> Result<Option<T>, StartTlsError> {
        if self.consumed + self.pending.len() > DIALOGUE_MAX {
            return Err(StartTlsError::TooLong { what: "dialogue before TLS", max: DIALOGUE_MAX });
        }
        Ok(None)
    }

    /// Fails if nothing has been consumed yet and the first byte does not satisfy `fits`: the server speaks another protocol.
    pub(super) fn expect_first(&self, fits: impl Fn(u8) -> bool) -> Result<(), StartTlsError> {
        match self.pending.first() {
            Some(&first) if self.consumed == 0 && !fits(first) => Err(self.wrong_protocol_error()),
            _ => Ok(()),
        }
    }

    pub(super) fn wrong_protocol_error(&self) -> StartTlsError {
        self.wrong_protocol_error_for(&self.pending)
    }

    pub(super) fn wrong_protocol_error_for(&self, server_text: &[u8]) -> StartTlsError {
        StartTlsError::NotThatProtocol { protocol: self.protocol, first: excerpt(server_text) }
    }

    /// Returns the next line without its end, once it is complete.
    pub(super) fn line(&mut self) -> Result<Option<Vec<u8>>, StartTlsError> {
        let end = self.pending[self.searched..].iter().position(|&byte| byte == b'\n');
        let length = end.map_or(self.pending.len(), |end| self.searched + end);
        if length > LINE_MAX {
            return Err(StartTlsError::TooLong { what: "line", max: LINE_MAX });
        }
        if end.is_none() {
            self.searched = length;
            return self.wait();
        }
        let mut line = self.take(length + 1);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    /// Returns the next `count` bytes, once they are complete. The error for too many bytes contains `what`.
    pub(super) fn exact(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Option<Vec<u8>>, StartTlsError> {
        if count > LINE_MAX {
            return Err(StartTlsError::TooLong { what, max: LINE_MAX });
        }
        if self.pending.len() < count {
            return self.wait();
        }
        Ok(Some(self.take(count)))
    }

    /// Drops up to `count` bytes. Returns the number of dropped bytes.
    pub(super) fn skip(&mut self, count: usize) -> Result<usize, StartTlsError> {
        let count = count.min(self.pending.len());
        self.take(count);
        self.check_total()?;
        Ok(count)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.pending.split_off(count);
        self.searched = 0;
        self.consumed += count;
        std::mem::replace(&mut self.pending, rest)
    }
}
