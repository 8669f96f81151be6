//! Host names, and matching of certificates with names (RFC 9525, formerly RFC 6125).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{Certificate, GeneralName};

/// A DNS host name: lower case, without trailing dot and wildcard. Internationalized names are in A-label form (`xn--…`).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(Arc<str>);

/// Reason why the text is not a valid host name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidHostName {
    /// The text is empty, or only a dot.
    #[error("a host name must not be empty")]
    Empty,
    /// The name is longer than 253 bytes (RFC 1035 section 2.3.4, less the length bytes).
    #[error("a host name may have at most 253 characters")]
    TooLong,
    /// The name is a wildcard, which is valid in a certificate but is not a host.
    #[error("a wildcard is not a host: name one host below it")]
    Wildcard,
    /// A label is empty or longer than 63 bytes.
    #[error("each label must have 1 to 63 characters")]
    Label,
    /// The name has a character other than letters, digits, hyphens and underscores. Underscores are accepted because they occur in
    /// practice.
    #[error("{0:?} is not allowed in a host name; write internationalized names as xn--…")]
    Character(char),
    /// The text is an IP address: see [`ReferenceName`].
    #[error("an IP address is not a host name")]
    Address,
}

impl HostName {
    /// Maximum bytes of a name.
    pub const LENGTH_MAX: usize = 253;
    /// Maximum bytes of a label.
    pub const LABEL_MAX: usize = 63;

    /// Parses a host name. Converts capitals to lower case, and drops one trailing dot.
    ///
    /// # Errors
    /// [`InvalidHostName`] with the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidHostName> {
        Self::check(text).map(|name| Self(name.to_ascii_lowercase().into()))
    }

    /// Checks a host name and returns it with its case unchanged, without an allocation.
    pub(crate) fn check(text: &str) -> Result<&str, InvalidHostName> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(InvalidHostName::Empty);
        }
        if name.len() > Self::LENGTH_MAX {
            return Err(InvalidHostName::TooLong);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match name.chars().find(|c| !allowed(*c)) {
            Some('*') => return Err(InvalidHostName::Wildcard),
            Some(other) => return Err(InvalidHostName::Character(other)),
            None => {}
        }
        if name.split('.').any(|label| label.is_empty() || label.len() > Self::LABEL_MAX) {
            return Err(InvalidHostName::Label);
        }
        if name.parse::<IpAddr>().is_ok() {
            return Err(InvalidHostName::Address);
        }
        Ok(name)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = InvalidHostName;

    fn from_str(text: &str) -> Result<Self, InvalidHostName> {
        Self::parse(text)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The name or address that a client connects to, and that the certificate must contain (RFC 9525 section 2).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum ReferenceName {
    /// A host name.
    Host(HostName),
    /// An IP address.
    Ip(IpAddr),
}

impl From<HostName> for ReferenceName {
    fn from(host: HostName) -> Self {
        Self::Host(host)
    }
}

impl From<IpAddr> for ReferenceName {
    fn from(address: IpAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for ReferenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Result of matching a certificate with a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameMatch {
    /// A subject alternative name matches, as RFC 9525 requires.
    SubjectAlternativeName,
    /// Only a common name matches. Browsers have ignored common names since 2017 (RFC 9525 section 2).
    CommonNameOnly,
    /// The certificate does not match the name.
    None,
}

/// Returns whether a subject alternative name of `certificate`, or only a common name, matches `name`.
#[must_use]
pub fn matches(certificate: &Certificate, name: &ReferenceName) -> NameMatch {
    let matched = certificate.subject_alt_names.iter().any(|presented| match (presented, name) {
        (GeneralName::Dns(pattern), ReferenceName::Host(host)) => pattern_matches(pattern, host),
        (GeneralName::Ip(address), ReferenceName::Ip(reference)) => address == reference,
        _ => false,
    });
    if matched {
        return NameMatch::SubjectAlternativeName;
    }
    let by_common_name = certificate.subject.common_names.iter().any(|common| match name {
        ReferenceName::Host(host) => pattern_matches(common, host),
        ReferenceName::Ip(reference) => common.parse() == Ok(*reference),
    });
    if by_common_name { NameMatch::CommonNameOnly } else { NameMatch::None }
}

/// Returns whether the dNSName `pattern` covers `host`: the same name (case-insensitive), or a wildcard that is the whole leftmost
/// label and matches exactly one label (RFC 9525 section 6.3).
#[must_use]
pub fn pattern_matches(pattern: &str, host: &HostName) -> bool {
    let pattern = pattern.strip_suffix('.').unwrap_or(pattern);
    match pattern.strip_prefix("*.") {
        Some(parent) => {
            // No client accepts a wildcard directly below a top-level domain.
            parent.contains('.')
                && host.0.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        }
        None => pattern.eq_ignore_ascii_case(&host.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_NAMES: &[(&str, Result<&str, InvalidHostName>)] = &[
        ("A.Example.", Ok("a.example")),
        ("localhost", Ok("localhost")),
        ("_dmarc.example", Ok("_dmarc.example")),
        ("xn--bcher-kva.example", Ok("xn--bcher-kva.example")),
        ("1.2.3.4.example", Ok("1.2.3.4.example")),
        ("", Err(InvalidHostName::Empty)),
        (".", Err(InvalidHostName::Empty)),
        ("a..b", Err(InvalidHostName::Label)),
        ("a.b..", Err(InvalidHostName::Label)),
        (".a", Err(InvalidHostName::Label)),
        ("*.example", Err(InvalidHostName::Wildcard)),
        ("bücher.example", Err(InvalidHostName::Character('ü'))),
        ("a b", Err(InvalidHostName::Character(' '))),
        ("127.0.0.1", Err(InvalidHostName::Address)),
        ("::1", Err(InvalidHostName::Character(':'))),
    ];

    #[test]
    fn host_names_are_parsed_or_rejected() {
        for (text, want) in HOST_NAMES {
            let got = HostName::parse(text);
            assert_eq!(got.as_ref().map(HostName::as_str), want.as_ref().copied(), "{text}");
        }
        assert_eq!(HostName::parse(&"a".repeat(64)), Err(InvalidHostName::Label));
        assert_eq!(HostName::parse(&"a.".repeat(130)), Err(InvalidHostName::TooLong));
    }

    const PATTERNS: &[(&str, &str, bool)] = &[
        ("a.example", "a.example", true),
        ("A.EXAMPLE", "a.example", true),
        ("a.example.", "a.example", true),
        ("a.example", "b.a.example", false),
        ("*.b.example", "a.b.example", true),
        ("*.B.example", "a.b.example", true),
        ("*.b.example", "b.example", false),
        ("*.b.example", "x.a.b.example", false),
        ("*.example", "a.example", false),
        ("*", "example", false),
        ("a*.b.example", "ab.b.example", false),
        ("a.*.example", "a.b.example", false),
        ("*.*.example", "a.b.example", false),
        ("", "a.example", false),
    ];

    #[test]
    fn certificate_name_patterns_match_host_names() {
        for (pattern, host, want) in PATTERNS {
            let host = HostName::parse(host).unwrap();
            assert_eq!(pattern_matches(pattern, &host), *want, "{pattern} {host}");
        }
    }
}
