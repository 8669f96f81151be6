//! Gates: objects that decide whether issuance requires approval. A gate is a profile, a role or an identity with its grants, an
//! issuer, a target, or a policy.
//!
//! Every write of a gate calls [`Gates::write`]. This function applies the write, or stores it as a pending change if a profile
//! with required approval depends on the gate.

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
