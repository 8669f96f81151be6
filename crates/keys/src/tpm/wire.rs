//! Structures of TPM 2.0 (Part 2): big-endian numbers, and buffers with a length prefix (TPM2B).

use zeroize::Zeroizing;

/// Bytes for a TPM. Wiped when dropped, because they may contain a secret.
#[derive(Default)]
pub(super) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        // A vector that grows leaves copies of the secret behind.
        if self.0.capacity() - self.0.len() < bytes.len() {
            let mut larger = Zeroizing::new(Vec::with_capacity((self.0.len() + bytes.len()).max(512) * 2));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a TPM2B. All values here are far below 64 KiB.
    pub(super) fn sized(&mut self, bytes: &[u8]) -> &mut Self {
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX)).bytes(bytes)
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Reader of a TPM's response. Its methods return `None` if the data ends too early.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.bytes(count.into())
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }
}
