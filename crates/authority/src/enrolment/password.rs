//! Verification of enrolment passwords for EST and SCEP.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use x509::csr::CertificateRequest;

use crate::teams::OwnershipRights;

/// Reason why passwords cannot be checked at present.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot verify passwords now: {0}")]
pub struct PasswordError(pub String);

/// A user who is authenticated with an enrolment password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnrolmentUser {
    /// Name of the user in the audit log, such as `est:alice` or `scep:tablets`.
    pub actor: String,
    /// Team on whose behalf the user acts.
    pub rights: OwnershipRights,
}

/// Verifies enrolment passwords. Implementations compare in constant time and slow down the guessing of passwords.
pub trait EnrolmentPassword: Send + Sync {
    /// Returns the user with this username and password (HTTP Basic, for EST). Returns `None` if they are wrong or not allowed for
    /// this profile.
    fn user<'a>(
        &'a self,
        profile: &'a str,
        user: &'a str,
        password: &'a str,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>>;

    /// Returns the user with this challenge password (RFC 8894 section 7.3, for SCEP). Returns `None` if the password is wrong or
    /// not allowed for this profile. A single-use password is used up by `request`. If the client lost the response, the same
    /// request must succeed again.
    fn challenge<'a>(
        &'a self,
        profile: &'a str,
        password: &'a str,
        request: &'a CertificateRequest,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>>;
}

/// A list of passwords, each for one profile, for small sites and tests. In the configuration each entry has the keys `profile`,
/// `user` and `password`.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Vec<ConfiguredPassword>")]
pub struct FixedPasswords(Vec<Entry>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfiguredPassword {
    profile: String,
    user: String,
    password: String,
}

impl From<Vec<ConfiguredPassword>> for FixedPasswords {
    fn from(all: Vec<ConfiguredPassword>) -> Self {
        let entry = |one: ConfiguredPassword| Entry {
            profile: one.profile,
            user: one.user,
            password: one.password.into(),
        };
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
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a password for a profile. EST requires the username too, SCEP only the password.
    #[must_use]
    pub fn with(mut self, profile: &str, user: &str, password: &str) -> Self {
        let password = zeroize::Zeroizing::new(password.to_owned());
        self.0.push(Entry { profile: profile.to_owned(), user: user.to_owned(), password });
        self
    }

    /// Finds the entry with a password. Compares all entries, so that the duration does not reveal the match. An empty password
    /// never matches.
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
    /// Shows only the number of entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FixedPasswords({})", self.0.len())
    }
}

/// Returns a user without a team: the configured password list assigns no teams.
fn user_without_team(actor: String) -> EnrolmentUser {
    EnrolmentUser { actor, rights: OwnershipRights::Nobody }
}

impl EnrolmentPassword for FixedPasswords {
    fn user<'a>(
        &'a self,
        profile: &'a str,
        user: &'a str,
        password: &'a str,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        let found = self
            .find(profile, Some(user), password)
            .map(|entry| user_without_team(format!("est:{}", entry.user)));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn challenge<'a>(
        &'a self,
        profile: &'a str,
        password: &'a str,
        _: &'a CertificateRequest,
    ) -> BoxFuture<'a, Result<Option<EnrolmentUser>, PasswordError>> {
        let found =
            self.find(profile, None, password).map(|entry| user_without_team(format!("scep:{}", entry.user)));
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_valid_only_for_its_profile_and_user() {
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
