//! Masking of injected values in a stream, with a window of what is not decided yet.

use std::sync::Arc;

use bytes::Bytes;

use super::spellings::{SearchBudget, TooMuch, ValueEncodings};

/// Maximum bytes that are held back until it is decided whether they are a value.
const HELD_MAX: usize = 256 << 10;
/// Replaces each byte of a value. The length stays, so that lengths that were sent before stay true.
const MASK: u8 = b'*';

/// Masks injected values in a stream of bytes.
#[derive(Debug)]
pub struct Scrubber {
    values: Vec<Arc<ValueEncodings>>,
    /// What is not decided yet.
    held: Vec<u8>,
    /// How much of `held` is masked already, as the end of a value that began before it.
    masked: usize,
    steps: SearchBudget,
    /// Number of masked values.
    found: u64,
}

impl Scrubber {
    pub(super) fn new(values: Vec<Arc<ValueEncodings>>) -> Self {
        Self { values, held: Vec::new(), masked: 0, steps: SearchBudget::default(), found: 0 }
    }

    /// Masks `text` in all encodings.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self::new(vec![Arc::new(ValueEncodings::of([text].into_iter()))])
    }

    /// Returns the number of values found so far.
    pub(super) fn found(&self) -> u64 {
        self.found
    }

    /// Takes the next bytes, and returns those that are decided, without values.
    ///
    /// # Errors
    /// [`TooMuch`]: nothing more of the stream may be passed on.
    pub fn pass(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        self.advance(data, false)
    }

    /// Takes the last bytes of the stream, and returns all that is left, without values.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub fn finish(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        self.advance(data, true)
    }

    fn advance(&mut self, data: Bytes, is_end: bool) -> Result<Bytes, TooMuch> {
        self.steps.earn(data.len());
        // Usually nothing is held, and nothing found: then nothing is copied.
        let text = match self.held.is_empty() {
            true => data,
            false => {
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(&data);
                Bytes::from(held)
            }
        };
        let (mut decided, mut found) = (text.len(), Vec::new());
        for value in &self.values {
            decided = decided.min(value.search(&text, is_end, &mut self.steps, &mut found)?);
        }
        found.retain(|(start, _)| *start < decided);
        let carried = std::mem::take(&mut self.masked);
        self.masked =
            found.iter().map(|(_, end)| *end).chain([carried]).max().unwrap_or(0).saturating_sub(decided);
        self.held.extend_from_slice(&text[decided..]);
        if self.held.len() > HELD_MAX {
            return Err(TooMuch);
        }
        if found.is_empty() && carried == 0 {
            return Ok(text.slice(..decided));
        }
        self.count(&mut found, carried);
        let mut clean = text[..decided].to_vec();
        for (start, end) in found.into_iter().chain([(0, carried)]) {
            clean[start..end.min(decided)].fill(MASK);
        }
        Ok(clean.into())
    }

    /// Returns `data`, a text of its own, without values.
    ///
    /// # Errors
    /// [`TooMuch`]
    pub(super) fn alone(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        let mut other = Self::new(self.values.clone());
        let clean = other.finish(data);
        self.found += other.found;
        clean
    }

    /// Counts the values; ranges that overlap are one.
    fn count(&mut self, found: &mut [(usize, usize)], mut until: usize) {
        found.sort_unstable();
        for (start, end) in found.iter() {
            self.found += u64::from(*start >= until);
            until = until.max(*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2-hunter3";

    fn scrubber() -> Scrubber {
        Scrubber::new(vec![Arc::new(ValueEncodings::of([SECRET.as_bytes()].into_iter()))])
    }

    /// Returns the stream as it is passed on in pieces of `size` bytes.
    fn passed(text: &[u8], size: usize) -> (Vec<u8>, u64) {
        let mut scrubber = scrubber();
        let mut all = Vec::new();
        for piece in text.chunks(size) {
            all.extend_from_slice(&scrubber.pass(Bytes::copy_from_slice(piece)).unwrap());
        }
        all.extend_from_slice(&scrubber.finish(Bytes::new()).unwrap());
        assert_eq!(all.len(), text.len());
        (all, scrubber.found())
    }

    #[test]
    fn value_is_masked_at_any_chunk_boundary() {
        let json = "{\"a\":\"hunter2\\u002dhunter3\",\"b\":\"hunter2-hunter\"}";
        let url = "?a=hunter2%2dhunter3&b=%68%75%6e%74%65%72%32%2D%68%75%6e%74%65%72%33.";
        let coded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!(" {SECRET} "));
        for (text, wanted) in [
            (format!("a {SECRET} b {SECRET}{SECRET}"), 3),
            (format!("{}h{SECRET}", "hunter2-".repeat(3)), 1),
            (json.to_owned(), 1),
            (url.to_owned(), 2),
            (coded, 1),
            ("nothing".to_owned(), 0),
        ] {
            let (whole, found) = passed(text.as_bytes(), text.len());
            assert_eq!(found, wanted, "{text}");
            for size in 1..text.len() {
                assert_eq!(passed(text.as_bytes(), size), (whole.clone(), wanted), "{text} in {size}");
            }
            let whole = String::from_utf8(whole).unwrap();
            assert!(!whole.to_lowercase().contains("hunter3"), "{whole}");
        }
        assert_eq!(
            passed(json.as_bytes(), 7).0,
            b"{\"a\":\"********************\",\"b\":\"hunter2-hunter\"}"
        );
    }

    #[test]
    fn unrelated_data_is_passed_without_copy_or_delay() {
        let data = Bytes::from_static(b"data: an event of a stream\n\n");
        let passed = scrubber().pass(data.clone()).unwrap();
        assert_eq!((passed.as_ptr(), passed.len()), (data.as_ptr(), data.len()));
    }

    #[test]
    fn value_longer_than_the_hold_back_limit_is_rejected() {
        let long = "x".repeat(60_000);
        let mut scrubber = Scrubber::new(vec![Arc::new(ValueEncodings::of([long.as_bytes()].into_iter()))]);
        let piece = Bytes::from("\\u0078".repeat(10_000));
        for _ in 0..4 {
            assert!(scrubber.pass(piece.clone()).unwrap().is_empty(), "it may be the value");
        }
        assert_eq!(scrubber.pass(piece), Err(TooMuch));
    }
}
