//! Leaf certificates for whatever name a client asks for, each below an authority of the operator's.
//!
//! A leaf is one signature: all leaves of a process stand over the same few keys ([`LeafKeys`]), made from the system's
//! randomness and changed by time, or each over one of its own, or of its user ([`KeysOfLeaves`]). They are never derived from anything, and never the authority's.

mod authority;
mod error;
mod intermediate;
mod key;
mod keys;
mod leaf;
mod likeness;
mod minter;
mod owners;
mod serial;
mod validity;

pub use self::authority::{Authority, SIGN_TIMEOUT, new_root};
pub use self::error::{BadAuthority, MintError};
pub use self::intermediate::Intermediates;
pub use self::key::{LeafKey, LeafKeyKind};
pub use self::keys::{KeysOfLeaves, LEAF_KEY_LIFE, LEAF_KEY_LIFE_MAX, LeafKeys};
pub use self::leaf::{BadLeaf, Leaf};
pub use self::likeness::{Likeness, NoLikeness};
pub use self::minter::Minter;
pub use self::owners::KeysByOwner;
pub use self::validity::VALIDITY_MAX;
pub(crate) use self::validity::VALIDITY_MIN;
