//! The handle [`Managed`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Certificates under management, their versions and counts.
    Managed, managed
}
