//! Normalisation of paths for rules, and rejection of paths that servers may interpret differently.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::url_path::{has_dots, hides_dots, is_ambiguous, plain_path};

/// Reason why a path is ambiguous. Rules with a `path` deny such requests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
pub enum AmbiguousPath {
    /// The path has a segment `.` or `..`, possibly escaped.
    #[error("the path has dot segments (`.` or `..`)")]
    Dots,
    /// The path has an empty segment: `//`.
    #[error("the path has an empty segment (`//`)")]
    EmptySegment,
    /// The path has `%2F`, `%5C`, a backslash, `%00`, or one of these escaped twice.
    #[error("the path has an escaped slash, a backslash or a NUL, which servers interpret differently")]
    Escape,
    /// An invalid percent-escape, or bytes that are not UTF-8.
    #[error("the path has an invalid escape, or bytes that are not UTF-8")]
    Encoding,
    /// The path does not start with a slash: `*`, or an absolute URL.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
}

/// Returns the path in normal form (RFC 3986 section 6.2.2): unnecessary escapes are decoded, all others are in upper case.
pub(crate) fn normalised(path: &str) -> Result<Cow<'_, str>, AmbiguousPath> {
    if !path.starts_with('/') {
        return Err(AmbiguousPath::NotAbsolute);
    }
    // Most paths contain only characters without ambiguity.
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_');
    if path.bytes().all(is_simple) && !path.contains("//") {
        return Ok(Cow::Borrowed(path));
    }
    if path.contains("//") {
        return Err(AmbiguousPath::EmptySegment);
    }
    let is_escape = |at: usize| {
        path.as_bytes().get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    let is_escaped = path.contains('%');
    if is_escaped
        && (path.match_indices('%').any(|(at, _)| !is_escape(at))
            || percent_decode_str(path).decode_utf8().is_err())
    {
        return Err(AmbiguousPath::Encoding);
    }
    if has_dots(path) {
        return Err(AmbiguousPath::Dots);
    }
    let plain = plain_path(path);
    match plain.as_ref() {
        plain if hides_dots(plain) => Err(AmbiguousPath::Dots),
        plain if is_ambiguous(plain) => Err(AmbiguousPath::Escape),
        _ => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ambiguous_paths_are_rejected_with_the_reason() {
        use AmbiguousPath::{Dots, EmptySegment, Encoding, Escape, NotAbsolute};
        for (path, reason) in [
            ("/a/../b", Dots),
            ("/a/%2e%2E/b", Dots),
            ("/a/.", Dots),
            ("/a/..;x/b", Dots),
            ("/a%2F..%2fb", Dots),
            ("/a//b", EmptySegment),
            ("//a", EmptySegment),
            ("/a%2fb", Escape),
            ("/a%5Cb", Escape),
            ("/a\\b", Escape),
            ("/a%00", Escape),
            ("/a%252fb", Escape),
            ("/a%zz", Encoding),
            ("/a%", Encoding),
            ("/a%c0%af", Encoding),
            ("*", NotAbsolute),
            ("", NotAbsolute),
        ] {
            assert_eq!(normalised(path), Err(reason), "{path}");
        }
        for (path, plain) in
            [("/", "/"), ("/%61/b", "/a/b"), ("/a%20b/", "/a%20b/"), ("/...", "/..."), ("/@a", "/@a")]
        {
            assert_eq!(normalised(path).as_deref(), Ok(plain), "{path}");
        }
    }

    proptest! {
        /// Decoding an accepted path once does not change its segments.
        #[test]
        fn accepted_path_has_the_same_segments_when_decoded(path in "/([a-c/.;%]|%2[efEF5]|%5[cC]|%00|%61){0,8}") {
            if let Ok(plain) = normalised(&path) {
                let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
                prop_assert_eq!(decoded.matches('/').count(), plain.matches('/').count());
                prop_assert!(!decoded.split('/').any(|segment| matches!(segment, "." | "..")), "{}", decoded);
                prop_assert!(!decoded.contains(['\\', '\0']));
            }
        }
    }
}
