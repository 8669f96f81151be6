//! Percent-encoding of names in paths and queries of the API.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All bytes except the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a text for use as a path segment or a query value.
#[must_use]
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_in_path_segments_are_percent_encoded() {
        assert_eq!(segment("web-1.a_b~"), "web-1.a_b~");
        assert_eq!(segment("a b/../c?x"), "a%20b%2F..%2Fc%3Fx");
        assert_eq!(segment("é"), "%C3%A9");
    }
}
