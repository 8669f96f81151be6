//! Rules for email addresses (rfc822Name, RFC 5280 section 4.2.1.6).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use x509::HostName;

/// Maximum length of the local part in bytes (RFC 5321 section 4.5.3.1.1).
const LOCAL_PART_MAX: usize = 64;

/// A rule that allows one email address, or all addresses of a host or of the hosts below a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EmailRule {
    /// `ops@a.example`: only this address.
    Mailbox(String),
    /// `a.example`: all addresses of this host.
    Host(String),
    /// `.a.example`: all addresses of the hosts below this name.
    Below(String),
}

impl EmailRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// Describes the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let host = |host: &str| {
            let ascii =
                idna::domain_to_ascii(host).map_err(|_| format!("{text:?}: {host:?} is not a DNS name"))?;
            HostName::parse(&ascii)
                .map(|h| h.as_str().to_owned())
                .map_err(|error| format!("{text:?}: {error}"))
        };
        if let Some((local, domain)) = text.rsplit_once('@') {
            let mailbox = format!("{local}@{}", host(domain)?);
            split(&mailbox).map_err(|reason| format!("{text:?}: {reason}"))?;
            return Ok(Self::Mailbox(mailbox));
        }
        match text.strip_prefix('.') {
            Some(domain) => host(domain).map(Self::Below),
            None => host(text).map(Self::Host),
        }
    }

    pub(super) fn allows(&self, mailbox: &str, host: &str) -> bool {
        match self {
            Self::Mailbox(one) => one == mailbox,
            Self::Host(one) => one == host,
            Self::Below(domain) => {
                host.strip_suffix(domain.as_str()).is_some_and(|head| head.len() > 1 && head.ends_with('.'))
            }
        }
    }
}

/// Returns the host of an email address. The local part must be a plain dot-atom (RFC 5321 section 4.1.2), because quoted local
/// parts occur only in attacks.
fn split(mailbox: &str) -> Result<&str, String> {
    let (local, host) = mailbox.split_once('@').ok_or("a mailbox has the form LOCAL@HOST")?;
    let atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let dots = local.starts_with('.') || local.ends_with('.') || local.contains("..");
    if local.is_empty() || local.len() > LOCAL_PART_MAX || dots || !local.chars().all(atom) {
        return Err("the part before the @ is not a valid local part".to_owned());
    }
    let parsed = HostName::parse(host).map_err(|error| error.to_string())?;
    if parsed.as_str() != host {
        return Err("write the host in lower case and without a trailing dot".to_owned());
    }
    Ok(host)
}

/// Returns the reason why `name` is not allowed; `None` if it is allowed.
pub(super) fn refusal(allowed: &[EmailRule], name: &str) -> Option<String> {
    if allowed.is_empty() {
        return Some("this profile does not allow mailboxes".to_owned());
    }
    match split(name) {
        Err(reason) => Some(reason),
        Ok(host) if allowed.iter().any(|rule| rule.allows(name, host)) => None,
        Ok(_) => Some("outside the mailboxes this profile allows".to_owned()),
    }
}

impl fmt::Display for EmailRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mailbox(text) | Self::Host(text) => f.write_str(text),
            Self::Below(domain) => write!(f, ".{domain}"),
        }
    }
}

impl Serialize for EmailRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EmailRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailbox_rules_match_addresses_and_domains() {
        let table = [
            ("ops@a.example", "ops@a.example", true),
            ("ops@a.example", "OPS@a.example", false),
            ("a.example", "x.y@a.example", true),
            ("a.example", "x@b.a.example", false),
            (".a.example", "x@b.a.example", true),
            (".a.example", "x@a.example", false),
            (".a.example", "x@evila.example", false),
            ("a.example", "x@A.example", false),
            ("a.example", "\"x@a.example\"@evil.example", false),
            ("a.example", "x@evil.example@a.example", false),
            ("a.example", ".x@a.example", false),
            ("a.example", "@a.example", false),
            ("a.example", "a.example", false),
        ];
        for (rule, name, allowed) in table {
            let rule = EmailRule::parse(rule).unwrap();
            let refused = refusal(std::slice::from_ref(&rule), name);
            assert_eq!(refused.is_none(), allowed, "{rule} {name} {refused:?}");
        }
        for bad in ["", "@", "a b@c.example", "x@", ".", "x@a..b"] {
            assert!(EmailRule::parse(bad).is_err(), "{bad}");
        }
    }
}
