//! The error for a text that names no value.

use std::fmt;

use crate::traits::Named;

/// Maximum characters of the invalid text that the error repeats.
const GIVEN_CHARS_MAX: usize = 40;

/// The text is not the name of any value of an enum. The message lists the valid names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownName {
    noun: &'static str,
    given: String,
    names: &'static [&'static str],
}

impl UnknownName {
    /// Creates the error: `given` is not a name of `T`.
    #[must_use]
    pub fn of<T: Named>(given: &str) -> Self {
        Self { noun: T::NOUN, given: given.chars().take(GIVEN_CHARS_MAX).collect(), names: T::NAMES }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}: use ", self.noun, self.given)?;
        match self.names {
            [first @ .., before, last] => {
                for name in first {
                    write!(f, "{name}, ")?;
                }
                write!(f, "{before} or {last}")
            }
            names => f.write_str(&names.concat()),
        }
    }
}

impl std::error::Error for UnknownName {}
