//! How far a role reaches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name in a scope, in octets: as for the things named.
const NAME_BYTES_MAX: usize = 253;

/// How far a grant reaches. Written `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// Everything.
    Any,
    /// What is issued by this profile.
    Profile(String),
    /// What comes from this issuer.
    Issuer(String),
    /// What belongs to this team.
    Team(String),
}

impl Scope {
    /// The scope of a profile.
    #[must_use]
    pub fn profile(name: impl Into<String>) -> Self {
        Self::Profile(name.into())
    }

    /// The scope of an issuer.
    #[must_use]
    pub fn issuer(name: impl Into<String>) -> Self {
        Self::Issuer(name.into())
    }

    /// The scope of a team.
    #[must_use]
    pub fn team(name: impl Into<String>) -> Self {
        Self::Team(name.into())
    }

    /// Whether all of `other` lies within.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        *self == Self::Any || self == other
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Profile(name) => write!(f, "profile:{name}"),
            Self::Issuer(name) => write!(f, "issuer:{name}"),
            Self::Team(name) => write!(f, "team:{name}"),
        }
    }
}

/// A text that is no scope.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no scope: give `any`, `profile:NAME`, `issuer:NAME` or `team:NAME`")]
pub struct BadScope(pub String);

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        let bad = || BadScope(text.chars().take(NAME_BYTES_MAX).collect());
        if text == "any" {
            return Ok(Self::Any);
        }
        let (kind, name) = text.split_once(':').ok_or_else(bad)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(bad());
        }
        match kind {
            "profile" => Ok(Self::profile(name)),
            "issuer" => Ok(Self::issuer(name)),
            "team" => Ok(Self::team(name)),
            _ => Err(bad()),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["any", "profile:web", "issuer:letsencrypt", "team:a:b"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in ["", "all", "profile", "profile:", "path:/x", "team:a\nb"] {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
        assert!(format!("x:{}", "a".repeat(300)).parse::<Scope>().is_err());
    }

    #[test]
    fn any_covers_all_and_others_themselves() {
        let web = Scope::profile("web");
        assert!(Scope::Any.covers(&web) && web.covers(&web));
        assert!(!web.covers(&Scope::Any) && !web.covers(&Scope::team("web")));
    }
}
