//! Names of credentials, and the paths of permissions. Comparisons are case-insensitive.

use std::fmt;

use crate::CredentialError;

/// Maximum characters of a name, including its leading slash.
pub const NAME_CHARS_MAX: usize = 1_024;

const BAD_SLASH: &str = "A credential name cannot end with a '/' character or contain '//'. Credential names should be \
                         in the form of /[path]/[name] or [path]/[name]. Please update and retry your request.";
const BAD_CHARACTER: &str = "Credential names may only include alpha, numeric, hyphen, underscore, and forward-slash \
                             characters. Please update and retry your request.";
const TOO_LONG: &str =
    "The request could not be completed. The credential name cannot exceed 1024 characters";
const MISSING: &str =
    "A credential name must be provided. Please validate your input and retry your request.";
const BAD_PATH_SLASH: &str = "A credential path cannot end with a '/' character or contain '//'. Credential paths \
                              should be in the form of /[path]/[name] or [path]/[name]. Please update and retry your \
                              request.";
const BAD_PATH_CHARACTER: &str = "Credential paths may only include alpha, numeric, hyphen, underscore, and \
                                  forward-slash characters. Please update and retry your request.";
const MISSING_PATH: &str = "You must specify a path. Please validate your input and retry your request.";

/// A text with case-insensitive comparison.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Folded {
    shown: String,
    key: String,
}

impl Folded {
    fn new(shown: String) -> Self {
        let key = shown.to_ascii_lowercase();
        Self { shown, key }
    }

    /// Parses a text, adds a missing leading slash, and checks the length.
    fn parse(text: &str, missing: &str) -> Result<Self, CredentialError> {
        if text.is_empty() {
            return Err(CredentialError::bad(missing));
        }
        let shown = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
        if shown.chars().count() > NAME_CHARS_MAX {
            return Err(CredentialError::bad(TOO_LONG));
        }
        Ok(Self::new(shown))
    }
}

/// A valid name: it begins with a slash and contains only allowed characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name(Folded);

impl Name {
    /// Parses a name; adds a missing leading slash.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] with the reason.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let name = Folded::parse(text, MISSING)?;
        check(&name.shown, BAD_SLASH, BAD_CHARACTER)?;
        Ok(Self(name))
    }

    /// Creates a name from the database without checks.
    #[must_use]
    pub(crate) fn stored(shown: String) -> Self {
        Self(Folded::new(shown))
    }

    /// Returns the name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.shown
    }

    /// Returns the name in lower case, for comparisons.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}

/// A name, or all names below a path (`/team/*`, `/*`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionPath(Folded);

impl PermissionPath {
    /// Parses a path; adds a missing leading slash.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] with the reason.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let path = Folded::parse(text, MISSING_PATH)?;
        // The path `/*` covers all names.
        if path.shown != "/*" {
            let plain = path.shown.strip_suffix("/*").unwrap_or(&path.shown);
            check(plain, BAD_PATH_SLASH, BAD_PATH_CHARACTER)?;
        }
        Ok(Self(path))
    }

    /// Returns whether this path covers a name (lower case).
    #[must_use]
    pub fn covers(&self, name_key: &str) -> bool {
        match self.key().strip_suffix('*') {
            Some(prefix) => name_key.starts_with(prefix),
            None => name_key == self.key(),
        }
    }

    /// Returns the path as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.shown
    }

    /// Returns the path in lower case, for comparisons.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }
}

fn check(text: &str, bad_slash: &str, bad_character: &str) -> Result<(), CredentialError> {
    if text.len() < 2 || text.ends_with('/') || text.contains("//") {
        return Err(CredentialError::bad(bad_slash));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_/.:,()[]+".contains(c);
    if !text.chars().all(allowed) {
        return Err(CredentialError::bad(bad_character));
    }
    // A proxy or file system would resolve such a segment to another path.
    if text.split('/').any(|part| part == "." || part == "..") {
        return Err(CredentialError::bad(bad_character));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_names_are_validated_as_in_credhub() {
        for (text, shown) in [
            ("a", "/a"),
            ("/A/b", "/A/b"),
            ("/a-b_c.d:e,f(g)[h]+i/1", "/a-b_c.d:e,f(g)[h]+i/1"),
            (&"x".repeat(1_023), &format!("/{}", "x".repeat(1_023))),
        ] {
            let name = Name::parse(text).unwrap();
            assert_eq!((name.as_str(), name.key()), (shown, shown.to_ascii_lowercase().as_str()));
        }
        for (text, why) in [
            ("", MISSING),
            ("/", BAD_SLASH),
            ("//", BAD_SLASH),
            ("/a/", BAD_SLASH),
            ("/a//b", BAD_SLASH),
            ("/a b", BAD_CHARACTER),
            ("/a%2fb", BAD_CHARACTER),
            ("/ä", BAD_CHARACTER),
            ("/a/*", BAD_CHARACTER),
            ("/a/../b", BAD_CHARACTER),
            ("/.", BAD_CHARACTER),
            ("/a\n", BAD_CHARACTER),
            (&"x".repeat(1_024), TOO_LONG),
        ] {
            assert_eq!(Name::parse(text).unwrap_err().to_string(), why, "{text:?}");
        }
    }

    #[test]
    fn permission_paths_are_names_or_end_in_a_wildcard() {
        for text in ["/*", "/a/*", "/a", "/A/b/*"] {
            assert_eq!(PermissionPath::parse(text).unwrap().key(), text.to_ascii_lowercase());
        }
        assert_eq!(PermissionPath::parse("a/*").unwrap().as_str(), "/a/*");
        let below = PermissionPath::parse("/A/*").unwrap();
        assert!(below.covers("/a/b") && !below.covers("/a") && !below.covers("/ab/c"));
        assert!(PermissionPath::parse("/A").unwrap().covers("/a"));
        for text in ["", "/", "/a*", "/*/a", "/a//*", "/a/", "/../*"] {
            assert!(PermissionPath::parse(text).is_err(), "{text:?}");
        }
    }
}
