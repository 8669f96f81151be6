//! Names of credentials, normalized for comparison.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// Maximum characters of a name, as in the store.
const CHARS_MAX: usize = 1_024;

/// A name in lower case with a leading slash. The store checks all other rules.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// Parses a name. A missing leading slash is added.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is empty or longer than 1,024 characters.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bare = text.strip_prefix('/').unwrap_or(text);
        if bare.is_empty() || bare.chars().count() >= CHARS_MAX {
            return Err(Error::invalid(format_args!("a name must have 1 to {CHARS_MAX} characters")));
        }
        Ok(Self(format!("/{}", bare.to_ascii_lowercase()).into()))
    }

    /// Returns the name in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
