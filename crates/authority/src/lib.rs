//! The certification authority: CA trees, profiles, issuance, revocation, and the protocols for them.

pub mod acme;
mod authority;
pub mod ca_keys;
pub mod ceremony;
pub mod change;
mod client_certificate;
pub mod crl;
pub mod enrolment;
pub mod est;
mod figures;
pub mod issue;
pub mod keystore;
pub mod lint;
pub mod names;
pub mod ocsp;
mod operation;
mod peer;
pub mod plan;
pub mod principal;
pub mod profile;
pub mod publish;
pub mod quorum;
pub mod revoke;
pub mod scep;
pub mod signer_checks;
pub mod tables;
pub mod teams;
pub mod tree;

/// Boxes the future of a public `async fn`. Without boxing, every crate that awaits the function compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use authority::{Authority, AuthorityOptions, OpenError};
pub use client_certificate::{ClientCertificateError, ClientCertificates, PresentedChain, VerifiedClient};
pub use figures::Figures;
pub use operation::{AccessRule, Operation};
pub use peer::Peer;
pub use tree::inventory_row;
