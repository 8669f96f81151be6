//! Credentials: typed, versioned, generated secrets under paths, with permissions, sealed at rest.
//!
//! What CredHub keeps and answers, without HTTP: [`Credentials`] is the one handle. Texts of errors are CredHub's, for its
//! clients compare some of them word for word.

mod certificates;
mod credentials;
mod error;
mod generate;
mod interpolate;
mod kind;
mod name;
mod permission;
mod reading;
mod regenerate;
mod secret;
mod ssh;
mod stock;
mod token;
mod value;
mod version;
mod writing;

pub use certificates::{CertificateView, NewCertificateVersion, Regeneration};
pub use credentials::{Credentials, CredentialsOptions};
pub use error::{CredentialError, Refusal};
pub use generate::{
    CertificateParameters, GenerateRequest, Mode, Parameters, PasswordParameters, RsaParameters,
    SshParameters, UserParameters,
};
pub use interpolate::REFERENCES_MAX;
pub use kind::Kind;
pub use name::{NAME_CHARS_MAX, Name, PermissionPath};
pub use permission::{Operation, Operations, Permission};
pub use reading::{FIND_MAX, Find, KeyUsage};
pub use secret::Secret;
pub use stock::RsaStock;
pub use store::credentials::{CredentialAsker as Asker, FoundCredential};
pub use token::{Grant, TokenError, Tokens};
pub use value::{CertificateValue, KeyPair, UserValue, VALUE_OCTETS_MAX, Value};
pub use version::{Facts, Version};
pub use writing::{METADATA_CHARS_MAX, SetRequest};
