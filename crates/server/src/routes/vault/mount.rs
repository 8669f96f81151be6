//! The mount, and the method that lists it.

/// The one mount, as clients name it.
pub(super) const MOUNT: &str = "secret/";

/// What listing is asked with where a client has the method for it.
pub(super) const LIST: &str = "LIST";
