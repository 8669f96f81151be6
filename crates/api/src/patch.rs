//! Defaults and the members of a change.

use serde::{Deserialize, Deserializer};

/// Deserialises a member of a change that may be null: absent is `None`, null is `Some(None)`.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// The default of a switch that is on.
pub(crate) fn yes() -> bool {
    true
}
