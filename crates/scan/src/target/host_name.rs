//! Names of hosts, valid because they exist.

use std::fmt;
use std::sync::Arc;

/// RFC 1035 section 2.3.4.
const NAME_MAX: usize = 253;
/// RFC 1035 section 2.3.4.
const LABEL_MAX: usize = 63;

/// The name of a host to connect to: lower case, A-labels, no trailing dot, no wildcard.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(Arc<str>);

/// Why a text is no host name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidHostName {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// RFC 1035 section 2.3.4.
    #[error("it is longer than 253 characters")]
    TooLong,
    /// Two dots in a row, or a dot in front.
    #[error("a label is empty; look for two dots in a row")]
    EmptyLabel,
    /// RFC 1035 section 2.3.4.
    #[error("a label is longer than 63 characters")]
    LabelTooLong,
    /// Fine in a certificate, never something to connect to.
    #[error("a wildcard cannot be connected to; name the hosts behind it")]
    Wildcard,
    /// RFC 1123 section 2.1, with underscores, which real hosts have.
    #[error("`{}` does not occur in host names", .0.escape_debug())]
    Character(char),
    /// RFC 1123 section 2.1.
    #[error("a label begins or ends with a hyphen")]
    Hyphen,
    /// RFC 3696 section 2: a name whose last label is a number would be taken for an address.
    #[error("its last label is a number, as in an address")]
    NumericTopLabel,
    /// UTS #46 refuses the international name.
    #[error("it is not a valid international name; try its xn-- form")]
    International,
}

impl HostName {
    /// Reads a name; international names are turned into A-labels (UTS #46, RFC 5890).
    ///
    /// # Errors
    /// [`InvalidHostName`] names the first rule that is broken.
    pub fn parse(text: &str) -> Result<Self, InvalidHostName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let ascii = if text.is_ascii() {
            text.to_ascii_lowercase()
        } else {
            idna::domain_to_ascii_strict(text).map_err(|_| InvalidHostName::International)?
        };
        check(&ascii)?;
        Ok(Self(ascii.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check(name: &str) -> Result<(), InvalidHostName> {
    if name.is_empty() {
        return Err(InvalidHostName::Empty);
    }
    if name.len() > NAME_MAX {
        return Err(InvalidHostName::TooLong);
    }
    name.split('.').try_for_each(check_label)?;
    let top = name.rsplit('.').next().unwrap_or(name);
    if top.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(InvalidHostName::NumericTopLabel);
    }
    Ok(())
}

fn check_label(label: &str) -> Result<(), InvalidHostName> {
    if label.is_empty() {
        return Err(InvalidHostName::EmptyLabel);
    }
    if label.len() > LABEL_MAX {
        return Err(InvalidHostName::LabelTooLong);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match label.chars().find(|&c| !fits(c)) {
        Some('*') => return Err(InvalidHostName::Wildcard),
        Some(other) => return Err(InvalidHostName::Character(other)),
        None => {}
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(InvalidHostName::Hyphen);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_a_labels_without_a_trailing_dot() {
        let cases: &[(&str, Result<&str, InvalidHostName>)] = &[
            ("www.example.com", Ok("www.example.com")),
            ("WWW.Example.COM.", Ok("www.example.com")),
            ("localhost", Ok("localhost")),
            ("xn--bcher-kva.example", Ok("xn--bcher-kva.example")),
            ("Bücher.example", Ok("xn--bcher-kva.example")),
            ("my_service.internal", Ok("my_service.internal")),
            ("3com.example", Ok("3com.example")),
            ("", Err(InvalidHostName::Empty)),
            (".", Err(InvalidHostName::Empty)),
            ("*.example.com", Err(InvalidHostName::Wildcard)),
            ("a..example", Err(InvalidHostName::EmptyLabel)),
            (".example", Err(InvalidHostName::EmptyLabel)),
            ("a b.example", Err(InvalidHostName::Character(' '))),
            ("-a.example", Err(InvalidHostName::Hyphen)),
            ("a-.example", Err(InvalidHostName::Hyphen)),
            ("1.2.3", Err(InvalidHostName::NumericTopLabel)),
        ];
        for (text, expected) in cases {
            let name = HostName::parse(text);
            assert_eq!(name.as_ref().map(HostName::as_str).map_err(|e| *e), *expected, "{text:?}");
        }
        assert_eq!(HostName::parse(&"a".repeat(64)), Err(InvalidHostName::LabelTooLong));
        assert_eq!(HostName::parse(&"a.".repeat(130)), Err(InvalidHostName::TooLong));
    }
}
