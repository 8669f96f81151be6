//! Tolerant PEM parser (RFC 7468): allows text before, between and after blocks, lines of any length, and any line ends.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::ber::{Elements, SEQUENCE};
use super::contents::{Contents, Format};
use super::der;
use super::error::FileError;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Longest accepted label in bytes; the longest known one has 26.
const LABEL_MAX: usize = 64;

/// Base64 decoder that accepts missing padding and non-zero trailing bits, which some tools write.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn read(text: &[u8]) -> Result<Contents, FileError> {
    let mut contents = Contents::new(Format::Pem);
    let mut rest = text;
    while let Some((block, after)) = next_block(rest) {
        rest = after;
        // Keys are not decoded.
        match block.label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" | b"TRUSTED CERTIFICATE" => {
                certificate(&block, &mut contents);
            }
            b"PKCS7" | b"CMS" | b"PKCS #7 SIGNED DATA" => pkcs7(&block, &mut contents),
            _ => {}
        }
    }
    Ok(contents)
}

struct PemBlock<'a> {
    label: &'a [u8],
    /// Content of the block; `None`: the END line is missing.
    body: Option<&'a [u8]>,
}

/// Returns the next block, and the rest of the text.
fn next_block(text: &[u8]) -> Option<(PemBlock<'_>, &[u8])> {
    let mut text = text;
    loop {
        let (at, marker) = next_marker(text)?;
        if marker == PemMarker::End {
            // An END line without BEGIN.
            text = &text[at + END.len()..];
            continue;
        }
        let inside = &text[at + BEGIN.len()..];
        let line = &inside[..inside.len().min(LABEL_MAX + DASHES.len())];
        let Some(length) = find(line) else {
            text = inside;
            continue;
        };
        let (label, after) = (&inside[..length], &inside[length + DASHES.len()..]);
        return Some(match next_marker(after) {
            Some((end, PemMarker::End)) => {
                (PemBlock { label, body: Some(&after[..end]) }, &after[end + END.len()..])
            }
            // A BEGIN line inside a block: the END line of the block is missing.
            Some((lost, PemMarker::Begin)) => (PemBlock { label, body: None }, &after[lost..]),
            None => (PemBlock { label, body: None }, &[]),
        });
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum PemMarker {
    Begin,
    End,
}

/// Returns the next BEGIN or END. Every byte is examined once, even if many blocks lack their END line.
fn next_marker(text: &[u8]) -> Option<(usize, PemMarker)> {
    let mut from = 0;
    loop {
        let at = from + find(&text[from..])?;
        if text[at..].starts_with(BEGIN) {
            return Some((at, PemMarker::Begin));
        }
        if text[at..].starts_with(END) {
            return Some((at, PemMarker::End));
        }
        from = at + 1;
    }
}

/// Finds five dashes. Searching for the first byte makes scanning a large binary file cheap.
fn find(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text[from..].iter().position(|&byte| byte == b'-')?;
        if text[at..].starts_with(DASHES) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn decode(block: &PemBlock<'_>, contents: &mut Contents) -> Option<Vec<u8>> {
    let number = contents.certificates.len() + contents.notes.len() + 1;
    let Some(body) = block.body else {
        contents.notes.push(format!("certificate {number} has no END line"));
        return None;
    };
    // Headers (RFC 1421 section 4.4) contain a colon; base64 does not.
    let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.contains(&b':'));
    let symbols: Vec<u8> = lines.flatten().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = BASE64.decode(symbols);
    if decoded.is_err() {
        contents.notes.push(format!("certificate {number} is not base64"));
    }
    decoded.ok()
}

/// Adds a certificate. OpenSSL's TRUSTED CERTIFICATE has trust settings after the certificate.
fn certificate(block: &PemBlock<'_>, contents: &mut Contents) {
    let Some(bytes) = decode(block, contents) else { return };
    match Elements::new(&bytes).expect(SEQUENCE) {
        Some(element) if block.label == b"TRUSTED CERTIFICATE" => {
            contents.push(None, element.whole);
        }
        // Includes trailing bytes: the parser reports errors.
        _ => contents.push(None, &bytes),
    }
}

fn pkcs7(block: &PemBlock<'_>, contents: &mut Contents) {
    let Some(bytes) = decode(block, contents) else { return };
    let read = Elements::new(&bytes).expect(SEQUENCE).map(|file| der::pkcs7(&file));
    match read {
        Some(Ok(inner)) => {
            contents.format = Format::Pkcs7;
            for found in inner.certificates {
                contents.push(None, &found.der);
            }
            contents.notes.extend(inner.notes);
        }
        Some(Err(error)) => contents.notes.push(error.to_string()),
        None => contents.notes.push("the PKCS#7 block is truncated".to_owned()),
    }
}
