//! Reads and writes the presentation language of RFC 8446 section 3.

/// Reader of big-endian integers and length-prefixed vectors. Its methods return `None` when the input ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u24(&mut self) -> Option<usize> {
        self.array().map(|[a, b, c]| usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
    }

    /// Reads a vector of up to 2^8-1 bytes.
    pub(super) fn vec8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    /// Reads a vector of up to 2^16-1 bytes.
    pub(super) fn vec16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// Reads a vector of up to 2^24-1 bytes.
    pub(super) fn vec24(&mut self) -> Option<&'a [u8]> {
        let length = self.u24()?;
        self.take(length)
    }

    /// Reads an `Extension` (RFC 8446 section 4.2): its type and its data.
    pub(super) fn extension(&mut self) -> Option<(u16, Cursor<'a>)> {
        let kind = self.u16()?;
        Some((kind, Cursor::new(self.vec16()?)))
    }
}

/// Appends a 16-bit integer.
pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a vector with an 8-bit length. All vectors written here are far shorter; a longer one would make the message invalid,
/// without a panic.
pub(super) fn put_vec8(out: &mut Vec<u8>, content: &[u8]) {
    out.push(u8::try_from(content.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(content);
}

/// Appends what `write` writes, with a 16-bit length prefix.
pub(super) fn put_vec16(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    write(out);
    let length = out.len() - at - 2;
    set_u16(out, at, length);
}

/// Appends an extension.
pub(super) fn put_extension(out: &mut Vec<u8>, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
    put_u16(out, kind);
    put_vec16(out, write);
}

/// Overwrites the 16-bit integer at `at`.
pub(super) fn set_u16(out: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes();
    out[at..at + 2].copy_from_slice(&value);
}
