//! Errors of invalid rules.

use clouds::TAG_KEY_BYTES_MAX;

use super::glob::BadGlob;
use super::limits::{ISSUER_BYTES_MAX, LABEL_BYTES_MAX, TAGS_MAX};

/// Reason why an ownership rule is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRule {
    /// A pattern is invalid.
    #[error("{field}: {source}")]
    Glob {
        /// Name of the condition.
        field: &'static str,
        /// Reason why the pattern is invalid.
        source: BadGlob,
    },
    /// The text is neither a network nor an address.
    #[error("network: {0:?} is neither a network such as 10.0.0.0/8 nor an address")]
    Network(String),
    /// The issuer condition is empty, too long, or has control characters.
    #[error("issuer: a part of a name must have 1 to {ISSUER_BYTES_MAX} bytes and no control characters")]
    Issuer,
    /// The rule assigns nothing.
    #[error("a rule must name a team, an owner, an environment or a tag")]
    Nothing,
    /// A text is too long, empty, or has control characters.
    #[error("{0} must have 1 to {LABEL_BYTES_MAX} bytes and no control characters")]
    Label(&'static str),
    /// The rule assigns more than [`TAGS_MAX`] tags.
    #[error("a rule can add at most {TAGS_MAX} tags")]
    TooManyTags,
    /// The condition is neither a key nor a key and a pattern.
    #[error(
        "a tag condition is KEY or KEY=PATTERN; the key must have 1 to {TAG_KEY_BYTES_MAX} bytes and no control characters"
    )]
    Tag,
}
