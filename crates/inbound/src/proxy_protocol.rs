//! The PROXY protocol, version 2: a load balancer sends the client's address.
//!
//! The parser performs no I/O. Specification: HAProxy's `doc/proxy-protocol.txt` (2020/03/05), called "the specification" below.
//! Version 1 (a line of text) is rejected, because an HTTP request could look like it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The first bytes of each header (the specification, section 2.2). No TLS handshake and no HTTP request starts with them.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes before the addresses: signature, version and command, family and transport, length (the specification, section 2.2).
pub const HEAD_BYTES: usize = 16;

/// Maximum bytes of addresses and TLVs. Addresses have at most 216 (the specification, section 2.2); TLVs with a client
/// certificate's name, an authority and a cloud's endpoint have a few hundred more. The format permits 65,535.
pub const REST_MAX: usize = 4_096;

/// Timeout of a trusted proxy's header, from the header's first byte. The proxy sends the header in one piece (the specification,
/// section 2), so this must only cover the longest retransmission of a network.
pub const HEADER_WITHIN: Duration = Duration::from_secs(2);

/// Timeout of the first byte on a trusted proxy's connection. The proxy may wait for a slow client.
pub const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(10);

/// Statement of a PROXY protocol header about the connection's client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxiedClient {
    /// The connection belongs to the proxy itself, for example a health check.
    Local,
    /// The proxy knows no IP address of the client.
    Unknown,
    /// The proxy stated the client's address.
    Client(SocketAddr),
}

/// Reason why a PROXY protocol header is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The signature is missing: the bytes belong to another protocol.
    #[error("the connection does not begin with a PROXY protocol version 2 header")]
    NoSignature,
    /// The protocol version is not 2.
    #[error("PROXY protocol version {0} is not supported; use version 2")]
    Version(u8),
    /// The command is neither LOCAL nor PROXY.
    #[error("unknown PROXY protocol command {0}")]
    Command(u8),
    /// The header names an address family or a transport that this listener's connections cannot have.
    #[error("PROXY protocol family and transport {0:#04x} are not valid for a TCP connection")]
    Transport(u8),
    /// Addresses and TLVs exceed [`REST_MAX`].
    #[error("the PROXY protocol header has {0} bytes after its fixed part; at most 4,096 are accepted")]
    TooLong(usize),
    /// The header has fewer bytes than the addresses of its family need.
    #[error("the PROXY protocol header is truncated within its addresses")]
    Truncated,
}

/// Returns the number of bytes that follow the first part of a header.
///
/// # Errors
/// [`HeaderError`]
pub fn rest_length(head: &[u8; HEAD_BYTES]) -> Result<usize, HeaderError> {
    if head[..12] != SIGNATURE {
        return Err(HeaderError::NoSignature);
    }
    if head[12] >> 4 != 2 {
        return Err(HeaderError::Version(head[12] >> 4));
    }
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if length > REST_MAX { Err(HeaderError::TooLong(length)) } else { Ok(length) }
}

/// Parses a header from `head` and `rest`, whose length is [`rest_length`]. Ignores TLVs.
///
/// # Errors
/// [`HeaderError`]
pub fn parse(head: &[u8; HEAD_BYTES], rest: &[u8]) -> Result<ProxiedClient, HeaderError> {
    if rest.len() != rest_length(head)? {
        return Err(HeaderError::Truncated);
    }
    match head[12] & 0x0f {
        0 => return Ok(ProxiedClient::Local),
        1 => {}
        command => return Err(HeaderError::Command(command)),
    }
    match head[13] {
        // Unspecified, or a Unix socket: the receiver uses the connection's own addresses (the specification, section 2.2).
        0x00 | 0x31 => Ok(ProxiedClient::Unknown),
        0x11 => {
            // Source address, destination address, source port, destination port.
            let [a, b, c, d, _, _, _, _, high, low, _, _] =
                *rest.first_chunk().ok_or(HeaderError::Truncated)?;
            Ok(client(Ipv4Addr::new(a, b, c, d).into(), [high, low]))
        }
        0x21 => {
            let block: &[u8; 36] = rest.first_chunk().ok_or(HeaderError::Truncated)?;
            let address: &[u8; 16] = block.first_chunk().ok_or(HeaderError::Truncated)?;
            Ok(client(Ipv6Addr::from(*address).to_canonical(), [block[32], block[33]]))
        }
        other => Err(HeaderError::Transport(other)),
    }
}

fn client(address: IpAddr, port: [u8; 2]) -> ProxiedClient {
    ProxiedClient::Client(SocketAddr::new(address, u16::from_be_bytes(port)))
}

/// Returns the client's address on a connection from the trusted proxy `peer`. The header is optional: without it the connection
/// counts as the proxy's own, and its requests may name the client in `X-Forwarded-For`. Reads no byte beyond the header.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after [`FIRST_BYTE_WITHIN`] or [`HEADER_WITHIN`]; [`HeaderError`] as [`io::ErrorKind::InvalidData`];
/// the connection's own errors.
pub(crate) async fn client_address(stream: &mut TcpStream, peer: SocketAddr) -> io::Result<SocketAddr> {
    let mut first = [0; 1];
    let seen = within(FIRST_BYTE_WITHIN, stream.peek(&mut first)).await?;
    if seen == 0 || first[0] != SIGNATURE[0] {
        return Ok(peer);
    }
    match within(HEADER_WITHIN, read(stream)).await? {
        ProxiedClient::Client(client) => Ok(client),
        ProxiedClient::Local | ProxiedClient::Unknown => Ok(peer),
    }
}

async fn within<T>(limit: Duration, reading: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read(stream: &mut TcpStream) -> io::Result<ProxiedClient> {
    let invalid = |error: HeaderError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let mut rest = vec![0; rest_length(&head).map_err(invalid)?];
    stream.read_exact(&mut rest).await?;
    parse(&head, &rest).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a header as specified, with TLVs.
    fn header(command: u8, family: u8, rest: &[u8]) -> ([u8; HEAD_BYTES], Vec<u8>) {
        let mut head = [0; HEAD_BYTES];
        head[..12].copy_from_slice(&SIGNATURE);
        head[12] = 0x20 | command;
        head[13] = family;
        head[14..].copy_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        (head, rest.to_vec())
    }

    fn read_header(command: u8, family: u8, rest: &[u8]) -> Result<ProxiedClient, HeaderError> {
        let (head, rest) = header(command, family, rest);
        parse(&head, &rest)
    }

    #[test]
    fn client_address_is_parsed_from_the_header() {
        let four = [192, 0, 2, 7, 10, 0, 0, 1, 0xc0, 0x01, 0x01, 0xbb];
        let client: SocketAddr = "192.0.2.7:49153".parse().unwrap();
        assert_eq!(read_header(1, 0x11, &four), Ok(ProxiedClient::Client(client)));
        let with_tlv = [&four[..], &[0x04, 0, 2, 0, 0]].concat();
        assert_eq!(read_header(1, 0x11, &with_tlv), Ok(ProxiedClient::Client(client)));
        let mut six = [0; 36];
        six[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        six[32..34].copy_from_slice(&443_u16.to_be_bytes());
        assert_eq!(
            read_header(1, 0x21, &six),
            Ok(ProxiedClient::Client("[2001:db8::7]:443".parse().unwrap()))
        );
        six[..16].copy_from_slice(&"::ffff:192.0.2.7".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(read_header(1, 0x21, &six), Ok(ProxiedClient::Client("192.0.2.7:443".parse().unwrap())));
    }

    #[test]
    fn local_and_unknown_headers_have_no_client_address() {
        assert_eq!(read_header(0, 0x11, &[1; 12]), Ok(ProxiedClient::Local));
        assert_eq!(read_header(0, 0, &[]), Ok(ProxiedClient::Local));
        assert_eq!(read_header(1, 0x00, &[]), Ok(ProxiedClient::Unknown));
        assert_eq!(read_header(1, 0x31, &[0; 216]), Ok(ProxiedClient::Unknown));
    }

    #[test]
    fn invalid_headers_are_rejected() {
        assert_eq!(read_header(2, 0x11, &[0; 12]), Err(HeaderError::Command(2)));
        assert_eq!(read_header(1, 0x12, &[0; 12]), Err(HeaderError::Transport(0x12)));
        assert_eq!(read_header(1, 0x11, &[0; 11]), Err(HeaderError::Truncated));
        assert_eq!(read_header(1, 0x21, &[0; 35]), Err(HeaderError::Truncated));
        assert_eq!(read_header(1, 0x11, &[0; 4_097]), Err(HeaderError::TooLong(4_097)));
        let (mut head, rest) = header(1, 0x11, &[0; 12]);
        assert_eq!(parse(&head, &rest[..11]), Err(HeaderError::Truncated));
        head[12] = 0x11;
        assert_eq!(parse(&head, &rest), Err(HeaderError::Version(1)));
        assert_eq!(rest_length(b"GET / HTTP/1.1\r\n"), Err(HeaderError::NoSignature));
    }

    proptest! {
        #[test]
        fn any_client_address_is_parsed_with_any_tlvs(address: IpAddr, port: u16, tlvs in proptest::collection::vec(any::<u8>(), 0..64)) {
            let (family, mut rest) = match address {
                IpAddr::V4(address) => (0x11, [&address.octets()[..], &[0; 4]].concat()),
                IpAddr::V6(address) => (0x21, [&address.octets()[..], &[0; 16]].concat()),
            };
            rest.extend(port.to_be_bytes());
            rest.extend([0, 1]);
            rest.extend(tlvs);
            let client = SocketAddr::new(address.to_canonical(), port);
            prop_assert_eq!(read_header(1, family, &rest), Ok(ProxiedClient::Client(client)));
        }

        #[test]
        fn arbitrary_bytes_are_parsed_without_a_panic(head: [u8; 4], rest in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut whole = [0; HEAD_BYTES];
            whole[..12].copy_from_slice(&SIGNATURE);
            whole[12..].copy_from_slice(&head);
            if let Ok(ProxiedClient::Client(client)) = parse(&whole, &rest) {
                prop_assert_eq!(client.ip(), client.ip().to_canonical());
            }
        }
    }
}
