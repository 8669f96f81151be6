//! The API of the credential store: the API of CredHub 2.15 and the additions of Bulla.
//!
//! Field names are the same as in CredHub. Requests are parsed as leniently as CredHub does: a number or a boolean may be a string, and
//! `null` counts as absent. Types that contain a value or a secret have no `Debug`.

mod access;
mod certificates;
mod credentials;
mod deleted;
mod interpolation;
mod leases;
mod lenient;
mod login;
mod lookup;
mod permissions;
mod rotation;
mod service;
mod values;
mod wrap;

pub use access::{AccessChangeView, AccessDifferenceView, AccessQuery, AccessView};
pub use certificates::{
    CertificateHistory, CertificateVersionView, Certificates, CertificatesQuery, NewVersion,
    RegenerateCertificate, TransitionalVersion,
};
pub use credentials::{
    BulkRegenerate, BulkRegenerated, CertificateFacts, CredentialVersion, CredentialView, Data, DataQuery,
    FoundCredentials, FoundView, GenerateRequest, GenerationFacts, NameQuery, RegenerateRequest, RequestKind,
    SetRequest,
};
pub use deleted::{
    Deleted, DeletedView, ListedVersion, UndeleteRequest, UndeletedView, VersionsChange, VersionsRequest,
    VersionsView,
};
pub use interpolation::Bindings;
pub use leases::{
    ConnectionRequest, ConnectionView, Connections, DatabaseQuery, LeaseQuery, LeaseRequest, LeaseView,
    NewLeaseView, RenewRequest, RevokeLeasesRequest, RevokedLease, RevokedLeases, RoleRequest, RoleView,
};
pub use login::{AppView, AuthServerView, InfoView, LinksView, TokenRequest, TokenView};
pub use lookup::{LookupOutcome, LookupRequest, LookupView, NameList};
pub use permissions::{
    NamePermissions, OperationsChange, PermissionEntry, PermissionRequest, PermissionView, PermissionsQuery,
};
pub use rotation::{
    HookQuery, HookRequest, HookView, Hooks, PlannedView, RotateRequest, RotateView, RotationPolicyRequest,
    RotationPolicyView, RotationQuery,
};
pub use service::{ErrorView, KeyUsageView, ReadOnlyMode, StatusView, VersionInfo};
pub use values::{CertificateValue, KeyPairValue, UserValue};
pub use wrap::{UnwrapRequest, UnwrapView, WrapRequest, WrapView};
