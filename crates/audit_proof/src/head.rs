//! Signed heads: the ends of all chains at one time, signed by the audit key, each naming the hash of the head before it.

use api::audit::SignedHead;
use x509::Fingerprint;

use crate::point::{ChainPoint, NotPoint};
use crate::signature::{self, SignatureFault};

/// The first member of every signed head: no other text that is signed begins so.
pub const FORMAT: &str = "bulla-audit-head-1";

/// Why a signed head does not count.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// Another version wrote it, or it is something else.
    #[error("the format is {0:?}, not {FORMAT}")]
    Format(String),
    /// It does not count as signed.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// A head of a chain that is none.
    #[error(transparent)]
    Point(#[from] NotPoint),
}

/// The text that is signed: the head as JSON on one line, without the member `signature`.
#[must_use]
pub fn signed_text(head: &SignedHead) -> String {
    line(&SignedHead { signature: String::new(), ..head.clone() })
}

/// The head as JSON on one line.
#[must_use]
pub fn line(head: &SignedHead) -> String {
    // Numbers and texts: nothing that JSON has no form for.
    serde_json::to_string(head).unwrap_or_default()
}

/// SHA-256 of the head as JSON on one line: what the next head names as `previous`.
#[must_use]
pub fn hash(head: &SignedHead) -> Fingerprint {
    Fingerprint::of(line(head).as_bytes())
}

/// Checks the signature, by `key` (a DER SubjectPublicKeyInfo) or, without one, by the key in the head; returns the points of the
/// chains.
///
/// # Errors
/// [`SignatureFault`]; a point that is none.
pub fn check(head: &SignedHead, key: Option<&[u8]>) -> Result<Vec<ChainPoint>, HeadError> {
    if head.format != FORMAT {
        return Err(HeadError::Format(head.format.clone()));
    }
    signature::check(&signed_text(head), &head.key, &head.signature, key)?;
    Ok(head.heads.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

/// Why `next` does not continue `before`; `None` where it does, and where heads between them are not given.
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
        return Some(format!("signed head {new} knows fewer segments than head {old}"));
    }
    None
}
