//! PKCS#12 (RFC 7292): reads unencrypted certificates directly and decrypts others with the given passwords. Parts with keys are
//! skipped.

use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error as Pkcs12Error;

use super::ber::{
    BMP_STRING, CONTEXT_0, Element, Elements, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, SET, write,
};
use super::contents::{Contents, Format, display_name};
use super::error::FileError;
use super::password::Passwords;

/// id-data, 1.2.840.113549.1.7.1
const DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
/// id-encryptedData, 1.2.840.113549.1.7.6
const ENCRYPTED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x06";
/// certBag, 1.2.840.113549.1.12.10.1.3
const CERTIFICATE_BAG: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x03";
/// x509Certificate, 1.2.840.113549.1.9.22.1
const X509_CERTIFICATE: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x16\x01";
/// friendlyName, 1.2.840.113549.1.9.20
const FRIENDLY_NAME: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x14";

pub(super) fn read(file: &Element<'_>, passwords: &Passwords) -> Result<Contents, FileError> {
    let safes = authenticated_safe(file).ok_or_else(|| malformed("the outer structure is truncated"))?;
    let safes =
        Elements::new(&safes).expect(SEQUENCE).ok_or_else(|| malformed("the list of parts is truncated"))?;
    let mut contents = Contents::new(Format::Pkcs12);
    // Parts of one file have the same password: start with the last correct one.
    let mut last_password = None;
    for safe in safes.inside() {
        let mut fields = safe.inside();
        let kind = fields.expect(OBJECT_IDENTIFIER);
        let content = fields.expect(CONTEXT_0).and_then(|content| content.inside().next());
        match (kind.map(|kind| kind.content), content) {
            (Some(DATA), Some(content)) => read_plaintext_bags(&content.octets(), &mut contents),
            (Some(ENCRYPTED_DATA), Some(content)) => {
                let sealed = single_part_pkcs12(&content)
                    .ok_or_else(|| malformed("an encrypted part is truncated"))?;
                let (archive, password) = open(&sealed, last_password, passwords)?;
                last_password = Some(password);
                for bag in archive.certs {
                    contents.push(bag.friendly_name.as_deref().map(display_name), bag.cert.as_der());
                }
            }
            _ => contents.notes.push("a part encrypted to a public key was not read".to_owned()),
        }
    }
    Ok(contents)
}

fn malformed(why: &str) -> FileError {
    FileError::Malformed { format: Format::Pkcs12, why: why.to_owned() }
}

/// Returns the AuthenticatedSafe in PFX { version, authSafe ContentInfo { data, \[0\] OCTET STRING }, macData }.
fn authenticated_safe<'a>(file: &Element<'a>) -> Option<std::borrow::Cow<'a, [u8]>> {
    let mut fields = file.inside();
    fields.expect(INTEGER)?;
    let mut info = fields.expect(SEQUENCE)?.inside();
    info.expect(OBJECT_IDENTIFIER).filter(|kind| kind.content == DATA)?;
    let content = info.expect(CONTEXT_0)?.inside().next()?;
    matches!(content.tag, OCTET_STRING | 0x24).then(|| content.octets())
}

/// Reads the certificate bags of an unencrypted part.
fn read_plaintext_bags(safe: &[u8], contents: &mut Contents) {
    let Some(bags) = Elements::new(safe).expect(SEQUENCE) else {
        contents.notes.push("a part is truncated".to_owned());
        return;
    };
    for bag in bags.inside() {
        let mut fields = bag.inside();
        let kind = fields.expect(OBJECT_IDENTIFIER).map(|kind| kind.content);
        let value = fields.expect(CONTEXT_0);
        if kind != Some(CERTIFICATE_BAG) {
            continue;
        }
        let alias = fields.expect(SET).and_then(|attributes| friendly_name(&attributes));
        match value.as_ref().and_then(certificate) {
            Some(der) => contents.push(alias, &der),
            None => contents.notes.push("a certificate of an unsupported type was not read".to_owned()),
        }
    }
}

/// Returns the certificate in CertBag { certId, \[0\] certValue }.
fn certificate<'a>(value: &Element<'a>) -> Option<std::borrow::Cow<'a, [u8]>> {
    let mut fields = value.inside().expect(SEQUENCE)?.inside();
    fields.expect(OBJECT_IDENTIFIER).filter(|kind| kind.content == X509_CERTIFICATE)?;
    let content = fields.expect(CONTEXT_0)?.inside().next()?;
    Some(content.octets())
}

fn friendly_name(attributes: &Element<'_>) -> Option<String> {
    attributes.inside().find_map(|attribute| {
        let mut fields = attribute.inside();
        fields.expect(OBJECT_IDENTIFIER).filter(|kind| kind.content == FRIENDLY_NAME)?;
        let name = fields.expect(SET)?.inside().expect(BMP_STRING)?;
        let units = name.content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        Some(display_name(&String::from_utf16_lossy(&units.collect::<Vec<_>>())))
    })
}

/// Creates a DER PKCS#12 file with only this EncryptedData and no MAC. The decryption library then sees no keys, and also handles
/// files in BER. Padding and content show whether the password is correct.
fn single_part_pkcs12(encrypted: &Element<'_>) -> Option<Vec<u8>> {
    let mut fields = encrypted.inside();
    let version = fields.expect(INTEGER)?;
    let mut info = fields.expect(SEQUENCE)?.inside();
    let kind = info.expect(OBJECT_IDENTIFIER)?;
    let algorithm = info.expect(SEQUENCE)?;
    let octets = info.next().filter(|content| matches!(content.tag, 0x80 | CONTEXT_0))?.octets();
    let octets = write(0x80, &[&octets]);
    let info = write(SEQUENCE, &[kind.whole, algorithm.whole, &octets]);
    let data = write(SEQUENCE, &[version.whole, &info]);
    let safe = content_info(ENCRYPTED_DATA, &data);
    let safes = write(OCTET_STRING, &[&write(SEQUENCE, &[&safe])]);
    let version = [INTEGER, 1, 3];
    Some(write(SEQUENCE, &[&version, &content_info(DATA, &safes)]))
}

fn content_info(kind: &[u8], content: &[u8]) -> Vec<u8> {
    write(SEQUENCE, &[&write(OBJECT_IDENTIFIER, &[kind]), &write(CONTEXT_0, &[content])])
}

fn open<'p>(
    sealed: &[u8],
    last_password: Option<&'p str>,
    passwords: &'p Passwords,
) -> Result<(Pkcs12Archive, &'p str), FileError> {
    for password in last_password.into_iter().chain(passwords.iter()) {
        match Pkcs12Archive::from_pkcs12(sealed, password) {
            Ok(archive) => return Ok((archive, password)),
            Err(error) if is_wrong_password(&error) => {}
            Err(error) => return Err(malformed(&error.to_string())),
        }
    }
    Err(passwords.no_match_error())
}

/// Returns whether the error indicates a wrong password: invalid padding, or (in one of 256 cases) valid padding with random
/// content.
fn is_wrong_password(error: &Pkcs12Error) -> bool {
    matches!(
        error,
        Pkcs12Error::UnpadError
            | Pkcs12Error::DerError(_)
            | Pkcs12Error::Pkcs5Error(_)
            | Pkcs12Error::MacError(_)
    )
}
