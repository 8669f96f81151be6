//! Encoding of OCSP responses (RFC 6960 section 4.2).

use super::request::write_nonce;
use super::{CertificateId, ErrorStatus, Status};
use crate::der::{self, Writer, tag};
use crate::{SignatureAlgorithm, UnixTime, oid};

/// Entry of a response: certificate, status, thisUpdate, and nextUpdate.
pub type ResponseEntry = (CertificateId, Status, UnixTime, Option<UnixTime>);

/// Encodes the tbsResponseData, which the responder signs; then call [`basic_response`]. The responder is identified by the SHA-1
/// of its key ([`crate::build::key_sha1`]).
#[must_use]
pub fn tbs_response(
    responder_key_hash: &[u8; 20],
    produced_at: UnixTime,
    responses: &[ResponseEntry],
    nonce: Option<&[u8]>,
) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.context(2, |w| {
                w.octets(responder_key_hash);
            });
            w.generalized_time(produced_at);
            w.sequence(|w| responses.iter().for_each(|answer| write_answer(w, answer)));
            if let Some(nonce) = nonce {
                w.context(1, |w| write_nonce(w, nonce));
            }
        });
    })
}

fn write_answer(w: &mut Writer, (id, status, this_update, next_update): &ResponseEntry) {
    w.sequence(|w| {
        id.write(w);
        match status {
            Status::Good => {
                w.context_primitive(0, &[]);
            }
            Status::Revoked { at, reason } => {
                w.context(1, |w| {
                    w.generalized_time(*at);
                    if let Some(reason) = reason {
                        w.context(0, |w| {
                            w.enumerated(reason.code());
                        });
                    }
                });
            }
            Status::Unknown => {
                w.context_primitive(2, &[]);
            }
        }
        w.generalized_time(*this_update);
        if let Some(next_update) = next_update {
            w.context(0, |w| {
                w.generalized_time(*next_update);
            });
        }
    });
}

/// Encodes the complete successful OCSPResponse for a signed tbsResponseData. `certificates` are DER, starting with the certificate
/// of a delegated responder; empty if the issuer itself signed.
#[must_use]
pub fn basic_response(
    tbs: &[u8],
    algorithm: &SignatureAlgorithm,
    signature: &[u8],
    certificates: &[&[u8]],
) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.enumerated(0);
            w.context(0, |w| {
                w.sequence(|w| {
                    w.element(tag::OID, oid::OCSP_BASIC);
                    w.octets_of(|w| {
                        w.sequence(|w| {
                            w.raw(tbs).raw(&algorithm.to_der()).bits(signature);
                            if !certificates.is_empty() {
                                w.context(0, |w| {
                                    w.element(tag::SEQUENCE, &certificates.concat());
                                });
                            }
                        });
                    });
                });
            });
        });
    })
}

/// Encodes an unsigned OCSPResponse with an error status.
#[must_use]
pub fn error_response(status: ErrorStatus) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.enumerated(status as i64);
        });
    })
}
