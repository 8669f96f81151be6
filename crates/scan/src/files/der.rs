//! Files that start with a SEQUENCE: a certificate, PKCS#7 or PKCS#12, distinguished by their content.

use super::ber::{BIT_STRING, CONTEXT_0, Element, Elements, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, SET};
use super::contents::{Contents, Format};
use super::error::FileError;
use super::password::Passwords;
use super::pkcs12;

/// id-signedData, 1.2.840.113549.1.7.2
const SIGNED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";

pub(super) fn read(bytes: &[u8], passwords: &Passwords) -> Result<Contents, FileError> {
    let Some(first) = Elements::new(bytes).expect(SEQUENCE) else {
        return Err(FileError::NoCertificate);
    };
    match first.inside().next().map(|element| element.tag) {
        Some(OBJECT_IDENTIFIER) => pkcs7(&first),
        Some(INTEGER) if looks_like_pkcs12(&first) => pkcs12::read(&first, passwords),
        _ => certificates(bytes),
    }
}

/// Returns whether the file has version 3 and a ContentInfo. Private keys also start with an integer, but with another value.
fn looks_like_pkcs12(file: &Element<'_>) -> bool {
    let mut inside = file.inside();
    inside.expect(INTEGER).is_some_and(|version| version.content == [3])
        && inside.expect(SEQUENCE).is_some_and(|content| content.inside().expect(OBJECT_IDENTIFIER).is_some())
}

/// Reads concatenated certificates, as some appliances export them.
fn certificates(bytes: &[u8]) -> Result<Contents, FileError> {
    let mut contents = Contents::new(Format::Der);
    let mut elements = Elements::new(bytes);
    while let Some(element) = elements.expect(SEQUENCE) {
        if !is_certificate(&element) {
            break;
        }
        contents.push(None, element.whole);
    }
    if contents.certificates.is_empty() {
        return Err(FileError::NoCertificate);
    }
    let rest = elements.rest();
    // Line ends and padding after the last certificate are ignored.
    if !rest.iter().all(|&byte| byte == 0 || byte.is_ascii_whitespace()) {
        contents.notes.push(format!("{} trailing bytes after the last certificate", rest.len()));
    }
    Ok(contents)
}

/// Returns whether the element has the structure of RFC 5280 section 4.1: tbsCertificate, algorithm, signature. CRLs and
/// certificate requests have the same outer structure, so the content is checked: a version or serial number, then an algorithm, a
/// name, and a validity of two times.
pub(super) fn is_certificate(element: &Element<'_>) -> bool {
    let mut parts = element.inside();
    let signed = parts.expect(SEQUENCE);
    let sealed = parts.expect(SEQUENCE).is_some() && parts.expect(BIT_STRING).is_some();
    sealed && signed.is_some_and(|signed| is_tbs_certificate(&signed))
}

fn is_tbs_certificate(signed: &Element<'_>) -> bool {
    let mut fields = signed.inside();
    let _version = fields.expect(CONTEXT_0);
    let head = fields.expect(INTEGER).is_some()
        && fields.expect(SEQUENCE).is_some()
        && fields.expect(SEQUENCE).is_some();
    let validity = fields.expect(SEQUENCE);
    head && validity.is_some_and(|validity| validity.inside().count() == 2)
}

/// Reads PKCS#7 (RFC 5652 sections 3 and 5.1, RFC 2315 section 9.1): the certificates are in \[0\] after the content.
pub(super) fn pkcs7(file: &Element<'_>) -> Result<Contents, FileError> {
    let malformed = |why: &str| FileError::Malformed { format: Format::Pkcs7, why: why.to_owned() };
    let mut inside = file.inside();
    match inside.expect(OBJECT_IDENTIFIER) {
        Some(kind) if kind.content == SIGNED_DATA => {}
        Some(_) => return Err(malformed("only SignedData holds certificates")),
        None => return Err(FileError::NoCertificate),
    }
    let signed = inside
        .expect(CONTEXT_0)
        .and_then(|content| content.inside().expect(SEQUENCE))
        .ok_or_else(|| malformed("the SignedData is truncated"))?;
    let mut fields = signed.inside();
    let whole =
        fields.expect(INTEGER).is_some() && fields.expect(SET).is_some() && fields.expect(SEQUENCE).is_some();
    if !whole {
        return Err(malformed("the SignedData lacks its first fields"));
    }
    let mut contents = Contents::new(Format::Pkcs7);
    let Some(certificates) = fields.expect(CONTEXT_0) else { return Ok(contents) };
    let (mut others, mut all) = (0, certificates.inside());
    for choice in all.by_ref() {
        if choice.tag == SEQUENCE {
            contents.push(None, choice.whole);
        } else {
            others += 1;
        }
    }
    if others > 0 {
        contents.notes.push(format!("{others} attribute or PKCS#6 certificates were not read"));
    }
    if !all.rest().is_empty() {
        contents.notes.push("the last certificate is truncated".to_owned());
    }
    Ok(contents)
}
