//! Microsoft SQL Server: PRELOGIN before TLS, and TLS inside TDS packets (MS-TDS sections 2.2.6.5 and 3.2.5.2).

use super::error::{StartTlsError, malformed, not_offered};
use super::input::Input;
use super::turn::{Action, ActionResult};
use crate::target::Protocol;

/// Longest TDS packet in bytes (MS-TDS section 2.2.3.1.3: 512 to 32,767).
pub const TDS_PACKET_MAX: usize = 32_767;
/// Packet size that every server accepts before a size is negotiated (MS-TDS section 2.2.3.1.3).
const PACKET_SENT_MAX: usize = 4_096;
/// Bytes of a packet header.
const HEADER: usize = 8;
const PRELOGIN: u8 = 0x12;
const RESPONSE: u8 = 0x04;
const END_OF_MESSAGE: u8 = 1;
const OPTION_ENCRYPTION: u8 = 1;
const OPTION_END: u8 = 0xff;

/// Encodes PRELOGIN: version, encryption (requested), instance, thread and MARS.
pub(super) fn prelogin() -> Vec<u8> {
    const OPTIONS: [(u8, &[u8]); 5] =
        [(0, &[16, 0, 0, 0, 0, 0]), (OPTION_ENCRYPTION, &[1]), (2, &[0]), (3, &[0, 0, 0, 0]), (4, &[0])];
    let mut offset = OPTIONS.len() * 5 + 1;
    let (mut list, mut values) = (Vec::new(), Vec::new());
    for (option, value) in OPTIONS {
        list.push(option);
        list.extend((offset as u16).to_be_bytes());
        list.extend((value.len() as u16).to_be_bytes());
        values.extend_from_slice(value);
        offset += value.len();
    }
    list.push(OPTION_END);
    list.extend(values);
    let mut packet = header(list.len(), END_OF_MESSAGE, 0).to_vec();
    packet.extend(list);
    packet
}

fn header(payload: usize, status: u8, number: u8) -> [u8; HEADER] {
    let [high, low] = ((HEADER + payload) as u16).to_be_bytes();
    [PRELOGIN, status, high, low, 0, 0, number, 0]
}

pub(super) fn prelogin_reply(input: &mut Input) -> ActionResult {
    input.expect_first(|byte| byte == RESPONSE)?;
    let Some(head) = input.pending().get(..4) else { return Ok(Action::Wait) };
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if length < HEADER {
        return Err(input.wrong_protocol_error());
    }
    let Some(packet) = input.exact(length, "answer")? else { return Ok(Action::Wait) };
    match encryption(&packet[HEADER..]) {
        // Off (encrypted login only), on, required: all start with TLS.
        Some(0 | 1 | 3) => Ok(Action::Ready(Vec::new())),
        Some(2) => Err(not_offered(b"encryption is not supported")),
        Some(_) => Err(malformed("an unknown TDS encryption option", b"")),
        None => Err(malformed("an answer without an encryption option", b"")),
    }
}

fn encryption(payload: &[u8]) -> Option<u8> {
    for option in payload.chunks(5) {
        match *option {
            [OPTION_ENCRYPTION, high, low, 0, 1] => {
                return payload.get(usize::from(u16::from_be_bytes([high, low]))).copied();
            }
            [OPTION_END, ..] => return None,
            _ => {}
        }
    }
    None
}

/// Framing of TLS bytes: none, or (SQL Server, until the handshake ends) TDS packets.
#[derive(Debug)]
pub enum TlsFraming {
    /// No framing.
    Bare,
    /// TLS bytes are wrapped in TDS packets.
    Tds(TdsUnwrapper),
}

/// Extracts the payload of TDS packets, from input split in any way.
#[derive(Debug, Default)]
pub struct TdsUnwrapper {
    header: Vec<u8>,
    payload_left: usize,
    payload: Vec<u8>,
}

impl TlsFraming {
    /// Returns the framing of `protocol`.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Mssql => Self::Tds(TdsUnwrapper::default()),
            _ => Self::Bare,
        }
    }

    /// Returns the bytes to send for the TLS bytes `tls`.
    #[must_use]
    pub fn wrap(&self, tls: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Bare => tls,
            Self::Tds(_) => packets(&tls),
        }
    }

    /// Returns the TLS bytes in the input; empty for the start of a packet.
    ///
    /// # Errors
    /// [`StartTlsError::Malformed`] when the input is not a TDS packet.
    pub fn unwrap<'a>(&'a mut self, received: &'a [u8]) -> Result<&'a [u8], StartTlsError> {
        match self {
            Self::Bare => Ok(received),
            Self::Tds(unwrapper) => unwrapper.take(received),
        }
    }
}

fn packets(tls: &[u8]) -> Vec<u8> {
    let payload_max = PACKET_SENT_MAX - HEADER;
    let count = tls.len().div_ceil(payload_max);
    let mut sent = Vec::with_capacity(tls.len() + count * HEADER);
    for (index, payload) in tls.chunks(payload_max).enumerate() {
        let status = if index + 1 == count { END_OF_MESSAGE } else { 0 };
        sent.extend(header(payload.len(), status, index as u8));
        sent.extend_from_slice(payload);
    }
    sent
}

impl TdsUnwrapper {
    fn take(&mut self, mut received: &[u8]) -> Result<&[u8], StartTlsError> {
        self.payload.clear();
        while !received.is_empty() {
            if self.payload_left == 0 {
                received = self.take_header(received)?;
            } else {
                let (payload, rest) = received.split_at(self.payload_left.min(received.len()));
                self.payload.extend_from_slice(payload);
                self.payload_left -= payload.len();
                received = rest;
            }
        }
        Ok(&self.payload)
    }

    fn take_header<'a>(&mut self, received: &'a [u8]) -> Result<&'a [u8], StartTlsError> {
        let (part, rest) = received.split_at((HEADER - self.header.len()).min(received.len()));
        self.header.extend_from_slice(part);
        if !matches!(self.header[0], PRELOGIN | RESPONSE) {
            return Err(malformed("TLS outside of TDS packets", b""));
        }
        if self.header.len() == HEADER {
            let length = usize::from(u16::from_be_bytes([self.header[2], self.header[3]]));
            if length > TDS_PACKET_MAX {
                return Err(StartTlsError::TooLong { what: "packet", max: TDS_PACKET_MAX });
            }
            self.payload_left = length
                .checked_sub(HEADER)
                .ok_or_else(|| malformed("a TDS packet shorter than its header", b""))?;
            self.header.clear();
        }
        Ok(rest)
    }
}
