//! Lists of signed certificate timestamps (RFC 6962 section 3.3), used in certificates, OCSP responses and the TLS extension.

use crate::der::{self, DerError, Reader, Writer, tag};
use crate::{UnixTime, oid};

/// Maximum timestamps of a list. Clients require two or three, and there are a few dozen logs.
const SCTS_MAX: usize = 64;

/// A parsed timestamp. Its signature is not verified, because that needs the list of logs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SignedCertificateTimestamp {
    /// SHA-256 of the log's key.
    pub log_id: [u8; 32],
    /// Time at which the log promised to include the certificate.
    pub time: UnixTime,
}

/// Parses a SignedCertificateTimestampList. Returns the readable timestamps, in order.
#[must_use]
pub fn parse(list: &[u8]) -> Vec<SignedCertificateTimestamp> {
    entries(list).filter_map(timestamp).collect()
}

/// Returns the number of timestamps in a SignedCertificateTimestampList.
#[must_use]
pub fn count(list: &[u8]) -> u16 {
    entries(list).fold(0, |count, _| count + 1)
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = take_vector(&mut { list }).unwrap_or_default();
    std::iter::from_fn(move || take_vector(&mut rest)).take(SCTS_MAX)
}

/// Reads a vector with a two-byte length (RFC 8446 section 3.4).
fn take_vector<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk::<2>()?;
    let (vector, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *input = rest;
    Some(vector)
}

fn timestamp(entry: &[u8]) -> Option<SignedCertificateTimestamp> {
    const V1: u8 = 0;
    let rest = entry.strip_prefix(&[V1])?;
    let (log_id, rest) = rest.split_first_chunk::<32>()?;
    let (millis, _) = rest.split_first_chunk::<8>()?;
    let seconds = i64::try_from(u64::from_be_bytes(*millis) / 1_000).ok()?;
    Some(SignedCertificateTimestamp { log_id: *log_id, time: UnixTime(seconds) })
}

/// Returns the tbsCertificate as logs hash and sign it (RFC 6962 section 3.2): without the poison extension of a precertificate,
/// and without the embedded timestamps of a certificate. A certificate and its precertificate therefore have the same result.
///
/// # Errors
/// If `tbs` does not have the structure of RFC 5280 section 4.1.
pub fn logged_tbs(tbs: &[u8]) -> Result<Vec<u8>, DerError> {
    const EXTENSIONS: u8 = tag::context_constructed(3);
    let mut out = Writer::with_capacity(tbs.len());
    for field in Reader::new(tbs).sequence()? {
        let field = field?;
        if field.tag != EXTENSIONS {
            out.raw(field.whole);
            continue;
        }
        let mut remaining = Writer::with_capacity(field.content.len());
        for extension in field.inside().sequence()? {
            let extension = extension?;
            let id = extension.inside().expect(tag::OID)?.content;
            if id != oid::CT_POISON && id != oid::SCT_LIST {
                remaining.raw(extension.whole);
            }
        }
        if !remaining.is_empty() {
            out.context(3, |w| {
                w.element(tag::SEQUENCE, &remaining.finish());
            });
        }
    }
    Ok(der::write(|w| {
        w.element(tag::SEQUENCE, &out.finish());
    }))
}
