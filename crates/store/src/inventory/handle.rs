//! The handles [`Inventory`] and [`Scans`]. Their methods are in the other files of this module.

use crate::store::handle;

handle! {
    /// Endpoints with their certificates, history and changes.
    Inventory
}

handle! {
    /// Scans and the observations that they record.
    Scans
}
