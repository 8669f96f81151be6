//! The private keys of CAs behind one interface, in this process or in a signer process.
//!
//! Every signature of a CA key is a [`SigningOrder`]: the document and the purpose of the signature. Within one process, the key
//! store signs the order directly. A signer process first checks the document against the purpose (see [`crate::signer_checks`]).

mod local;
mod order;
mod purpose_signer;

pub use local::LocalCaKeys;
pub use order::{CaKey, CaKeyLocation, CaKeys, NewCaKey, SigningOrder, SigningPurpose};
pub(crate) use purpose_signer::PurposeSigner;
