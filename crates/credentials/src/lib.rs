//! Typed, versioned and generated secrets under paths, with permissions, encrypted at rest.
//!
//! This crate implements the functions of CredHub, without HTTP. [`Credentials`] is its only handle. Some error texts are the same
//! as in CredHub, because CredHub clients compare them word for word.

mod access;
mod certificates;
mod credentials;
mod deletion;
mod error;
mod fields;
mod generate;
mod interpolate;
mod leases;
mod live_tokens;
mod name;
mod options;
mod permission;
mod read_log;
mod reading;
mod regenerate;
mod rotation;
mod ssh;
pub mod tables;
mod token;
mod value;
mod version;
mod wrap;
mod writing;

/// Boxes the future of a public `async fn`. Otherwise every crate that awaits the function compiles its code again.
pub(crate) use async_recursion::async_recursion as boxed;

pub use access::AccessChange;
pub use certificates::{CertificateView, NewCertificateVersion, Regeneration};
pub use credentials::Credentials;
pub use deletion::{Deleted, VersionsChange};
pub use error::{CredentialError, Refusal};
pub use fields::Numbered;
pub use generate::{
    CertificateParameters, DURATION_MAX, GenerateRequest, Mode, Parameters, PasswordParameters,
    RsaParameters, SshParameters, UserParameters,
};
pub use interpolate::REFERENCES_MAX;
pub use leases::{
    ConnectionSettings, DatabaseConnection, LEASE_TTL_MAX_S, LeaseReport, LeaseRequest, NewLease,
    RoleSettings,
};
pub use live_tokens::TokenError;
pub use name::{NAME_CHARS_MAX, Name, PermissionPath};
pub use options::{CredentialsOptions, ReadAudit, Retention};
pub use permission::{Operation, Operations, Permission};
pub use reading::{FIND_MAX, KeyUsage, SearchFilter};
pub use rotation::{
    BEFORE_EXPIRY_PERCENT, HOOK_LIMIT, Hook, HookInfo, HookSender, OVERLAP_MIN_S, OVERLAP_S, PlannedRotation,
    ROTATE_EVERY_MIN_S, ROTATE_PERIOD_MAX_S, RotationPolicy, RotationPolicyRow, RotationReport,
};
pub use store::states::CredentialKind as Kind;
pub use token::{Grant, Tokens};
pub use value::{CaVersions, CertificateValue, KeyPair, UserValue, VALUE_BYTES_MAX, Value};
pub use version::{Facts, History, Version, VersionView};
pub use wrap::{UnwrappedValue, WRAP_MAX_S, WRAP_MIN_S, Wrapped};
pub use writing::{METADATA_CHARS_MAX, SetRequest, TTL_S_MAX};

pub use crate::tables::{
    AccessDifference, AccessRow, AccessSource, Bounds, ChangeStep, ConnectionTls, FoundCredential, LeaseRow,
    LeaseState, NameBounds, Requester, RoleRow,
};
