//! Whether clients would trust a chain, and if not, why.
//!
//! The verdict is about the path above the leaf and what binds the leaf to it. The leaf's own dates
//! and names are findings of their own and do not enter: an expired certificate of a public CA is
//! expired, not untrusted.

mod constraints;
mod order;
mod path;
mod signatures;
mod store;
mod verdict;

use std::sync::Arc;

use crate::{Certificate, UnixTime};

pub use order::{ChainOrder, chain_order};
pub(crate) use path::is_for_servers;
pub use path::{CHECKS_MAX, PATH_MAX};
pub use signatures::{SignatureCache, Signatures};
pub use store::TrustStore;
pub use verdict::{Distrust, Verdict};

/// Judges the chain that starts at `leaf`: looks for a path through `sent`, in any order and with
/// strays, to a certificate of `store`, and tells the best one's fault when none holds at `now`.
/// A leaf that is in the store itself is trusted as it is.
///
/// Cost is bounded by [`CHECKS_MAX`] signatures and [`PATH_MAX`] certificates a path, whatever was
/// sent; `cache` spares signatures checked before.
#[must_use]
pub fn verify_chain(
    leaf: &Arc<Certificate>,
    sent: &[Arc<Certificate>],
    store: &TrustStore,
    now: UnixTime,
    cache: &impl SignatureCache,
) -> Verdict {
    path::Search::new(sent, store, now, cache).judge(leaf)
}
