//! Encoded CRLs, as served over HTTP.

use bytes::Bytes;
use x509::UnixTime;

use crate::tables::CrlRow;

/// Part number of the delta CRL. The full CRL has 0, shards have numbers from 1.
pub(crate) const DELTA: i64 = -1;

/// Tolerance for clock differences in seconds. CRLs and OCSP responses are backdated by this time.
pub(crate) const SKEW_SECONDS: i64 = 60;

/// An encoded CRL, with its number, dates and ETag for HTTP responses.
#[derive(Clone, Debug, PartialEq)]
pub struct CrlDocument {
    /// The CRL in DER.
    pub der: Bytes,
    /// CRL number (RFC 5280 section 5.2.3).
    pub number: u64,
    /// Time of creation (thisUpdate).
    pub this_update: UnixTime,
    /// Time of the next update (nextUpdate).
    pub next_update: UnixTime,
    /// ETag for HTTP, including quotes.
    pub etag: String,
    /// Number of certificates on the CRL.
    pub entries: u64,
    /// Number of the base CRL; `None` unless this is a delta CRL.
    pub base: Option<u64>,
}

impl CrlDocument {
    pub(super) fn of(row: CrlRow) -> Self {
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let seconds = |us: i64| UnixTime(us.div_euclid(1_000_000));
        Self {
            number: number(row.number),
            this_update: seconds(row.this_update_us),
            next_update: seconds(row.next_update_us),
            // Numbers never repeat within a database. The time distinguishes CRLs issued after a restore from a backup.
            etag: format!("\"{}-{}\"", row.number, row.this_update_us),
            entries: number(row.entries),
            base: row.base.map(number),
            der: row.der.into(),
        }
    }
}
