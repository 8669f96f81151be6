//! Attributes of a node.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Attributes of one node: those of its site and its own.
pub const ATTRIBUTES_MAX: usize = 32;
/// Characters of a name.
pub const NAME_MAX: usize = 32;
/// Characters of a value.
pub const VALUE_MAX: usize = 64;

/// Words of formulas.
const RESERVED: [&str; 3] = ["and", "or", "not"];

/// Why there are no such attributes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAttribute {
    /// Not a name.
    #[error(
        "{0:?} is no attribute's name: a letter, then letters, digits, `_` and `-`, in lower case, {NAME_MAX} at most"
    )]
    Name(String),
    /// A word of formulas.
    #[error("no attribute can be named {0:?}: formulas have another use for it")]
    Reserved(String),
    /// Not a value.
    #[error(
        "{value:?} is no value of {name}: a letter or digit, then letters, digits, `.`, `_` and `-`, {VALUE_MAX} at most"
    )]
    Value {
        /// Whose.
        name: String,
        /// The rejected value.
        value: String,
    },
    /// Too many.
    #[error("more than {ATTRIBUTES_MAX} attributes")]
    TooMany,
}

/// Attributes by their names, one value each: `country=DE`, `region=EU`. JSON has them as an object. Ordered by name, so
/// the same attributes are the same text.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of pairs; of a name that comes twice the later value.
    ///
    /// # Errors
    /// [`BadAttribute`]
    pub fn of<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, BadAttribute> {
        let mut all = Self::new();
        for (name, value) in pairs {
            all.set(name, value)?;
        }
        Ok(all)
    }

    /// Gives `name` this value.
    ///
    /// # Errors
    /// [`BadAttribute`]; nothing is changed then.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), BadAttribute> {
        let (name, value) = (name.into(), value.into());
        check(&name, &value)?;
        if self.0.len() >= ATTRIBUTES_MAX && !self.0.contains_key(&name) {
            return Err(BadAttribute::TooMany);
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// These, and `other`'s where they say something else: a node's own over its site's.
    ///
    /// # Errors
    /// [`BadAttribute::TooMany`]
    pub fn with(&self, other: &Self) -> Result<Self, BadAttribute> {
        Self::of(self.iter().chain(other.iter()))
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Attributes {
    /// `country=DE region=EU`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{name}={value}")?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(BTreeMap::<String, String>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Whether an attribute may be called so and have this value.
pub(super) fn check(name: &str, value: &str) -> Result<(), BadAttribute> {
    if RESERVED.contains(&name) {
        return Err(BadAttribute::Reserved(name.to_owned()));
    }
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !first || name.len() > NAME_MAX || !name.bytes().all(in_name) {
        return Err(BadAttribute::Name(name.to_owned()));
    }
    let first = value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !first || value.len() > VALUE_MAX || !value.bytes().all(in_value) {
        return Err(BadAttribute::Value { name: name.to_owned(), value: value.to_owned() });
    }
    Ok(())
}

fn in_name(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'_' || octet == b'-'
}

fn in_value(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || octet == b'.' || octet == b'_' || octet == b'-'
}
