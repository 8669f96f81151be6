//! The mount, and the LIST method.

/// The only mount.
pub(super) const MOUNT: &str = "secret/";

/// The HTTP method of listings, for clients that support it.
pub(super) const LIST: &str = "LIST";
