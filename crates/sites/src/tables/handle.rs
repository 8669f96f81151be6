//! The handle [`SiteTables`]. Its methods are in the neighboring files, each next to its SQL statements.

store::handle! {
    /// Handle of the tables of sites, nodes, key policies, sealed keys and wrapped policy keys.
    SiteTables
}
