//! Tags in rules: conditions on tags, and values taken from tags.

use clouds::TAG_KEY_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::assignment::{Assignment, is_label};
use super::error::BadRule;
use super::glob::Glob;

/// A condition on a tag: its key, and a pattern for its value, such as `team=pay*`. The key alone (`team`) matches any value,
/// including an empty one. ASCII case is ignored. The key ends at the first `=`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tagged {
    /// The key in lower case.
    pub(super) key: String,
    value: Option<Glob>,
}

impl Tagged {
    pub(super) fn parse(text: &str) -> Result<Self, BadRule> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        let value = value.map(Glob::parse).transpose();
        match value {
            Ok(value) if is_key(key) => Ok(Self { key: key.to_ascii_lowercase(), value }),
            _ => Err(BadRule::Tag),
        }
    }

    pub(super) fn matches_lower(&self, (key, value): &(String, String)) -> bool {
        *key == self.key && self.value.as_ref().is_none_or(|wanted| wanted.matches_lower(value))
    }
}

impl TryFrom<String> for Tagged {
    type Error = BadRule;

    fn try_from(text: String) -> Result<Self, BadRule> {
        Self::parse(&text)
    }
}

impl From<Tagged> for String {
    fn from(tagged: Tagged) -> Self {
        match tagged.value {
            Some(value) => format!("{}={value}", tagged.key),
            None => tagged.key,
        }
    }
}

/// Returns whether a text is a valid tag key in a rule.
fn is_key(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= TAG_KEY_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Keys of the tags from which a rule takes values: for example, the team from the tag `cost-center`. Such a rule matches only if
/// at least one of these tags has a value. Fields whose tag has no value come from the rule's assignment.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TagKeys {
    /// Tag that contains the responsible team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Tag that contains the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Tag that contains the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

impl TagKeys {
    /// Returns whether the rule takes no values from tags.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        [&self.team, &self.owner, &self.environment].into_iter().flatten()
    }

    /// Checks that the keys are valid.
    ///
    /// # Errors
    /// [`BadRule::Tag`]
    pub fn check(&self) -> Result<(), BadRule> {
        if self.keys().all(|key| is_key(key)) { Ok(()) } else { Err(BadRule::Tag) }
    }

    /// Copies the values of tags into `assign`.
    pub(super) fn fill(&self, tags: &[(String, String)], assign: &mut Assignment) {
        let into = [
            (&self.team, &mut assign.team),
            (&self.owner, &mut assign.owner),
            (&self.environment, &mut assign.environment),
        ];
        for (key, field) in into {
            if let Some(value) = key.as_ref().and_then(|key| value_of(key, tags)) {
                *field = Some(value.to_owned());
            }
        }
    }

    /// Returns whether the rule takes values from tags and none of the tags has one.
    pub(super) fn matches_no_tag(&self, tags: &[(String, String)]) -> bool {
        !self.is_empty() && self.keys().all(|key| value_of(key, tags).is_none())
    }
}

/// Returns the first value of a tag that is a valid label.
fn value_of<'t>(key: &str, tags: &'t [(String, String)]) -> Option<&'t str> {
    let of_key = tags.iter().filter(|(one, _)| one.eq_ignore_ascii_case(key));
    of_key.map(|(_, value)| value.as_str()).find(|value| is_label(value))
}
