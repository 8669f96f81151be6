//! Specification of a new CA.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use keys::KeyType;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use x509::{DistinguishedName, NameConstraints, Subtree};

use crate::tables::CAS_MAX;

/// Maximum length of a CA name in characters.
pub(super) const NAME_MAX: usize = 64;
/// Maximum lifetime of a CA in seconds: fifty years, longer than present keys are expected to be secure.
const LIFETIME_MAX: i64 = 50 * 366 * 86_400;
/// Minimum lifetime of a CA in seconds: one hour, for tests of a chain.
pub(super) const LIFETIME_MIN: i64 = 60 * 60;
/// Maximum path length of a root; a larger value is probably a mistake.
const PATH_LENGTH_MAX: u32 = 8;
/// Maximum number of name constraints of one CA, permitted and excluded together. OpenSSL and other libraries reject many more.
const SUBTREES_MAX: usize = 1_024;
/// Maximum number of certificate policies, and of extended key usages, of one CA.
const IDENTIFIERS_MAX: usize = 64;

/// Maximum number of CAs from the credential store. Every version of a credential counts as one. The remaining capacity is reserved
/// for the server's own CAs.
pub(super) const CREDENTIAL_CAS_MAX: usize = CAS_MAX - 1_000;
/// JSON member of a stored CA specification that contains the path of the credential.
pub(super) const CREDENTIAL: &str = "credential";

/// Specification of a new CA: name, subject, key, lifetime and constraints.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewCa {
    /// Name of the CA on this server, unique: 1 to 64 letters, digits, dots, hyphens, underscores and spaces.
    pub name: String,
    /// Distinguished name, such as `CN=Example Root, O=Example, C=DE`.
    pub subject: String,
    /// Type of the key to generate.
    #[serde(default = "default_key_type")]
    pub key_type: KeyType,
    /// Key provider that stores the key (`pkcs11`); `None` to store it encrypted in the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_provider: Option<String>,
    /// Lifetime from now in seconds: one hour to fifty years.
    pub lifetime_seconds: i64,
    /// Maximum number of intermediate CAs below this CA in a chain (RFC 5280 section 4.2.1.9); `None` for as many as the parent
    /// allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_length: Option<u32>,
    /// Constraints on the names in certificates below this CA (RFC 5280 section 4.2.1.10).
    #[serde(default, skip_serializing_if = "NameLimits::is_empty")]
    pub name_limits: NameLimits,
    /// Certificate policies, as dotted OIDs (RFC 5280 section 4.2.1.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Extended key usages allowed in certificates below this CA, as dotted OIDs. An empty list allows any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_key_usage: Vec<String>,
    /// Seconds by which the start of validity precedes the current time, for clients whose clocks are slow.
    #[serde(default = "default_backdate")]
    pub backdate_seconds: i64,
}

/// Permitted and excluded names, each as `dns:example.com` (that name and its subdomains), `ip:10.0.0.0/8`, `email:example.com`,
/// `email:.example.com`, `uri:.example.com` or `dir:O=Example, C=DE`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NameLimits {
    /// Permitted subtrees. If the list has entries of one kind of name, every name of that kind must match one of them.
    pub permitted: Vec<String>,
    /// Excluded subtrees. No name may match one of them.
    pub excluded: Vec<String>,
}

fn default_key_type() -> KeyType {
    KeyType::P256
}

fn default_backdate() -> i64 {
    300
}

/// Reason why the specification of a CA is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadCa {
    /// The name is not a valid CA name.
    #[error(
        "{0:?} is not a CA name: use 1 to {NAME_MAX} letters, digits, '.', '-', '_' and spaces, and not a UUID"
    )]
    Name(String),
    /// The subject is not a distinguished name.
    #[error("invalid subject of the CA: {0}")]
    Subject(String),
    /// The lifetime is too short or too long.
    #[error("the lifetime must be between one hour and fifty years, not {0} seconds")]
    Lifetime(i64),
    /// `backdate_seconds` is negative, or greater than the lifetime.
    #[error("backdate_seconds must be between 0 and lifetime_seconds, not {0}")]
    Backdate(i64),
    /// The path length is too large.
    #[error("path length {0} is above the maximum {PATH_LENGTH_MAX}")]
    PathLength(u32),
    /// The text is not a name constraint.
    #[error(
        "{text:?} is not a name constraint: {reason}; use dns:NAME, ip:NETWORK, email:DOMAIN, uri:DOMAIN or dir:NAME"
    )]
    Limit {
        /// The text as the caller wrote it.
        text: String,
        /// Reason why the text is invalid.
        reason: String,
    },
    /// A list has too many entries.
    #[error("{0} has too many entries")]
    TooMany(&'static str),
    /// The text is not an object identifier.
    #[error("{0:?} is not an object identifier such as 2.23.140.1.2.1")]
    Identifier(String),
}

/// A CA specification after parsing and validation.
#[derive(Clone, Debug)]
pub(crate) struct ParsedSpecification {
    pub(crate) subject: DistinguishedName,
    pub(crate) constraints: NameConstraints,
}

impl NewCa {
    /// Returns the specification of a root with a lifetime of ten years and a P-384 key.
    #[must_use]
    pub fn root(name: &str, subject: &str) -> Self {
        Self { key_type: KeyType::P384, lifetime_seconds: 3_650 * 86_400, ..Self::plain(name, subject) }
    }

    /// Returns the specification of an intermediate with a lifetime of five years and a P-256 key, without CAs below it.
    #[must_use]
    pub fn intermediate(name: &str, subject: &str) -> Self {
        Self { lifetime_seconds: 1_825 * 86_400, path_length: Some(0), ..Self::plain(name, subject) }
    }

    fn plain(name: &str, subject: &str) -> Self {
        Self {
            name: name.to_owned(),
            subject: subject.to_owned(),
            key_type: default_key_type(),
            key_provider: None,
            lifetime_seconds: 0,
            path_length: None,
            name_limits: NameLimits::default(),
            policies: Vec::new(),
            extended_key_usage: Vec::new(),
            backdate_seconds: default_backdate(),
        }
    }

    /// Parses the texts and checks all limits.
    pub(crate) fn read(&self) -> Result<ParsedSpecification, BadCa> {
        check_name(&self.name)?;
        let subject = DistinguishedName::from_text(&self.subject);
        let subject = subject.map_err(|error| BadCa::Subject(error.to_string()))?;
        if subject.is_empty() {
            return Err(BadCa::Subject("a CA requires a subject (RFC 5280 section 4.1.2.6)".to_owned()));
        }
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&self.lifetime_seconds) {
            return Err(BadCa::Lifetime(self.lifetime_seconds));
        }
        if !(0..=self.lifetime_seconds).contains(&self.backdate_seconds) {
            return Err(BadCa::Backdate(self.backdate_seconds));
        }
        if let Some(length) = self.path_length.filter(|length| *length > PATH_LENGTH_MAX) {
            return Err(BadCa::PathLength(length));
        }
        check_identifiers("policies", &self.policies)?;
        check_identifiers("extended_key_usage", &self.extended_key_usage)?;
        Ok(ParsedSpecification { subject, constraints: self.name_limits.read()? })
    }
}

/// Checks the characters and the length of a CA name. Rejects UUIDs.
pub(crate) fn check_name(name: &str) -> Result<(), BadCa> {
    let valid_chars = name.chars().all(|c| c.is_alphanumeric() || "._- ".contains(c));
    let length = (1..=NAME_MAX).contains(&name.chars().count());
    // A UUID is not a valid name, because it would be used as an identifier.
    if valid_chars && length && name.trim() == name && Uuid::parse_str(name).is_err() {
        Ok(())
    } else {
        Err(BadCa::Name(name.chars().take(NAME_MAX + 1).collect()))
    }
}

fn check_identifiers(what: &'static str, identifiers: &[String]) -> Result<(), BadCa> {
    if identifiers.len() > IDENTIFIERS_MAX {
        return Err(BadCa::TooMany(what));
    }
    let good = |text: &str| !text.starts_with("bad:") && x509::der::oid_content(text).is_some();
    let bad = identifiers.iter().find(|text| !good(text));
    bad.map_or(Ok(()), |text| Err(BadCa::Identifier(text.clone())))
}

impl NameLimits {
    /// Returns whether there are no name constraints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.permitted.is_empty() && self.excluded.is_empty()
    }

    fn read(&self) -> Result<NameConstraints, BadCa> {
        if self.permitted.len() + self.excluded.len() > SUBTREES_MAX {
            return Err(BadCa::TooMany("name_limits"));
        }
        let read = |texts: &[String]| texts.iter().map(|text| subtree(text)).collect::<Result<_, _>>();
        Ok(NameConstraints { permitted: read(&self.permitted)?, excluded: read(&self.excluded)? })
    }
}

fn subtree(text: &str) -> Result<Subtree, BadCa> {
    let bad = |reason: String| BadCa::Limit { text: text.to_owned(), reason };
    let (kind, value) = text.split_once(':').ok_or_else(|| bad("the type is missing".to_owned()))?;
    let domain = || {
        // An empty name excludes everything; a leading dot means "below this name".
        let bare = value.strip_prefix('.').unwrap_or(value);
        if value.is_empty() {
            return Ok(String::new());
        }
        let host = host(bare).map_err(bad)?;
        Ok(format!("{}{host}", if bare.len() < value.len() { "." } else { "" }))
    };
    match kind {
        "dns" => Ok(Subtree::Dns(domain()?)),
        "uri" => Ok(Subtree::Uri(domain()?)),
        "email" => match value.rsplit_once('@') {
            Some((local, domain)) if !local.is_empty() && local.is_ascii() => {
                Ok(Subtree::Email(format!("{local}@{}", host(domain).map_err(bad)?)))
            }
            Some(_) => Err(bad("the mailbox is not ASCII".to_owned())),
            None => Ok(Subtree::Email(domain()?)),
        },
        "ip" => {
            let network = value.parse::<IpNet>().or_else(|_| value.parse::<IpAddr>().map(IpNet::from));
            let network = network.map_err(|_| bad("not a network in CIDR notation".to_owned()))?;
            Ok(Subtree::Ip(network.network(), network.netmask()))
        }
        "dir" => {
            let name = DistinguishedName::from_text(value).map_err(|error| bad(error.to_string()))?;
            Ok(Subtree::Directory(name.der))
        }
        other => Err(bad(format!("unknown type {other:?}"))),
    }
}

/// Parses a hostname in the form of certificates: A-labels, lower case.
fn host(text: &str) -> Result<x509::HostName, String> {
    let ascii =
        idna::domain_to_ascii(text).map_err(|_| "not a valid internationalized domain name".to_owned())?;
    x509::HostName::parse(&ascii).map_err(|error| error.to_string())
}

/// Returns the credential path in the specification of a CA; `None` if the CA is not a credential.
pub(super) fn credential_path(specification: &str) -> Option<Arc<str>> {
    let specification: Value = serde_json::from_str(specification).ok()?;
    Some(specification.get(CREDENTIAL)?.as_str()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_names_are_validated() {
        for good in ["root", "Web CA 2", "a.b_c-d", "Überprüfung", &"x".repeat(64)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let uuid = Uuid::nil().to_string();
        for bad in ["", " root", "root ", "a/b", "a\0b", "a\nb", &"x".repeat(65), uuid.as_str()] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn name_limits_are_parsed() {
        let ip = |address: &str, mask: &str| Subtree::Ip(address.parse().unwrap(), mask.parse().unwrap());
        for (text, expected) in [
            ("dns:Example.COM", Subtree::Dns("example.com".to_owned())),
            ("dns:.example.com", Subtree::Dns(".example.com".to_owned())),
            ("dns:", Subtree::Dns(String::new())),
            ("dns:bücher.example", Subtree::Dns("xn--bcher-kva.example".to_owned())),
            ("ip:10.1.2.3/8", ip("10.0.0.0", "255.0.0.0")),
            ("ip:192.0.2.7", ip("192.0.2.7", "255.255.255.255")),
            ("ip:2001:db8::/32", ip("2001:db8::", "ffff:ffff::")),
            ("email:example.com", Subtree::Email("example.com".to_owned())),
            ("email:me@example.com", Subtree::Email("me@example.com".to_owned())),
            ("uri:.example.com", Subtree::Uri(".example.com".to_owned())),
        ] {
            assert_eq!(subtree(text), Ok(expected), "{text}");
        }
        assert!(matches!(subtree("dir:O=Example, C=DE"), Ok(Subtree::Directory(_))));
        for bad in [
            "example.com",
            "dns:*.example.com",
            "dns:a b",
            "ip:10.0.0.0/33",
            "ip:x",
            "email:ü@a.b",
            "dir:x",
            "x:y",
        ] {
            assert!(matches!(subtree(bad), Err(BadCa::Limit { .. })), "{bad}");
        }
    }

    #[test]
    fn ca_specification_limits_are_enforced() {
        let good = NewCa::root("root", "CN=Root");
        assert!(good.read().is_ok());
        let cases = [
            NewCa { name: "a/b".to_owned(), ..good.clone() },
            NewCa { subject: String::new(), ..good.clone() },
            NewCa { subject: "Root".to_owned(), ..good.clone() },
            NewCa { lifetime_seconds: 3_599, ..good.clone() },
            NewCa { lifetime_seconds: 51 * 366 * 86_400, ..good.clone() },
            NewCa { backdate_seconds: -1, ..good.clone() },
            NewCa { path_length: Some(9), ..good.clone() },
            NewCa { policies: vec!["x".to_owned()], ..good.clone() },
            NewCa { extended_key_usage: vec!["1.2.3".to_owned(); 65], ..good.clone() },
        ];
        for case in cases {
            assert!(case.read().is_err(), "{case:?}");
        }
    }

    #[test]
    fn credential_path_is_read_from_a_specification() {
        assert_eq!(credential_path(r#"{"imported":true,"credential":"/a/ca"}"#).as_deref(), Some("/a/ca"));
        for none in ["", "{}", r#"{"imported":true}"#, r#"{"credential":7}"#] {
            assert_eq!(credential_path(none), None, "{none}");
        }
    }
}
