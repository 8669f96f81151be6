//! Public keys in SSH format (RFC 4253 section 6.6, RFC 4251 section 5).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509::PublicKey;
use x509::der::{Reader, tag};

/// Formats a line for `authorized_keys`; `None` if the key is not an RSA key.
pub(crate) fn rsa_line(spki: &[u8], comment: &str) -> Option<String> {
    let key = PublicKey::parse(spki).ok()?;
    let mut parts = Reader::new(key.key_bytes()).sequence().ok()?;
    let modulus = parts.expect(tag::INTEGER).ok()?.content;
    let exponent = parts.expect(tag::INTEGER).ok()?.content;
    let mut blob = Vec::with_capacity(modulus.len() + 32);
    // A DER INTEGER and an SSH mpint have the same bytes.
    for part in [b"ssh-rsa".as_slice(), exponent, modulus] {
        blob.extend_from_slice(&u32::try_from(part.len()).ok()?.to_be_bytes());
        blob.extend_from_slice(part);
    }
    let line = format!("ssh-rsa {}", STANDARD.encode(blob));
    Some(if comment.is_empty() { line } else { format!("{line} {comment}") })
}

/// Decodes the key blob of a line.
pub(crate) fn blob(line: &str) -> Option<Vec<u8>> {
    let (kind, rest) = line.trim().split_once(' ')?;
    let text = rest.split_whitespace().next()?;
    kind.contains('-').then_some(())?;
    STANDARD.decode(text).ok().filter(|blob| !blob.is_empty())
}
