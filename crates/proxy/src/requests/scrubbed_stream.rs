//! Removal of injected values from upgraded connections: frames of WebSockets (RFC 6455), or bytes of other protocols.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::scrub::Scrubber;
use super::spellings::TooMuch;

/// Maximum bytes per read.
const READ: usize = 16 << 10;
/// Maximum bytes of a control frame (RFC 6455 section 5.5).
const CONTROL_MAX: u64 = 125;
/// Opcode of a message's frames after its first (RFC 6455 section 5.2).
const CONTINUATION: u8 = 0;
/// Maximum headers, payloads and control frames that wait because an earlier payload may begin a value.
const ORDER_MAX: usize = 1_024;

/// A connection to an upstream from which injected values are removed. Each byte of a value is masked, so that the lengths of
/// frames do not change.
pub(crate) struct ScrubbedStream<S> {
    stream: S,
    filter: Option<StreamFilter>,
    /// Bytes to be read by the client.
    ready: VecDeque<Bytes>,
    is_ended: bool,
    is_cut: bool,
}

/// The filter of a stream, by protocol.
struct StreamFilter {
    scrubber: Scrubber,
    /// State of the WebSocket's frames; `None` for other protocols.
    frames: Option<WebSocketFrames>,
}

impl<S> ScrubbedStream<S> {
    /// Creates a stream from which the scrubber of `filter` removes values. The flag tells whether the stream is a WebSocket.
    /// `None` leaves the stream unchanged.
    pub(crate) fn new(stream: S, filter: Option<(Scrubber, bool)>) -> Self {
        let filter = filter.map(|(scrubber, is_websocket)| StreamFilter {
            scrubber,
            frames: is_websocket.then(WebSocketFrames::default),
        });
        Self { stream, filter, ready: VecDeque::new(), is_ended: false, is_cut: false }
    }

    /// Returns the number of removed values.
    pub(crate) fn removed(&self) -> u64 {
        self.filter.as_ref().map_or(0, |filter| filter.scrubber.found())
    }

    /// Returns whether the stream was cut off because it cannot be searched.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl StreamFilter {
    fn pass(
        &mut self,
        data: Bytes,
        is_end: bool,
        ready: &mut VecDeque<Bytes>,
    ) -> Result<(), StreamFilterError> {
        match &mut self.frames {
            Some(frames) if is_end => frames.end(&mut self.scrubber, ready),
            Some(frames) => frames.pass(data, &mut self.scrubber, ready),
            None => {
                ready.push_back(if is_end { self.scrubber.finish(data) } else { self.scrubber.pass(data) }?);
                Ok(())
            }
        }
    }

    /// Adds held bytes to `ready`, once the stream has paused long enough.
    fn poll_held_back(
        &mut self,
        cx: &mut Context<'_>,
        ready: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), StreamFilterError>> {
        let clean = ready!(self.scrubber.poll_held_back(cx))?;
        match &mut self.frames {
            Some(frames) => {
                frames.clean.extend_from_slice(&clean);
                frames.forward(ready);
            }
            None => ready.push_back(clean),
        }
        Poll::Ready(Ok(()))
    }
}

/// Reason why a stream is cut off.
#[derive(Debug, thiserror::Error)]
enum StreamFilterError {
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error("a frame of the upstream is compressed, masked or malformed, so that it cannot be searched")]
    Frame,
}

/// State of a WebSocket's frames.
#[derive(Default)]
struct WebSocketFrames {
    /// Bytes of a header, or of a control frame, that is not complete.
    begun: BytesMut,
    /// Remaining bytes of the current frame's payload.
    left: u64,
    /// Whether the current frame is the last of its message.
    is_final: bool,
    /// Opcode of the current or previous message. A value may continue in the next message only if that message has the same
    /// opcode.
    opcode: u8,
    /// Pieces still to forward, in stream order: complete frame headers, and for each payload only its length. The payload bytes
    /// come from the scrubber.
    order: VecDeque<FramePart>,
    /// Clean payload that is not forwarded yet.
    clean: BytesMut,
}

enum FramePart {
    Whole(Bytes),
    Payload(u64),
}

impl WebSocketFrames {
    fn pass(
        &mut self,
        mut data: Bytes,
        scrubber: &mut Scrubber,
        ready: &mut VecDeque<Bytes>,
    ) -> Result<(), StreamFilterError> {
        while !data.is_empty() {
            if self.left == 0 {
                self.header(&mut data, scrubber)?;
            } else {
                let payload = data.split_to(data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)));
                self.left -= payload.len() as u64;
                let is_end = self.left == 0 && self.is_final;
                let clean = if is_end { scrubber.finish_message(payload) } else { scrubber.pass(payload) }?;
                self.clean.extend_from_slice(&clean);
            }
            self.forward(ready);
        }
        Ok(())
    }

    fn end(&mut self, scrubber: &mut Scrubber, ready: &mut VecDeque<Bytes>) -> Result<(), StreamFilterError> {
        self.clean.extend_from_slice(&scrubber.finish(Bytes::new())?);
        self.forward(ready);
        Ok(())
    }

    /// Reads a header, and the payload of a control frame.
    fn header(&mut self, data: &mut Bytes, scrubber: &mut Scrubber) -> Result<(), StreamFilterError> {
        if self.order.len() >= ORDER_MAX {
            return Err(TooMuch.into());
        }
        self.begun.extend_from_slice(&data.split_to(1));
        let (Some(first), Some(second)) = (self.begun.first(), self.begun.get(1)) else { return Ok(()) };
        let (is_final, opcode) = (first & 0x80 != 0, first & 0xf);
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err(StreamFilterError::Frame);
        }
        let more = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.begun.len() < 2 + more {
            return Ok(());
        }
        let length = match more {
            0 => u64::from(second & 0x7f),
            _ => self.begun[2..2 + more].iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        if opcode < 8 {
            self.order.push_back(FramePart::Whole(self.begun.split().freeze()));
            self.order.push_back(FramePart::Payload(length));
            (self.left, self.is_final) = (length, is_final);
            if opcode != CONTINUATION && std::mem::replace(&mut self.opcode, opcode) != opcode {
                self.clean.extend_from_slice(&scrubber.finish(Bytes::new())?);
            }
            if length == 0 && is_final {
                self.clean.extend_from_slice(&scrubber.finish_message(Bytes::new())?);
            }
            return Ok(());
        }
        // In a control frame, an extended length is invalid, whatever its value.
        if more != 0 || length > CONTROL_MAX {
            return Err(StreamFilterError::Frame);
        }
        let whole = 2 + length as usize;
        let missing = (whole - self.begun.len()).min(data.len());
        self.begun.extend_from_slice(&data.split_to(missing));
        if self.begun.len() == whole {
            let frame = self.begun.split().freeze();
            let payload = scrubber.mask_separately(frame.slice(2..))?;
            self.order.push_back(FramePart::Whole(frame.slice(..2)));
            self.order.push_back(FramePart::Whole(payload));
        }
        Ok(())
    }

    /// Forwards the bytes without values, in the order of the stream.
    fn forward(&mut self, ready: &mut VecDeque<Bytes>) {
        while let Some(part) = self.order.front_mut() {
            match part {
                FramePart::Whole(bytes) => ready.push_back(std::mem::take(bytes)),
                FramePart::Payload(0) => {}
                FramePart::Payload(length) => {
                    let most = usize::try_from(*length).unwrap_or(usize::MAX).min(self.clean.len());
                    if most == 0 {
                        return;
                    }
                    *length -= most as u64;
                    ready.push_back(self.clean.split_to(most).freeze());
                    if *length > 0 {
                        return;
                    }
                }
            }
            self.order.pop_front();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ScrubbedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(filter) = &mut this.filter else { return Pin::new(&mut this.stream).poll_read(cx, buffer) };
        // The caller's buffer may have bytes of earlier reads.
        let before = buffer.filled().len();
        loop {
            while let Some(first) = this.ready.front_mut() {
                let some = first.len().min(buffer.remaining());
                buffer.put_slice(&first[..some]);
                first.advance(some);
                if !first.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                this.ready.pop_front();
            }
            if buffer.filled().len() > before || this.is_ended {
                return Poll::Ready(Ok(()));
            }
            let mut read = BytesMut::zeroed(READ);
            let mut into = ReadBuf::new(&mut read);
            let passed = match Pin::new(&mut this.stream).poll_read(cx, &mut into)? {
                Poll::Ready(()) => {
                    let length = into.filled().len();
                    read.truncate(length);
                    this.is_ended = length == 0;
                    filter.pass(read.freeze(), this.is_ended, &mut this.ready)
                }
                Poll::Pending => ready!(filter.poll_held_back(cx, &mut this.ready)),
            };
            if let Err(error) = passed {
                this.is_cut = true;
                tracing::warn!(%error, "an upgraded connection was cut off");
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ScrubbedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::spellings::ValueEncodings;
    use super::*;

    const SECRET: &str = "hunter2-hunter3";

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let mut frame = match length {
            0..126 => vec![first, length as u8],
            _ => [&[first, 126][..], &(length as u16).to_be_bytes()].concat(),
        };
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns what the client reads if the upstream writes `sent` in pieces of `size`.
    async fn read(sent: &[u8], size: usize, is_websocket: bool) -> io::Result<Vec<u8>> {
        let (near, mut far) = tokio::io::duplex(size);
        let scrubber = Scrubber::new(vec![Arc::new(ValueEncodings::of([SECRET.as_bytes()].into_iter()))]);
        let mut stream = ScrubbedStream::new(near, Some((scrubber, is_websocket)));
        let sent = sent.to_vec();
        let writer = tokio::spawn(async move {
            let _ = far.write_all(&sent).await;
        });
        let mut all = Vec::new();
        let read = stream.read_to_end(&mut all).await;
        assert_eq!(read.is_err(), stream.is_cut());
        drop(stream);
        writer.await.unwrap();
        read.map(|_| all)
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_masked_within_and_across_websocket_frames() {
        let (text, more, last, ping, close) = (1, 0, 0x80, 0x89, 0x88);
        let long = format!("{}{SECRET}{}", "x".repeat(200), "y".repeat(200));
        let sent = [
            frame(0x81, format!("it is {SECRET}").as_bytes()),
            frame(text, b"in pieces: hunt"),
            frame(ping, SECRET.as_bytes()),
            frame(more, b"er2-"),
            frame(more, b""),
            frame(last, b"hunter3."),
            frame(0x81, b"ends with hunt"),
            frame(0x81, b"er2, which is none"),
            frame(0x82, long.as_bytes()),
            frame(close, &[b"\x03\xe8", SECRET.as_bytes()].concat()),
        ]
        .concat();
        let stars = "*".repeat(SECRET.len());
        let long = long.replace(SECRET, &stars);
        let wanted = [
            frame(0x81, format!("it is {stars}").as_bytes()),
            frame(text, b"in pieces: ****"),
            frame(ping, stars.as_bytes()),
            frame(more, b"****"),
            frame(more, b""),
            frame(last, b"*******."),
            frame(0x81, b"ends with ****"),
            frame(0x81, b"er2, which is none"),
            frame(0x82, long.as_bytes()),
            frame(close, &[b"\x03\xe8", stars.as_bytes()].concat()),
        ]
        .concat();
        for size in [1, 2, 3, 64, 4_096] {
            let seen = read(&sent, size, true).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&wanted), "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn compressed_frames_are_rejected_and_other_protocols_searched_raw() {
        let compressed = frame(0xc1, b"..");
        let masked = [&[0x81, 0x82][..], b"mask.."].concat();
        // Control frames with the 16-bit form of the length, which is invalid for control frames.
        let control = [0, 1, 125, 126].map(|length| [0x89, 126, 0, length].to_vec());
        let wide = [[0x89, 127].as_slice(), &[0xff; 8]].concat();
        for mut sent in [compressed, masked, wide].into_iter().chain(control) {
            sent.resize(sent.len() + 300, b'.');
            assert!(read(&sent, 64, true).await.is_err(), "{sent:?}");
        }
        let sent = format!("\x00\x01{SECRET}\x02");
        let wanted = format!("\x00\x01{}\x02", "*".repeat(SECRET.len()));
        assert_eq!(read(sent.as_bytes(), 5, false).await.unwrap(), wanted.as_bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_passes_on_what_may_begin_a_value() {
        for (is_websocket, sent) in [(true, frame(0x01, b"login as h")), (false, b"login as hunt".to_vec())] {
            let (near, mut far) = tokio::io::duplex(64);
            let scrubber = Scrubber::new(vec![Arc::new(ValueEncodings::of([SECRET.as_bytes()].into_iter()))]);
            let mut stream = ScrubbedStream::new(near, Some((scrubber, is_websocket)));
            far.write_all(&sent).await.unwrap();
            let mut seen = vec![0; sent.len()];
            let read = tokio::time::timeout(std::time::Duration::from_secs(60), stream.read_exact(&mut seen));
            read.await.expect("the client waits for ever").unwrap();
            let wanted = String::from_utf8_lossy(&sent).replace("hunt", "****");
            assert_eq!(String::from_utf8_lossy(&seen), wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_behind_a_payload_that_is_held_back_are_bounded() {
        let empty = frame(0, b"");
        let sent = |count| [frame(1, b"h"), empty.repeat(count), frame(0x80, b"at")].concat();
        let few = sent(ORDER_MAX / 2 - 2);
        assert_eq!(read(&few, 4_096, true).await.unwrap(), few);
        assert!(read(&sent(ORDER_MAX / 2 + 1), 4_096, true).await.is_err());
        // Frames that wait for nothing are not counted.
        let many = [frame(1, b"g"), empty.repeat(2 * ORDER_MAX), frame(0x80, b"at")].concat();
        assert_eq!(read(&many, 4_096, true).await.unwrap(), many);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_masked_across_messages_of_the_same_kind() {
        let (text, binary, ping) = (0x81, 0x82, 0x89);
        let sent = [
            frame(text, b"the token is h"),
            frame(text, b""),
            frame(ping, b"unt"),
            frame(text, b"unte"),
            frame(1, b"r2-"),
            frame(0x80, b"hunter"),
            frame(text, b"3, and h"),
            frame(text, b"ello, h"),
            frame(binary, b"unter2-hunter3"),
        ]
        .concat();
        let wanted = [
            frame(text, b"the token is h"),
            frame(text, b""),
            frame(ping, b"unt"),
            frame(text, b"****"),
            frame(1, b"***"),
            frame(0x80, b"******"),
            frame(text, b"*, and h"),
            frame(text, b"ello, h"),
            frame(binary, b"unter2-hunter3"),
        ]
        .concat();
        for size in [1, 3, 4_096] {
            let seen = read(&sent, size, true).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(&wanted), "{size}");
        }
    }
}
