//! The certification authority: trees, profiles, issuing, revocation, and the protocols that ask for it.

mod authority;
mod figures;
pub mod keystore;
pub mod tree;
pub mod ceremony;
pub mod profile;
pub mod names;
pub mod lint;
pub mod issue;
pub mod revoke;
pub mod crl;
pub mod ocsp;
pub mod publish;
mod peer;
pub mod acme;
pub mod enrolment;
pub mod est;
pub mod scep;

pub use authority::{Authority, AuthorityOptions, OpenError};
pub use figures::Figures;
pub use peer::Peer;
