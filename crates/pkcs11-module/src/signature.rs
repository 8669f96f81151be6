//! Parsing of the DigestInfos that programs pass as input of a signature.

use keys::Hash;

/// A hash, and the prefix that PKCS #1 puts before its value: a DigestInfo without the digest (RFC 8017 section 9.2, note 1).
const DIGEST_INFOS: [(Hash, &[u8]); 5] = [
    (Hash::Sha1, b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14"),
    (Hash::Sha224, b"\x30\x2d\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x04\x05\x00\x04\x1c"),
    (Hash::Sha256, b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"),
    (Hash::Sha384, b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"),
    (Hash::Sha512, b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"),
];

/// Returns the hash and the digest of a DigestInfo. `None` unless the bytes are exactly those that the key service would encode:
/// otherwise the signature would cover other data than the program passed.
pub(crate) fn digest_of_info(info: &[u8]) -> Option<(Hash, &[u8])> {
    DIGEST_INFOS.iter().find_map(|(hash, prefix)| {
        let digest = info.strip_prefix(*prefix)?;
        (digest.len() == hash.octets()).then_some((*hash, digest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_info_is_parsed_exactly() {
        for (hash, prefix) in DIGEST_INFOS {
            let digest = vec![7; hash.octets()];
            let info = [prefix, &digest].concat();
            assert_eq!(digest_of_info(&info), Some((hash, &digest[..])));
            // The inner and outer lengths must agree.
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
        // MD5 and SHA-1 concatenated, without a DigestInfo.
        assert_eq!(digest_of_info(&[7; 36]), None);
    }
}
