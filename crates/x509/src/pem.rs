//! PEM (RFC 7468): certificates in text, surrounded by any other text.

use data_encoding::BASE64;

/// Maximum blocks of a text. Root bundles have 150, the largest dumps a few thousand.
const BLOCKS_MAX: usize = 100_000;
/// Maximum decoded bytes of a block. A PKCS#7 bundle of a whole root program has 200 KB.
const BLOCK_BYTES_MAX: usize = 1024 * 1024;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// Returns all blocks of `text` with their labels, in order. Ignores text between blocks, headers in blocks, and line endings.
/// Leaves out blocks that are truncated or not base64.
pub fn blocks(text: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut rest = text;
    std::iter::from_fn(move || next_block(&mut rest)).flatten().take(BLOCKS_MAX)
}

/// Returns the blocks of `text` that contain a certificate: with the label `CERTIFICATE` (RFC 7468 section 5), or with a label that
/// OpenSSL used earlier and still reads. For `TRUSTED CERTIFICATE`, returns only the certificate, without OpenSSL's trust settings
/// after it.
pub fn certificates(text: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    blocks(text).filter_map(|(label, der)| match label.as_str() {
        "CERTIFICATE" | "X509 CERTIFICATE" => Some((label, der)),
        "TRUSTED CERTIFICATE" => {
            let certificate = crate::der::Reader::new(&der).any().ok()?.whole.to_vec();
            Some((label, certificate))
        }
        _ => None,
    })
}

/// Formats a block with this label (RFC 7468 section 2): lines of 64 letters, and a line end after the last one.
///
/// ```
/// let text = x509::pem::encode("X", b"hello");
/// assert_eq!(text, "-----BEGIN X-----\naGVsbG8=\n-----END X-----\n");
/// ```
#[must_use]
pub fn encode(label: &str, der: &[u8]) -> String {
    const LINE_BYTES: usize = 48;
    let mut out = String::with_capacity(der.len() * 4 / 3 + der.len() / LINE_BYTES + 2 * label.len() + 48);
    out.extend(["-----BEGIN ", label, "-----\n"]);
    for line in der.chunks(LINE_BYTES) {
        BASE64.encode_append(line, &mut out);
        out.push('\n');
    }
    out.extend(["-----END ", label, "-----\n"]);
    out
}

/// Returns `None` at the end of the text, and `Some(None)` for a block that cannot be read.
fn next_block(rest: &mut &[u8]) -> Option<Option<(String, Vec<u8>)>> {
    let text = *rest;
    let begin = find(text, BEGIN)? + BEGIN.len();
    let Some(length) = find(&text[begin..], DASHES) else {
        *rest = &[];
        return None;
    };
    let label = &text[begin..begin + length];
    let body = &text[begin + length + DASHES.len()..];
    // A label has no line break, so this BEGIN does not start a block.
    if label.contains(&b'\n') {
        *rest = &text[begin..];
        return Some(None);
    }
    let Some(end) = find(body, END) else {
        *rest = &[];
        return Some(None);
    };
    // The block is truncated if another BEGIN follows before its end.
    if let Some(next) = find(&body[..end], BEGIN) {
        *rest = &body[next..];
        return Some(None);
    }
    *rest = &body[end + END.len()..];
    let der = decode(skip_headers(&body[..end]));
    Some(der.map(|der| (String::from_utf8_lossy(label).into_owned(), der)))
}

/// Skips RFC 1421 headers (`Proc-Type: …`), which end with an empty line.
fn skip_headers(body: &[u8]) -> &[u8] {
    if !body.contains(&b':') {
        return body;
    }
    let blank = find(body, b"\n\n").map(|at| at + 2);
    let blank = blank.or_else(|| find(body, b"\r\n\r\n").map(|at| at + 4));
    blank.map_or(body, |at| &body[at..])
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle.first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|b| b == first) {
        if haystack[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Decodes base64 (RFC 4648 section 4) with or without padding, and with white space anywhere.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity((text.len() / 4 * 3).min(BLOCK_BYTES_MAX));
    let (mut bits, mut bit_count) = (0u32, 0);
    let mut letters = text.iter().filter(|b| !b.is_ascii_whitespace());
    for &letter in letters.by_ref() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            out.push((bits >> bit_count) as u8);
        }
        if out.len() > BLOCK_BYTES_MAX {
            return None;
        }
    }
    letters.all(|&b| b == b'=').then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Vec<u8>)> {
        blocks(text.as_bytes()).collect()
    }

    fn block(label: &str, body: &str) -> String {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    #[test]
    fn pem_blocks_are_found_among_other_text() {
        let hello = ("A".to_owned(), b"hello".to_vec());
        let table = [
            block("A", "aGVsbG8="),
            block("A", "aGVsbG8"),
            block("A", "aGVs\r\nbG8=\r\n"),
            format!("subject=CN = x\n{}trailing text", block("A", "aGVsbG8=")),
            block("A", "Proc-Type: 4\nX: y\n\naGVsbG8="),
            format!("-----BEGIN A-----\naGVs\n{}", block("A", "aGVsbG8=")),
            format!("-----BEGIN nothing\n{}", block("A", "aGVsbG8=")),
            format!("{}{}", block("B", "not*base64"), block("A", "aGVsbG8=")),
        ];
        for text in table {
            assert_eq!(read(&text), std::slice::from_ref(&hello), "{text}");
        }
    }

    #[test]
    fn encoded_pem_is_parsed_back() {
        for length in (0..200).chain([4_096]) {
            let der: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let text = encode("A B", &der);
            assert_eq!(read(&text), [("A B".to_owned(), der)]);
            assert!(text.lines().all(|line| line.len() <= 64));
        }
    }

    #[test]
    fn truncated_pem_blocks_are_ignored() {
        for text in ["", "-----BEGIN A", "-----BEGIN A-----", "-----BEGIN A-----\naGVs", "-----"] {
            assert_eq!(read(text), [], "{text}");
        }
    }

    #[test]
    fn only_certificate_labels_yield_certificates() {
        let text = [
            block("CERTIFICATE", "MAA="),
            block("PRIVATE KEY", "MAA="),
            block("X509 CERTIFICATE", "MAA="),
            block("TRUSTED CERTIFICATE", "MAAwAA=="),
        ];
        let found: Vec<_> = certificates(text.concat().as_bytes()).map(|(_, der)| der).collect();
        assert_eq!(found, [[0x30, 0], [0x30, 0], [0x30, 0]]);
    }
}
