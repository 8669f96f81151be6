//! Attributes of a node, such as `country=DE`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Maximum attributes of one node, including the attributes of its site.
pub const ATTRIBUTES_MAX: usize = 32;
/// Maximum characters of an attribute name.
pub const NAME_MAX: usize = 32;
/// Maximum characters of an attribute value.
pub const VALUE_MAX: usize = 64;

/// Reserved words of formulas, which cannot be names.
const RESERVED: [&str; 3] = ["and", "or", "not"];

/// Reason why attributes are rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAttribute {
    /// The name is invalid.
    #[error(
        "{0:?} is not an attribute name: use a letter, then letters, digits, `_` and `-`, in lower case, at most \
         {NAME_MAX} characters"
    )]
    Name(String),
    /// The name is a reserved word of formulas.
    #[error("{0:?} is reserved in formulas and cannot be an attribute name")]
    Reserved(String),
    /// The value is invalid.
    #[error(
        "{value:?} is not a value of {name}: use a letter or digit, then letters, digits, `.`, `_` and `-`, at most \
         {VALUE_MAX} characters"
    )]
    Value {
        /// Name of the attribute.
        name: String,
        /// The rejected value.
        value: String,
    },
    /// There are more than 32 attributes.
    #[error("more than {ATTRIBUTES_MAX} attributes")]
    TooMany,
}

/// Attributes by name, with one value each: `country=DE`, `region=EU`. A JSON object, ordered by name, so that equal attributes
/// have equal text.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// Creates an empty set of attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates attributes from pairs. If a name occurs twice, the later value wins.
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

    /// Sets the value of `name`.
    ///
    /// # Errors
    /// [`BadAttribute`]; then nothing changes.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), BadAttribute> {
        let (name, value) = (name.into(), value.into());
        check(&name, &value)?;
        if self.0.len() >= ATTRIBUTES_MAX && !self.0.contains_key(&name) {
            return Err(BadAttribute::TooMany);
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// Returns these attributes, overridden by the attributes of `other`: for example a site's by a node's.
    ///
    /// # Errors
    /// [`BadAttribute::TooMany`]
    pub fn with(&self, other: &Self) -> Result<Self, BadAttribute> {
        Self::of(self.iter().chain(other.iter()))
    }

    /// Returns the value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Iterates over all attributes, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the number of attributes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Attributes {
    /// Formats as `country=DE region=EU`.
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

/// Checks a name and a value.
pub(super) fn check(name: &str, value: &str) -> Result<(), BadAttribute> {
    if RESERVED.contains(&name) {
        return Err(BadAttribute::Reserved(name.to_owned()));
    }
    let first = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !first || name.len() > NAME_MAX || !name.bytes().all(is_name_byte) {
        return Err(BadAttribute::Name(name.to_owned()));
    }
    let first = value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !first || value.len() > VALUE_MAX || !value.bytes().all(is_value_byte) {
        return Err(BadAttribute::Value { name: name.to_owned(), value: value.to_owned() });
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
}

fn is_value_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || byte == b'-'
}
