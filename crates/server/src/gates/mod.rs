//! Gates: what decides whether issuance waits for approval. Every write of one goes through [`Gates::write`], which applies it or,
//! where a profile that requires approval depends on it, stores it as a change that waits for approval.
//!
//! A gate is a profile, a role or an identity with its grants, an issuer, a target, or a policy.

mod answer;
mod apply;
mod change;
mod document;
mod guard;
mod parts;
mod write;

pub(crate) use answer::{WriteResult, change_view};
pub(crate) use change::GateChange;
pub(crate) use parts::Gates;
