//! Serial numbers of certificates.

use std::fmt;

use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A serial number, stored as the content bytes of its INTEGER. It may break RFC 5280 section 4.1.2.2 (zero, negative, too long),
/// because a scanner reports such serial numbers instead of rejecting them.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SerialNumber(Box<[u8]>);

impl SerialNumber {
    /// Creates a serial number from content bytes: two's complement, most significant byte first.
    #[must_use]
    pub fn from_content(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the content bytes.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.0
    }

    /// Returns the content bytes in their shortest form (X.690 section 8.3.2). Two serial numbers are equal as numbers if their
    /// shortest forms are equal.
    #[must_use]
    pub fn shortest(&self) -> &[u8] {
        let mut bytes = &*self.0;
        while let [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] = bytes {
            bytes = &bytes[1..];
        }
        bytes
    }

    /// Compares two serial numbers as numbers, as for lookups of revoked certificates (RFC 5280 section 5.1.2.6).
    #[must_use]
    pub fn is_number(&self, other: &Self) -> bool {
        self.shortest() == other.shortest()
    }

    /// Returns the number if it is not negative and fits into 64 bits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let significant = self.0.iter().skip_while(|&&b| b == 0).count();
        if self.is_negative() || self.0.is_empty() || significant > 8 {
            return None;
        }
        Some(self.0.iter().fold(0, |value, b| (value << 8) | u64::from(*b)))
    }

    /// Returns whether the number is 0. RFC 5280 section 4.1.2.2 requires a positive number.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&b| b == 0)
    }

    /// Returns whether the sign bit is set.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.0.first().is_some_and(|b| b & 0x80 != 0)
    }
}

/// Error for text that is not 1 to 64 hexadecimal digits. Colons between digits are allowed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a serial number: expected 1 to 64 hexadecimal digits")]
pub struct InvalidSerialNumber(String);

impl FromStr for SerialNumber {
    type Err = InvalidSerialNumber;

    /// Parses the displayed form. The number is positive, so a zero byte is added before a high bit.
    fn from_str(text: &str) -> Result<Self, InvalidSerialNumber> {
        let mut digits = text.replace(':', "");
        if digits.len() % 2 == 1 {
            digits.insert(0, '0');
        }
        let bytes = HEXLOWER_PERMISSIVE
            .decode(digits.as_bytes())
            .ok()
            .filter(|bytes| (1..=32).contains(&bytes.len()));
        let mut bytes = bytes.ok_or_else(|| InvalidSerialNumber(text.chars().take(80).collect()))?;
        let zeros = bytes.iter().take_while(|&&b| b == 0).count().min(bytes.len() - 1);
        bytes.drain(..zeros);
        if bytes[0] & 0x80 != 0 {
            bytes.insert(0, 0);
        }
        Ok(Self(bytes.into()))
    }
}

impl<'de> Deserialize<'de> for SerialNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for SerialNumber {
    /// Writes the bytes in lower-case hexadecimal, without the leading zero byte of a positive number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match &*self.0 {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        HEXLOWER.encode_write(bytes, f)
    }
}

impl Serialize for SerialNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_compared_numerically() {
        let table: [(&[u8], &[u8], bool); 9] = [
            (&[0x7f], &[0, 0, 0x7f], true),
            (&[0, 0x80], &[0, 0, 0x80], true),
            (&[0x80], &[0, 0x80], false),
            (&[0x80], &[0xff, 0x80], true),
            (&[0xff], &[0xff, 0xff], true),
            (&[0], &[0, 0], true),
            (&[], &[0], false),
            (&[1], &[1, 0], false),
            (&[0x12, 0x34], &[0x23, 0x4f], false),
        ];
        for (left, right, same) in table {
            let (left, right) = (SerialNumber::from_content(left), SerialNumber::from_content(right));
            assert_eq!(left.is_number(&right), same, "{left:?} {right:?}");
            assert_eq!(right.is_number(&left), same, "{left:?} {right:?}");
        }
    }
}
