//! Length limit of URLs in certificates and CRLs.

use std::sync::Arc;

use super::verdict::Cause;

/// Longest accepted URL of a CRL, OCSP responder or issuer certificate, in bytes.
pub(super) const URL_MAX: usize = 2_048;

/// Rejects a URL that is too long to be requested and used as a cache key.
pub(super) fn bounded(url: &str) -> Result<Arc<str>, Cause> {
    if url.len() > URL_MAX {
        return Err(Cause::Refused(format!("a URL of {} bytes", url.len())));
    }
    Ok(url.into())
}
