//! Signed heads: the last points of all chains at one time, signed by the audit key. Each names the hash of the previous head.

use api::audit::SignedHead;
use x509::Fingerprint;

use crate::point::{ChainPoint, InvalidChainPoint};
use crate::signature::{self, SignatureFault};

/// The first member of every signed head. No other signed text begins with it.
pub const FORMAT: &str = "bulla-audit-head-1";

/// Reason why a signed head is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// The format is unknown: another version wrote the head, or it is no head.
    #[error("the format is {0:?}, not {FORMAT}")]
    Format(String),
    /// The signature is invalid, or made with another key.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// A point of a chain is malformed.
    #[error(transparent)]
    Point(#[from] InvalidChainPoint),
}

/// Returns the signed text: the head as JSON on one line, without the member `signature`.
#[must_use]
pub fn signed_text(head: &SignedHead) -> String {
    line(&SignedHead { signature: String::new(), ..head.clone() })
}

/// Returns the head as JSON on one line.
#[must_use]
pub fn line(head: &SignedHead) -> String {
    // Only numbers and strings: serialization cannot fail.
    serde_json::to_string(head).unwrap_or_default()
}

/// Returns the SHA-256 of the head as JSON on one line. The next head contains it as `previous`.
#[must_use]
pub fn hash(head: &SignedHead) -> Fingerprint {
    Fingerprint::of(line(head).as_bytes())
}

/// Checks the signature, with `key` (a DER SubjectPublicKeyInfo) or, without one, with the key in the head. Returns the points of
/// the chains.
///
/// # Errors
/// [`SignatureFault`]; a malformed point.
pub fn check(head: &SignedHead, key: Option<&[u8]>) -> Result<Vec<ChainPoint>, HeadError> {
    if head.format != FORMAT {
        return Err(HeadError::Format(head.format.clone()));
    }
    signature::check(&signed_text(head), &head.key, &head.signature, key)?;
    Ok(head.heads.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

/// Returns why `next` does not continue `before`. `None` when it does, or when heads between them are missing from the input.
#[must_use]
pub fn break_between(before: &SignedHead, next: &SignedHead) -> Option<String> {
    let (old, new) = (before.sequence, next.sequence);
    if before.server != next.server {
        return Some(format!(
            "signed head {new} is of server {}, head {old} of {}",
            next.server, before.server
        ));
    }
    if new == old + 1 && next.previous != hash(before).to_string() {
        return Some(format!("signed head {new} does not name the hash of head {old}"));
    }
    if next.segments < before.segments {
        return Some(format!("signed head {new} covers fewer segments than head {old}"));
    }
    None
}
