//! Checks of the certificates for a CA's own services: its OCSP responder, and the key to which SCEP clients encrypt.

use x509::{Certificate, UnixTime};

use super::document::{certificate, same};
use super::refusal::Refusal;
use crate::Authority;
use crate::crl::SKEW_SECONDS;
use crate::ocsp::responder_tbs;
use crate::scep::{RECIPIENT_LIFETIME_SECONDS, recipient_tbs};
use crate::tree::{Ca, Urls};

/// A CA service with its own certificate: the OCSP responder or the SCEP server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Service {
    Ocsp,
    Scep,
}

/// Checks the certificate of a service. The server may choose only the key, the serial number and the dates; the lifetime is
/// limited.
pub(super) fn check(authority: &Authority, ca: &Ca, service: Service, tbs: &[u8]) -> Result<(), Refusal> {
    let now = UnixTime(authority.clock().now_seconds());
    if !ca.publishes() {
        return Err(Refusal::Differs(format!("the CA {} is retired", ca.name)));
    }
    let draft = certificate(tbs, &ca.signer.algorithm())?;
    let dates = (draft.not_before, draft.not_after);
    let spki = &draft.public_key.spki;
    let (expected, life) = match service {
        Service::Ocsp => {
            let life = authority.options().ocsp_responder_lifetime.as_secs();
            (responder_tbs(ca, spki, &draft.serial, dates), i64::try_from(life).unwrap_or(i64::MAX))
        }
        Service::Scep => {
            let urls = Urls::new(&authority.options().base_url, ca.id);
            (recipient_tbs(ca, urls, spki, &draft.serial, dates), RECIPIENT_LIFETIME_SECONDS)
        }
    };
    same(&draft, tbs, &expected)?;
    is_short(&draft, ca, now.plus(life))
}

fn is_short(draft: &Certificate, ca: &Ca, until: UnixTime) -> Result<(), Refusal> {
    let latest = until.plus(SKEW_SECONDS).min(ca.certificate.not_after);
    if draft.not_after <= latest {
        return Ok(());
    }
    Err(Refusal::Differs(format!(
        "the certificate is valid until {}; the latest allowed is {latest}",
        draft.not_after
    )))
}
