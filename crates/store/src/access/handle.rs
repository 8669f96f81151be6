//! The handle [`Access`]. Its methods are in the neighboring files, each beside its SQL statements.

use crate::store::handle;

handle! {
    /// Identities, sessions, roles, and stored responses to repeated requests.
    Access
}
