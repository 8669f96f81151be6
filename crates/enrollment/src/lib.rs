//! Enrolment of agents and key service nodes: a single-use join token, a key generated on the host, a certificate from the
//! internal CA. [`client`] is the host's side.

mod authority;
mod certify;
pub mod client;
mod material;
mod member;
mod name;
mod proof;
mod roots;
pub mod state_folder;
mod token;

/// Boxes the future of a public `async fn`, so that crates that await it do not compile its body again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use authority::{AGENT_PROFILE, AGENTS_URI, AuthorityCertifier, NODE_PROFILE};
pub use certify::{Certified, Certify, CertifyError, IdentityHasher};
pub use material::{Material, MaterialError};
pub use member::{identity_of, identity_revision};
pub use name::{NAME_MAX, check_name, suffixed_name};
pub use proof::{ProvedKey, certificate_spki_sha256};
pub use roots::TrustAnchors;
pub use token::{TOKEN_RETENTION_US, Token, check_seconds, hash_of};
