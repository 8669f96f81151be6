//! Decoding of compressed responses while they are streamed.

use std::io::{self, Write};

use bytes::{Buf, Bytes};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use hyper::header::{CONTENT_ENCODING, HeaderMap};

/// The content coding of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Deflate,
}

impl Coding {
    /// Returns the coding of a response; `None` if it is not supported.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        let coding = match (codings.next(), codings.next()) {
            (None, _) => return Some(Self::Identity),
            (Some(coding), None) => coding.to_str().ok()?.trim().to_ascii_lowercase(),
            _ => return None,
        };
        match coding.as_str() {
            "identity" | "" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }
}

/// Streaming decoder of a response body.
pub(super) struct Decoder {
    kind: Kind,
    /// Compressed bytes that are not decoded yet.
    waiting: Bytes,
    /// Whether the body has any bytes. A body without bytes, such as in a response to HEAD, is not compressed.
    is_begun: bool,
    is_ended: bool,
}

enum Kind {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Deflate(Box<ZlibDecoder<Vec<u8>>>),
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Self {
        let kind = match coding {
            Coding::Identity => Kind::Identity,
            Coding::Gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Coding::Deflate => Kind::Deflate(Box::new(ZlibDecoder::new(Vec::new()))),
        };
        Self { kind, waiting: Bytes::new(), is_begun: false, is_ended: false }
    }

    /// Returns whether decoding leaves the length of the body unchanged.
    pub(super) fn keeps_length(&self) -> bool {
        matches!(self.kind, Kind::Identity)
    }

    /// Returns whether [`Self::finish`] would return nothing.
    pub(super) fn is_drained(&self) -> bool {
        self.keeps_length() && self.waiting.is_empty()
    }

    /// Adds the next bytes of the body. All earlier bytes must have been decoded.
    pub(super) fn push(&mut self, data: Bytes) {
        self.is_begun |= !data.is_empty();
        self.waiting = data;
    }

    /// Decodes a part of the pushed bytes. Returns at most 128 KiB if the body is compressed, an empty result if the decoder needs
    /// more input, and `None` if all pushed bytes are decoded.
    pub(super) fn pull(&mut self) -> io::Result<Option<Bytes>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let decoded = match &mut self.kind {
            Kind::Identity => return Ok(Some(std::mem::take(&mut self.waiting))),
            Kind::Gzip(decoder) => decode(&mut **decoder, MultiGzDecoder::get_mut, &mut self.waiting)?,
            Kind::Deflate(decoder) => decode(&mut **decoder, ZlibDecoder::get_mut, &mut self.waiting)?,
        };
        Ok(Some(decoded.into()))
    }

    /// Ends the body, and returns its last bytes.
    pub(super) fn finish(&mut self) -> io::Result<Bytes> {
        if std::mem::replace(&mut self.is_ended, true) || !self.is_begun {
            return Ok(Bytes::new());
        }
        let last = match &mut self.kind {
            Kind::Identity => Vec::new(),
            Kind::Gzip(decoder) => {
                decoder.try_finish()?;
                std::mem::take(decoder.get_mut())
            }
            Kind::Deflate(decoder) => {
                decoder.try_finish()?;
                std::mem::take(decoder.get_mut())
            }
        };
        Ok(last.into())
    }
}

/// Decodes the beginning of `waiting`. One write fills the library's buffer of 32 KiB at most once, so that a small input cannot
/// expand without limit.
fn decode<D: Write>(
    decoder: &mut D,
    output: fn(&mut D) -> &mut Vec<u8>,
    waiting: &mut Bytes,
) -> io::Result<Vec<u8>> {
    loop {
        let taken = decoder.write(waiting)?;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        waiting.advance(taken);
        if waiting.is_empty() {
            decoder.flush()?;
        }
        let decoded = std::mem::take(output(decoder));
        if waiting.is_empty() || !decoded.is_empty() {
            return Ok(decoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn decoded(coding: Coding, body: &[u8], size: usize) -> io::Result<(Vec<u8>, usize)> {
        let mut decoder = Decoder::new(coding);
        let (mut all, mut largest) = (Vec::new(), 0);
        for chunk in body.chunks(size) {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(data) = decoder.pull()? {
                largest = largest.max(data.len());
                all.extend_from_slice(&data);
            }
        }
        all.extend_from_slice(&decoder.finish()?);
        Ok((all, largest))
    }

    #[test]
    fn compressed_body_is_decoded_in_pieces_of_any_size() {
        let text = (0..5_000).map(|number| format!("{number} ")).collect::<String>();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(text.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(text.as_bytes()).unwrap();
        let deflate = deflate.finish().unwrap();
        for size in [1, 7, 1_000, 100_000] {
            assert_eq!(decoded(Coding::Identity, text.as_bytes(), size).unwrap().0, text.as_bytes());
            assert_eq!(decoded(Coding::Gzip, &gzip, size).unwrap().0, text.as_bytes());
            assert_eq!(decoded(Coding::Deflate, &deflate, size).unwrap().0, text.as_bytes());
            let two = [gzip.clone(), gzip.clone()].concat();
            assert_eq!(decoded(Coding::Gzip, &two, size).unwrap().0.len(), 2 * text.len());
        }
        assert!(decoded(Coding::Gzip, b"", 100).unwrap().0.is_empty());
        assert!(decoded(Coding::Deflate, b"", 100).unwrap().0.is_empty());
        assert!(decoded(Coding::Gzip, &gzip[..gzip.len() - 1], 100).is_err(), "truncated");
        assert!(decoded(Coding::Gzip, text.as_bytes(), 100).is_err(), "not compressed");
    }

    #[test]
    fn flushed_data_is_decoded_at_once_and_bombs_in_small_pieces() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"an event\n\n").unwrap();
        gzip.flush().unwrap();
        let mut decoder = Decoder::new(Coding::Gzip);
        decoder.push(Bytes::copy_from_slice(gzip.get_ref()));
        assert_eq!(decoder.pull().unwrap().unwrap(), "an event\n\n");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![0; 32 << 20]).unwrap();
        let (all, largest) = decoded(Coding::Gzip, &gzip.finish().unwrap(), 1 << 20).unwrap();
        assert!(all.len() == 32 << 20 && largest <= 128 << 10, "{largest}");
    }
}
