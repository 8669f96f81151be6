//! Host names in DNS wire format.

use std::fmt;

use super::ResolveError;

/// Longest label in bytes (RFC 1035 section 2.3.4).
const LABEL_MAX: usize = 63;
/// Longest name with its length bytes and the root label (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 255;

/// A fully qualified name: length-prefixed labels in lower case, ended by the empty label.
#[derive(Clone, Eq, Hash, PartialEq)]
pub(crate) struct WireName(Box<[u8]>);

impl WireName {
    /// Parses `a.example` or `a.example.`: letters, digits, hyphens and underscores. Internationalized names must be A-labels.
    pub(crate) fn parse(text: &str) -> Result<Self, ResolveError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.split('.') {
            push_label(&mut wire, label.as_bytes())?;
        }
        Self::from_wire(wire)
    }

    /// Returns this name with the labels of `suffix` appended.
    pub(crate) fn within(&self, suffix: &Self) -> Result<Self, ResolveError> {
        let mut wire = self.0[..self.0.len() - 1].to_vec();
        wire.extend_from_slice(&suffix.0[..suffix.0.len() - 1]);
        Self::from_wire(wire)
    }

    /// Converts a name from a response, in which labels may contain any byte.
    pub(crate) fn from_answer(name: &hickory_proto::rr::Name) -> Self {
        let mut wire = Vec::with_capacity(name.len() + 1);
        for label in name.iter() {
            // The parser rejects labels longer than 63 bytes and names longer than 255.
            wire.push(label.len() as u8);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        wire.push(0);
        Self(wire.into())
    }

    fn from_wire(mut wire: Vec<u8>) -> Result<Self, ResolveError> {
        wire.push(0);
        if wire.len() > NAME_MAX {
            return Err(ResolveError::BadName);
        }
        Ok(Self(wire.into()))
    }

    pub(crate) fn wire(&self) -> &[u8] {
        &self.0
    }

    fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (&length, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(length.into())?;
            rest = after;
            (length > 0).then_some(label)
        })
    }

    pub(crate) fn dots(&self) -> usize {
        self.labels().count().saturating_sub(1)
    }

    /// Returns whether this name is `zone` or below it.
    pub(crate) fn is_in(&self, zone: &Self) -> bool {
        let mut rest: &[u8] = &self.0;
        loop {
            if rest == &*zone.0 {
                return true;
            }
            let Some((&length, after)) = rest.split_first() else { return false };
            let Some((_, after)) = after.split_at_checked(length.into()) else { return false };
            rest = after;
        }
    }

    /// Returns whether the name is `localhost` or below it (RFC 6761 section 6.3).
    pub(crate) fn is_localhost(&self) -> bool {
        self.labels().last() == Some(b"localhost")
    }
}

fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), ResolveError> {
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if label.is_empty() || label.len() > LABEL_MAX || !label.iter().all(known) {
        return Err(ResolveError::BadName);
    }
    wire.push(label.len() as u8); // at most LABEL_MAX
    wire.extend(label.iter().map(u8::to_ascii_lowercase));
    Ok(())
}

impl fmt::Display for WireName {
    /// Formats the name without the trailing dot. Bytes that are not printable ASCII, and dots in labels, become `\DDD` (RFC 1035
    /// section 5.1), so that a malicious response cannot send control characters to a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, label) in self.labels().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            for &byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Name;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dns_names_are_parsed_or_rejected() {
        let long_label = "a".repeat(64);
        let long_name = ["a"; 128].join(".");
        let longest = ["a"; 127].join(".");
        let table: &[(&str, Option<&str>)] = &[
            ("A.Example.", Some("a.example")),
            ("_smtp._tcp.xn--bcher-kva.example", Some("_smtp._tcp.xn--bcher-kva.example")),
            (&longest, Some(&longest)),
            ("", None),
            (".", None),
            ("a..example", None),
            ("*.example", None),
            ("bücher.example", None),
            ("a b", None),
            (&long_label, None),
            (&long_name, None),
        ];
        for (text, expected) in table {
            let read = WireName::parse(text).map(|name| name.to_string());
            assert_eq!(read.ok().as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn localhost_and_its_subdomains_are_recognized() {
        for (name, expected) in [("localhost", true), ("a.LocalHost.", true), ("localhost.example", false)] {
            assert_eq!(WireName::parse(name).unwrap().is_localhost(), expected, "{name}");
        }
    }

    #[test]
    fn control_characters_in_answer_names_are_escaped() {
        let name = Name::from_labels([&b"a\x1b[2J"[..], b"b.c"]).unwrap();
        assert_eq!(WireName::from_answer(&name).to_string(), r"a\027[2j.b\.c");
    }

    proptest! {
        #[test]
        fn names_parse_equally_from_text_and_from_an_answer(
            text in "[a-z0-9_]([a-z0-9_-]{0,18}[a-z0-9])?(\\.[a-z0-9]{1,20}){0,5}"
        ) {
            let ours = WireName::parse(&text).unwrap();
            let theirs = WireName::from_answer(&Name::from_ascii(format!("{text}.")).unwrap());
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(ours.to_string(), text);
        }
    }
}
