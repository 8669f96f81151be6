//! Verification of chains: whether clients would trust a chain, and if not, why.
//!
//! The verdict covers the path above the leaf, and the link from the leaf to this path. It does not cover the dates and names of
//! the leaf itself, which have their own findings: an expired certificate of a public CA is expired, not untrusted.

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
pub use signatures::{MemorySignatureCache, SignatureCache};
pub use store::TrustStore;
pub use verdict::{Distrust, Verdict};

/// Verifies the chain that starts at `leaf`. Searches for a path through `sent`, in any order and with unrelated certificates, to a
/// certificate of `store`. If no path is valid at `now`, returns the fault of the best path. A leaf that is in the store itself is
/// trusted.
///
/// For any input, the cost is limited to [`CHECKS_MAX`] signatures, and to [`PATH_MAX`] certificates in a path. `cache` avoids
/// repeated signature checks.
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
