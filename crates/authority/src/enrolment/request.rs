//! A requested certificate, and the key that identifies repeated requests.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use x509::build;
use x509::csr::CertificateRequest;

use crate::issue::Source;
use crate::principal::Principal;
use crate::profile::Profile;
use crate::teams::OwnershipRights;

/// A certificate request by an authorized client.
#[derive(Clone, Debug)]
pub(crate) struct Enrolment {
    pub(crate) source: Source,
    pub(crate) profile: Arc<Profile>,
    /// Principal that requests the certificate.
    pub(crate) requester: Principal,
    /// Team on whose behalf the request is made.
    pub(crate) rights: OwnershipRights,
    /// Key that identifies repeats of the same enrolment: see [`key`].
    pub(crate) key: String,
    pub(crate) requested: RequestedCertificate,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestedCertificate {
    pub(crate) request: CertificateRequest,
    /// Public key to certify instead of the CSR's, if the server generated the key pair.
    pub(crate) spki: Option<Vec<u8>>,
}

/// Returns an idempotency key of fixed length for parts of any length. Each part is hashed with its length, so that different parts
/// give different keys.
pub(crate) fn key(parts: &[&[u8]]) -> String {
    x509::Fingerprint::from_bytes(hash(parts)).to_string()
}

pub(super) fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// Returns the CSR without its password, for storage. The result has no valid signature.
pub(super) fn without_password(request: &CertificateRequest) -> Vec<u8> {
    let tbs = x509::csr::tbs(&request.subject.der, &request.public_key.spki, &request.extensions, None);
    build::signed(&tbs, &request.signature, &[])
}
