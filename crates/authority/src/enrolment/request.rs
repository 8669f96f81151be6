//! A certificate that a client may ask for, and the key by which a repeat of the request is recognised.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use x509::build;
use x509::csr::CertificateRequest;

use crate::issue::Source;
use crate::principal::Principal;
use crate::profile::Profile;
use crate::teams::Standing;

/// A certificate asked for by someone who may ask.
#[derive(Clone, Debug)]
pub(crate) struct Enrolment {
    pub(crate) source: Source,
    pub(crate) profile: Arc<Profile>,
    /// The requester.
    pub(crate) requester: Principal,
    /// For which team.
    pub(crate) standing: Standing,
    /// What makes a repeat of this the same enrolment: see [`key`].
    pub(crate) key: String,
    pub(crate) asked: RequestedCertificate,
}

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct RequestedCertificate {
    pub(crate) request: CertificateRequest,
    /// The key to certify instead of the request's: one made here.
    pub(crate) spki: Option<Vec<u8>>,
}

/// An idempotency key of fixed length over parts of any: parts are told apart by their lengths.
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

/// The same request without the password in it, to be stored. Its signature is gone, too.
pub(super) fn without_password(request: &CertificateRequest) -> Vec<u8> {
    let tbs = x509::csr::tbs(&request.subject.der, &request.public_key.spki, &request.extensions, None);
    build::signed(&tbs, &request.signature, &[])
}
