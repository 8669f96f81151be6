//! Values that a rule assigns: team, owner, environment and tags.

use std::collections::BTreeMap;

use events::Ownership;
use serde::{Deserialize, Serialize};

use super::error::BadRule;
use super::limits::{LABEL_BYTES_MAX, TAGS_MAX};

/// Returns whether a text is valid as owner, team, environment, tag or tag value: 1 to [`LABEL_BYTES_MAX`] bytes, not blank, no
/// control characters.
#[must_use]
pub fn is_label(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Values that a rule assigns: team, owner, environment and tags.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Assignment {
    /// Team that owns the matching endpoints and certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Person who owns the matching endpoints and certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The environment, such as `production`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Tags by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

impl Assignment {
    /// Checks that the assignment is not empty and its texts are valid.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn check(&self) -> Result<(), BadRule> {
        self.check_texts()?;
        if *self == Self::default() { Err(BadRule::Nothing) } else { Ok(()) }
    }

    /// Checks that the texts are valid.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn check_texts(&self) -> Result<(), BadRule> {
        let labels =
            [("the team", &self.team), ("the owner", &self.owner), ("the environment", &self.environment)];
        for (field, text) in labels {
            if text.as_ref().is_some_and(|text| !is_label(text)) {
                return Err(BadRule::Label(field));
            }
        }
        if self.tags.len() > TAGS_MAX {
            return Err(BadRule::TooManyTags);
        }
        if self.tags.iter().any(|(tag, value)| !is_label(tag) || !is_label(value)) {
            return Err(BadRule::Label("a tag"));
        }
        Ok(())
    }
}

impl From<Assignment> for Ownership {
    fn from(assignment: Assignment) -> Self {
        let Assignment { team, owner, environment, tags } = assignment;
        Self { team, owner, environment, tags }
    }
}
