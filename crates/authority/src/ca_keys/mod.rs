//! The private keys of certification authorities behind one interface: in this process, or in a signer process.
//!
//! Every signature of a CA key is a [`SigningOrder`]: the document, and the purpose it is signed for. In one process the
//! order goes to the key store at once. A signer process compares the document with its purpose first (see
//! [`crate::signer_checks`]).

mod local;
mod order;
mod purpose_signer;

pub use local::LocalCaKeys;
pub use order::{CaKey, CaKeys, Custody, NewCaKey, Purpose, SigningOrder};
pub(crate) use purpose_signer::PurposeSigner;
