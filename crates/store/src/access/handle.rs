//! The handle [`Access`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Identities, sessions, roles, and kept answers to repeated requests.
    Access
}
