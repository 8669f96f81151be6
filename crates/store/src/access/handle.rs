//! The handle [`Access`]. Its methods are in the other files of this module, each next to its SQL statements.

use crate::store::handle;

handle! {
    /// Identities, sessions, roles, and stored responses to repeated requests.
    Access
}
