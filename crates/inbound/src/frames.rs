//! Protection against floods of HTTP/2 frames that cause work but carry no request. Frames are counted by kind, and a connection
//! with too many is closed.
//!
//! `h2` limits the memory of such frames, not their number.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Length of a counting window.
const WINDOW: Duration = Duration::from_secs(10);

/// Maximum `RST_STREAM` frames in a window: 200 per second. Clients reset streams for cancelled or hedged requests; a rapid reset
/// attack (CVE-2023-44487) sends tens of thousands per second.
const RESETS_MAX: u32 = 2_000;

/// Maximum frames without content in a window: SETTINGS, PING, PRIORITY, CONTINUATION, GOAWAY, unknown types, and empty DATA
/// (CVE-2019-9511 to 9518). This is 1,000 per second, enough for a PING for each round trip in a data centre and a PRIORITY for
/// each of a browser's requests.
const CONTROLS_MAX: u32 = 10_000;

/// Maximum `WINDOW_UPDATE` frames in a window: 100,000 per second, two for each request of the busiest client on one connection.
const UPDATES_MAX: u32 = 1_000_000;

/// Bytes of the client's preface (RFC 9113 section 3.4), before the first frame.
const PREFACE: usize = 24;

/// Bytes of a frame's header (RFC 9113 section 4.1).
const HEADER: usize = 9;

/// Kind of flood that a connection sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Flood {
    /// The client sends too many `RST_STREAM` frames.
    #[error("the client resets too many streams")]
    Resets,
    /// The client sends too many frames without content.
    #[error("the client sends too many frames without content")]
    Controls,
    /// The client sends too many `WINDOW_UPDATE` frames.
    #[error("the client sends too many window updates")]
    Updates,
}

/// Counter of the frames of one HTTP/2 connection. Performs no I/O.
#[derive(Debug)]
pub struct FrameCounter {
    /// Bytes until the next header begins.
    skip: usize,
    header: [u8; HEADER],
    read: usize,
    resets: u32,
    controls: u32,
    updates: u32,
}

impl Default for FrameCounter {
    fn default() -> Self {
        Self { skip: PREFACE, header: [0; HEADER], read: 0, resets: 0, controls: 0, updates: 0 }
    }
}

impl FrameCounter {
    /// Starts a new counting window.
    pub fn begin_window(&mut self) {
        (self.resets, self.controls, self.updates) = (0, 0, 0);
    }

    /// Counts the frames whose headers end in `bytes`, the next bytes of the connection.
    ///
    /// # Errors
    /// [`Flood`] if the window has too many frames of a kind.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let added = (HEADER - self.read).min(bytes.len());
            self.header[self.read..self.read + added].copy_from_slice(&bytes[..added]);
            self.read += added;
            bytes = &bytes[added..];
            if self.read == HEADER {
                self.read = 0;
                self.count()?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Flood> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
        // An empty DATA frame may end a body. HEADERS frames are requests, which have their own limits.
        let is_empty_data = kind == 0 && self.skip == 0 && flags & 1 == 0;
        let (count, max, flood) = match kind {
            0 if !is_empty_data => return Ok(()),
            1 => return Ok(()),
            3 => (&mut self.resets, RESETS_MAX, Flood::Resets),
            8 => (&mut self.updates, UPDATES_MAX, Flood::Updates),
            _ => (&mut self.controls, CONTROLS_MAX, Flood::Controls),
        };
        *count = count.saturating_add(1);
        if *count > max { Err(flood) } else { Ok(()) }
    }
}

/// An HTTP/2 connection that fails with [`io::ErrorKind::ConnectionAborted`] on a [`Flood`].
#[derive(Debug)]
pub struct CountedFrames<I, F> {
    inner: I,
    counter: FrameCounter,
    window: Instant,
    on_flood: F,
}

impl<I, F: Fn(Flood)> CountedFrames<I, F> {
    /// Creates a stream that counts frames from the connection's first byte on. It calls `on_flood` before the connection fails.
    pub fn new(inner: I, on_flood: F) -> Self {
        Self { inner, counter: FrameCounter::default(), window: Instant::now(), on_flood }
    }
}

impl<I: AsyncRead + Unpin, F: Fn(Flood) + Unpin> AsyncRead for CountedFrames<I, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let now = Instant::now();
        if now.duration_since(self.window) >= WINDOW {
            self.window = now;
            self.counter.begin_window();
        }
        let counted = self.counter.read(&buffer.filled()[before..]);
        Poll::Ready(counted.map_err(|flood| {
            (self.on_flood)(flood);
            io::Error::new(io::ErrorKind::ConnectionAborted, flood)
        }))
    }
}

impl<I: AsyncWrite + Unpin, F: Unpin> AsyncWrite for CountedFrames<I, F> {
    crate::forward_writes!(inner);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER + payload, 0xff);
        frame
    }

    fn connection(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frames.into_iter().for_each(|frame| all.extend(frame));
        all
    }

    #[test]
    fn frame_floods_are_detected_above_their_limits() {
        let many = |kind, flags, payload, count: u32| {
            let all = connection((0..count).map(|_| frame(kind, flags, payload)));
            FrameCounter::default().read(&all)
        };
        assert_eq!(many(3, 0, 4, RESETS_MAX), Ok(()));
        assert_eq!(many(3, 0, 4, RESETS_MAX + 1), Err(Flood::Resets));
        for (kind, payload) in [(2, 5), (4, 0), (4, 6), (6, 8), (7, 8), (9, 0), (0xfe, 3), (0, 0)] {
            assert_eq!(many(kind, 0, payload, CONTROLS_MAX), Ok(()), "{kind}");
            assert_eq!(many(kind, 0, payload, CONTROLS_MAX + 1), Err(Flood::Controls), "{kind}");
        }
        // Requests, bodies, and ends of bodies.
        for (kind, flags, payload) in [(1, 5, 20), (0, 0, 1), (0, 1, 0)] {
            assert_eq!(many(kind, flags, payload, 3 * CONTROLS_MAX), Ok(()), "{kind}");
        }
        assert_eq!(many(8, 0, 4, UPDATES_MAX + 1), Err(Flood::Updates));
    }

    #[test]
    fn frame_counts_reset_in_each_window() {
        let mut counter = FrameCounter::default();
        counter.read(&connection([])).unwrap();
        let resets: Vec<u8> = (0..RESETS_MAX).flat_map(|_| frame(3, 0, 4)).collect();
        for _ in 0..3 {
            assert_eq!(counter.read(&resets), Ok(()));
            counter.begin_window();
        }
    }

    proptest! {
        #[test]
        fn frame_counts_do_not_depend_on_read_boundaries(
            frames in proptest::collection::vec((0_u8..12, any::<u8>(), 0_usize..40), 0..60),
            cuts in proptest::collection::vec(1_usize..30, 1..40),
        ) {
            let all = connection(frames.iter().map(|&(kind, flags, payload)| frame(kind, flags, payload)));
            let mut counter = FrameCounter::default();
            let (mut rest, mut cuts) = (&all[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (part, left) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                counter.read(part).unwrap();
                rest = left;
            }
            let resets = frames.iter().filter(|(kind, ..)| *kind == 3).count();
            let updates = frames.iter().filter(|(kind, ..)| *kind == 8).count();
            let carrying = |&&(kind, flags, payload): &&(u8, u8, usize)| {
                kind == 1 || kind == 0 && (payload > 0 || flags & 1 == 1)
            };
            let controls = frames.len() - resets - updates - frames.iter().filter(carrying).count();
            prop_assert_eq!(
                (counter.resets as usize, counter.updates as usize, counter.controls as usize),
                (resets, updates, controls)
            );
        }
    }
}
