//! Percent-encoding (RFC 3986 section 2.1).

use percent_encoding::percent_decode_str;

/// Decodes the percent-encoding of `text`. Returns `None` when a `%` is not followed by two hexadecimal digits.
#[must_use]
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    text.split('%').skip(1).all(is_escape).then(|| percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn invalid_percent_escapes_are_rejected() {
        assert_eq!(percent_decoded("a%2Fb%00"), Some(b"a/b\0".to_vec()));
        assert_eq!(percent_decoded(""), Some(Vec::new()));
        for broken in ["%", "%2", "a%2g", "%%41"] {
            assert_eq!(percent_decoded(broken), None, "{broken}");
        }
    }
}
