//! From one encoding into another: what programs hand over to be signed, and what they get.

use keys::Hash;
use x509::der::{DerError, Reader, tag};

/// A hash, and what PKCS #1 puts before its value: a DigestInfo without the digest (RFC 8017 section 9.2, note 1).
const DIGEST_INFOS: [(Hash, &[u8]); 5] = [
    (Hash::Sha1, b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14"),
    (Hash::Sha224, b"\x30\x2d\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x04\x05\x00\x04\x1c"),
    (Hash::Sha256, b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"),
    (Hash::Sha384, b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"),
    (Hash::Sha512, b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"),
];

/// The hash and the digest of a DigestInfo. Its octets have to be those that the key service makes of them, to the last
/// one: otherwise something else would be signed than was handed over. `None` for everything else.
pub(crate) fn digest_of_info(info: &[u8]) -> Option<(Hash, &[u8])> {
    DIGEST_INFOS.iter().find_map(|(hash, prefix)| {
        let digest = info.strip_prefix(*prefix)?;
        (digest.len() == hash.octets()).then_some((*hash, digest))
    })
}

/// An ECDSA signature as PKCS#11 has it (2.40 mechanisms, section 2.3.1): r and s side by side, each as long as the order
/// of the curve, from the DER of RFC 3279 section 2.2.3. `None` for what is no such signature.
pub(crate) fn raw_ecdsa(der: &[u8], order_octets: usize) -> Option<Vec<u8>> {
    let read = || -> Result<_, DerError> {
        let mut outer = Reader::new(der);
        let mut parts = outer.sequence()?;
        let (r, s) = (parts.expect(tag::INTEGER)?.content, parts.expect(tag::INTEGER)?.content);
        parts.end()?;
        outer.end()?;
        Ok((r, s))
    };
    let (r, s) = read().ok()?;
    let mut raw = vec![0; 2 * order_octets];
    let (left, right) = raw.split_at_mut(order_octets);
    for (room, integer) in [(left, r), (right, s)] {
        let zeros = integer.iter().take_while(|octet| **octet == 0).count();
        let magnitude = &integer[zeros..];
        let from = order_octets.checked_sub(magnitude.len())?;
        room[from..].copy_from_slice(magnitude);
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_info_is_read_to_the_last_octet() {
        for (hash, prefix) in DIGEST_INFOS {
            let digest = vec![7; hash.octets()];
            let info = [prefix, &digest].concat();
            assert_eq!(digest_of_info(&info), Some((hash, &digest[..])));
            // The lengths within say the same as those without.
            assert_eq!(usize::from(info[1]), info.len() - 2, "{hash:?}");
            let longer = [&info[..], &[0]].concat();
            for other in [&info[1..], &info[..info.len() - 1], &longer, &digest] {
                assert_eq!(digest_of_info(other), None, "{hash:?}");
            }
            for at in 0..prefix.len() {
                let mut changed = info.clone();
                changed[at] ^= 0x40;
                assert_eq!(digest_of_info(&changed), None, "{hash:?} {at}");
            }
        }
        // MD5 and SHA-1 side by side, without any DigestInfo.
        assert_eq!(digest_of_info(&[7; 36]), None);
    }

    #[test]
    fn both_halves_are_as_long_as_the_order() {
        for (der, wanted) in [
            (&b"\x30\x06\x02\x01\x05\x02\x01\x06"[..], Some(vec![0, 0, 5, 0, 0, 6])),
            // A sign octet, which is none of the number.
            (b"\x30\x09\x02\x04\x00\xff\x01\x02\x02\x01\x06", Some(vec![0xff, 1, 2, 0, 0, 6])),
            (b"\x30\x09\x02\x04\x01\xff\x01\x02\x02\x01\x06", None),
            (b"\x30\x06\x02\x01\x05\x02\x01\x06\x00", None),
            (b"\x30\x09\x02\x01\x05\x02\x01\x06\x02\x01\x07", None),
            (b"\x30\x03\x02\x01\x05", None),
            (b"", None),
        ] {
            assert_eq!(raw_ecdsa(der, 3), wanted, "{der:02x?}");
        }
    }
}
