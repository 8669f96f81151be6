//! The tables of the proxy.
//!
//! Each table has a handle, created by `Name::of(&store)`. Functions that change rows take the transaction.

mod leaves;

use db::ModuleStatements;

pub use leaves::{
    CleanupCounts, LeafLeaseRequest, LeafLookup, NewLeaf, OWN_KEY_ENDS_AFTER_US, ProxyLeaves,
    SEALED_LEAF_KEYS, SEALED_LEAVES, StoredLeaf, TIDIED_MAX,
};

/// All statements of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[leaves::SENDS];
