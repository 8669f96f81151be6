//! Gates: objects that decide whether issuance requires approval. Every write of a gate goes through [`Gates::write`]. It applies
//! the write or, if a profile with required approval depends on the gate, stores it as a pending change.
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
