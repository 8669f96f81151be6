//! The record layer (RFC 8446 section 5; RFC 5246 section 6.2).

use std::ops::Range;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};

use super::Failure;
use super::cursor::put_u16;
use super::limits::{FIRST_BYTES_MAX, IDLE_RECORDS_MAX, PROTECTED_RECORD_MAX, RECORD_MAX, RECORDS_MAX};

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;
pub(super) const HEARTBEAT: u8 = 24;

const HEADER: usize = 5;

/// Splits input into records and decrypts protected ones.
#[derive(Default)]
pub(super) struct RecordReader {
    buffer: Vec<u8>,
    /// Offset of the first unread byte.
    position: usize,
    opener: Option<RecordProtection>,
    count: usize,
    idle: usize,
}

/// A record: its content type and the range of its content.
pub(super) struct Record {
    pub(super) kind: u8,
    content: Range<usize>,
}

impl RecordReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Decrypts all further records with these keys.
    pub(super) fn open_with(&mut self, protection: RecordProtection) {
        self.opener = Some(protection);
    }

    pub(super) fn content(&self, record: &Record) -> &[u8] {
        &self.buffer[record.content.clone()]
    }

    /// Returns the next complete record; `None` when more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Record>, Failure> {
        let Some(header) = self.buffer[self.position..].first_chunk::<HEADER>().copied() else {
            self.discard_read();
            return Ok(None);
        };
        let [kind, major, minor, high, low] = header;
        if !(CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&kind) || major != 3 || minor > 4 {
            return Err(self.invalid_record_failure());
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        // A ChangeCipherSpec record is never protected.
        let protected = self.opener.is_some() && kind == APPLICATION_DATA;
        let limit = if protected { PROTECTED_RECORD_MAX } else { RECORD_MAX };
        if length > limit {
            return Err(Failure::LimitExceeded { what: "bytes in a record", limit });
        }
        let content = self.position + HEADER..self.position + HEADER + length;
        if self.buffer.len() < content.end {
            self.discard_read();
            return Ok(None);
        }
        self.position = content.end;
        self.count += 1;
        if self.count > RECORDS_MAX {
            return Err(Failure::LimitExceeded { what: "records", limit: RECORDS_MAX });
        }
        let record = match &mut self.opener {
            Some(opener) if protected => opener.open(header, &mut self.buffer, content)?,
            // After the key change, only compatibility records and alerts may be unprotected.
            Some(_) if kind == HANDSHAKE => {
                return Err(Failure::Malformed("record: unprotected after ServerHello"));
            }
            _ => Record { kind, content },
        };
        if record.content.is_empty() {
            self.count_idle_record()?;
        }
        Ok(Some(record))
    }

    /// Counts a record without progress; fails at the limit.
    pub(super) fn count_idle_record(&mut self) -> Result<(), Failure> {
        self.idle += 1;
        if self.idle > IDLE_RECORDS_MAX {
            return Err(Failure::LimitExceeded {
                what: "records that do not advance the handshake",
                limit: IDLE_RECORDS_MAX,
            });
        }
        Ok(())
    }

    fn discard_read(&mut self) {
        self.buffer.drain(..self.position);
        self.position = 0;
    }

    fn invalid_record_failure(&self) -> Failure {
        if self.count > 0 {
            return Failure::Malformed("record header");
        }
        let first = &self.buffer[self.position..];
        // SSL 2.0: a two-byte length with the high bit set, then SERVER-HELLO (4) or ERROR (0).
        if let [0x80..=0xff, _, 4 | 0, ..] = first {
            return Failure::Ssl2;
        }
        Failure::NotTls { first: first[..first.len().min(FIRST_BYTES_MAX)].to_vec(), guess: guess(first) }
    }
}

/// Guesses the protocol from the first five bytes; there may be no more.
fn guess(first: &[u8]) -> Option<&'static str> {
    const OPENINGS: &[(&[u8], &str)] = &[
        (b"HTTP/", "HTTP"),
        (b"<html", "HTTP"),
        (b"<!DOC", "HTTP"),
        (b"SSH-", "SSH"),
        (b"220", "SMTP or FTP"),
        (b"421", "SMTP or FTP"),
        (b"554", "SMTP or FTP"),
        (b"+OK", "POP3"),
        (b"* OK", "IMAP"),
        (b"* BYE", "IMAP"),
        (b"200 ", "NNTP"),
        (b"201 ", "NNTP"),
        (b"\"IMPL", "ManageSieve"),
        (b"RFB 0", "VNC"),
        (b"<?xml", "XMPP"),
        (b"<stre", "XMPP"),
        (b"-ERR", "Redis or POP3"),
        (b"AMQP", "AMQP"),
        (b"\x03\x00\x00", "RDP"),
        (b"\x00\x00\x00", "MySQL X or another binary protocol"),
    ];
    // MySQL greets with a three-byte length, the sequence number 0 and version 10.
    if let [_, _, 0, 0, 10, ..] = first {
        return Some("MySQL");
    }
    OPENINGS.iter().find(|(opening, _)| first.starts_with(opening)).map(|(_, name)| *name)
}

/// Keys of one direction (RFC 8446 section 5.2).
pub(super) struct RecordProtection {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl RecordProtection {
    pub(super) fn new(key: LessSafeKey, iv: [u8; 12]) -> Self {
        Self { key, iv, sequence: 0 }
    }

    /// Returns the nonce: the IV combined with the sequence number (RFC 8446 section 5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, mask) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= mask;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Decrypts a record in place.
    fn open(
        &mut self,
        header: [u8; HEADER],
        buffer: &mut [u8],
        content: Range<usize>,
    ) -> Result<Record, Failure> {
        let nonce = self.nonce();
        let plain = self
            .key
            .open_in_place(nonce, Aad::from(header), &mut buffer[content.clone()])
            .map_err(|_| Failure::Cryptography("decrypting a record"))?;
        // The content type follows the content and precedes any zero padding.
        let end =
            plain.iter().rposition(|byte| *byte != 0).ok_or(Failure::Malformed("record: padding only"))?;
        let kind = plain[end];
        Ok(Record { kind, content: content.start..content.start + end })
    }

    /// Appends a protected record to `out`. `None` when the library fails, which is not expected.
    pub(super) fn seal(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut sealed = Vec::with_capacity(content.len() + 17);
        sealed.extend_from_slice(content);
        sealed.push(kind);
        let length = u16::try_from(sealed.len() + self.key.algorithm().tag_len()).ok()?;
        let mut header = [APPLICATION_DATA, 3, 3, 0, 0];
        header[3..].copy_from_slice(&length.to_be_bytes());
        let nonce = self.nonce();
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).ok()?;
        out.extend_from_slice(&header);
        out.extend_from_slice(&sealed);
        Some(())
    }
}

/// Encodes an unprotected record.
pub(super) fn plain(kind: u8, version: u16, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + content.len());
    out.push(kind);
    put_u16(&mut out, version);
    put_u16(&mut out, u16::try_from(content.len()).unwrap_or(u16::MAX));
    out.extend_from_slice(content);
    out
}
