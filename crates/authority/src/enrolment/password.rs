//! Passwords that devices and people enrol by.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use x509::csr::CertificateRequest;

use crate::teams::Standing;

/// That passwords cannot be checked now.
#[derive(Clone, Debug, thiserror::Error)]
#[error("passwords cannot be checked now: {0}")]
pub struct PasswordError(pub String);

/// A user that enrols by a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnrolmentUser {
    /// As the audit names them: `est:alice`, `scep:tablets`.
    pub actor: String,
    /// For which team.
    pub standing: Standing,
}

/// Knows the passwords of those who enrol. Implementations compare in constant time and hold back those who guess.
pub trait EnrolmentPassword: Send + Sync {
    /// Whose user name and password these are (HTTP Basic, for EST), as the audit shall name them (`est:alice`); `None`
    /// when they are nobody's, or not to be used for this profile.
    fn user<'a>(
        &'a self,
        profile: &'a str,
        user: &'a str,
        password: &'a str,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>>;

    /// Whose challenge password this is (RFC 8894 section 7.3, for SCEP), as the audit shall name them (`scep:tablets`);
    /// `None` as above. One that may be used once is used up by `request`: the same request, sent again because its
    /// answer was lost, must succeed again.
    fn challenge<'a>(
        &'a self,
        profile: &'a str,
        password: &'a str,
        request: &'a CertificateRequest,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>>;
}

/// A list of passwords, each for one profile; good for a few and for tests. In a configuration each has the keys
/// `profile`, `user` and `password`.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Vec<Written>")]
pub struct FixedPasswords(Vec<Entry>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    profile: String,
    user: String,
    password: String,
}

impl From<Vec<Written>> for FixedPasswords {
    fn from(all: Vec<Written>) -> Self {
        let entry =
            |one: Written| Entry { profile: one.profile, user: one.user, password: one.password.into() };
        Self(all.into_iter().map(entry).collect())
    }
}

#[derive(Clone)]
struct Entry {
    profile: String,
    user: String,
    password: zeroize::Zeroizing<String>,
}

impl FixedPasswords {
    /// No users.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And this one, for a profile: over EST with the user name, over SCEP without.
    #[must_use]
    pub fn with(mut self, profile: &str, user: &str, password: &str) -> Self {
        let password = zeroize::Zeroizing::new(password.to_owned());
        self.0.push(Entry { profile: profile.to_owned(), user: user.to_owned(), password });
        self
    }

    /// Looks at every entry, so that the time tells nothing of which one it is. An empty password is nobody's.
    fn find(&self, profile: &str, user: Option<&str>, password: &str) -> Option<&Entry> {
        let mut found = None;
        for entry in &self.0 {
            let same = keys::constant_time_eq(entry.password.as_bytes(), password.as_bytes());
            if same && entry.profile == profile && user.is_none_or(|user| user == entry.user) {
                found = Some(entry);
            }
        }
        found.filter(|_| !password.is_empty())
    }
}

impl fmt::Debug for FixedPasswords {
    /// How many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FixedPasswords({})", self.0.len())
    }
}

/// Passwords of a list are no team's.
fn nobody(actor: String) -> EnrolmentUser {
    EnrolmentUser { actor, standing: Standing::Nobody }
}

impl EnrolmentPassword for FixedPasswords {
    fn user<'a>(
        &'a self,
        profile: &'a str,
        user: &'a str,
        password: &'a str,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        let found =
            self.find(profile, Some(user), password).map(|entry| nobody(format!("est:{}", entry.user)));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn challenge<'a>(
        &'a self,
        profile: &'a str,
        password: &'a str,
        _: &'a CertificateRequest,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        let found = self.find(profile, None, password).map(|entry| nobody(format!("scep:{}", entry.user)));
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_for_its_profile_and_user() {
        let all = FixedPasswords::new().with("web", "alice", "secret").with("vpn", "bob", "");
        let table = [
            (("web", Some("alice"), "secret"), true),
            (("web", None, "secret"), true),
            (("web", Some("bob"), "secret"), false),
            (("vpn", Some("alice"), "secret"), false),
            (("web", Some("alice"), "secre"), false),
            (("web", Some("alice"), ""), false),
            (("vpn", Some("bob"), ""), false),
        ];
        for ((profile, user, password), want) in table {
            assert_eq!(all.find(profile, user, password).is_some(), want, "{profile} {user:?} {password}");
        }
        assert_eq!(format!("{all:?}"), "FixedPasswords(2)");
        let text = r#"[{"profile": "web", "user": "alice", "password": "secret"}]"#;
        let read: FixedPasswords = serde_json::from_str(text).unwrap();
        assert!(read.find("web", Some("alice"), "secret").is_some());
    }
}
