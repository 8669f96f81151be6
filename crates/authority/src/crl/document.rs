//! A CRL as it is served.

use bytes::Bytes;
use x509::UnixTime;

use crate::tables::CrlRow;

/// The delta, beside shard 0 (full) and those from 1 on.
pub(crate) const DELTA: i64 = -1;

/// What clocks may differ by: CRLs and OCSP responses say that they were made that much earlier.
pub(crate) const SKEW_SECONDS: i64 = 60;

/// A CRL as it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct CrlDocument {
    /// Itself.
    pub der: Bytes,
    /// Its number (RFC 5280 section 5.2.3).
    pub number: u64,
    /// Creation time.
    pub this_update: UnixTime,
    /// Time of the next update.
    pub next_update: UnixTime,
    /// For HTTP, quotes included.
    pub etag: String,
    /// Number of certificates on the CRL.
    pub entries: u64,
    /// The number of the full CRL it builds upon, for a delta.
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
            // Numbers never repeat; the time tells a CA restored from a backup from what it was.
            etag: format!("\"{}-{}\"", row.number, row.this_update_us),
            entries: number(row.entries),
            base: row.base.map(number),
            der: row.der.into(),
        }
    }
}
