//! The handles [`Inventory`] and [`Scans`]. Their methods are in the files beside this one.

use crate::store::handle;

handle! {
    /// Endpoints, their certificates and history, and what changed.
    Inventory
}

handle! {
    /// Scans and the observations that they record.
    Scans
}
