//! Normalisation of URL paths, so that rules and servers interpret the same path.

use std::borrow::Cow;

/// Returns the normal form of a path for rules (RFC 3986 section 6.2.2), so that no spelling bypasses a rule. Unnecessary escapes
/// are decoded, all other characters are escaped, repeated slashes are merged, and dot segments are removed. `%2F` stays.
pub(crate) fn plain_path(path: &str) -> Cow<'_, str> {
    normalise_escapes(path, is_pchar)
}

/// Returns the path to send to the server. Like [`plain_path`], but keeps escaped delimiters, because some servers interpret them
/// differently (RFC 3986 section 2.2).
pub(crate) fn sent_path(path: &str) -> Cow<'_, str> {
    normalise_escapes(path, is_unreserved)
}

/// Returns whether a path has dot segments in any spelling.
pub(crate) fn has_dots(path: &str) -> bool {
    path.contains(['.', '%']) && spelled(path, is_unreserved).split('/').any(is_dot_segment)
}

/// Returns whether some server could find dot segments in a [`plain_path`]: after `%2F`, after a backslash, or before a `;`.
pub(crate) fn hides_dots(path: &str) -> bool {
    let seen = |path: &str| {
        path.split('/').any(|segment| is_dot_segment(segment.split(';').next().unwrap_or_default()))
    };
    match path.contains('%') {
        true => seen(&path.replace("%2F", "/").replace("%5C", "/")),
        false => path.contains(';') && seen(path),
    }
}

/// Returns whether servers may interpret a [`plain_path`] differently. Such a path has an escaped slash, backslash or NUL, one of
/// these escapes or `%2E` escaped again, or hidden dot segments.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    const AMBIGUOUS_ESCAPES: [&str; 7] = ["%2F", "%5C", "%00", "%252E", "%252F", "%255C", "%2500"];
    let is_escaped = path.contains('%') && {
        let path = path.to_ascii_uppercase();
        AMBIGUOUS_ESCAPES.iter().any(|escape| path.contains(escape))
    };
    is_escaped || hides_dots(path)
}

/// Maximum number of times that a server is assumed to decode a path.
const DECODINGS_MAX: usize = 4;

/// Returns the other paths that servers may read from a [`plain_path`]. Servers may decode escaped slashes and backslashes, decode
/// repeatedly, end the path at a NUL, or remove parameters after `;`. Returns `None` if the path is escaped more often than
/// [`DECODINGS_MAX`] times.
pub(crate) fn other_readings(path: &str) -> Option<Vec<String>> {
    let mut readings = Vec::new();
    if !path.contains(['%', ';']) {
        return Some(readings);
    }
    let mut last = path.to_owned();
    for _ in 0..=DECODINGS_MAX {
        add_reading(&mut readings, path, &without_parameters(&last));
        let slashes = decoded_once(&last);
        let next = plain_path(&slashes.replace("%5C", "/")).into_owned();
        if next == last {
            return Some(readings);
        }
        add_reading(&mut readings, path, &slashes);
        add_reading(&mut readings, path, &next);
        last = next;
    }
    None
}

fn add_reading(readings: &mut Vec<String>, path: &str, reading: &str) {
    let whole = plain_path(reading);
    let before_nul = whole.split("%00").next().unwrap_or_default();
    for reading in [&*whole, before_nul] {
        if reading != path && !reading.is_empty() && !readings.iter().any(|known| known == reading) {
            readings.push(reading.to_owned());
        }
    }
}

/// Decodes `%2F`, and each `%25` before two hexadecimal digits.
fn decoded_once(path: &str) -> String {
    let path = path.replace("%2F", "/");
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path.as_str();
    while let Some(at) = rest.find("%25") {
        let after = &rest[at + 3..];
        let is_escape = after.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        decoded.push_str(&rest[..at]);
        decoded.push_str(if is_escape { "%" } else { "%25" });
        rest = after;
    }
    decoded.push_str(rest);
    decoded
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    segments.collect::<Vec<_>>().join("/")
}

fn is_dot_segment(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Returns whether the byte is a `pchar` of RFC 3986 section 3.3, without escapes.
fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

fn normalise_escapes(path: &str, is_decoded: fn(u8) -> bool) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte == b'/' || is_pchar(byte);
    if path.bytes().all(is_plain) && !path.contains("//") && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let spelled = spelled(path, is_decoded);
    let mut segments: Vec<&str> = Vec::new();
    let mut all = spelled.split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        let last = all.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            "" if !last => {}
            other => segments.push(other),
        }
    }
    Cow::Owned(format!("/{}", segments.join("/")))
}

/// Decodes the selected escapes, writes the others in upper case, and escapes invalid characters. A `%` that starts no escape is
/// escaped itself, so that it cannot become part of another escape.
fn spelled(path: &str, is_decoded: fn(u8) -> bool) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut spelled = String::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let Some((byte, mut rest)) = bytes.split_first() {
        let escaped = match (byte, hex(rest.first()), hex(rest.get(1))) {
            (b'%', Some(high), Some(low)) => {
                rest = &rest[2..];
                Some((high * 16 + low) as u8)
            }
            _ => None,
        };
        let is_plain = escaped.map_or(*byte == b'/' || is_pchar(*byte), is_decoded);
        let byte = escaped.unwrap_or(*byte);
        if is_plain {
            spelled.push(char::from(byte));
        } else {
            spelled.push('%');
            spelled.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
        bytes = rest;
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_to_one_form() {
        for (sent, plain) in [
            ("/a/b", "/a/b"),
            ("/", "/"),
            ("//", "/"),
            ("*", "*"),
            ("/%61dmin", "/admin"),
            ("/a/../admin", "/admin"),
            ("/a/%2e%2E/admin/.", "/admin/"),
            ("/../../x", "/x"),
            ("/a%2fb%zz%", "/a%2Fb%25zz%25"),
            // The path is decoded only once, so the result `%2e` stays text.
            ("/%%32e%%32e/x", "/%252e%252e/x"),
            ("/%+f", "/%25+f"),
            ("//admin", "/admin"),
            ("/a//b//", "/a/b/"),
            ("/v1//../admin", "/admin"),
            ("/v1/%2F../admin", "/v1/%2F../admin"),
            ("/v1/x%2F..%2f..%2Fadmin", "/v1/x%2F..%2F..%2Fadmin"),
            ("/%40evil%21%24%26%27%28%29%2a%2B%2c%3b%3D%3a", "/@evil!$&'()*+,;=:"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a|b\\c", "/a%7Cb%5Cc"),
            ("/..", "/"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(plain_path(sent), plain, "{sent}");
            assert_eq!(plain_path(plain), plain, "{sent}");
            assert_eq!(plain_path(&sent_path(sent)), plain, "{sent}");
        }
        assert_eq!(sent_path("//%61/%2e./b%3bc;d%2fe"), "/b%3Bc;d%2Fe");
    }

    #[test]
    fn ambiguous_paths_and_hidden_dot_segments_are_detected() {
        for path in
            ["/v1/x%2F..%2F..%2Fadmin", "/v1/..;/admin", "/v1/.%3Bx/a", "/v1/..\\admin", "/v1/%5c../a"]
        {
            let path = plain_path(path);
            assert!(hides_dots(&path) && is_ambiguous(&path), "{path}");
        }
        for path in ["/a%2fb", "/a\\b", "/a%00", "/v1/%252e%252E/admin", "/v1/%%32e%%32e/admin", "/a%255Cb"] {
            let path = plain_path(path);
            assert!(!hides_dots(&path) && is_ambiguous(&path), "{path}");
        }
        for path in ["/", "/a;b/c", "/...", "/.well-known/a..b", "/100%25", "/a%20b"] {
            assert!(!is_ambiguous(&plain_path(path)) && !has_dots(path), "{path}");
        }
        for path in ["/.", "/a/%2E./b", "/a/../b", "/a/./b"] {
            assert!(has_dots(path), "{path}");
        }
    }

    #[test]
    fn other_readings_of_a_path_include_every_decoding() {
        for (path, reading) in [
            ("/x%2Fadmin", "/x/admin"),
            ("/x%5cadmin", "/x/admin"),
            ("/x%252Fadmin", "/x/admin"),
            ("/x%25252Fadmin", "/x/admin"),
            ("/%2561dmin", "/admin"),
            ("/v1/%252e%252e/admin", "/admin"),
            ("/v1%252f..%252fadmin", "/admin"),
            ("/admin%00.png", "/admin"),
            ("/admin%2500.png", "/admin"),
            ("/admin;x=1/users", "/admin/users"),
            ("/admin%253Bx/users", "/admin/users"),
            ("/x%2Fa%5Cb", "/x/a%5Cb"),
        ] {
            let readings = other_readings(&plain_path(path)).unwrap();
            assert!(readings.iter().any(|one| one == reading), "{path}: {readings:?}");
        }
        for path in ["/", "/a/b", "/a%20b", "/100%25", "/100%25zz", "/caf%C3%A9"] {
            assert_eq!(other_readings(path).as_deref(), Some(&[][..]), "{path}");
        }
        assert_eq!(other_readings(&format!("/x%{}2Fadmin", "25".repeat(9))), None);
    }
}
