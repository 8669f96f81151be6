//! Cryptographic messages (RFC 5652): certificates-only messages, and the messages of SCEP (RFC 8894).
//!
//! This module only encodes and decodes structures. It does not use private keys: the caller signs and decrypts.

mod ber;
mod digest;
mod enveloped;
mod identity;
mod message;
mod signed;

pub use digest::Digest;
pub use enveloped::{ContentCipher, EnvelopedData, KeyTransport, Recipient};
pub use identity::Identity;
pub use message::{DATA, ENVELOPED_DATA, ITEMS_MAX, MESSAGE_MAX, SIGNED_DATA};
pub use signed::{Attribute, SignedData, SignedSpec, Signer, signed_attributes, signed_data};

use self::message::{content_info, write_items};
use crate::der::DerError;

/// Encodes certificates and CRLs without a signature: the "certs-only" message (RFC 8551 section 3.8) in which EST and SCEP deliver
/// certificates. The given order is kept, because some clients use the first certificate.
#[must_use]
pub fn certs_only(certificates: &[&[u8]], crls: &[&[u8]]) -> Vec<u8> {
    content_info(SIGNED_DATA, |w| {
        w.sequence(|w| {
            w.integer(1).set(|_| {});
            w.sequence(|w| {
                w.oid_text(DATA);
            });
            write_items(w, 0, certificates);
            write_items(w, 1, crls);
            w.set(|_| {});
        });
    })
}

/// Returns the DER certificates in a SignedData, signed or not, unchanged.
///
/// # Errors
/// As [`SignedData::parse`].
pub fn certificates_of(message: &[u8]) -> Result<Vec<Vec<u8>>, DerError> {
    SignedData::parse(message).map(|signed| signed.certificates)
}
