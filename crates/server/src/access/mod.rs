//! Who asks and what they may do.

mod caller;
mod permission;
mod scope;

pub use caller::{Caller, CallerKind, Granted, Reach};
pub use permission::{
    BUILT_IN_ROLES, BuiltInRole, Permission, Permissions, UnknownPermission, built_in_role,
};
pub use scope::{BadScope, Scope};

pub(crate) use caller::forbidden;

mod authenticate;

pub(crate) use authenticate::{SESSION_COOKIE, authenticate};
