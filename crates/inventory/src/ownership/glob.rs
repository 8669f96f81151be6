//! Patterns for hosts, names and sources.

use std::fmt;

use serde::{Deserialize, Serialize};
use x509::star;

/// Maximum bytes of a pattern: the length of the longest host name (RFC 1035 section 2.3.4, without length bytes).
pub const GLOB_BYTES_MAX: usize = 253;

/// A pattern in which `*` matches any sequence of characters, including dots and the empty sequence. All other characters match
/// themselves; ASCII case is ignored.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob {
    text: String,
}

/// Error for a pattern that is empty, too long, or has control characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a pattern must have 1 to {GLOB_BYTES_MAX} bytes and no control characters")]
pub struct BadGlob;

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`BadGlob`] when it is empty, too long, or has control characters.
    pub fn parse(text: &str) -> Result<Self, BadGlob> {
        let good = !text.is_empty() && text.len() <= GLOB_BYTES_MAX && !text.chars().any(char::is_control);
        if !good {
            return Err(BadGlob);
        }
        Ok(Self { text: text.to_ascii_lowercase() })
    }

    /// Returns whether the pattern matches the whole `text`.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.matches_lower(&text.to_ascii_lowercase())
    }

    /// Like [`Glob::matches`], for a text in lower case.
    pub(super) fn matches_lower(&self, text: &str) -> bool {
        star::matches(&self.text, text)
    }

    /// Returns the stored pattern, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Glob {
    type Error = BadGlob;

    fn try_from(text: String) -> Result<Self, BadGlob> {
        Self::parse(&text)
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CASES: &[(&str, &str, bool)] = &[
        ("*.pay.example", "a.pay.example", true),
        ("*.pay.example", "A.B.Pay.Example", true),
        ("*.pay.example", "pay.example", false),
        ("*.pay.example", "a.pay.example.org", false),
        ("*pay.example", "pay.example", true),
        ("*.Pay.example", "*.pay.example", true), // a wildcard certificate's own name
        ("pay.example", "pay.example", true),
        ("pay.example", "pay.example.", false),
        ("pay-*-db.example", "pay-eu-1-db.example", true),
        ("pay-*-db.example", "pay-db.example", false), // the two hyphens are not one
        ("aws-*", "aws-acm", true),
        ("aws-*", "gcp-compute", false),
        ("*", "", true),
        ("a*b*c", "abc", true),
        ("a*b*c", "acb", false),
        ("**", "anything", true),
        ("*ana*", "bananas", true),
        ("ab*ba", "aba", false),
        ("*.münchen.example", "x.münchen.example", true),
    ];

    #[test]
    fn globs_match_whole_texts_and_invalid_globs_are_rejected() {
        for (pattern, text, wanted) in CASES {
            assert_eq!(Glob::parse(pattern).unwrap().matches(text), *wanted, "{pattern} {text}");
        }
        for bad in ["", "a\nb", &"x".repeat(GLOB_BYTES_MAX + 1)] {
            assert_eq!(Glob::parse(bad), Err(BadGlob), "{bad:?}");
            assert!(serde_json::from_value::<Glob>(bad.into()).is_err());
        }
        assert!(Glob::parse(&"x".repeat(GLOB_BYTES_MAX)).is_ok());
    }

    proptest! {
        #[test]
        fn glob_matching_ignores_ascii_case_for_any_text(pattern in ".{1,40}", text in any::<String>()) {
            if let Ok(glob) = Glob::parse(&pattern) {
                prop_assert_eq!(glob.matches(&text), glob.matches(&text.to_ascii_uppercase()));
                prop_assert!(glob.matches(glob.as_str()), "a star stands for a star, too");
                prop_assert_eq!(Glob::parse(glob.as_str()), Ok(glob.clone()), "kept as it was read");
            }
        }
    }
}
