//! The content of an age file: pieces of 64 KiB. The nonce of each piece contains the number of the piece, and a mark if it is the
//! last one.

use std::fmt;
use std::io::{self, Read, Write};

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use zeroize::Zeroizing;

use super::error::AgeError;
use super::header::{FILE_KEY, cipher, derived};
use crate::random::random;

/// Bytes of a piece before encryption.
const CHUNK: usize = 64 * 1024;
const TAG: usize = 16;
const NONCE: usize = 16;

fn nonce(number: u64, last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(last);
    Nonce::assume_unique_for_key(nonce)
}

fn content_key(file_key: &[u8; FILE_KEY], nonce: &[u8; NONCE]) -> LessSafeKey {
    cipher(&derived(file_key, nonce, b"payload"))
}

/// Writer that encrypts. A file is truncated, and cannot be opened, until [`Self::finish`] was called.
pub struct AgeWriter<W> {
    out: W,
    key: LessSafeKey,
    chunk: Zeroizing<Vec<u8>>,
    number: u64,
}

impl<W: Write> AgeWriter<W> {
    pub(super) fn new(mut out: W, file_key: &[u8; FILE_KEY]) -> Result<Self, AgeError> {
        let nonce = random::<NONCE>();
        out.write_all(&*nonce)?;
        let key = content_key(file_key, &nonce);
        Ok(Self { out, key, chunk: Zeroizing::new(Vec::with_capacity(CHUNK + TAG)), number: 0 })
    }

    /// Writes the last piece, and returns the inner writer.
    ///
    /// # Errors
    /// Write errors of the inner writer.
    pub fn finish(mut self) -> Result<W, AgeError> {
        self.put(true)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, last: bool) -> io::Result<()> {
        let sealed =
            self.key.seal_in_place_append_tag(nonce(self.number, last), Aad::empty(), &mut *self.chunk);
        sealed.map_err(|_| io::Error::other("cannot encrypt the content"))?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.number += 1;
        Ok(())
    }
}

impl<W: Write> Write for AgeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full piece is written only when more data follows, because the last piece is marked.
        if self.chunk.len() == CHUNK && !bytes.is_empty() {
            self.put(false)?;
        }
        let taken = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reader that decrypts. It returns the data of a piece only after the piece was authenticated. Its I/O errors wrap an
/// [`AgeError`].
pub struct AgeReader<R> {
    from: R,
    key: LessSafeKey,
    /// Ciphertext that is not decrypted yet: one piece and the first byte of the next.
    ahead: Vec<u8>,
    chunk: Zeroizing<Vec<u8>>,
    at: usize,
    number: u64,
    given: u64,
    ended: bool,
}

impl<R: Read> AgeReader<R> {
    pub(super) fn new(mut from: R, file_key: &[u8; FILE_KEY]) -> Result<Self, AgeError> {
        let mut nonce = [0; NONCE];
        from.read_exact(&mut nonce).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => AgeError::Changed(0),
            _ => AgeError::Io(error),
        })?;
        Ok(Self {
            from,
            key: content_key(file_key, &nonce),
            ahead: Vec::with_capacity(CHUNK + TAG + 1),
            chunk: Zeroizing::new(Vec::new()),
            at: 0,
            number: 0,
            given: 0,
            ended: false,
        })
    }

    /// Decrypts the next piece. Returns false at the end of the file.
    fn next(&mut self) -> Result<bool, AgeError> {
        if self.ended {
            return Ok(false);
        }
        let wanted = CHUNK + TAG + 1 - self.ahead.len();
        (&mut self.from).take(wanted as u64).read_to_end(&mut self.ahead)?;
        let last = self.ahead.len() <= CHUNK + TAG;
        let length = self.ahead.len().min(CHUNK + TAG);
        let rest = self.ahead.split_off(length);
        let mut chunk = Zeroizing::new(std::mem::replace(&mut self.ahead, rest));
        let whole = chunk.clone();
        let length = match self.key.open_in_place(nonce(self.number, last), Aad::empty(), &mut chunk) {
            Ok(opened) => opened.len(),
            // The piece is marked as the last one, but more data follows.
            Err(_) if !last && self.is_last_chunk(&whole) => return Err(AgeError::Longer),
            Err(_) => return Err(AgeError::Changed(self.given)),
        };
        // Only a file without content may have an empty piece.
        if length == 0 && self.number > 0 {
            return Err(AgeError::Changed(self.given));
        }
        chunk.truncate(length);
        (self.chunk, self.at) = (chunk, 0);
        self.number += 1;
        self.given += length as u64;
        self.ended = last;
        Ok(true)
    }

    fn is_last_chunk(&self, chunk: &[u8]) -> bool {
        let mut chunk = Zeroizing::new(chunk.to_vec());
        self.key.open_in_place(nonce(self.number, true), Aad::empty(), &mut chunk).is_ok()
    }
}

impl<R: Read> Read for AgeReader<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            match self.next() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(AgeError::Io(error)) => return Err(error),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        let given = room.len().min(self.chunk.len() - self.at);
        room[..given].copy_from_slice(&self.chunk[self.at..self.at + given]);
        self.at += given;
        Ok(given)
    }
}

impl<W> fmt::Debug for AgeWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgeWriter").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for AgeReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgeReader").field("given", &self.given).finish_non_exhaustive()
    }
}
