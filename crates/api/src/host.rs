//! Extraction of the host from a name in a certificate, in canonical form.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the host in a URI or an email address; any other name is returned as the host itself.
///
/// Two spellings of a host give the same text. Names are in lower case, without a dot at the end. Addresses are in the notation of
/// RFC 5952, without brackets and zone ID. An IPv4 address in hexadecimal, in octal, with fewer parts, or mapped into IPv6 gives
/// the same text as in dotted notation.
#[must_use]
pub fn host_of(name: &str) -> String {
    let host = spelled_host(name);
    let host = unescaped(host).to_ascii_lowercase();
    let host = host.trim_end_matches('.');
    address(host).map_or_else(|| host.to_owned(), |address| address.to_string())
}

/// Returns the IP address in canonical form, if the host is one; `None` for a DNS name.
#[must_use]
pub fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').map_or(host, |rest| rest.strip_suffix(']').unwrap_or(rest));
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    let address = bare.parse::<IpAddr>().ok().or_else(|| ipv4_of_numbers(bare).map(IpAddr::V4));
    address.map(|address| address.to_canonical())
}

fn spelled_host(name: &str) -> &str {
    if let Some((_, rest)) = name.split_once("://") {
        return host_of_authority(rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest));
    }
    let is_uri = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("uri:"));
    let Some((_, rest)) = name[4 * usize::from(is_uri)..].split_once(':').filter(|_| is_uri) else {
        return name.rsplit_once('@').map_or(name, |(_, host)| host);
    };
    // A URI without an authority, such as `sip:ann@a.example;transport=tls`.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    host_of_authority(rest.split(['/', '?', '#', ';', ',']).next().unwrap_or(rest))
}

fn host_of_authority(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some(rest) = host.strip_prefix('[') {
        let literal = rest.split(']').next().unwrap_or(rest);
        return literal.split('%').next().unwrap_or(literal);
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return host;
    }
    host.split_once(':').map_or(host, |(host, _)| host)
}

/// Decodes the escapes of a host (RFC 3986 section 3.2.2), except in a zone ID.
fn unescaped(host: &str) -> Cow<'_, str> {
    if !host.contains('%') || host.contains(':') {
        return Cow::Borrowed(host);
    }
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut bytes, mut decoded) = (host.as_bytes(), Vec::with_capacity(host.len()));
    while let Some((byte, rest)) = bytes.split_first() {
        match (byte, hex(rest.first()), hex(rest.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                bytes = &rest[2..];
            }
            _ => {
                decoded.push(*byte);
                bytes = rest;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

/// Parses an IPv4 address of one to four numbers, as `inet_aton` and URL parsers do: the last number fills the remaining bytes.
fn ipv4_of_numbers(text: &str) -> Option<Ipv4Addr> {
    let numbers = text.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, first) = numbers.split_last().filter(|(_, first)| first.len() < 4)?;
    let mut address = *last;
    if u64::from(*last) >= 1 << (8 * (4 - first.len())) {
        return None;
    }
    for (index, byte) in first.iter().enumerate() {
        address |= u32::from(u8::try_from(*byte).ok()?) << (24 - 8 * index);
    }
    Some(Ipv4Addr::from_bits(address))
}

/// Parses a number in hexadecimal (`0x7f`), octal (`0177`) or decimal.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.is_empty() {
        return (radix == 16).then_some(0);
    }
    // Rejects a sign, which `from_str_radix` would accept.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_is_the_same_text() {
        for (host, names) in [
            (
                "a.example",
                &[
                    "a.example",
                    "A.Example.",
                    "ann@A.example",
                    "https://a.example",
                    "HTTPS://u:p@A.EXAMPLE.:8443/b.example?x=@c.example",
                    "https://b.example@a.example/",
                    "https://b.example:443@a.example#x",
                    "https://%61.ex%61mple/",
                    "spiffe://a.example/b",
                    "URI:sip:ann@a.example;transport=tls",
                    "URI:sip:a.example:5061",
                    "uri:tag:a.example,2026:x",
                ][..],
            ),
            (
                "10.0.0.1",
                &[
                    "10.0.0.1",
                    "10.0.0.1.",
                    "https://10.0.0.1:443/x",
                    "https://0xa.0.0.1/",
                    "https://012.0.0.1/",
                    "https://10.1/",
                    "https://167772161",
                    "https://0x0A000001",
                    "https://%31%30.0.0.1",
                    "::ffff:10.0.0.1",
                    "https://[::FFFF:a00:1]/",
                ][..],
            ),
            (
                "2001:db8::1",
                &[
                    "2001:db8::1",
                    "2001:DB8:0:0::1",
                    "[2001:db8::1]",
                    "https://[2001:DB8::0:1]:8443/x",
                    "https://u@[2001:db8::1]",
                    "https://[2001:db8::1%25eth0]/",
                    "https://2001:db8::1/",
                ][..],
            ),
            ("*.a.example", &["*.a.example", "*.A.example."][..]),
        ] {
            for name in names {
                assert_eq!(host_of(name), host, "{name}");
            }
        }
        for name in ["a.1.example", "1.2.3.4.5", "256.1.1.1.1", "0x.example", "1.256.0.1", "+1.2.3.4", "08.1"]
        {
            assert_eq!(host_of(name), name);
            assert_eq!(address(name), None, "{name}");
        }
    }
}
