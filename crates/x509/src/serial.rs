//! Serial numbers.

use std::fmt;

use serde::{Serialize, Serializer};

/// The content octets of the INTEGER as found on the wire, so it may break RFC 5280 section
/// 4.1.2.2 (zero, negative, too long): a scanner reports such serials, it does not refuse them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SerialNumber(Box<[u8]>);

impl SerialNumber {
    /// Wraps content octets, two's complement, most significant first.
    #[must_use]
    pub fn from_content(octets: &[u8]) -> Self {
        Self(octets.into())
    }

    /// The content octets.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.0
    }

    /// Whether the number is 0 (RFC 5280 section 4.1.2.2 wants it positive).
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&b| b == 0)
    }

    /// Whether the sign bit is set.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.0.first().is_some_and(|b| b & 0x80 != 0)
    }
}

impl fmt::Display for SerialNumber {
    /// Lower-case hexadecimal of the octets, without the leading zero octet of a positive number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets = match &*self.0 {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        octets.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl Serialize for SerialNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
