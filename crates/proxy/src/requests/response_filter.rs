//! Removal of injected values from responses.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_relay::upstream::BodyFilter;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE,
    SEC_WEBSOCKET_EXTENSIONS,
};

use super::decoding::{Coding, Decoder};
use super::inject::Injected;
use super::scrub::Scrubber;
use super::spellings::ValueEncodings;

/// Content codings that the proxy accepts in the response to a request with an injected credential (`Accept-Encoding`).
const READ_HERE: [&str; 3] = ["gzip", "x-gzip", "identity"];

/// Prepares a request with an injected credential, so that its response can be searched. The response must be complete, because the
/// search does not find a part of a value. It must be uncompressed, or compressed with gzip. WebSocket messages must be
/// uncompressed.
pub(crate) fn make_searchable(headers: &mut HeaderMap) {
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    if !headers.contains_key(ACCEPT_ENCODING) {
        return;
    }
    let accepted: Vec<String> = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.trim().to_ascii_lowercase())
        .filter(|coding| {
            let name = coding.split(';').next().unwrap_or_default().trim_end();
            READ_HERE.contains(&name)
        })
        .collect();
    let accepted = if accepted.is_empty() { "identity".to_owned() } else { accepted.join(", ") };
    if let Ok(value) = HeaderValue::try_from(accepted) {
        headers.insert(ACCEPT_ENCODING, value);
    }
}

/// Decoded bytes after which the task yields to other tasks. A response may be compressed by a factor of 1,000, and the search
/// takes processor time.
const TURN_BYTES: usize = 64 << 10;

/// The response has a content coding that cannot be searched.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the proxy cannot search the response for the injected credential: only the content codings gzip, deflate and identity are supported"
)]
pub(crate) struct UnsearchableBody;

/// Values that are searched in the body of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SearchedValues {
    /// All injected values except those whose rule allows an echo.
    ByRule,
    /// All injected values: a hook gets the body.
    All,
}

impl SearchedValues {
    /// Returns whether the value is searched in the body.
    pub(crate) fn includes(self, injected: &Injected) -> bool {
        self == Self::All || !injected.may_echo()
    }
}

/// Filter that removes injected values from one response.
pub(crate) struct ResponseFilter {
    values: Vec<Arc<ValueEncodings>>,
    decoder: Decoder,
    /// Masks values in the body; `None` if the body is not searched.
    scrubber: Option<Scrubber>,
    is_finished: bool,
    is_flushed: bool,
    /// Bytes that were decoded since the task last yielded.
    decoded: usize,
    /// Number of values removed from headers and trailers.
    in_headers: u64,
}

impl ResponseFilter {
    /// Creates the filter of a response to a request with these credentials. Removes the values from `headers`. If the body will be
    /// decoded, removes its coding and length. `has_body`: false for responses to HEAD, for example.
    ///
    /// # Errors
    /// [`UnsearchableBody`]
    pub(crate) fn new(
        injected: &[Injected],
        which: SearchedValues,
        headers: &mut HeaderMap,
        has_body: bool,
    ) -> Result<Self, UnsearchableBody> {
        let values = injected.iter().map(Injected::spellings).collect();
        let searched: Vec<_> =
            injected.iter().filter(|one| which.includes(one)).map(Injected::spellings).collect();
        let is_searched = has_body && !searched.is_empty();
        let coding =
            if is_searched { Coding::of(headers).ok_or(UnsearchableBody)? } else { Coding::Identity };
        if coding != Coding::Identity {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
        }
        let mut filter = Self {
            values,
            decoder: Decoder::new(coding),
            scrubber: is_searched.then(|| Scrubber::new(searched)),
            is_finished: false,
            is_flushed: false,
            decoded: 0,
            in_headers: 0,
        };
        filter.redact(headers);
        Ok(filter)
    }

    /// Returns a scrubber for the bytes of an upgraded connection.
    pub(crate) fn into_scrubber(self) -> Option<Scrubber> {
        self.scrubber
    }

    /// Removes the values from the names and values of `headers`.
    fn redact(&mut self, headers: &mut HeaderMap) {
        for spellings in &self.values {
            let mut named: Vec<HeaderName> = Vec::new();
            for (name, value) in headers.iter_mut() {
                if !matches!(spellings.redacted(name.as_str().as_bytes()), Ok(None)) {
                    named.push(name.clone());
                }
                let Some(text) = spellings.redacted(value.as_bytes()).transpose() else { continue };
                self.in_headers += 1;
                let text = text.ok().and_then(|text| HeaderValue::from_bytes(&text).ok());
                *value = text.unwrap_or(HeaderValue::from_static(super::needles::REDACTED));
            }
            self.in_headers += named.len() as u64;
            named.iter().for_each(|name| drop(headers.remove(name)));
        }
    }
}

impl BodyFilter for ResponseFilter {
    fn keeps_length(&self) -> bool {
        self.decoder.keeps_length()
    }

    fn push(&mut self, data: Bytes) {
        self.decoder.push(data);
    }

    fn finish(&mut self) {
        self.is_finished = true;
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.decoded < TURN_BYTES {
            return Poll::Ready(());
        }
        self.decoded = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn pull(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let (data, is_end) = match self.decoder.pull()? {
                Some(data) => {
                    self.decoded += if self.keeps_length() { 0 } else { data.len() };
                    let is_end = self.is_finished && self.decoder.is_drained();
                    self.is_flushed |= is_end;
                    (data, is_end)
                }
                None if self.is_finished && !self.is_flushed => {
                    self.is_flushed = true;
                    (self.decoder.finish()?, true)
                }
                None => return Ok(None),
            };
            let clean = match &mut self.scrubber {
                Some(scrubber) if is_end => scrubber.finish(data).map_err(io::Error::other)?,
                Some(scrubber) => scrubber.pass(data).map_err(io::Error::other)?,
                None => data,
            };
            if !clean.is_empty() {
                return Ok(Some(clean));
            }
        }
    }

    fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        match &mut self.scrubber {
            Some(scrubber) => scrubber.poll_held_back(cx).map_err(io::Error::other),
            None => Poll::Pending,
        }
    }

    fn is_over(&self) -> bool {
        self.is_flushed
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) {
        self.redact(trailers);
    }

    fn removed(&self) -> u64 {
        self.in_headers + self.scrubber.as_ref().map_or(0, Scrubber::found)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::task::Waker;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_highly_compressed_body_is_searched_in_turns() {
        const BYTES: usize = 4 << 20;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b'&'; BYTES]).unwrap();
        let gzip = gzip.finish().unwrap();
        assert!(gzip.len() < BYTES / 900, "{}", gzip.len());
        let mut headers = HeaderMap::new();
        let mut filter = ResponseFilter::new(&[], SearchedValues::ByRule, &mut headers, true).unwrap();
        filter.decoder = Decoder::new(Coding::Gzip);
        filter.scrubber = Some(Scrubber::of(b"hunter2-hunter3"));
        filter.push(gzip.into());
        filter.finish();
        let mut cx = Context::from_waker(Waker::noop());
        let (mut turns, mut turn, mut all) = (1, 0, 0);
        loop {
            if filter.poll_turn(&mut cx).is_pending() {
                (turns, turn) = (turns + 1, 0);
            }
            let Some(data) = filter.pull().unwrap() else { break };
            (turn, all) = (turn + data.len(), all + data.len());
            assert!(turn <= 3 * TURN_BYTES, "{turn}");
        }
        assert!(all == BYTES && turns > BYTES / (3 * TURN_BYTES), "{all} in {turns}");
    }
}
