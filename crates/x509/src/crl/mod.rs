//! Certificate revocation lists (RFC 5280 section 5).

mod read;
mod reason;
mod set;

pub use read::{Crl, ParseError};
pub use reason::Reason;
pub use set::{CrlSet, CrlVerdict};

use crate::build::{Extension, write_extensions};
use crate::der::{self, Writer, tag};
use crate::{SerialNumber, SignatureAlgorithm, UnixTime, oid};

/// Certificates that a CRL covers (RFC 5280 section 5.2.5).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scope {
    /// All certificates of the issuer, or of one distribution point.
    #[default]
    All,
    /// End-entity certificates only.
    EndEntities,
    /// CA certificates only.
    Authorities,
    /// Attribute certificates only. Bulla never issues such CRLs.
    Attributes,
}

/// Content of a CRL before it is signed.
#[derive(Clone, Debug)]
pub struct CrlSpec<'a> {
    /// Signature algorithm of the issuer's key.
    pub signature: SignatureAlgorithm,
    /// DER `Name` of the issuer.
    pub issuer: &'a [u8],
    /// Time of issuance of the CRL.
    pub this_update: UnixTime,
    /// Latest time at which the next CRL is issued.
    pub next_update: UnixTime,
    /// The CRL number (section 5.2.3), which increases with every CRL of the same scope.
    pub number: u64,
    /// The issuer's subject key identifier (section 5.2.1).
    pub authority_key_id: &'a [u8],
    /// For a delta CRL: number of the complete CRL that it extends (section 5.2.4).
    pub base: Option<u64>,
    /// For a sharded CRL: the URL in the distribution points of the certificates that it covers. It is written into a critical
    /// issuing distribution point (section 5.2.5).
    pub distribution_point: Option<&'a str>,
    /// Scope, written into the issuing distribution point unless it is [`Scope::All`].
    pub scope: Scope,
    /// For a complete CRL: URL of its delta CRLs (section 5.2.6).
    pub freshest: Option<&'a str>,
}

/// One revoked certificate (RFC 5280 section 5.1.2.6 and 5.3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Revoked {
    /// Serial number of the certificate.
    pub serial: SerialNumber,
    /// Time of revocation.
    pub at: UnixTime,
    /// Reason. [`Reason::Unspecified`] is not written, as section 5.3.1 requires.
    pub reason: Option<Reason>,
    /// Time when the key was probably compromised (section 5.3.2).
    pub invalidity_date: Option<UnixTime>,
}

/// Encodes the tbsCertList of a version 2 CRL, which the issuer signs. Then call [`crate::build::signed`]. Entries keep the given
/// order. Takes a single pass, and mostly copies bytes.
#[must_use]
pub fn tbs_crl<'e>(spec: &CrlSpec<'_>, entries: impl IntoIterator<Item = &'e Revoked>) -> Vec<u8> {
    const VERSION_2: i64 = 1;
    /// Bytes of a typical entry, with a serial number of 16 bytes and a reason.
    const ENTRY_USUAL: usize = 49;
    let entries = entries.into_iter();
    let mut list = Writer::with_capacity(entries.size_hint().0 * ENTRY_USUAL);
    entries.for_each(|entry| write_entry(&mut list, entry));
    let list = list.finish();
    let head = der::write(|w| {
        w.integer(VERSION_2).raw(&spec.signature.to_der()).raw(spec.issuer);
        w.time(spec.this_update).time(spec.next_update);
    });
    let extensions = der::write(|w| {
        w.context(0, |w| write_extensions(w, &extensions(spec)));
    });
    // RFC 5280 section 5.1.2.6: without entries, revokedCertificates must be absent.
    let list_len = if list.is_empty() { 0 } else { Writer::element_len(list.len()) };
    let content = head.len() + list_len + extensions.len();
    let mut w = Writer::with_capacity(Writer::element_len(content));
    w.element_header(tag::SEQUENCE, content).raw(&head);
    if !list.is_empty() {
        w.element(tag::SEQUENCE, &list);
    }
    w.raw(&extensions);
    w.finish()
}

fn extensions(spec: &CrlSpec<'_>) -> Vec<Extension> {
    let known = |id: &[u8], critical, value| Extension::custom(der::oid_text(id), value).critical(critical);
    let number = |number: u64| {
        der::write(|w| {
            w.unsigned(&number.to_be_bytes());
        })
    };
    let mut out = vec![
        Extension::authority_key_id(spec.authority_key_id),
        known(oid::CRL_NUMBER, false, number(spec.number)),
    ];
    if let Some(base) = spec.base {
        out.push(known(oid::DELTA_CRL_INDICATOR, true, number(base)));
    }
    if spec.distribution_point.is_some() || spec.scope != Scope::All {
        out.push(known(oid::ISSUING_DISTRIBUTION_POINT, true, issuing_distribution_point(spec)));
    }
    if let Some(url) = spec.freshest {
        out.push(Extension::freshest_crl(&[url.to_owned()]));
    }
    out
}

fn issuing_distribution_point(spec: &CrlSpec<'_>) -> Vec<u8> {
    const URI: u8 = 6;
    const TRUE: &[u8] = &[0xff];
    der::write(|w| {
        w.sequence(|w| {
            if let Some(url) = spec.distribution_point {
                // distributionPoint [0] EXPLICIT (a CHOICE), fullName [0]
                w.context(0, |w| {
                    w.context(0, |w| {
                        w.context_primitive(URI, url.as_bytes());
                    });
                });
            }
            match spec.scope {
                Scope::All => {}
                Scope::EndEntities => {
                    w.context_primitive(1, TRUE);
                }
                Scope::Authorities => {
                    w.context_primitive(2, TRUE);
                }
                Scope::Attributes => {
                    w.context_primitive(5, TRUE);
                }
            }
        });
    })
}

/// Computes lengths before writing, so that a CRL with a million entries needs only one buffer.
fn write_entry(w: &mut Writer, entry: &Revoked) {
    /// Bytes before the one-byte reason: `SEQUENCE { reasonCode, OCTET STRING { ENUMERATED`.
    const REASON: [u8; 11] = [0x30, 10, 0x06, 3, 0x55, 0x1d, 21, 0x04, 3, 0x0a, 1];
    /// Bytes before the GeneralizedTime: `SEQUENCE { invalidityDate, OCTET STRING {`.
    const INVALIDITY: [u8; 9] = [0x30, 24, 0x06, 3, 0x55, 0x1d, 24, 0x04, 17];
    /// Bytes of a complete GeneralizedTime element.
    const TIME: usize = 17;
    let reason = entry.reason.filter(|reason| *reason != Reason::Unspecified);
    let extensions =
        reason.map_or(0, |_| REASON.len() + 1) + entry.invalidity_date.map_or(0, |_| INVALIDITY.len() + TIME);
    let extensions_len = if extensions == 0 { 0 } else { Writer::element_len(extensions) };
    let serial = entry.serial.content();
    let content = Writer::element_len(serial.len()) + Writer::time_len(entry.at) + extensions_len;
    w.element_header(tag::SEQUENCE, content).integer_content(serial).time(entry.at);
    if extensions == 0 {
        return;
    }
    w.element_header(tag::SEQUENCE, extensions);
    if let Some(reason) = reason {
        w.raw(&REASON).raw(&[reason as u8]);
    }
    if let Some(date) = entry.invalidity_date {
        w.raw(&INVALIDITY).generalized_time(date);
    }
}
