//! Messages of the Keyless protocol, version 1: a header of 8 bytes and a body of items (tag, length, data). All integers are
//! big-endian. Performs no I/O.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;

/// Major version of the Keyless protocol that this crate supports.
pub const MAJOR: u8 = 1;
/// Default port of the protocol.
pub const PORT: u16 = 2407;
/// Bytes of a header: major and minor version, length of the body (2), ID (4).
pub const HEADER: usize = 8;
/// Maximum bytes of a body: the range of its length field.
pub const BODY_MAX: usize = u16::MAX as usize;
/// Bytes of an item's tag and length.
const ITEM_HEAD: usize = 3;
/// Minimum size of a message in bytes. Shorter ones are padded, so that the length does not reveal the content.
pub const PADDED: usize = 1024;

/// Tags of items.
pub mod tag {
    /// SHA-256 over an RSA modulus as upper-case hexadecimal text; parsed but not used.
    pub const CERTIFICATE_DIGEST: u8 = 0x01;
    /// Server name that the visitor (the TLS terminator's client) requested, as text.
    pub const SERVER_NAME: u8 = 0x02;
    /// Address of the visitor, 4 or 16 bytes.
    pub const CLIENT_IP: u8 = 0x03;
    /// Identifier of the key: see [`super::Ski`].
    pub const SKI: u8 = 0x04;
    /// Address that the visitor connected to, 4 or 16 bytes.
    pub const SERVER_IP: u8 = 0x05;
    /// ID of a certificate, as text.
    pub const CERTIFICATE_ID: u8 = 0x06;
    /// The opcode of a request, or the status of a reply, 1 byte.
    pub const OPCODE: u8 = 0x11;
    /// Input of a signature, or its result.
    pub const PAYLOAD: u8 = 0x12;
    /// Name of a custom function.
    pub const FUNCTION: u8 = 0x13;
    /// A second payload.
    pub const EXTRA: u8 = 0x14;
    /// A Jaeger span context, binary or text.
    pub const TRACE: u8 = 0x15;
    /// Context of the request as a JSON object; may contain a `request_id`.
    pub const CONTEXT: u8 = 0x16;
    /// Compliance region, 1 byte.
    pub const COMPLIANCE_REGION: u8 = 0x17;
    /// Padding without meaning.
    pub const PADDING: u8 = 0x20;
}

/// Opcodes: the kinds of messages.
pub mod opcode {
    /// The request succeeded; the payload is the result.
    pub const SUCCESS: u8 = 0xf0;
    /// Requests that the payload is returned.
    pub const PING: u8 = 0xf1;
    /// Reply to a ping.
    pub const PONG: u8 = 0xf2;
    /// The request failed; the payload is one byte, an [`ErrorCode`](super::ErrorCode).
    pub const ERROR: u8 = 0xff;
    /// Value for a message without an opcode.
    pub const NONE: u8 = 0x00;
}

/// Error codes of the Keyless protocol, sent as the payload of an error reply.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum ErrorCode {
    /// The signature cannot be made: wrong key type, wrong length of the digest, or failure of the key.
    Cryptography = 1,
    /// No key has this identifier.
    KeyNotFound = 2,
    /// Defined in the protocol, but never sent.
    Read = 3,
    /// Unsupported major version.
    VersionMismatch = 4,
    /// Unknown opcode.
    BadOpcode = 5,
    /// The opcode is only valid in replies.
    UnexpectedOpcode = 6,
    /// The reply does not fit into a message.
    Format = 7,
    /// The request names no key, or the service is overloaded. The caller may try another server, or retry later.
    Internal = 8,
    /// Defined in the protocol, but never sent.
    CertificateNotFound = 9,
    /// The data was sealed under a key that has expired.
    Expired = 10,
    /// The next hop is unreachable.
    Remote = 11,
}

impl ErrorCode {
    /// All error codes, in ascending order.
    pub const ALL: [Self; 11] = [
        Self::Cryptography,
        Self::KeyNotFound,
        Self::Read,
        Self::VersionMismatch,
        Self::BadOpcode,
        Self::UnexpectedOpcode,
        Self::Format,
        Self::Internal,
        Self::CertificateNotFound,
        Self::Expired,
        Self::Remote,
    ];

    /// Returns the error code of a byte; `None` if undefined.
    #[must_use]
    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as u8 == byte)
    }

    /// Returns the name for metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cryptography => "cryptography",
            Self::KeyNotFound => "key-not-found",
            Self::Read => "read",
            Self::VersionMismatch => "version-mismatch",
            Self::BadOpcode => "bad-opcode",
            Self::UnexpectedOpcode => "unexpected-opcode",
            Self::Format => "format",
            Self::Internal => "internal",
            Self::CertificateNotFound => "certificate-not-found",
            Self::Expired => "expired",
            Self::Remote => "remote",
        }
    }
}

/// Key identifier: SHA-1 of the subjectPublicKey's content (RFC 5280 section 4.2.1.2, method 1).
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ski(pub [u8; 20]);

impl Ski {
    /// Computes the identifier from a DER SubjectPublicKeyInfo.
    #[must_use]
    pub fn of_spki(spki: &[u8]) -> Self {
        Self(x509::build::key_sha1(spki))
    }
}

impl fmt::Display for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, f)
    }
}

impl fmt::Debug for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ski({self})")
    }
}

/// The 8-byte header of a message: protocol version, length of the body, and ID.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Major version; other values than [`MAJOR`] are not supported.
    pub major: u8,
    /// Minor version; ignored.
    pub minor: u8,
    /// Bytes of the body.
    pub length: u16,
    /// ID chosen by the requester; the reply repeats it.
    pub id: u32,
}

/// Returns header and body of the first message in `octets`; `None` until the message is complete. The message has [`HEADER`] bytes
/// plus the length of the body.
#[must_use]
pub fn first(octets: &[u8]) -> Option<(Header, &[u8])> {
    let (head, rest) = octets.split_first_chunk::<HEADER>()?;
    let [major, minor, l0, l1, i0, i1, i2, i3] = *head;
    let length = u16::from_be_bytes([l0, l1]);
    let header = Header { major, minor, length, id: u32::from_be_bytes([i0, i1, i2, i3]) };
    Some((header, rest.get(..usize::from(length))?))
}

/// Reason why the body of a message is malformed. The server closes the connection without a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// A tag occurs twice.
    #[error("the item {0:#04x} appears twice")]
    Repeated(u8),
    /// An item is longer than the rest of the body.
    #[error("the item {0:#04x} is longer than the rest of the body")]
    PastEnd(u8),
    /// An item of fixed length has another length.
    #[error("the item {tag:#04x} has the invalid length {length}")]
    Length {
        /// Tag of the item.
        tag: u8,
        /// Length of the item's data in bytes.
        length: usize,
    },
}

/// The parsed items of a message, by tag.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MessageItems<'a> {
    /// [`tag::CERTIFICATE_DIGEST`]; absent if it does not have 32 bytes.
    pub certificate_digest: Option<[u8; 32]>,
    /// Value of [`tag::SERVER_NAME`].
    pub server_name: Option<&'a [u8]>,
    /// Value of [`tag::CLIENT_IP`].
    pub client_ip: Option<IpAddr>,
    /// [`tag::SKI`]; absent if it does not have 20 bytes.
    pub ski: Option<Ski>,
    /// Value of [`tag::SERVER_IP`].
    pub server_ip: Option<IpAddr>,
    /// Value of [`tag::CERTIFICATE_ID`].
    pub certificate_id: Option<&'a [u8]>,
    /// [`tag::OPCODE`]; [`opcode::NONE`] if absent.
    pub opcode: u8,
    /// [`tag::PAYLOAD`]; empty if absent.
    pub payload: &'a [u8],
    /// Value of [`tag::FUNCTION`].
    pub function: Option<&'a [u8]>,
    /// Value of [`tag::EXTRA`].
    pub extra: Option<&'a [u8]>,
    /// Value of [`tag::TRACE`].
    pub trace: Option<&'a [u8]>,
    /// Value of [`tag::CONTEXT`].
    pub context: Option<&'a [u8]>,
    /// [`tag::COMPLIANCE_REGION`]; 0 if absent.
    pub compliance_region: u8,
}

impl<'a> MessageItems<'a> {
    /// Parses a body. Items may have any order. Ignores unknown tags, and one or two bytes after the last item.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut items = Self::default();
        // One bit for each tag: all known tags are below 64.
        let mut seen = 0_u64;
        let mut rest = body;
        while let Some((&[tag, l0, l1], after)) = rest.split_first_chunk::<ITEM_HEAD>() {
            let length = usize::from(u16::from_be_bytes([l0, l1]));
            let (data, after) = after.split_at_checked(length).ok_or(Malformed::PastEnd(tag))?;
            rest = after;
            if items.take(tag, data)? {
                let bit = 1 << tag;
                if seen & bit != 0 {
                    return Err(Malformed::Repeated(tag));
                }
                seen |= bit;
            }
        }
        Ok(items)
    }

    /// Stores an item. Returns whether its tag is known.
    fn take(&mut self, tag: u8, data: &'a [u8]) -> Result<bool, Malformed> {
        match tag {
            tag::CERTIFICATE_DIGEST => self.certificate_digest = data.try_into().ok(),
            tag::SERVER_NAME => self.server_name = Some(data),
            tag::CLIENT_IP => self.client_ip = Some(address(tag, data)?),
            tag::SKI => self.ski = data.try_into().ok().map(Ski),
            tag::SERVER_IP => self.server_ip = Some(address(tag, data)?),
            tag::CERTIFICATE_ID => self.certificate_id = Some(data),
            tag::OPCODE => self.opcode = single_byte(tag, data)?,
            tag::PAYLOAD => self.payload = data,
            tag::FUNCTION => self.function = Some(data),
            tag::EXTRA => self.extra = Some(data),
            tag::TRACE => self.trace = Some(data),
            tag::CONTEXT => self.context = Some(data),
            tag::COMPLIANCE_REGION => self.compliance_region = single_byte(tag, data)?,
            tag::PADDING => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Appends the whole message, padded, to `out`.
    ///
    /// # Errors
    /// [`TooLong`]; `out` is unchanged then.
    pub fn encode(&self, id: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let began = out.len();
        begin(id, out);
        put(out, tag::OPCODE, Some(&[self.opcode]));
        put(out, tag::CERTIFICATE_DIGEST, self.certificate_digest.as_ref().map(|digest| &digest[..]));
        put(out, tag::SERVER_NAME, self.server_name);
        put_address(out, tag::CLIENT_IP, self.client_ip);
        put(out, tag::SKI, self.ski.as_ref().map(|ski| &ski.0[..]));
        put_address(out, tag::SERVER_IP, self.server_ip);
        put(out, tag::CERTIFICATE_ID, self.certificate_id);
        put(out, tag::FUNCTION, self.function);
        put(out, tag::EXTRA, self.extra);
        put(out, tag::TRACE, self.trace);
        put(out, tag::CONTEXT, self.context);
        let region = Some([self.compliance_region]).filter(|[region]| *region != 0);
        put(out, tag::COMPLIANCE_REGION, region.as_ref().map(|region| &region[..]));
        put(out, tag::PAYLOAD, Some(self.payload));
        end(began, out)
    }
}

/// The body of the message would be longer than [`BODY_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the message is too long for its length field")]
pub struct TooLong;

/// Appends a padded reply to `out`, with only an opcode and a payload.
///
/// # Errors
/// [`TooLong`]; `out` is unchanged then.
pub fn reply(id: u32, opcode: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    let began = out.len();
    out.reserve(PADDED.max(HEADER + 2 * ITEM_HEAD + 1 + payload.len()));
    begin(id, out);
    put(out, tag::OPCODE, Some(&[opcode]));
    put(out, tag::PAYLOAD, Some(payload));
    end(began, out)
}

fn begin(id: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[MAJOR, 0, 0, 0]);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Pads the message that starts at index `began`, and writes its length.
fn end(began: usize, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let length = out.len() - began;
    if length < PADDED {
        // If the gap is smaller than the header of a padding item, the message becomes slightly longer than `PADDED`.
        let padding = PADDED.saturating_sub(length + ITEM_HEAD);
        out.push(tag::PADDING);
        out.extend_from_slice(&(padding as u16).to_be_bytes());
        out.resize(out.len() + padding, 0);
    }
    let Ok(body) = u16::try_from(out.len() - began - HEADER) else {
        out.truncate(began);
        return Err(TooLong);
    };
    out[began + 2..began + 4].copy_from_slice(&body.to_be_bytes());
    Ok(())
}

/// Appends an item. If its data exceeds the length field, the body is too long as well, and [`end`] rejects it.
fn put(out: &mut Vec<u8>, tag: u8, data: Option<&[u8]>) {
    if let Some(data) = data {
        out.push(tag);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(data);
    }
}

fn put_address(out: &mut Vec<u8>, tag: u8, address: Option<IpAddr>) {
    match address {
        Some(IpAddr::V4(address)) => put(out, tag, Some(&address.octets())),
        Some(IpAddr::V6(address)) => put(out, tag, Some(&address.octets())),
        None => {}
    }
}

fn single_byte(tag: u8, data: &[u8]) -> Result<u8, Malformed> {
    match data {
        [byte] => Ok(*byte),
        _ => Err(Malformed::Length { tag, length: data.len() }),
    }
}

fn address(tag: u8, data: &[u8]) -> Result<IpAddr, Malformed> {
    let v4 = <[u8; 4]>::try_from(data).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = <[u8; 16]>::try_from(data).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    v4.or(v6).map_err(|_| Malformed::Length { tag, length: data.len() })
}
