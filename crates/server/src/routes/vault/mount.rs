//! The mount, and the method that lists it.

/// The only mount.
pub(super) const MOUNT: &str = "secret/";

/// The method of listings, for clients that support it.
pub(super) const LIST: &str = "LIST";
