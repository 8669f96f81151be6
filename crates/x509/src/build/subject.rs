//! Distinguished names, built from attributes or from text.

use std::fmt;
use std::str::FromStr;

use crate::der::{self, Element, Reader, tag};
use crate::{DistinguishedName, oid};

/// Type of an attribute of a name (RFC 5280 section 4.1.2.4, RFC 4519).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Attribute {
    /// commonName, `CN`
    CommonName,
    /// surname, `SN`
    Surname,
    /// serialNumber of the subject, not of the certificate
    SerialNumber,
    /// countryName, `C`: two letters
    Country,
    /// localityName, `L`
    Locality,
    /// stateOrProvinceName, `ST`
    State,
    /// streetAddress, `STREET`
    Street,
    /// organizationName, `O`
    Organization,
    /// organizationalUnitName, `OU`
    OrganizationalUnit,
    /// title
    Title,
    /// businessCategory
    BusinessCategory,
    /// postalCode
    PostalCode,
    /// givenName, `GN`
    GivenName,
    /// dnQualifier
    DnQualifier,
    /// pseudonym
    Pseudonym,
    /// organizationIdentifier
    OrganizationIdentifier,
    /// emailAddress of PKCS #9
    Email,
    /// domainComponent, `DC`
    DomainComponent,
    /// userId, `UID`
    UserId,
}

use Attribute as A;

/// Each attribute with its short name and the content bytes of its object identifier.
const ATTRIBUTES: &[(Attribute, &str, &[u8])] = &[
    (A::CommonName, "CN", oid::COMMON_NAME),
    (A::Surname, "SN", &[0x55, 4, 4]),
    (A::SerialNumber, "serialNumber", &[0x55, 4, 5]),
    (A::Country, "C", &[0x55, 4, 6]),
    (A::Locality, "L", &[0x55, 4, 7]),
    (A::State, "ST", &[0x55, 4, 8]),
    (A::Street, "STREET", &[0x55, 4, 9]),
    (A::Organization, "O", oid::ORGANIZATION),
    (A::OrganizationalUnit, "OU", &[0x55, 4, 11]),
    (A::Title, "title", &[0x55, 4, 12]),
    (A::BusinessCategory, "businessCategory", &[0x55, 4, 15]),
    (A::PostalCode, "postalCode", &[0x55, 4, 17]),
    (A::GivenName, "GN", &[0x55, 4, 42]),
    (A::DnQualifier, "dnQualifier", &[0x55, 4, 46]),
    (A::Pseudonym, "pseudonym", &[0x55, 4, 65]),
    (A::OrganizationIdentifier, "organizationIdentifier", &[0x55, 4, 97]),
    (A::Email, "emailAddress", oid::EMAIL_ADDRESS),
    (A::DomainComponent, "DC", oid::DOMAIN_COMPONENT),
    (A::UserId, "UID", oid::USER_ID),
];

/// Other names of the attributes, as in OpenSSL and RFC 4519.
const ALIASES: &[(&str, Attribute)] = &[
    ("commonName", A::CommonName),
    ("surname", A::Surname),
    ("countryName", A::Country),
    ("country", A::Country),
    ("localityName", A::Locality),
    ("locality", A::Locality),
    ("stateOrProvinceName", A::State),
    ("state", A::State),
    ("S", A::State),
    ("streetAddress", A::Street),
    ("organizationName", A::Organization),
    ("organization", A::Organization),
    ("organizationalUnitName", A::OrganizationalUnit),
    ("organizationalUnit", A::OrganizationalUnit),
    ("givenName", A::GivenName),
    ("email", A::Email),
    ("E", A::Email),
    ("domainComponent", A::DomainComponent),
    ("userId", A::UserId),
];

/// Reason why the text is not a distinguished name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSubject {
    /// The attribute is unknown.
    #[error("{0:?} is not an attribute of a distinguished name; use CN, O, OU, C, ST, L and so on")]
    Attribute(String),
    /// The text is not of the form `KEY=value`.
    #[error("{0:?} is not of the form KEY=value")]
    Pair(String),
    /// RFC 4514 does not define this escape.
    #[error(
        "{0:?} has an invalid escape: a backslash must precede a special character or two hexadecimal digits"
    )]
    Escape(String),
    /// A relative distinguished name has several attributes, which is not supported.
    #[error("attributes joined by a plus sign are not supported; write \\+ for the sign itself")]
    MultiValued,
    /// The text is longer than [`DistinguishedName::TEXT_MAX`] bytes.
    #[error("a distinguished name may have at most {max} bytes of text", max = DistinguishedName::TEXT_MAX)]
    TooLong,
}

impl Attribute {
    /// Returns the name of the attribute in a distinguished name, such as `CN`.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> &'static (Attribute, &'static str, &'static [u8]) {
        // A test checks that the table has a row for each attribute; the fallback is never used.
        ATTRIBUTES.iter().find(|row| row.0 == self).unwrap_or(&ATTRIBUTES[0])
    }

    fn of_oid(content: &[u8]) -> Option<Self> {
        ATTRIBUTES.iter().find(|row| row.2 == content).map(|row| row.0)
    }

    /// Returns the string type that RFC 5280 appendix A requires. UTF8String if the RFC allows a choice.
    fn string_tag(self, value: &str) -> u8 {
        let printable = |b: u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b);
        match self {
            A::Country | A::SerialNumber | A::DnQualifier if value.bytes().all(printable) => {
                tag::PRINTABLE_STRING
            }
            A::Email | A::DomainComponent if value.is_ascii() => tag::IA5_STRING,
            _ => tag::UTF8_STRING,
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short_name())
    }
}

impl FromStr for Attribute {
    type Err = BadSubject;

    /// Parses the name of an attribute, such as `CN` or the OpenSSL long name `commonName`. Case is ignored.
    fn from_str(text: &str) -> Result<Self, BadSubject> {
        let short = ATTRIBUTES.iter().find(|row| row.1.eq_ignore_ascii_case(text)).map(|row| row.0);
        let alias = || ALIASES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|row| row.1);
        short.or_else(alias).ok_or_else(|| BadSubject::Attribute(text.to_owned()))
    }
}

/// Builds a name from attributes in DER order. By convention the most general attribute (country) comes first;
/// [`DistinguishedName::text`] shows the reverse order.
#[must_use]
pub fn distinguished_name(attributes: &[(Attribute, String)]) -> DistinguishedName {
    let der = der::write(|w| {
        w.sequence(|w| {
            for (attribute, value) in attributes {
                w.set(|w| {
                    w.sequence(|w| {
                        w.element(tag::OID, attribute.row().2)
                            .element(attribute.string_tag(value), value.as_bytes());
                    });
                });
            }
        });
    });
    DistinguishedName::parse(&der)
        .unwrap_or_else(|_| DistinguishedName { der: der.into(), ..Default::default() })
}

impl DistinguishedName {
    /// Maximum bytes of text that [`Self::from_text`] accepts.
    pub const TEXT_MAX: usize = 8_192;

    /// Returns the empty name, which has no attributes.
    #[must_use]
    pub fn empty() -> Self {
        distinguished_name(&[])
    }

    /// Parses `CN=a, O=b, C=DE`: most specific first, with the escapes of RFC 4514 section 2.4. [`Self::text`] of a name that this
    /// module built parses to the same name. Empty text is the empty name.
    ///
    /// # Errors
    /// [`BadSubject`] describes what is wrong with the text.
    pub fn from_text(text: &str) -> Result<Self, BadSubject> {
        if text.len() > Self::TEXT_MAX {
            return Err(BadSubject::TooLong);
        }
        let mut attributes = Vec::new();
        let mut rest = text.trim_start_matches(' ');
        while !rest.is_empty() {
            let (kind, after) = rest.split_once('=').ok_or_else(|| BadSubject::Pair(rest.to_owned()))?;
            let attribute = kind.trim().parse::<Attribute>()?;
            let (value, after) = value(after)?;
            if value.is_empty() {
                return Err(BadSubject::Pair(rest.to_owned()));
            }
            attributes.push((attribute, value));
            rest = after;
        }
        attributes.reverse();
        Ok(distinguished_name(&attributes))
    }

    /// Returns a copy of the name whose common names are replaced by `text`.
    #[must_use]
    pub fn with_common_name(&self, text: &str) -> Self {
        let Ok(sets) = Reader::new(&self.der).sequence() else { return self.clone() };
        let attribute = |found: &Element<'_>| {
            let named = found.inside().expect(tag::OID).is_ok_and(|oid| oid.content == oid::COMMON_NAME);
            if !named {
                return found.whole.to_vec();
            }
            der::write(|w| {
                w.sequence(|w| {
                    w.element(tag::OID, oid::COMMON_NAME);
                    w.element(A::CommonName.string_tag(text), text.as_bytes());
                });
            })
        };
        let der = der::write(|w| {
            w.sequence(|w| {
                for set in sets.flatten() {
                    let mut attributes: Vec<Vec<u8>> =
                        set.inside().flatten().map(|found| attribute(&found)).collect();
                    // DER sorts the elements of a set (X.690 section 11.6).
                    attributes.sort();
                    w.element(tag::SET, &attributes.concat());
                }
            });
        });
        Self::parse(&der).unwrap_or_else(|_| self.clone())
    }

    /// Returns the attributes whose type is an [`Attribute`], in DER order.
    #[must_use]
    pub fn attributes(&self) -> Vec<(Attribute, String)> {
        let Ok(name) = Reader::new(&self.der).sequence() else {
            return Vec::new();
        };
        let attributes = name.flatten().flat_map(|set| set.inside().flatten());
        let read = attributes.filter_map(|attribute| {
            let mut parts = attribute.inside();
            let kind = Attribute::of_oid(parts.expect(tag::OID).ok()?.content)?;
            Some((kind, parts.any().ok()?.text()))
        });
        read.collect()
    }
}

/// Parses the value at the start of `text`. Also returns the text after the comma that follows it.
fn value(text: &str) -> Result<(String, &str), BadSubject> {
    let escape = || BadSubject::Escape(text.to_owned());
    let text = text.trim_start_matches(' ');
    let mut out: Vec<u8> = Vec::new();
    // Trailing spaces before the separator are dropped, unless escaped.
    let mut trimmed_len = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b',' | b';' => {
                let rest = text[at..].trim_start_matches(' ');
                if rest.is_empty() {
                    return Err(BadSubject::Pair(text.to_owned()));
                }
                return finish(out, trimmed_len, rest).ok_or_else(escape);
            }
            b'+' => return Err(BadSubject::MultiValued),
            b'\\' => {
                let hex = bytes.get(at..at + 2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
                let hex = hex.and_then(|pair| std::str::from_utf8(pair).ok());
                match (hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()), bytes.get(at)) {
                    (Some(decoded), _) => {
                        out.push(decoded);
                        at += 2;
                    }
                    (None, Some(&special)) if b" \"#+,;<=>\\".contains(&special) => {
                        out.push(special);
                        at += 1;
                    }
                    _ => return Err(escape()),
                }
                trimmed_len = out.len();
            }
            b' ' => out.push(b' '),
            other => {
                out.push(other);
                trimmed_len = out.len();
            }
        }
    }
    finish(out, trimmed_len, "").ok_or_else(escape)
}

fn finish(mut out: Vec<u8>, trimmed_len: usize, rest: &str) -> Option<(String, &str)> {
    out.truncate(trimmed_len);
    String::from_utf8(out).ok().map(|value| (value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_short_names_are_written_and_parsed_back() {
        for (attribute, short, _) in ATTRIBUTES {
            assert_eq!(short.parse::<Attribute>().as_ref(), Ok(attribute));
            let name = distinguished_name(&[(*attribute, "DE".to_owned())]);
            assert_eq!(name.text, format!("{short}=DE"));
            assert_eq!(name.attributes(), [(*attribute, "DE".to_owned())]);
        }
    }

    #[test]
    fn distinguished_name_text_is_parsed_most_specific_first() {
        let name = DistinguishedName::from_text("CN=a.example,O=Acme\\, Inc ; C = DE").unwrap();
        assert_eq!(name.text, "CN=a.example, O=Acme\\, Inc, C=DE");
        let kinds: Vec<_> = name.attributes().into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [A::Country, A::Organization, A::CommonName]);
        assert_eq!(DistinguishedName::from_text("").unwrap(), DistinguishedName::empty());
        assert!(DistinguishedName::empty().is_empty());
        let escaped = DistinguishedName::from_text("CN=\\C3\\BC\\20\\ \\#, O=\u{fc}").unwrap();
        assert_eq!(escaped.common_names, ["ü  #"]);
    }

    #[test]
    fn replacing_the_common_name_keeps_all_other_attributes() {
        let name = DistinguishedName::from_text("CN=WWW.A.Example, O=Acme\\, Inc, C=DE").unwrap();
        let lower = name.with_common_name("www.a.example");
        assert_eq!(lower, DistinguishedName::from_text("CN=www.a.example, O=Acme\\, Inc, C=DE").unwrap());
        assert_eq!(DistinguishedName::empty().with_common_name("a"), DistinguishedName::empty());
    }

    #[test]
    fn invalid_distinguished_names_are_rejected() {
        for text in ["CN", "CN=", "=a", "XX=a", "CN=a,", "CN=a\\", "CN=a\\q", "CN=a+O=b", "CN=\\ff"] {
            assert!(DistinguishedName::from_text(text).is_err(), "{text}");
        }
    }
}
