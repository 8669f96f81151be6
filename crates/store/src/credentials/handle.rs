//! The handle [`Credentials`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Credentials: versions, permissions, rotation, hooks, wraps.
    Credentials, credentials
}
