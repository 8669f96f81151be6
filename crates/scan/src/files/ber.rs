//! BER parser (X.690) for PKCS#7 and PKCS#12 files: supports indefinite lengths and constructed strings. The bytes of elements are
//! returned unchanged.

use std::borrow::Cow;

/// Maximum nesting depth of elements. PKCS#12 needs about ten levels; deeper nesting is rejected as an attack.
const DEPTH_MAX: usize = 32;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const BMP_STRING: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const CONTEXT_0: u8 = 0xa0;
const CONSTRUCTED: u8 = 0x20;

/// An element: tag and content, without the end marker of an indefinite length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// Tag, length and content as read.
    pub(super) whole: &'a [u8],
}

/// Iterator over consecutive elements. Ends silently at malformed data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the next element if it has this tag; otherwise consumes nothing.
    pub(super) fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        let (element, rest) = split(self.0, DEPTH_MAX)?;
        if element.tag != tag {
            return None;
        }
        self.0 = rest;
        Some(element)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (element, rest) = split(self.0, DEPTH_MAX)?;
        self.0 = rest;
        Some(element)
    }
}

impl<'a> Element<'a> {
    pub(super) fn inside(&self) -> Elements<'a> {
        Elements(self.content)
    }

    /// Returns the bytes of a primitive or constructed octet string, with any tag.
    pub(super) fn octets(&self) -> Cow<'a, [u8]> {
        if self.tag & CONSTRUCTED == 0 {
            return Cow::Borrowed(self.content);
        }
        let segments = self.inside().filter(|segment| segment.tag == OCTET_STRING);
        Cow::Owned(segments.flat_map(|segment| segment.content.to_vec()).collect())
    }
}

/// Splits off the first element.
fn split(bytes: &[u8], depth: usize) -> Option<(Element<'_>, &[u8])> {
    let (&tag, &first) = (bytes.first()?, bytes.get(1)?);
    // These formats have no multi-byte tags.
    if tag & 0x1f == 0x1f {
        return None;
    }
    match first {
        0x80 => split_indefinite(tag, bytes, depth),
        0..0x80 => split_definite(tag, bytes, 2, first.into()),
        _ => {
            let count = usize::from(first & 0x7f);
            let octets = bytes.get(2..2 + count).filter(|_| count <= 4)?;
            let length = octets.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
            split_definite(tag, bytes, 2 + count, length)
        }
    }
}

fn split_definite(tag: u8, bytes: &[u8], header: usize, length: usize) -> Option<(Element<'_>, &[u8])> {
    let end = header.checked_add(length)?;
    let content = bytes.get(header..end)?;
    Some((Element { tag, content, whole: &bytes[..end] }, &bytes[end..]))
}

/// Splits an element of indefinite length: its content ends at the end marker, two zero bytes in place of an element.
fn split_indefinite(tag: u8, bytes: &[u8], depth: usize) -> Option<(Element<'_>, &[u8])> {
    let depth = depth.checked_sub(1).filter(|_| tag & CONSTRUCTED != 0)?;
    let mut rest = &bytes[2..];
    while !rest.starts_with(&[0, 0]) {
        (_, rest) = split(rest, depth)?;
    }
    let end = bytes.len() - rest.len();
    let whole = &bytes[..end + 2];
    Some((Element { tag, content: &bytes[2..end], whole }, &rest[2..]))
}

/// Encodes an element as DER.
pub(super) fn write(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let length: usize = contents.iter().map(|content| content.len()).sum();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let octets = length.to_be_bytes();
        let octets = &octets[octets.iter().take_while(|&&byte| byte == 0).count()..];
        out.push(0x80 | octets.len() as u8);
        out.extend_from_slice(octets);
    }
    contents.iter().for_each(|content| out.extend_from_slice(content));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn indefinite_lengths_and_constructed_strings_are_parsed() {
        let bytes = b"\x30\x80\x24\x80\x04\x02ab\x04\x01c\0\0\x02\x01\x05\0\0\x05\0";
        let mut elements = Elements::new(bytes);
        let sequence = elements.next().unwrap();
        assert_eq!(sequence.whole, &bytes[..bytes.len() - 2]);
        let inside: Vec<_> = sequence.inside().collect();
        assert_eq!(inside[0].octets().as_ref(), b"abc");
        assert_eq!((inside[1].tag, inside[1].content), (INTEGER, &b"\x05"[..]));
        assert_eq!(elements.next().map(|e| e.tag), Some(5));
    }

    #[test]
    fn nesting_is_limited_and_truncated_elements_are_ignored() {
        let deep = [0x30, 0x80].repeat(100_000);
        assert_eq!(Elements::new(&deep).next(), None);
        for cut in [&b"\x30"[..], b"\x30\x05\x01", b"\x30\x84\xff\xff\xff\xff", b"\x04\x80\0\0"] {
            assert_eq!(Elements::new(cut).next(), None, "{cut:x?}");
        }
    }

    proptest! {
        #[test]
        fn written_elements_are_parsed_back(tag in 1_u8..31, content in proptest::collection::vec(any::<u8>(), 0..70_000)) {
            let bytes = write(tag, &[&content]);
            let element = Elements::new(&bytes).next().unwrap();
            prop_assert_eq!((element.tag, element.content, element.whole), (tag, &content[..], &bytes[..]));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for element in Elements::new(&bytes) {
                let _ = element.octets();
            }
        }
    }
}
