//! Messages after the startup packet: a type, a length, and a body.

use std::io;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use super::cancel::CancelKey;

/// Maximum bytes of a message of the server before the session is ready.
pub const SERVER_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the client's message with its password. A JSON Web Token may be long.
pub const PASSWORD_BYTES_MAX: usize = 16 << 10;

/// Type of messages of the server about authentication.
pub(super) const AUTHENTICATION: u8 = b'R';
/// Type of error messages.
pub(super) const ERROR: u8 = b'E';
/// Type of the message with the key for cancelling queries.
pub(super) const KEY: u8 = b'K';
/// Type of notices.
pub(super) const NOTICE: u8 = b'N';
/// Type of the messages with settings of the session.
pub(super) const SETTING: u8 = b'S';
/// Type of the message by which the server reports that it is ready for queries.
pub(super) const READY: u8 = b'Z';
/// Type of a client's message with a password, and of SASL responses.
pub(super) const PASSWORD: u8 = b'p';
const NEGOTIATE_VERSION: u8 = b'v';

/// Code of the request for a password in clear.
const CLEARTEXT: u32 = 3;
const VERSION_3_0: u32 = 3 << 16;

/// A message of the PostgreSQL protocol.
pub struct Message {
    /// Type byte of the message, such as `E` for an error.
    pub kind: u8,
    /// Body of the message, without its length.
    pub body: Zeroizing<Vec<u8>>,
}

impl Message {
    /// Encodes the message: type, length and body.
    #[must_use]
    pub fn encoded(&self) -> BytesMut {
        encode(self.kind, &self.body)
    }
}

/// A request of the server for authentication.
#[derive(Debug, Eq, PartialEq)]
pub enum Authentication<'a> {
    /// The login succeeded.
    Ok,
    /// The server requests the password in clear.
    Cleartext,
    /// The server requests a digest of the password with this salt.
    Md5([u8; 4]),
    /// The server offers these SASL mechanisms.
    Sasl(Vec<&'a str>),
    /// The server continues SASL with this message.
    SaslContinue(&'a [u8]),
    /// The server ends SASL with this message.
    SaslFinal(&'a [u8]),
    /// A method that the proxy does not support.
    Other(u32),
}

impl<'a> Authentication<'a> {
    /// Parses the body of a message; `None` if it is invalid.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (code, rest) = body.split_first_chunk::<4>()?;
        match u32::from_be_bytes(*code) {
            0 if rest.is_empty() => Some(Self::Ok),
            CLEARTEXT if rest.is_empty() => Some(Self::Cleartext),
            5 => rest.try_into().ok().map(Self::Md5),
            10 => {
                let names = rest.strip_suffix(&[0, 0])?.split(|byte| *byte == 0);
                names.map(|name| std::str::from_utf8(name).ok()).collect::<Option<_>>().map(Self::Sasl)
            }
            11 => Some(Self::SaslContinue(rest)),
            12 => Some(Self::SaslFinal(rest)),
            0 | CLEARTEXT => None,
            other => Some(Self::Other(other)),
        }
    }
}

/// Returns a field of an error message, if its body has it: `C` is the SQLSTATE, `M` the text.
#[must_use]
pub fn error_field(body: &[u8], field: u8) -> Option<&str> {
    let mut fields = body.split(|byte| *byte == 0).take_while(|field| !field.is_empty());
    let found = fields.find(|one| one.first() == Some(&field))?;
    std::str::from_utf8(&found[1..]).ok()
}

/// Returns an error message that ends the session.
#[must_use]
pub fn error(code: &str, message: &str, hint: &str) -> BytesMut {
    let mut body = Vec::new();
    for (field, text) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', code), (b'M', message), (b'H', hint)] {
        if !text.is_empty() {
            body.push(field);
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        }
    }
    body.push(0);
    encode(ERROR, &body)
}

/// Returns the message that requests a password in clear.
pub(super) fn password_request() -> BytesMut {
    encode(AUTHENTICATION, &CLEARTEXT.to_be_bytes())
}

/// Returns the message to the client after a successful login.
pub(super) fn authenticated() -> BytesMut {
    encode(AUTHENTICATION, &[0; 4])
}

/// Returns the message with the key for cancelling queries.
pub(super) fn key(key: &CancelKey) -> BytesMut {
    encode(KEY, &key.bytes())
}

/// Returns the message which tells a client that the proxy supports only protocol version 3.0, and none of these `extensions`.
pub(super) fn version_3_0(extensions: &[&str]) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_u32(VERSION_3_0);
    body.put_u32(extensions.len() as u32);
    for name in extensions {
        body.put_slice(name.as_bytes());
        body.put_u8(0);
    }
    encode(NEGOTIATE_VERSION, &body)
}

/// Returns the password in a client's message; `None` if the message has another type, or if its body is not a single
/// zero-terminated string.
#[must_use]
pub fn password(message: &Message) -> Option<&[u8]> {
    let text = message.body.strip_suffix(&[0]).filter(|text| !text.contains(&0))?;
    (message.kind == PASSWORD).then_some(text)
}

fn encode(kind: u8, body: &[u8]) -> BytesMut {
    let mut message = BytesMut::with_capacity(5 + body.len());
    message.put_u8(kind);
    message.put_u32(4 + body.len() as u32);
    message.put_slice(body);
    message
}

/// Reads a message, and no byte after it.
///
/// # Errors
/// The connection ends, or the message is longer than `bytes_max`.
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S, bytes_max: usize) -> io::Result<Message> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await? as usize;
    let length = length.checked_sub(4).filter(|length| *length <= bytes_max);
    let length = length
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a message has an invalid length"))?;
    let mut body = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut body).await?;
    Ok(Message { kind, body })
}

/// Writes and flushes: a TLS stream may buffer data, and reading does not flush it.
pub(super) async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &[u8]) -> io::Result<()> {
    stream.write_all(message).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn parsed(mut bytes: &[u8]) -> io::Result<Message> {
        read(&mut bytes, SERVER_MESSAGE_BYTES_MAX).now_or_never().expect("it does not wait")
    }

    #[test]
    fn authentication_requests_are_parsed() {
        for (body, wanted) in [
            (&b"\0\0\0\0"[..], Some(Authentication::Ok)),
            (b"\0\0\0\x03", Some(Authentication::Cleartext)),
            (b"\0\0\0\x05abcd", Some(Authentication::Md5(*b"abcd"))),
            (
                b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
                Some(Authentication::Sasl(vec!["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"])),
            ),
            (b"\0\0\0\x0bx", Some(Authentication::SaslContinue(b"x"))),
            (b"\0\0\0\x07", Some(Authentication::Other(7))),
            (b"\0\0\0\0x", None),
            (b"\0\0\0\x05abc", None),
            (b"\0\0\0\x0aSCRAM-SHA-256\0", None),
            (b"\0\0", None),
        ] {
            assert_eq!(Authentication::parse(body), wanted, "{body:?}");
        }
    }

    #[test]
    fn password_is_one_text() {
        let of =
            |kind, body: &[u8]| password(&Message { kind, body: body.to_vec().into() }).map(<[u8]>::to_vec);
        assert_eq!(of(PASSWORD, b"token\0"), Some(b"token".to_vec()));
        assert_eq!(
            (of(PASSWORD, b"token"), of(PASSWORD, b"a\0b\0"), of(b'Q', b"token\0")),
            (None, None, None)
        );
    }

    #[test]
    fn long_message_is_rejected_before_its_body_is_read() {
        let message = encode(b'Z', &vec![0; PASSWORD_BYTES_MAX + 1]);
        let refused = read(&mut &message[..5], PASSWORD_BYTES_MAX).now_or_never().unwrap().err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(parsed(&[b'Z', 0, 0, 0, 3]).err().unwrap().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Authentication::parse(&bytes);
            let _ = error_field(&bytes, b'C');
            let _ = parsed(&bytes);
        }

        #[test]
        fn message_is_parsed_back(kind in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..200)) {
            let read = parsed(&encode(kind, &body)).unwrap();
            prop_assert_eq!((read.kind, read.body.as_slice()), (kind, body.as_slice()));
            prop_assert_eq!(read.encoded(), encode(kind, &body));
        }

        #[test]
        fn error_has_its_fields(message in "\\PC{1,80}", hint in "\\PC{1,80}") {
            let read = parsed(&error("28000", &message, &hint)).unwrap();
            let field = |name| error_field(&read.body, name);
            prop_assert_eq!((field(b'C'), field(b'M'), field(b'H')), (Some("28000"), Some(&*message), Some(&*hint)));
        }
    }
}
