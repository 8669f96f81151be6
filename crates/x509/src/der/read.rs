//! Parsing of DER.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;

use super::tag;
use crate::UnixTime;

/// Reason why bytes are not the expected DER.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DerError {
    /// The bytes end inside an element.
    #[error("truncated element")]
    Truncated,
    /// The tag number is 31 or above, which X.509 and related formats never use.
    #[error("a tag number above 30 is not supported")]
    HighTag,
    /// Indefinite length (BER), which DER does not permit.
    #[error("an indefinite length is not allowed")]
    Indefinite,
    /// The element has another type than expected.
    #[error("unexpected tag {found:#04x}, expected {expected:#04x}")]
    Unexpected {
        /// The expected identifier byte.
        expected: u8,
        /// The actual identifier byte.
        found: u8,
    },
    /// Number of bytes after the last element.
    #[error("{0} extra bytes")]
    Trailing(usize),
    /// The content is not valid for its type.
    #[error("malformed {0}")]
    Malformed(&'static str),
}

/// One element: identifier, length, content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Element<'a> {
    /// The identifier byte (see [`tag`]).
    pub tag: u8,
    /// The content bytes.
    pub content: &'a [u8],
    /// Identifier, length and content.
    pub whole: &'a [u8],
}

/// A reader of consecutive DER elements. The reader never recurses: to descend, read the content of an element. Lengths that are
/// longer than necessary are accepted; [`first_sloppy_length`] finds them.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader for the consecutive elements in `der`.
    #[must_use]
    pub fn new(der: &'a [u8]) -> Self {
        Self { rest: der }
    }

    /// Returns the bytes that are not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether all bytes are read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the identifier byte of the next element.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads the next element of any type.
    ///
    /// # Errors
    /// [`DerError::Truncated`], also at the end of the input: check [`Self::is_empty`] first.
    pub fn any(&mut self) -> Result<Element<'a>, DerError> {
        let header = Header::read(self.rest)?;
        let end = header.length.checked_add(header.content).ok_or(DerError::Truncated)?;
        let whole = self.rest.get(..end).ok_or(DerError::Truncated)?;
        self.rest = &self.rest[end..];
        Ok(Element { tag: header.tag, content: &whole[header.length..], whole })
    }

    /// Reads the next element, which must have this tag.
    ///
    /// # Errors
    /// [`DerError::Unexpected`] if the tag differs; nothing is consumed then.
    pub fn expect(&mut self, expected: u8) -> Result<Element<'a>, DerError> {
        match self.peek() {
            Some(found) if found != expected => Err(DerError::Unexpected { expected, found }),
            _ => self.any(),
        }
    }

    /// Reads the next element if it has this tag.
    ///
    /// # Errors
    /// If the tag matches and the element is truncated.
    pub fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, DerError> {
        if self.peek() == Some(tag) { self.any().map(Some) } else { Ok(None) }
    }

    /// Returns a reader for the content of the next element, which must be a SEQUENCE.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub fn sequence(&mut self) -> Result<Reader<'a>, DerError> {
        Ok(self.expect(tag::SEQUENCE)?.inside())
    }

    /// Returns a reader for the content of the next element, which must be a SET.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub fn set(&mut self) -> Result<Reader<'a>, DerError> {
        Ok(self.expect(tag::SET)?.inside())
    }

    /// Checks that all bytes are read.
    ///
    /// # Errors
    /// [`DerError::Trailing`] otherwise.
    pub fn end(&self) -> Result<(), DerError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DerError::Trailing(self.rest.len())) }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Element<'a>, DerError>;

    /// Returns the next element. Ends after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.any();
        if element.is_err() {
            self.rest = &[];
        }
        Some(element)
    }
}

impl<'a> Element<'a> {
    /// Returns a reader for the elements in the content.
    #[must_use]
    pub fn inside(&self) -> Reader<'a> {
        Reader::new(self.content)
    }

    /// Returns the value of a BOOLEAN. In DER, true is 255; other values of BER are accepted.
    ///
    /// # Errors
    /// If the content is not one byte.
    pub fn boolean(&self) -> Result<bool, DerError> {
        match self.content {
            [value] => Ok(*value != 0),
            _ => Err(DerError::Malformed("BOOLEAN")),
        }
    }

    /// Returns the value of a small INTEGER or ENUMERATED.
    ///
    /// # Errors
    /// If it is empty or does not fit into 64 bits.
    pub fn integer(&self) -> Result<i64, DerError> {
        let [first, ..] = self.content else {
            return Err(DerError::Malformed("INTEGER"));
        };
        if self.content.len() > 8 {
            return Err(DerError::Malformed("INTEGER"));
        }
        let sign = if first & 0x80 == 0 { 0 } else { -1 };
        Ok(self.content.iter().fold(sign, |value, b| (value << 8) | i64::from(*b)))
    }

    /// Returns the bytes of a BIT STRING, and the number of unused bits at the end.
    ///
    /// # Errors
    /// If the number of unused bits is missing or impossible.
    pub fn bits(&self) -> Result<(&'a [u8], u8), DerError> {
        match self.content {
            [unused @ 0..=7, rest @ ..] if *unused == 0 || !rest.is_empty() => Ok((rest, *unused)),
            _ => Err(DerError::Malformed("BIT STRING")),
        }
    }

    /// Returns the bytes of a BIT STRING without unused bits, such as a key or signature.
    ///
    /// # Errors
    /// If it has unused bits, or is malformed.
    pub fn whole_bits(&self) -> Result<&'a [u8], DerError> {
        match self.bits()? {
            (bytes, 0) => Ok(bytes),
            _ => Err(DerError::Malformed("BIT STRING")),
        }
    }

    /// Returns the text of any string type. Bytes outside the type's alphabet become U+FFFD. TeletexString is read as Latin-1, as
    /// it is used in practice.
    #[must_use]
    pub fn text(&self) -> String {
        match self.tag {
            tag::TELETEX_STRING => self.content.iter().map(|&b| char::from(b)).collect(),
            tag::BMP_STRING => {
                let units = self.content.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]]));
                char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            tag::UNIVERSAL_STRING => {
                let units =
                    self.content.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]));
                units.map(|c| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            _ => String::from_utf8_lossy(self.content).into_owned(),
        }
    }

    /// Returns the time of a UTCTime or GeneralizedTime. As in BER, seconds may be missing and an offset may be given; fractions
    /// are ignored. A UTCTime year below 50 is 20xx (RFC 5280 section 4.1.2.5.1).
    ///
    /// # Errors
    /// If the element has another type, or the date does not exist.
    pub fn time(&self) -> Result<UnixTime, DerError> {
        let year_digits = match self.tag {
            tag::UTC_TIME => 2,
            tag::GENERALIZED_TIME => 4,
            _ => return Err(DerError::Malformed("time")),
        };
        read_time(self.content, year_digits).ok_or(DerError::Malformed("time"))
    }
}

fn read_time(mut text: &[u8], year_digits: usize) -> Option<UnixTime> {
    let mut year = digits(&mut text, year_digits)?;
    if year_digits == 2 {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let month = digits(&mut text, 2)?;
    let day = digits(&mut text, 2)?;
    let hour = digits(&mut text, 2)?;
    let minute = digits(&mut text, 2)?;
    let second = if text.first().is_some_and(u8::is_ascii_digit) { digits(&mut text, 2)? } else { 0 };
    if let [b'.', fraction @ ..] = text {
        let length = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        text = &fraction[length..];
    }
    let moment = UnixTime::from_civil(year, month, day, hour, minute, second)?;
    let sign = match text {
        [b'Z'] => return Some(moment),
        [b'+', ..] => -1,
        [b'-', ..] => 1,
        _ => return None,
    };
    text = &text[1..];
    let offset = digits(&mut text, 2)? * 3600 + digits(&mut text, 2)? * 60;
    text.is_empty().then(|| moment.plus(sign * offset))
}

fn digits(text: &mut &[u8], count: usize) -> Option<i64> {
    let (head, rest) = text.split_at_checked(count)?;
    *text = rest;
    head.iter().try_fold(0, |value, b| b.is_ascii_digit().then(|| value * 10 + i64::from(b - b'0')))
}

struct Header {
    tag: u8,
    /// Bytes of the header: identifier and length.
    length: usize,
    /// Bytes of the content.
    content: usize,
    /// Whether the length has its shortest form.
    minimal: bool,
}

impl Header {
    /// Maximum bytes of an element's length field. Four bytes allow 4 GiB, far more than any supported document.
    const LENGTH_BYTES_MAX: usize = 4;

    fn read(der: &[u8]) -> Result<Self, DerError> {
        let (&tag, &first) = match der {
            [tag, ..] if tag & 0x1f == 0x1f => return Err(DerError::HighTag),
            [tag, first, ..] => (tag, first),
            _ => return Err(DerError::Truncated),
        };
        if first < 0x80 {
            return Ok(Self { tag, length: 2, content: usize::from(first), minimal: true });
        }
        let count = usize::from(first & 0x7f);
        if count == 0 {
            return Err(DerError::Indefinite);
        }
        if count > Self::LENGTH_BYTES_MAX {
            return Err(DerError::Truncated);
        }
        let bytes = der.get(2..2 + count).ok_or(DerError::Truncated)?;
        let content = bytes.iter().fold(0, |length, b| (length << 8) | usize::from(*b));
        let minimal = bytes[0] != 0 && content >= 0x80;
        Ok(Self { tag, length: 2 + count, content, minimal })
    }
}

/// Returns the offset of the first length that is longer than necessary (X.690 section 10.1), including nested elements. A single
/// pass suffices, because headers follow each other in the bytes.
#[must_use]
pub fn first_sloppy_length(der: &[u8]) -> Option<usize> {
    const CONSTRUCTED: u8 = 0x20;
    let mut at = 0;
    while at < der.len() {
        let header = Header::read(&der[at..]).ok()?;
        if !header.minimal {
            return Some(at);
        }
        at += header.length;
        if header.tag & CONSTRUCTED == 0 {
            at += header.content;
        }
    }
    None
}

/// Returns the dotted form of an OBJECT IDENTIFIER's content. Invalid content is returned as `bad:` and hexadecimal digits.
#[must_use]
pub fn oid_text(content: &[u8]) -> String {
    dotted(content).unwrap_or_else(|| format!("bad:{}", HEXLOWER.encode(content)))
}

fn dotted(content: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(content.len() * 3);
    let mut arc: u64 = 0;
    for (index, byte) in content.iter().enumerate() {
        arc = arc.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let root = (arc / 40).min(2);
            let _ = write!(text, "{root}.{}", arc - root * 40);
        } else {
            let _ = write!(text, ".{arc}");
        }
        arc = 0;
        if index + 1 == content.len() {
            return Some(text);
        }
    }
    None
}
