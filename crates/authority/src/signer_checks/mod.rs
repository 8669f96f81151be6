//! The checks of a signer process before a CA key signs, from the database and its own configuration.
//!
//! The server that orders a signature is not trusted: the signer itself reads the profile, the approval, the CA and earlier CRLs.
//! It compares the document byte by byte with the document that results from the request and the profile. See
//! docs/internals/signer.md.

mod ca_certificate;
mod checked;
mod consent;
mod crl;
mod document;
mod refusal;
mod service_certificate;

pub use checked::{CheckedCaKeys, SIGNER_PROVIDER, SignerRules};
pub use consent::{ApprovalSource, ApprovedPlan, NoApprovals};
pub use refusal::Refusal;
