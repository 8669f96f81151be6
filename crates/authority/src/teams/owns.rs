//! The objects that a team owns, and the team's quotas.

use std::collections::BTreeSet;

use api::access::address;
use coded::coded;
use serde::{Deserialize, Serialize};
use x509::HostName;

/// Maximum number of objects of one team, because every node caches them.
pub const OBJECTS_MAX: usize = 1_000;
/// Maximum length of an object name in bytes.
const OBJECT_MAX: usize = 1_024;

coded! {
    /// Kind of an object that a team owns.
    pub enum OwnedKind: "kind of owned object" {
        /// A DNS suffix, including the suffix itself, or an IP address.
        Name = 0 => "name",
        /// A profile, by its name.
        Profile = 1 => "profile",
        /// An issuer, by its name.
        Issuer = 2 => "issuer",
        /// A deployment target, by its name.
        Target = 3 => "target",
        /// A credential path: the credential and all credentials below it.
        Path = 4 => "path",
    }
}

/// The objects that a team owns. Each object belongs to exactly one team.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Owns {
    /// DNS suffixes (`a.example` is that name and all its subdomains) and IP addresses. The longest matching suffix determines the
    /// owner of a name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Names of the profiles that the team owns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Names of the issuers that the team owns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<String>,
    /// Names of the deployment targets that the team owns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Credential paths: `/a` is that credential and all credentials below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Quotas of a team. `None` means that no team quota applies.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Maximum requests per second to the API and the credential store, for all callers of the team together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Maximum certificates per day (UTC), over all protocols and issuers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_day: Option<u32>,
}

/// Reason why the objects or quotas of a team are invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidOwnedObjects {
    /// The team has more than [`OBJECTS_MAX`] objects.
    #[error("a team can own at most {OBJECTS_MAX} objects")]
    TooMany,
    /// The name is not a DNS suffix and not an IP address in its usual notation.
    #[error(
        "owns.names: {0:?} is neither a DNS name in lower case nor an IP address in its shortest notation: write a.example for \
         that name and all names below it, 10.0.0.1 or 2001:db8::1 for an address"
    )]
    Name(String),
    /// The path is not a valid credential path.
    #[error(
        "owns.paths: {0:?} is not a path in lower case: write /a/b for that credential and all credentials below it"
    )]
    Path(String),
    /// The name is empty, too long, or contains control characters.
    #[error("owns: {0:?} is not an object name")]
    Object(String),
    /// The object is listed twice.
    #[error("owns: {0:?} appears more than once")]
    Twice(String),
    /// A quota is 0.
    #[error("quota: a limit must be at least 1; leave it out for no limit")]
    Zero,
}

impl Owns {
    /// Returns whether the team owns no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns every object with its kind.
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

    /// Checks the number, the spelling and the uniqueness of the objects.
    ///
    /// # Errors
    /// [`InvalidOwnedObjects`] describes what to correct.
    pub fn check(&self) -> Result<(), InvalidOwnedObjects> {
        if self.objects().count() > OBJECTS_MAX {
            return Err(InvalidOwnedObjects::TooMany);
        }
        let mut seen = BTreeSet::new();
        for (kind, object) in self.objects() {
            let text = || object.to_owned();
            if object.is_empty() || object.len() > OBJECT_MAX || object.chars().any(char::is_control) {
                return Err(InvalidOwnedObjects::Object(text()));
            }
            match kind {
                OwnedKind::Name if !is_name(object) => return Err(InvalidOwnedObjects::Name(text())),
                OwnedKind::Path if !is_path(object) => return Err(InvalidOwnedObjects::Path(text())),
                _ if !seen.insert((kind, object)) => return Err(InvalidOwnedObjects::Twice(text())),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Quota {
    /// Returns whether no quota is set.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that each quota is at least 1.
    ///
    /// # Errors
    /// [`InvalidOwnedObjects::Zero`].
    pub fn check(&self) -> Result<(), InvalidOwnedObjects> {
        let none = [self.requests_per_second, self.certificates_per_day].contains(&Some(0));
        if none { Err(InvalidOwnedObjects::Zero) } else { Ok(()) }
    }
}

fn is_name(text: &str) -> bool {
    match address(text) {
        Some(address) => address.to_string() == text,
        None => HostName::parse(text).is_ok_and(|host| host.as_str() == text),
    }
}

fn is_path(text: &str) -> bool {
    let segments = |path: &str| path.split('/').all(|segment| !segment.is_empty());
    text.to_lowercase() == text && !text.contains('*') && text.strip_prefix('/').is_some_and(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn team_owned_objects_are_validated() {
        let read = |text: &str| serde_json::from_str::<Owns>(text).unwrap().check();
        let good = r#"{"names": ["a.example", "10.0.0.1", "2001:db8::1", "corp"], "profiles": ["web"], "paths": ["/a/b"]}"#;
        assert_eq!(read(good), Ok(()));
        for bad in [
            "A.example",
            "*.a.example",
            ".a.example",
            "a.example.",
            "",
            "2001:DB8::1",
            "[2001:db8::1]",
            "10.1",
        ] {
            assert!(read(&format!(r#"{{"names": ["{bad}"]}}"#)).is_err(), "{bad:?}");
        }
        for bad in ["a", "/", "/a/", "/A", "/a/*", "//a"] {
            assert!(read(&format!(r#"{{"paths": ["{bad}"]}}"#)).is_err(), "{bad:?}");
        }
        assert_eq!(read(r#"{"profiles": ["a", "a"]}"#), Err(InvalidOwnedObjects::Twice("a".to_owned())));
        let many = Owns { profiles: (0..=OBJECTS_MAX).map(|n| n.to_string()).collect(), ..Owns::default() };
        assert_eq!(many.check(), Err(InvalidOwnedObjects::TooMany));
        assert!(Quota { certificates_per_day: Some(0), ..Quota::default() }.check().is_err());
    }
}
