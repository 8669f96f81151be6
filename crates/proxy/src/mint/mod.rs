//! Leaf certificates for the host names that clients request, issued by the operator's CA.
//!
//! Minting a leaf costs one signature, because all leaves of a process share a few keys ([`LeafKeys`]). The keys are random and
//! rotate. Alternatively, each leaf or each user has its own key ([`LeafKeySharing`]). Keys are never derived from other data, and
//! are never keys of the CA.

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
pub use self::keys::{LEAF_KEY_LIFE, LEAF_KEY_LIFE_MAX, LeafKeySharing, LeafKeys};
pub use self::leaf::{BadLeaf, Leaf};
pub use self::likeness::{MirrorTemplate, MirrorTemplateError};
pub use self::minter::Minter;
pub use self::owners::KeysByOwner;
pub use self::validity::VALIDITY_MAX;
pub(crate) use self::validity::VALIDITY_MIN;
