//! Patterns of the objects that a team owns.

use std::collections::BTreeSet;

use coded::coded;
use serde::{Deserialize, Serialize};
use x509::HostName;

/// Objects that one team owns at most: they are in the memory of every node.
pub const OBJECTS_MAX: usize = 1_000;
/// Longest name of an object, bytes.
const OBJECT_MAX: usize = 1_024;

coded! {
    /// Kinds of objects that a team owns.
    pub enum OwnedKind: "kind of owned object" {
        /// A DNS suffix, with itself; or an address.
        Name = 0 => "name",
        /// A profile.
        Profile = 1 => "profile",
        /// An issuer.
        Issuer = 2 => "issuer",
        /// A deployment target.
        Target = 3 => "target",
        /// Credentials at a path and below.
        Path = 4 => "path",
    }
}

/// The objects that a team owns. Each belongs to one team alone.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Owns {
    /// DNS suffixes (`a.example`: that name and all below it) and addresses. The longest suffix of a name decides about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Profiles, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Issuers, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<String>,
    /// Deployment targets, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Credential paths: `/a` is that credential and all below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// How much a team may ask for. `None`: no limit of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Requests a second to the API and the credential store, of all its callers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Certificates a day (UTC), over every protocol and issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_day: Option<u32>,
}

/// Why a team cannot own this.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadOwns {
    /// More than [`OBJECTS_MAX`].
    #[error("a team owns up to {OBJECTS_MAX} objects")]
    TooMany,
    /// A suffix or an address that is none.
    #[error(
        "owns.names: {0:?} is no DNS name in lower case and no address: write a.example for that name and all below it"
    )]
    Name(String),
    /// A path that is none.
    #[error("owns.paths: {0:?} is no path in lower case: write /a/b for that credential and all below it")]
    Path(String),
    /// Empty, too long, or with control characters.
    #[error("owns: {0:?} is no name of an object")]
    Object(String),
    /// Written twice.
    #[error("owns: {0:?} is there twice")]
    Twice(String),
    /// A limit of nothing.
    #[error("quota: a limit is at least 1; leave it out for none")]
    Zero,
}

impl Owns {
    /// Whether the team owns nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every object with its kind.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (OwnedKind, &str)> {
        let lists = [
            (OwnedKind::Name, &self.names),
            (OwnedKind::Profile, &self.profiles),
            (OwnedKind::Issuer, &self.issuers),
            (OwnedKind::Target, &self.targets),
            (OwnedKind::Path, &self.paths),
        ];
        lists.into_iter().flat_map(|(kind, list)| list.iter().map(move |object| (kind, object.as_str())))
    }

    /// Whether a team can own this.
    ///
    /// # Errors
    /// [`BadOwns`] says what to correct.
    pub fn check(&self) -> Result<(), BadOwns> {
        if self.objects().count() > OBJECTS_MAX {
            return Err(BadOwns::TooMany);
        }
        let mut seen = BTreeSet::new();
        for (kind, object) in self.objects() {
            let text = || object.to_owned();
            if object.is_empty() || object.len() > OBJECT_MAX || object.chars().any(char::is_control) {
                return Err(BadOwns::Object(text()));
            }
            match kind {
                OwnedKind::Name if !is_name(object) => return Err(BadOwns::Name(text())),
                OwnedKind::Path if !is_path(object) => return Err(BadOwns::Path(text())),
                _ if !seen.insert((kind, object)) => return Err(BadOwns::Twice(text())),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Quota {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether each limit is at least one.
    ///
    /// # Errors
    /// [`BadOwns::Zero`].
    pub fn check(&self) -> Result<(), BadOwns> {
        let none = [self.requests_per_second, self.certificates_per_day].contains(&Some(0));
        if none { Err(BadOwns::Zero) } else { Ok(()) }
    }
}

fn is_name(text: &str) -> bool {
    HostName::parse(text).is_ok_and(|host| host.as_str() == text) || text.parse::<std::net::IpAddr>().is_ok()
}

fn is_path(text: &str) -> bool {
    let segments = |path: &str| path.split('/').all(|segment| !segment.is_empty());
    text.to_lowercase() == text && !text.contains('*') && text.strip_prefix('/').is_some_and(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_team_owns_is_checked() {
        let read = |text: &str| serde_json::from_str::<Owns>(text).unwrap().check();
        let good = r#"{"names": ["a.example", "10.0.0.1", "corp"], "profiles": ["web"], "paths": ["/a/b"]}"#;
        assert_eq!(read(good), Ok(()));
        for bad in ["A.example", "*.a.example", ".a.example", "a.example.", ""] {
            assert!(read(&format!(r#"{{"names": ["{bad}"]}}"#)).is_err(), "{bad:?}");
        }
        for bad in ["a", "/", "/a/", "/A", "/a/*", "//a"] {
            assert!(read(&format!(r#"{{"paths": ["{bad}"]}}"#)).is_err(), "{bad:?}");
        }
        assert_eq!(read(r#"{"profiles": ["a", "a"]}"#), Err(BadOwns::Twice("a".to_owned())));
        let many = Owns { profiles: (0..=OBJECTS_MAX).map(|n| n.to_string()).collect(), ..Owns::default() };
        assert_eq!(many.check(), Err(BadOwns::TooMany));
        assert!(Quota { certificates_per_day: Some(0), ..Quota::default() }.check().is_err());
    }
}
