//! The PROXY protocol header, version 2. It sends the client's address to an upstream that otherwise sees only the terminator.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2.

use std::net::SocketAddr;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Protocol version 2, command PROXY.
const VERSION_AND_COMMAND: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
/// Type of the field with the negotiated ALPN protocol.
const TYPE_ALPN: u8 = 0x01;
/// Type of the field with the server name (SNI).
const TYPE_AUTHORITY: u8 = 0x02;

/// The connection that a PROXY protocol header describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxiedConnection<'a> {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) alpn: Option<&'a [u8]>,
    pub(super) name: Option<&'a str>,
}

/// Builds the header, which must be sent before all other bytes.
pub(super) fn header(proxied: &ProxiedConnection<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    // IPv4-mapped addresses of an IPv6 socket are sent as IPv4.
    let family = match (proxied.client.ip().to_canonical(), proxied.server.ip().to_canonical()) {
        (std::net::IpAddr::V4(client), std::net::IpAddr::V4(server)) => {
            body.extend(client.octets());
            body.extend(server.octets());
            TCP_OVER_IPV4
        }
        (client, server) => {
            for address in [client, server] {
                body.extend(match address {
                    std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    std::net::IpAddr::V6(address) => address.octets(),
                });
            }
            TCP_OVER_IPV6
        }
    };
    body.extend(proxied.client.port().to_be_bytes());
    body.extend(proxied.server.port().to_be_bytes());
    let values = [(TYPE_ALPN, proxied.alpn), (TYPE_AUTHORITY, proxied.name.map(str::as_bytes))];
    for (kind, value) in values {
        // In TLS, the length of both values fits one byte.
        let Some((value, length)) = value.and_then(|value| Some((value, u16::try_from(value.len()).ok()?)))
        else {
            continue;
        };
        body.push(kind);
        body.extend(length.to_be_bytes());
        body.extend(value);
    }
    let mut header = Vec::with_capacity(16 + body.len());
    header.extend(SIGNATURE);
    header.extend([VERSION_AND_COMMAND, family]);
    header.extend((body.len() as u16).to_be_bytes());
    header.extend(body);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_encodes_addresses_ports_alpn_and_server_name() {
        let proxied = ProxiedConnection {
            client: "[::ffff:192.0.2.7]:4711".parse().unwrap(),
            server: "203.0.113.1:443".parse().unwrap(),
            alpn: Some(b"h2"),
            name: Some("a.example"),
        };
        let mut wanted = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x1d".to_vec();
        wanted.extend([192, 0, 2, 7, 203, 0, 113, 1, 0x12, 0x67, 0x01, 0xbb]);
        wanted.extend(b"\x01\x00\x02h2\x02\x00\x09a.example");
        assert_eq!(header(&proxied), wanted);
        let six = ProxiedConnection {
            client: "[2001:db8::1]:1".parse().unwrap(),
            alpn: None,
            name: None,
            ..proxied
        };
        let header = header(&six);
        assert_eq!((header[13], header[15], header.len()), (0x21, 36, 52));
        assert_eq!(header[32..44], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    }
}
