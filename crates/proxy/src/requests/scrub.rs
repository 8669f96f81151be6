//! Masks injected values in a stream. Holds back bytes that may be part of a value, until later bytes show whether the value is
//! complete.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::spellings::{SearchBudget, TooMuch, ValueEncodings};

/// Maximum bytes that are held back because they may be part of a value.
const HELD_MAX: usize = 256 << 10;
/// Pause after which held bytes are passed on if they are shorter than the shortest masked part of a value. The client may need
/// these bytes to answer.
const PAUSE_SHORT: Duration = Duration::from_millis(20);
/// Pause of the stream after which a longer part of a value is masked and passed on.
const PAUSE_LONG: Duration = Duration::from_secs(1);
/// Byte that replaces each byte of a value. The length stays the same, because the length of the message may already have been
/// sent.
const MASK: u8 = b'*';

/// Filter that masks injected values in a stream of bytes.
#[derive(Debug)]
pub struct Scrubber {
    values: Vec<Arc<ValueEncodings>>,
    /// Bytes that are held back because they may be part of a value.
    held_back: Vec<u8>,
    /// Number of bytes at the start of `held_back` that are masked already: the end of an earlier value, or bytes masked in a pause.
    masked: usize,
    /// Number of bytes at the start of `held_back` that were passed on in a pause. They stay in `held_back`, so that the rest of a value is
    /// recognized.
    sent: usize,
    pause: Pause,
    steps: SearchBudget,
    /// Number of masked values.
    found: u64,
}

impl Scrubber {
    pub(super) fn new(values: Vec<Arc<ValueEncodings>>) -> Self {
        let (masked, sent, found) = (0, 0, 0);
        Self {
            values,
            held_back: Vec::new(),
            masked,
            sent,
            pause: Pause::default(),
            steps: SearchBudget::default(),
            found,
        }
    }

    /// Creates a scrubber that masks `text` in all encodings.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self::new(vec![Arc::new(ValueEncodings::of([text].into_iter()))])
    }

    /// Returns the number of values found so far.
    pub(super) fn found(&self) -> u64 {
        self.found
    }

    /// Takes the next bytes. Returns the bytes that can no longer be a part of a value, with complete values masked.
    ///
    /// # Errors
    /// [`TooMuch`]: nothing more of the stream may be passed on.
    pub fn pass(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        self.advance(data, false)
    }

    /// Takes the last bytes of a message. Returns the remaining bytes of the message, with values masked. If a value continues in
    /// the next message, its rest is masked there.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub(super) fn finish_message(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        let clean = self.pass(data)?;
        match self.sent == self.held_back.len() {
            true => Ok(clean),
            false => Ok([clean, self.flush(true)?].concat().into()),
        }
    }

    /// Takes the last bytes of the stream. Returns the remaining bytes, with values masked.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub fn finish(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        self.advance(data, true)
    }

    /// Returns held bytes after a pause of the stream. Pending if no bytes are held, or if the pause is still too short. Call it
    /// while the stream has no more bytes.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub(super) fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, TooMuch>> {
        while self.sent < self.held_back.len() {
            let is_long = ready!(self.pause.poll(cx));
            let clean = self.flush(is_long)?;
            if !clean.is_empty() {
                return Poll::Ready(Ok(clean));
            }
        }
        Poll::Pending
    }

    /// Returns the held bytes that can be passed on now. A match that touches the end of the held bytes may still grow: unless
    /// `is_all` is set, the bytes from its start on stay held.
    fn flush(&mut self, is_all: bool) -> Result<Bytes, TooMuch> {
        let (mut steps, mut found) = (SearchBudget::default(), Vec::new());
        for value in &self.values {
            value.search(&self.held_back, true, &mut steps, &mut found)?;
        }
        let end = self.held_back.len();
        let open = found.iter().filter(|(_, to)| !is_all && *to == end).map(|(start, _)| *start);
        let until = open.min().unwrap_or(end).max(self.sent);
        if until == self.sent {
            return Ok(Bytes::new());
        }
        found.retain(|(start, _)| *start < until);
        let carried = self.masked;
        self.count(&mut found, carried);
        let clean = masked(&self.held_back[..until], &found, carried);
        self.masked = found.iter().map(|(_, end)| until.min(*end)).chain([carried]).max().unwrap_or(0);
        Ok(clean.slice(std::mem::replace(&mut self.sent, until)..))
    }

    fn advance(&mut self, data: Bytes, is_end: bool) -> Result<Bytes, TooMuch> {
        self.steps.earn(data.len());
        if !data.is_empty() {
            self.pause.over();
        }
        // Usually nothing is held, and nothing found: then nothing is copied.
        let text = match self.held_back.is_empty() {
            true => data,
            false => {
                let mut held_back = std::mem::take(&mut self.held_back);
                held_back.extend_from_slice(&data);
                Bytes::from(held_back)
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
        self.held_back.extend_from_slice(&text[decided..]);
        if self.held_back.len() > HELD_MAX {
            return Err(TooMuch);
        }
        let sent = std::mem::take(&mut self.sent);
        self.sent = sent.saturating_sub(decided);
        let from = sent.min(decided);
        if found.is_empty() && carried == 0 {
            return Ok(text.slice(from..decided));
        }
        self.count(&mut found, carried);
        Ok(masked(&text[..decided], &found, carried).slice(from..))
    }

    /// Masks values in `data`, which is searched separately from the stream.
    ///
    /// # Errors
    /// [`TooMuch`]
    pub(super) fn mask_separately(&mut self, data: Bytes) -> Result<Bytes, TooMuch> {
        let mut other = Self::new(self.values.clone());
        let clean = other.finish(data);
        self.found += other.found;
        clean
    }

    /// Counts the found values; overlapping ranges count as one.
    fn count(&mut self, found: &mut [(usize, usize)], mut until: usize) {
        found.sort_unstable();
        for (start, end) in found.iter() {
            self.found += u64::from(*start >= until);
            until = until.max(*end);
        }
    }
}

/// Returns `text` with the ranges `found`, and its first `carried` bytes, masked.
fn masked(text: &[u8], found: &[(usize, usize)], carried: usize) -> Bytes {
    let mut clean = text.to_vec();
    for (start, end) in found.iter().chain([&(0, carried)]) {
        clean[*start..text.len().min(*end)].fill(MASK);
    }
    clean.into()
}

/// Timer of a pause in the stream, during which no bytes arrive.
#[derive(Debug, Default)]
struct Pause {
    /// Start of the current pause; `None` while the stream has bytes.
    since: Option<Instant>,
    /// Whether the short pause has ended.
    is_long: bool,
    /// Timer of the pause. Created at the first pause, then reused.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pause {
    /// Ends the pause: the stream has more bytes.
    fn over(&mut self) {
        (self.since, self.is_long) = (None, false);
    }

    /// Completes with `false` after the short pause, then with `true` after the long one.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let until = since + if self.is_long { PAUSE_LONG } else { PAUSE_SHORT };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(std::mem::replace(&mut self.is_long, true))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECRET: &str = "hunter2-hunter3";

    fn scrubber() -> Scrubber {
        Scrubber::new(vec![Arc::new(ValueEncodings::of([SECRET.as_bytes()].into_iter()))])
    }

    /// Passes `text` through the scrubber in chunks of `size` bytes. Returns the output and the number of masked values.
    fn passed(text: &[u8], size: usize) -> (Vec<u8>, u64) {
        let mut scrubber = scrubber();
        let mut all = Vec::new();
        for chunk in text.chunks(size) {
            all.extend_from_slice(&scrubber.pass(Bytes::copy_from_slice(chunk)).unwrap());
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
        let chunk = Bytes::from("\\u0078".repeat(10_000));
        for _ in 0..4 {
            assert!(scrubber.pass(chunk.clone()).unwrap().is_empty(), "it may be the value");
        }
        assert_eq!(scrubber.pass(chunk), Err(TooMuch));
    }

    /// Returns the text that is forwarded while the stream pauses, and the length of the pause.
    async fn paused(scrubber: &mut Scrubber) -> (String, Duration) {
        let began = Instant::now();
        let held_back =
            tokio::time::timeout(Duration::from_secs(60), poll_fn(|cx| scrubber.poll_held_back(cx))).await;
        let held_back = held_back.expect("not held for ever").unwrap();
        (String::from_utf8(held_back.to_vec()).unwrap(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_passes_on_what_is_held_and_the_rest_of_a_value_stays_masked() {
        let pass = |scrubber: &mut Scrubber, text: &'static str| {
            String::from_utf8(scrubber.pass(Bytes::from_static(text.as_bytes())).unwrap().to_vec()).unwrap()
        };
        let mut scrubber = scrubber();
        assert_eq!(pass(&mut scrubber, "login as h"), "login as ");
        assert_eq!(paused(&mut scrubber).await, ("h".to_owned(), PAUSE_SHORT));
        assert!(poll_fn(|cx| Poll::Ready(scrubber.poll_held_back(cx))).await.is_pending(), "nothing is left");
        // The value continues with a part that must not be shown.
        assert_eq!(pass(&mut scrubber, "unter2-"), "");
        assert_eq!(paused(&mut scrubber).await, ("*******".to_owned(), PAUSE_LONG));
        assert_eq!(pass(&mut scrubber, "hunter3 is it, 100%"), "******* is it, 100");
        assert_eq!(scrubber.found(), 1);
        assert_eq!(paused(&mut scrubber).await, ("%".to_owned(), PAUSE_SHORT));
        // Other bytes follow, and start a new pause.
        assert_eq!(pass(&mut scrubber, " of hun"), " of ");
        let early = tokio::time::timeout(PAUSE_SHORT / 2, poll_fn(|cx| scrubber.poll_held_back(cx))).await;
        assert!(early.is_err());
        assert_eq!(pass(&mut scrubber, "ting? hunter2-hunter3 h"), "hunting? *************** ");
        assert_eq!(paused(&mut scrubber).await, ("h".to_owned(), PAUSE_SHORT));
        assert_eq!(scrubber.finish(Bytes::new()).unwrap(), "");
        assert_eq!(scrubber.found(), 2);
    }
}
