//! Parsing, display and comparison of distinguished names.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;

use crate::der::{self, DerError, Element, Reader, tag};
use crate::{DistinguishedName, oid};

/// Maximum attributes of a name. Real names have less than a dozen.
const ATTRIBUTES_MAX: usize = 128;

impl DistinguishedName {
    /// Parses a DER `Name` (RFC 5280 section 4.1.2.4).
    ///
    /// # Errors
    /// If it is not a SEQUENCE OF SET OF attributes.
    pub fn parse(der: &[u8]) -> Result<Self, DerError> {
        let mut name = Self { der: der.into(), ..Self::default() };
        let mut relative = Vec::new();
        let mut left = ATTRIBUTES_MAX;
        for set in Reader::new(der).sequence()? {
            let mut text = String::new();
            for attribute in set?.inside() {
                left = left.checked_sub(1).ok_or(DerError::Malformed("name: too many attributes"))?;
                name.take_attribute(attribute?, &mut text)?;
            }
            relative.push(text);
        }
        relative.reverse();
        name.text = relative.join(", ");
        Ok(name)
    }

    fn take_attribute(&mut self, attribute: Element<'_>, text: &mut String) -> Result<(), DerError> {
        let mut parts = attribute.inside();
        let kind = parts.expect(tag::OID)?.content;
        let value = parts.any()?;
        if !text.is_empty() {
            text.push('+');
        }
        match short_name(kind) {
            Some(short) => text.push_str(short),
            None => text.push_str(&der::oid_text(kind)),
        }
        text.push('=');
        if !is_string(value.tag) {
            text.push('#');
            HEXLOWER.encode_append(value.whole, text);
            return Ok(());
        }
        let string = value.text();
        push_escaped(text, &string);
        if kind == oid::COMMON_NAME {
            self.common_names.push(string);
        } else if kind == oid::ORGANIZATION && self.organization.is_none() {
            self.organization = Some(string);
        }
        Ok(())
    }

    /// Returns whether the name has no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Reader::new(&self.der).sequence().is_ok_and(|name| name.is_empty())
    }

    /// Returns the number of attributes of any type.
    #[must_use]
    pub fn attribute_count(&self) -> usize {
        let Ok(name) = Reader::new(&self.der).sequence() else { return 0 };
        name.flatten().map(|set| set.inside().flatten().count()).sum()
    }

    /// Compares two names by the rules of RFC 5280 section 7.1: string types, case of ASCII letters and repeated spaces are
    /// ignored.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        // Issuers usually copy names byte by byte, and different names usually differ early.
        self.der == other.der || (self.may_match(other) && self.folded() == other.folded())
    }

    /// Compares without allocation. May return true for different names, but never false for matching ones.
    fn may_match(&self, other: &Self) -> bool {
        fn letters(text: &str) -> impl Iterator<Item = u8> {
            let significant = |b: &u8| !b.is_ascii_whitespace() && *b != b'\\';
            text.bytes().filter(significant).map(|b| b.to_ascii_lowercase())
        }
        // The order within a multi-valued relative distinguished name does not matter either.
        self.text.contains('+') || letters(&self.text).eq(letters(&other.text))
    }

    /// Returns the name in a normalised form that is equal for names that match.
    #[must_use]
    pub(crate) fn folded(&self) -> Vec<u8> {
        fold_name(&self.der).concat()
    }
}

/// Returns the relative distinguished names of a DER `Name`, each normalised so that equal ones have equal bytes.
pub(crate) fn fold_name(der: &[u8]) -> Vec<Vec<u8>> {
    let Ok(name) = Reader::new(der).sequence() else {
        return vec![der.to_vec()];
    };
    let fold_set = |set: Element<'_>| {
        let mut attributes: Vec<Vec<u8>> = set.inside().flatten().map(fold_attribute).collect();
        attributes.sort();
        // Each part has a length prefix, so that adjacent parts cannot be confused.
        let mut out = der::write(|w| {
            w.element(tag::SET, &attributes.concat());
        });
        out.shrink_to_fit();
        out
    };
    name.flatten().map(fold_set).collect()
}

fn fold_attribute(attribute: Element<'_>) -> Vec<u8> {
    let mut parts = attribute.inside();
    let (Ok(kind), Ok(value)) = (parts.any(), parts.any()) else {
        return attribute.whole.to_vec();
    };
    if !is_string(value.tag) {
        return attribute.whole.to_vec();
    }
    let text = value.text();
    let folded: Vec<String> = text.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
    der::write(|w| {
        w.raw(kind.whole).utf8(&folded.join(" "));
    })
}

fn is_string(tag: u8) -> bool {
    matches!(
        tag,
        tag::UTF8_STRING
            | tag::NUMERIC_STRING
            | tag::PRINTABLE_STRING
            | tag::TELETEX_STRING
            | tag::IA5_STRING
            | tag::VISIBLE_STRING
            | tag::UNIVERSAL_STRING
            | tag::BMP_STRING
    )
}

/// Returns the short name by RFC 4514 section 3, or the name that OpenSSL prints.
fn short_name(kind: &[u8]) -> Option<&'static str> {
    if let Some([attribute]) = kind.strip_prefix(oid::AT) {
        return Some(match attribute {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "STREET",
            10 => "O",
            11 => "OU",
            12 => "title",
            15 => "businessCategory",
            17 => "postalCode",
            42 => "GN",
            46 => "dnQualifier",
            65 => "pseudonym",
            97 => "organizationIdentifier",
            _ => return None,
        });
    }
    match kind {
        oid::EMAIL_ADDRESS => Some("emailAddress"),
        oid::DOMAIN_COMPONENT => Some("DC"),
        oid::USER_ID => Some("UID"),
        _ => None,
    }
}

/// Applies the escapes of RFC 4514 section 2.4. Also escapes control characters, so that a name cannot control the terminal on
/// which it is shown.
fn push_escaped(out: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', character]),
            '#' if index == 0 => out.push_str("\\#"),
            ' ' if index == 0 || index == last => out.push_str("\\ "),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for b in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(out, "\\{b:02X}");
                }
            }
            c => out.push(c),
        }
    }
}
