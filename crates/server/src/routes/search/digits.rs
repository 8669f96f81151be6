//! Prefixes of hexadecimal numbers or hashes, and their byte ranges.

/// Minimum digits of a search prefix. A shorter prefix matches too many numbers.
const DIGITS_MIN: usize = 4;
/// Maximum digits of a search prefix: the digits of a SHA-256 hash.
const DIGITS_MAX: usize = 64;

/// Hexadecimal digits in lower case, without colons.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HexDigits(String);

impl HexDigits {
    /// Parses a text; `None` if it is not a hexadecimal number.
    pub(super) fn of(text: &str) -> Option<Self> {
        let digits = text.replace([':', ' '], "").to_ascii_lowercase();
        let fits = (DIGITS_MIN..=DIGITS_MAX).contains(&digits.len());
        (fits && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(Self(digits))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the range of byte strings that begin with these digits: the first bound is inclusive, the second exclusive.
    pub(super) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.0)
    }

    /// Returns the range for the DER content bytes of serial numbers: a number whose first bit is set has a leading zero byte.
    pub(super) fn serial_range(&self) -> (Vec<u8>, Vec<u8>) {
        if self.0.starts_with(|digit| digit >= '8') { range(&format!("00{}", self.0)) } else { self.range() }
    }
}

fn range(digits: &str) -> (Vec<u8>, Vec<u8>) {
    let value = |digit: u8| (digit as char).to_digit(16).map_or(0, |value| value as u8);
    let values: Vec<u8> = digits.bytes().map(value).collect();
    let packed = |values: &[u8]| -> Vec<u8> {
        values.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect()
    };
    // The smallest byte string after all that begin with these digits. If every digit is `f`, there is none: 33 bytes of 255 are
    // above every hash.
    let mut next = values.clone();
    while next.last() == Some(&15) {
        next.pop();
    }
    let after = match next.last_mut() {
        Some(last) => {
            *last += 1;
            packed(&next)
        }
        None => vec![u8::MAX; 33],
    };
    (packed(&values), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_are_converted_to_byte_ranges() {
        for (digits, low, high) in [
            ("abcd", vec![0xab, 0xcd], vec![0xab, 0xce]),
            ("abcde", vec![0xab, 0xcd, 0xe0], vec![0xab, 0xcd, 0xf0]),
            ("abcdf", vec![0xab, 0xcd, 0xf0], vec![0xab, 0xce]),
            ("AB:FF", vec![0xab, 0xff], vec![0xac]),
            ("ffff", vec![0xff, 0xff], vec![0xff; 33]),
        ] {
            assert_eq!(HexDigits::of(digits).unwrap().range(), (low, high), "{digits}");
        }
        assert_eq!(HexDigits::of("8000").unwrap().serial_range().0, [0, 0x80, 0]);
        assert_eq!(HexDigits::of("7000").unwrap().serial_range().0, [0x70, 0]);
        for text in ["abc", "shop", "0000 g", &"0".repeat(65)] {
            assert_eq!(HexDigits::of(text), None, "{text}");
        }
    }
}
