//! Leases of dynamic credentials. Each identity has its own lease of a role; all connections of the identity share this lease.
//!
//! - `issuer`: the store that creates, renews and revokes leases.
//! - `identity_leases`: the leases in use; `slot`: the lease of one identity.

mod identity_leases;
mod issuer;
mod slot;

#[cfg(test)]
mod tests;

pub use identity_leases::{IdentityLeases, LEASES_MAX};
pub use issuer::{Issuing, LeaseError, LeaseIssuer, NewLease};
pub(crate) use slot::SlotRef;
