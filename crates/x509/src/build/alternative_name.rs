//! Subject alternative names: parsed from text, and encoded as DER.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use data_encoding::HEXLOWER_PERMISSIVE;

use crate::der::Writer;
use crate::{DistinguishedName, GeneralName, HostName, InvalidHostName};

/// Reason why the text is not a valid name for a certificate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadName {
    /// The text is longer than [`GeneralName::TEXT_MAX`] bytes.
    #[error("a name may have at most {max} bytes", max = GeneralName::TEXT_MAX)]
    TooLong,
    /// The text is neither a host name nor any other kind of name.
    #[error("{0:?} is not a valid name: {1}")]
    Host(String, InvalidHostName),
    /// A `*` that is not the whole leftmost label, or that is directly below a top-level domain.
    #[error("{0:?}: a wildcard must be the whole first label, followed by at least two labels")]
    Wildcard(String),
    /// UTS #46 does not permit the internationalized name.
    #[error("{0:?} is not a valid internationalized name; try its xn-- form")]
    International(String),
    /// The text is not `mailbox@host` in ASCII.
    #[error("{0:?} is not an email address")]
    Email(String),
    /// The text is not `scheme:rest` in printable ASCII.
    #[error("{0:?} is not a URI; write bytes beyond ASCII as %XX")]
    Uri(String),
    /// The text is not an IPv4 or IPv6 address.
    #[error("{0:?} is not an IP address")]
    Address(String),
}

impl GeneralName {
    /// Maximum bytes of text that [`Self::parse`] accepts. Real names are far shorter: DNS names are limited to 253 bytes.
    pub const TEXT_MAX: usize = 2_048;

    /// Parses a name: `a.example`, `*.a.example`, `10.0.0.1`, `2001:db8::1`, `[2001:db8::1]`, `me@a.example`,
    /// `mailto:me@a.example`, `spiffe://a.example/x`, and any other URI with `//` or with the scheme `urn`. OpenSSL's prefixes
    /// `DNS:`, `IP:`, `email:` and `URI:` select the kind of name. Host names become lower-case A-labels without a trailing dot.
    ///
    /// # Errors
    /// [`BadName`] describes what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let text = text.trim();
        if text.len() > Self::TEXT_MAX {
            return Err(BadName::TooLong);
        }
        if let Some((kind, rest)) = text.split_once(':') {
            match kind.to_ascii_lowercase().as_str() {
                "dns" => return dns(rest.trim()),
                "ip" | "ip address" => return ip(rest.trim()),
                "email" | "mailto" => return email(rest.trim()),
                "uri" => return uri(rest.trim()),
                "urn" => return uri(text),
                _ if rest.starts_with("//") => return uri(text),
                _ => {}
            }
        }
        match ip(text) {
            Ok(address) => Ok(address),
            Err(_) if text.contains('@') => email(text),
            Err(_) => dns(text),
        }
    }

    /// Returns whether [`super::Extension::subject_alt_names`] can encode the name.
    ///
    /// False for [`Self::Other`], whose content is unknown, for a [`Self::BadIp`] that is not hexadecimal, for a
    /// [`Self::Directory`] that [`DistinguishedName::from_text`] cannot parse, and for non-ASCII text.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Dns(text) | Self::Email(text) | Self::Uri(text) => text.is_ascii(),
            Self::Ip(_) => true,
            Self::BadIp(digits) => HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).is_ok(),
            Self::Directory(text) => DistinguishedName::from_text(text).is_ok(),
            Self::Other(_) => false,
        }
    }
}

impl fmt::Display for GeneralName {
    /// Writes the form that [`GeneralName::parse`] reads. For other kinds of names, writes the prefix `dirName:`, `badIP:` or
    /// `other:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Email(text) => f.pad(text),
            Self::Uri(text) if text.contains("://") || text.starts_with("urn:") => f.pad(text),
            Self::Uri(text) => write!(f, "URI:{text}"),
            Self::Ip(address) => address.fmt(f),
            Self::BadIp(digits) => write!(f, "badIP:{digits}"),
            Self::Directory(text) => write!(f, "dirName:{text}"),
            Self::Other(text) => write!(f, "other:{text}"),
        }
    }
}

impl std::str::FromStr for GeneralName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::parse(text)
    }
}

fn dns(text: &str) -> Result<GeneralName, BadName> {
    let (wildcard, host) = match text.strip_prefix("*.") {
        Some(parent) => (true, host(parent)?),
        None if text.contains('*') => return Err(BadName::Wildcard(text.to_owned())),
        None => (false, host(text)?),
    };
    if !wildcard {
        return Ok(GeneralName::Dns(host.to_string()));
    }
    let pattern = format!("*.{host}");
    if !host.as_str().contains('.') || pattern.len() > HostName::LENGTH_MAX {
        return Err(BadName::Wildcard(text.to_owned()));
    }
    Ok(GeneralName::Dns(pattern))
}

/// Parses an internationalized host name into A-labels.
fn host(text: &str) -> Result<HostName, BadName> {
    let ascii = if text.is_ascii() {
        Cow::Borrowed(text)
    } else {
        let ascii = idna::domain_to_ascii_strict(text);
        Cow::Owned(ascii.map_err(|_| BadName::International(text.to_owned()))?)
    };
    match HostName::parse(&ascii) {
        Err(InvalidHostName::Wildcard) => Err(BadName::Wildcard(text.to_owned())),
        other => other.map_err(|error| BadName::Host(text.to_owned(), error)),
    }
}

fn ip(text: &str) -> Result<GeneralName, BadName> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>();
    address.map(GeneralName::Ip).map_err(|_| BadName::Address(text.to_owned()))
}

/// Parses a Mailbox of RFC 2821 (RFC 5280 section 4.2.1.6): ASCII, with a case-insensitive host.
fn email(text: &str) -> Result<GeneralName, BadName> {
    let bad = || BadName::Email(text.to_owned());
    let (mailbox, domain) = text.rsplit_once('@').ok_or_else(bad)?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&b);
    let dots = mailbox.starts_with('.') || mailbox.ends_with('.') || mailbox.contains("..");
    if mailbox.is_empty() || mailbox.len() > 64 || dots || !mailbox.bytes().all(allowed) {
        return Err(bad());
    }
    Ok(GeneralName::Email(format!("{mailbox}@{}", host(domain)?)))
}

/// Parses an absolute ASCII URI (RFC 5280 section 4.2.1.6). The scheme becomes lower-case, and the rest is unchanged.
fn uri(text: &str) -> Result<GeneralName, BadName> {
    let bad = || BadName::Uri(text.to_owned());
    let (scheme, rest) = text.split_once(':').ok_or_else(bad)?;
    let first = scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let letters = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let printable = rest.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b));
    if !first || !letters || !printable || rest.trim_start_matches('/').is_empty() {
        return Err(bad());
    }
    Ok(GeneralName::Uri(format!("{}:{rest}", scheme.to_ascii_lowercase())))
}

/// Writes a GeneralName. Writes nothing if [`GeneralName::is_writable`] is false.
pub(super) fn write_name(w: &mut Writer, name: &GeneralName) {
    if !name.is_writable() {
        return;
    }
    match name {
        GeneralName::Email(text) => w.context_primitive(1, text.as_bytes()),
        GeneralName::Dns(text) => w.context_primitive(2, text.as_bytes()),
        GeneralName::Uri(text) => w.context_primitive(6, text.as_bytes()),
        GeneralName::Ip(address) => w.context_primitive(7, &octets(*address)),
        GeneralName::BadIp(digits) => {
            w.context_primitive(7, &HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).unwrap_or_default())
        }
        GeneralName::Directory(text) => w.context(4, |w| {
            w.raw(&DistinguishedName::from_text(text).unwrap_or_default().der);
        }),
        GeneralName::Other(_) => w,
    };
}

/// Returns the bytes of an IP address in an iPAddress name or subtree.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        GeneralName::parse(text).ok().map(|name| format!("{name:?}"))
    }

    #[test]
    fn alternative_names_are_parsed() {
        let table = [
            ("a.example", r#"Dns("a.example")"#),
            (" A.Example. ", r#"Dns("a.example")"#),
            ("localhost", r#"Dns("localhost")"#),
            ("*.A.example", r#"Dns("*.a.example")"#),
            ("*.bücher.example", r#"Dns("*.xn--bcher-kva.example")"#),
            ("bücher.example", r#"Dns("xn--bcher-kva.example")"#),
            ("DNS:a.example", r#"Dns("a.example")"#),
            ("10.0.0.1", "Ip(10.0.0.1)"),
            ("IP:10.0.0.1", "Ip(10.0.0.1)"),
            ("2001:DB8::1", "Ip(2001:db8::1)"),
            ("[2001:db8::1]", "Ip(2001:db8::1)"),
            ("Me@A.example", r#"Email("Me@a.example")"#),
            ("mailto:me@bücher.example", r#"Email("me@xn--bcher-kva.example")"#),
            ("SPIFFE://Trust.example/ns/x", r#"Uri("spiffe://Trust.example/ns/x")"#),
            ("urn:uuid:f81d4fae", r#"Uri("urn:uuid:f81d4fae")"#),
            ("URI:tag:x", r#"Uri("tag:x")"#),
        ];
        for (text, want) in table {
            assert_eq!(read(text).as_deref(), Some(want), "{text}");
            let name = GeneralName::parse(text).unwrap();
            assert_eq!(GeneralName::parse(&name.to_string()), Ok(name), "{text}");
        }
    }

    #[test]
    fn invalid_alternative_names_are_rejected() {
        let table = [
            "",
            ".",
            "*",
            "*.",
            "*.example",
            "a.*.example",
            "a*.b.example",
            "**.a.example",
            "a b",
            "a..b",
            "DNS:10.0.0.1",
            "IP:a.example",
            "10.0.0.1/8",
            "@a.example",
            "a@",
            "a@b@c d",
            "ä@a.example",
            "http://",
            "http://a b",
            "1x://a",
            "spiffe://ü",
            "a\0.example",
            "a.example:443",
            "[::1",
        ];
        for text in table {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(GeneralName::parse(&"a".repeat(2_049)), Err(BadName::TooLong));
    }
}
