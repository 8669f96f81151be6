//! The length of URLs that certificates and lists name.

use std::sync::Arc;

use super::verdict::Cause;

/// Bytes of the longest URL asked.
pub(super) const URL_MAX: usize = 2_048;

/// Refuses a URL that is too long to be requested and kept as a key.
pub(super) fn bounded(url: &str) -> Result<Arc<str>, Cause> {
    if url.len() > URL_MAX {
        return Err(Cause::Refused(format!("a URL of {} octets", url.len())));
    }
    Ok(url.into())
}
