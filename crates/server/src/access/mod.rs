//! Authentication and authorization of callers.

pub(crate) mod admin;
mod authenticate;
mod bootstrap;
mod caller;
mod control;
mod enrolment;
mod grant;
pub(crate) mod issuer;
pub(crate) mod link;
pub(crate) mod managers;
pub mod oidc;
pub(crate) mod password;
mod path_bounds;
mod permission;
mod proof;
mod secret;
pub(crate) mod security_key;
pub(crate) mod session;
pub(crate) mod site;

pub use api::access::{BadScope, Grant, Object, Scope};
pub use authenticate::{Authenticate, CSRF_HEADER, SESSION_COOKIE};
pub use bootstrap::{BootstrapError, bootstrap, bootstrap_with_handover, break_glass, has_no_credentials};
pub use caller::{Caller, CallerKind, Granted, Reach};
pub use control::{AccessControl, CACHE_LIFETIME, SessionOptions};
pub use enrolment::TokenPasswords;
pub use grant::GRANTS_MAX;
pub use issuer::IssuerError;
pub use link::{LINK_LIFETIME, NewLink, SIGN_IN_PAGE, sign_in_link};
pub use permission::{BUILT_IN_ROLES, BuiltInRole, Permission, Permissions, built_in_role};
pub use proof::PROOF_LIFETIME;
pub use secret::{TOKEN_PREFIX, uri_identity_key};

pub(crate) use authenticate::{
    Authentication, Authenticators, certificate_matcher, check_own_page, check_site, cookie,
};
pub(crate) use caller::forbidden;
pub(crate) use grant::{
    permissions as permissions_of, required_to_assign as grants_at_most, session_grants as grants_of_session,
    stored as grants_of,
};
pub(crate) use secret::{
    certificate_hash, csrf_of, label_of, new_token, profiled_certificate_hash, session_hash, subject_hash,
    token_hash,
};
