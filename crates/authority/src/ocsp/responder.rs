//! The delegated OCSP responder of a CA with its key and certificate.

use std::sync::Arc;

use keys::KeyRef;
use x509::{UnixTime, build};

use crate::tables::OcspResponderRow;

/// Signer of the OCSP responses of one CA.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) signer: KeyRef,
    pub(super) certificate: Arc<[u8]>,
    /// SHA-1 of the public key, which identifies the responder in responses.
    pub(super) key_hash: [u8; 20],
    pub(super) not_before: UnixTime,
    pub(super) not_after: UnixTime,
}

impl Responder {
    pub(super) fn of(row: &OcspResponderRow, signer: KeyRef) -> Self {
        Self {
            key_hash: build::key_sha1(signer.spki()),
            signer,
            certificate: row.certificate.as_slice().into(),
            not_before: UnixTime(row.not_before_us.div_euclid(1_000_000)),
            not_after: UnixTime(row.not_after_us.div_euclid(1_000_000)),
        }
    }
}
