//! Extracts the names in a certificate, even if the certificate is malformed: a malformed certificate may still be valid for some
//! clients.
//!
//! The parser walks subject and every subjectAltName extension, without allocation. After a parse error, the bytes are searched for
//! the object identifiers of commonName and subjectAltName. The values after these identifiers are read as far as possible. The
//! code never panics, and its work is bounded by the length of the input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use x509::der::{DerError, Element, Reader, tag};

/// Maximum object identifiers that the search examines. Real certificates have a dozen: one or two common names each in subject and
/// issuer, and one subjectAltName extension.
const MATCHES_EXAMINED_MAX: usize = 64;

/// A name as found: not case-folded, and possibly with invalid bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Name<'a> {
    /// A dNSName (RFC 5280 section 4.2.1.6).
    Dns(&'a [u8]),
    /// A commonName of the subject. If the certificate cannot be parsed, it may also be a commonName of the issuer: the search
    /// cannot distinguish them.
    Common(&'a [u8]),
    /// An iPAddress.
    Ip(IpAddr),
}

/// The part of a certificate that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// All parts that can contain names were read.
    Whole,
    /// The certificate does not parse. It was searched for names.
    Searched,
    /// The certificate does not parse, and has more matches than the search examines.
    CutShort,
}

/// Calls `found` with every name in `der`: a certificate, a precertificate, or a tbsCertificate. A name may be reported twice. A
/// name with NUL characters is reported as the parts between them, because clients and CAs differ on which part they use.
pub fn names(der: &[u8], mut found: impl FnMut(Name<'_>)) -> Reading {
    match walk(der, &mut found) {
        Ok(()) => Reading::Whole,
        Err(_) => search(der, &mut found),
    }
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const DNS_NAME: u8 = tag::context(2);
const IP_ADDRESS: u8 = tag::context(7);

/// Walks the certificate (RFC 5280 section 4.1) up to the last part that can contain names.
fn walk(der: &[u8], found: &mut impl FnMut(Name<'_>)) -> Result<(), DerError> {
    const EXTENSIONS: u8 = tag::context_constructed(3);
    let mut outer = Reader::new(der);
    let mut fields = outer.sequence()?;
    outer.end()?;
    if fields.peek() == Some(tag::SEQUENCE) {
        fields = fields.sequence()?;
    }
    fields.optional(tag::context_constructed(0))?;
    fields.expect(tag::INTEGER)?;
    fields.expect(tag::SEQUENCE)?; // signature
    fields.expect(tag::SEQUENCE)?; // issuer
    fields.expect(tag::SEQUENCE)?; // validity
    for set in fields.sequence()? {
        for attribute in set?.inside() {
            let mut parts = attribute?.inside();
            if parts.expect(tag::OID)?.content == COMMON_NAME {
                common(parts.any()?, found);
            }
        }
    }
    fields.expect(tag::SEQUENCE)?; // subjectPublicKeyInfo
    for field in fields {
        let field = field?;
        if field.tag != EXTENSIONS {
            continue;
        }
        for extension in field.inside().sequence()? {
            let mut parts = extension?.inside();
            if parts.expect(tag::OID)?.content != SUBJECT_ALT_NAME {
                continue;
            }
            parts.optional(tag::BOOLEAN)?;
            for name in Reader::new(parts.expect(tag::OCTET_STRING)?.content).sequence()? {
                let name = name?;
                general(name.tag, name.content, found);
            }
        }
    }
    Ok(())
}

fn common(value: Element<'_>, found: &mut impl FnMut(Name<'_>)) {
    match value.tag {
        tag::BMP_STRING | tag::UNIVERSAL_STRING => text(value.text().as_bytes(), true, found),
        _ => text(value.content, true, found),
    }
}

fn general(tag: u8, content: &[u8], found: &mut impl FnMut(Name<'_>)) {
    match tag {
        DNS_NAME => text(content, false, found),
        IP_ADDRESS => {
            if let Ok(four) = <[u8; 4]>::try_from(content) {
                found(Name::Ip(Ipv4Addr::from(four).into()));
            } else if let Ok(six) = <[u8; 16]>::try_from(content) {
                found(Name::Ip(Ipv6Addr::from(six).into()));
            }
        }
        _ => {}
    }
}

fn text(bytes: &[u8], common: bool, found: &mut impl FnMut(Name<'_>)) {
    for part in bytes.split(|b| *b == 0).filter(|part| !part.is_empty()) {
        found(if common { Name::Common(part) } else { Name::Dns(part) });
    }
}

/// Searches for the object identifiers of extensions and attributes that contain names.
fn search(bytes: &[u8], found: &mut impl FnMut(Name<'_>)) -> Reading {
    let mut matches_examined = 0;
    for at in 0..bytes.len() {
        let rest = &bytes[at..];
        let Some(rest) = rest.strip_prefix(&[tag::OID, 3]) else { continue };
        let (is_common, is_list) = (rest.starts_with(COMMON_NAME), rest.starts_with(SUBJECT_ALT_NAME));
        if !is_common && !is_list {
            continue;
        }
        if matches_examined == MATCHES_EXAMINED_MAX {
            return Reading::CutShort;
        }
        matches_examined += 1;
        let rest = &rest[3..];
        if is_common {
            let (tag, content, _) = parse_lenient(rest);
            common(Element { tag, content, whole: content }, found);
        } else {
            list(rest, found);
        }
    }
    Reading::Searched
}

/// Reads the names that follow the object identifier of subjectAltName.
fn list(mut rest: &[u8], found: &mut impl FnMut(Name<'_>)) {
    rest = rest.strip_prefix(&[tag::BOOLEAN, 1, 0xff]).unwrap_or(rest);
    for wrapper_tag in [tag::OCTET_STRING, tag::SEQUENCE] {
        let (tag, content, _) = parse_lenient(rest);
        if tag == wrapper_tag {
            rest = content;
        }
    }
    while !rest.is_empty() {
        let (tag, content, after) = parse_lenient(rest);
        general(tag, content, found);
        rest = after;
    }
}

/// Returns the next element, even if it is malformed: an invalid or too large length means all remaining bytes. The content is
/// always shorter than the input, unless the input is empty.
fn parse_lenient(bytes: &[u8]) -> (u8, &[u8], &[u8]) {
    let Some((&tag, rest)) = bytes.split_first() else { return (0, &[], &[]) };
    let Some((&first, rest)) = rest.split_first() else { return (tag, &[], &[]) };
    let count = usize::from(first & 0x7f);
    let (length, rest) = match first {
        0..=0x7f => (count, rest),
        0x81..=0x84 if rest.len() >= count => {
            let (bytes, rest) = rest.split_at(count);
            (bytes.iter().fold(0, |n, b| (n << 8) | usize::from(*b)), rest)
        }
        _ => (usize::MAX, rest),
    };
    let (content, after) = rest.split_at(length.min(rest.len()));
    (tag, content, after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use x509::der::write;

    use super::*;

    fn certificate(names: &[&str], common: &str) -> Vec<u8> {
        write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.context(0, |w| {
                        w.integer(2);
                    });
                    w.integer(77);
                    w.sequence(|w| {
                        w.oid(&[1, 2, 840, 10_045, 4, 3, 2]);
                    });
                    w.sequence(|_| {});
                    w.sequence(|_| {});
                    w.sequence(|w| {
                        w.set(|w| {
                            w.sequence(|w| {
                                w.oid(&[2, 5, 4, 3]).utf8(common);
                            });
                        });
                    });
                    w.sequence(|_| {});
                    w.context(3, |w| {
                        w.sequence(|w| {
                            w.sequence(|w| {
                                w.oid(&[2, 5, 29, 17]).boolean(true);
                                w.octets_of(|w| {
                                    w.sequence(|w| {
                                        for name in names {
                                            w.context_primitive(2, name.as_bytes());
                                        }
                                        w.context_primitive(7, &[192, 0, 2, 1]);
                                    });
                                });
                            });
                        });
                    });
                });
                w.sequence(|_| {});
                w.bits(&[1, 2, 3]);
            });
        })
    }

    fn found(der: &[u8]) -> (Reading, Vec<String>) {
        let mut all = Vec::new();
        let reading = names(der, |name| {
            all.push(match name {
                Name::Dns(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Name::Common(bytes) => format!("CN={}", String::from_utf8_lossy(bytes)),
                Name::Ip(address) => address.to_string(),
            });
        });
        (reading, all)
    }

    const NAMES: [&str; 3] = ["a.example", "*.b.example", "c.example"];
    const ALL: [&str; 5] = ["CN=common.example", "a.example", "*.b.example", "c.example", "192.0.2.1"];

    #[test]
    fn names_are_read_from_certificate_and_tbs_certificate() {
        let der = certificate(&NAMES, "common.example");
        assert_eq!(found(&der), (Reading::Whole, ALL.map(str::to_owned).to_vec()));
        let tbs = Reader::new(&der).sequence().unwrap().any().unwrap().whole;
        assert_eq!(found(tbs), (Reading::Whole, ALL.map(str::to_owned).to_vec()));
    }

    #[test]
    fn nul_byte_splits_a_name_in_two() {
        let der = certificate(&["paypal.example\0.evil.example"], "x\0y");
        let (_, all) = found(&der);
        assert_eq!(all, ["CN=x", "CN=y", "paypal.example", ".evil.example", "192.0.2.1"]);
    }

    #[test]
    fn names_are_searched_in_malformed_certificates() {
        let der = certificate(&NAMES, "common.example");
        // A negative version, an indefinite length at the start, bytes after the end, a text as serial number.
        let mut indefinite = der.clone();
        indefinite[1] = 0x80;
        let trailing = [&der[..], &[0]].concat();
        let mut serial = der.clone();
        let at = der.windows(3).position(|w| w == [2, 1, 77]).unwrap();
        serial[at] = tag::UTF8_STRING;
        for broken in [indefinite, trailing, serial, der[..der.len() - 7].to_vec()] {
            let (reading, all) = found(&broken);
            assert_eq!(reading, Reading::Searched);
            for name in ALL {
                assert!(all.iter().any(|one| one == name), "{name} in {all:?}");
            }
        }
    }

    #[test]
    fn names_after_a_wrong_length_are_still_found() {
        let mut der = certificate(&NAMES, "common.example");
        let at = der.windows(9).position(|w| w == b"c.example").unwrap();
        der[at - 1] = 200; // the name's length
        let (reading, all) = found(&der);
        assert_eq!(reading, Reading::Searched);
        assert!(all.iter().any(|name| name.starts_with("c.example")), "{all:?}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_yield_a_bounded_number_of_names(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let (_, all) = found(&bytes);
            prop_assert!(all.len() <= MATCHES_EXAMINED_MAX * bytes.len());
        }

        #[test]
        fn corrupt_byte_before_the_san_does_not_hide_names(at: prop::sample::Index, with: u8) {
            let mut der = certificate(&NAMES, "common.example");
            let names_at = der.windows(5).position(|w| w == [6, 3, 0x55, 0x1d, 0x11]).unwrap();
            let at = at.index(names_at);
            der[at] = with;
            let (reading, all) = found(&der);
            // A changed byte, such as the tag of the extensions, can hide the names although the certificate still parses. Then
            // clients do not find the names either.
            if reading != Reading::Whole {
                for name in NAMES {
                    prop_assert!(all.iter().any(|one| one == name), "{} in {:?}, octet {}", name, all, at);
                }
            }
        }
    }
}
