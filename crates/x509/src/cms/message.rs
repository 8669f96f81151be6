//! ContentInfo, the outer structure of every CMS message (RFC 5652 section 3).

use super::ber;
use crate::der::{self, DerError, Reader, Writer, tag};

/// Maximum bytes of a CMS message. A SCEP request has 2,000 to 5,000 bytes, and a bundle of a root program 200,000.
pub const MESSAGE_MAX: usize = 1024 * 1024;

/// Maximum number of certificates in a CMS message, and maximum number of CRLs.
pub const ITEMS_MAX: usize = 512;

/// id-data, as a dotted object identifier.
pub const DATA: &str = "1.2.840.113549.1.7.1";

/// id-signedData, as a dotted object identifier.
pub const SIGNED_DATA: &str = "1.2.840.113549.1.7.2";

/// id-envelopedData, as a dotted object identifier.
pub const ENVELOPED_DATA: &str = "1.2.840.113549.1.7.3";

pub(super) fn content_info(kind: &str, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.oid_text(kind);
            w.context(0, fill);
        });
    })
}

/// Returns the content of a ContentInfo of this type. Fails if bytes follow it.
pub(super) fn content_of<'a>(message: &'a [u8], kind: &str) -> Result<Reader<'a>, DerError> {
    let mut input = Reader::new(message);
    let mut info = input.sequence()?;
    input.end()?;
    if der::oid_text(info.expect(tag::OID)?.content) != kind {
        return Err(DerError::Malformed("content type: unexpected message type"));
    }
    let mut content = info.expect(tag::context_constructed(0))?.inside();
    info.end()?;
    let fields = content.sequence()?;
    content.end()?;
    Ok(fields)
}

/// Parses a message. CMS permits BER, so a message that is not DER is converted first.
pub(super) fn parse<T>(message: &[u8], read: impl Fn(&[u8]) -> Result<T, DerError>) -> Result<T, DerError> {
    if message.len() > MESSAGE_MAX {
        return Err(DerError::Malformed("message: too long"));
    }
    read(message).or_else(|error| read(&ber::to_definite_der(message).map_err(|_| error)?))
}

/// Writes the implicitly tagged SET of certificates or CRLs. Writes nothing if there are none.
pub(super) fn write_items(w: &mut Writer, number: u8, items: &[&[u8]]) {
    if !items.is_empty() {
        w.element(tag::context_constructed(number), &items.concat());
    }
}
