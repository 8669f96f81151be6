//! The identity of a person, independent of the login method: one person is one principal.

use std::collections::BTreeSet;

use x509::{Certificate, GeneralName};

/// Maximum number of names of a certificate that count as identifiers.
const NAMES_MAX: usize = 32;

/// An actor with all identifiers (marks) of the same person. Identifiers are:
///
/// - the name of the actor;
/// - the owner of a token;
/// - the subject at an OIDC provider;
/// - a verified email address;
/// - a client certificate, its key and its names.
///
/// Two principals that share an identifier count as the same person. So people who share a certificate, key, owner or address count
/// as one person.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Principal {
    actor: String,
    marks: BTreeSet<String>,
}

impl Principal {
    /// Returns an actor without further identifiers.
    #[must_use]
    pub fn from_actor(actor: &str) -> Self {
        Self { actor: actor.to_owned(), marks: BTreeSet::from([actor.to_owned()]) }
    }

    /// Returns the principal that owns an EST or SCEP password. The actors `est:alice` and `scep:alice` are both the user `alice`.
    #[must_use]
    pub fn from_password_owner(actor: &str) -> Self {
        let user = actor.strip_prefix("est:").or_else(|| actor.strip_prefix("scep:"));
        let principal = Self::from_actor(actor);
        match user {
            Some(user) => principal.with(format!("user:{user}")),
            None => principal,
        }
    }

    /// Adds an identifier of the same person.
    #[must_use]
    pub fn with(mut self, mark: impl Into<String>) -> Self {
        self.marks.insert(mark.into());
        self
    }

    /// Adds the identifiers in a client certificate of the person: the certificate's fingerprint, its key, and its names.
    #[must_use]
    pub fn with_certificate(mut self, certificate: &Certificate) -> Self {
        self.marks.insert(format!("sha256:{}", certificate.fingerprint));
        self.marks.insert(format!("spki:{}", certificate.public_key.spki_sha256));
        let names = certificate.subject_alt_names.iter().filter_map(name_mark).take(NAMES_MAX);
        self.marks.extend(names);
        self
    }

    /// Returns the name of the actor in the audit log.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Returns all identifiers (marks), including the name of the actor.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.marks.iter().map(String::as_str)
    }

    /// Returns whether at least one of these identifiers belongs to the person.
    #[must_use]
    pub fn has_any_mark<'a>(&self, mut marks: impl Iterator<Item = &'a str>) -> bool {
        marks.any(|mark| self.marks.contains(mark))
    }

    /// Returns whether two principals are the same person, that is, whether they share an identifier.
    #[must_use]
    pub fn is_same_person(&self, other: &Self) -> bool {
        self.has_any_mark(other.marks())
    }
}

/// Returns whether an actor may be a person: a user, or a client certificate. Tokens are for programs.
#[must_use]
pub fn is_person(actor: &str) -> bool {
    actor.starts_with("user:") || actor.starts_with("certificate:")
}

/// Formats a subject alternative name as a mark, for example `dns:www.example`. DNS names and email addresses are in lower case.
/// Returns `None` for kinds of names that identify no person. The mapping from client certificates to identities uses the same
/// text.
#[must_use]
pub fn name_mark(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::Dns(name) => Some(format!("dns:{}", name.to_ascii_lowercase())),
        GeneralName::Email(address) => Some(format!("email:{}", address.to_ascii_lowercase())),
        GeneralName::Uri(uri) => Some(format!("uri:{uri}")),
        GeneralName::Ip(_) | GeneralName::BadIp(_) | GeneralName::Directory(_) | GeneralName::Other(_) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_is_one_principal() {
        let ann = Principal::from_actor("user:ann").with("email:ann@example.org");
        let token = Principal::from_actor("token:ci").with("user:ann");
        let certificate = Principal::from_actor("certificate:laptop").with("email:ann@example.org");
        let bob = Principal::from_actor("user:bob").with("email:bob@example.org");
        assert!(ann.is_same_person(&token) && token.is_same_person(&ann));
        assert!(ann.is_same_person(&certificate) && ann.is_same_person(&ann));
        let est = Principal::from_password_owner("est:ann");
        assert!(est.is_same_person(&ann) && est.is_same_person(&Principal::from_password_owner("scep:ann")));
        assert!(
            !est.is_same_person(&bob) && !Principal::from_password_owner("token:bob").is_same_person(&bob)
        );
        assert!(!ann.is_same_person(&bob) && !bob.is_same_person(&token));
    }
}
