//! Signatures in batches of eight ([`batch`]), if the processor supports it.

mod availability;
mod batches;
mod ed25519;
mod job;
mod nonce;
mod numbers;
mod p256;
mod rsa;
mod slice;
mod tables;

pub use availability::{BATCH_KINDS, are_made, is_batched, prepare_tables};
pub use batches::Batches;
pub use job::{BATCH, BATCH_MIN, EC_BATCH_MIN};
pub(crate) use numbers::{Numbers, fits};
pub use slice::{SignJob, Slice, sign_slice};
