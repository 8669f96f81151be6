//! What a signer process checks before a CA key signs, from the database and its own configuration.
//!
//! The server that orders a signature is not trusted: profile, approval, CA and earlier CRLs are read here. A document is
//! compared byte by byte with the one that the request leads to under the profile. See docs/internals/signer.md.

mod ca_certificate;
mod checked;
mod consent;
mod crl;
mod document;
mod refusal;
mod service_certificate;

pub use checked::{CheckedCaKeys, SIGNER_PROVIDER, SignerRules};
pub use consent::{ApprovedPlan, Consents, NoConsents};
pub use refusal::Refusal;
