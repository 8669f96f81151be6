//! Signatures that are made eight at a time ([`batch`]), where the processor can.

mod availability;
mod ed25519;
mod job;
mod nonce;
mod numbers;
mod p256;
mod rsa;
mod slice;
mod tables;

pub(crate) use availability::are_made;
pub use availability::{is_batched, prepare_tables};
pub use job::{BATCH, BATCH_MIN, EC_BATCH_MIN};
pub(crate) use numbers::{Numbers, fits};
pub use slice::{SignJob, Slice, sign_slice};
