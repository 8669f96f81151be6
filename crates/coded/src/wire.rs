//! Deserializes enum values from their names.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

use crate::traits::{Named, find};

/// Deserializes a value from its name. The errors are the same as from a derived `Deserialize`.
///
/// # Errors
/// The data is not a string, or the string is not a valid name.
#[doc(hidden)]
pub fn deserialize<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_str(NameVisitor(PhantomData))
}

struct NameVisitor<T>(PhantomData<T>);

impl<T: Named> Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a valid {}", T::NOUN)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        find(text).ok_or_else(|| E::unknown_variant(text, T::NAMES))
    }
}
