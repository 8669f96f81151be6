//! Names of the Vault mounts, and the HTTP method LIST.

/// The mount of stored credentials.
pub(super) const MOUNT: &str = "secret/";

/// The HTTP method of listings, for clients that support it.
pub(super) const LIST: &str = "LIST";

/// The mount of dynamic credentials.
pub(super) const DATABASES: &str = "database/";
