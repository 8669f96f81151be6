//! Helpers for default values and for optional members of changes.

use serde::{Deserialize, Deserializer};

/// Deserializes a nullable member of a change: absent is `None`, null is `Some(None)`.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Returns the default of a flag that is on by default.
pub(crate) fn yes() -> bool {
    true
}
