//! Incoming messages of the native protocol. A message is buffered until it is complete, so the bytes of incomplete messages are
//! limited.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

/// Maximum bytes of incomplete messages on one connection: four messages of maximum length.
const HALF_SENT_MAX: usize = 4 << 20;
/// Bytes of the prefix of a message: compression flag and length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Counter of the bytes of incomplete messages on one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct IncompleteBytes(Arc<AtomicUsize>);

/// The incoming messages of one call.
pub(super) struct IncomingMessages {
    body: Incoming,
    framing: Framing,
    /// Bytes of this call that are counted for the connection.
    held: usize,
    half_sent: IncompleteBytes,
    /// Timeout of a message, from the start of the wait until it is complete.
    patience: Duration,
    due: Option<Pin<Box<Sleep>>>,
    /// Whether the timeout applies although no message has begun. A single call expects its message immediately; a stream may pause
    /// between messages for any time.
    is_owed: bool,
}

impl IncomingMessages {
    pub(super) fn new(
        body: Incoming,
        half_sent: IncompleteBytes,
        patience: Duration,
        is_stream: bool,
    ) -> Self {
        let framing = Framing::default();
        Self { body, framing, held: 0, half_sent, patience, due: None, is_owed: !is_stream }
    }

    fn came(&mut self, data: &[u8]) -> Result<(), Status> {
        let whole = self.framing.take(data);
        if whole {
            (self.is_owed, self.due) = (false, None);
        }
        let held = std::mem::replace(&mut self.held, self.framing.held);
        let before = self.half_sent.0.fetch_add(self.held, Relaxed);
        self.half_sent.0.fetch_sub(held, Relaxed);
        if before + self.held - held > HALF_SENT_MAX {
            let why = format!("more than {HALF_SENT_MAX} bytes of incomplete messages on one connection");
            return Err(Status::resource_exhausted(why));
        }
        Ok(())
    }

    /// Returns ready when a message has exceeded its timeout.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.held == 0 && !self.is_owed {
            return Poll::Pending;
        }
        let patience = self.patience;
        let due = self.due.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        due.as_mut().poll(context).map(|()| {
            Status::deadline_exceeded(format!("the message was incomplete after {} s", patience.as_secs()))
        })
    }
}

impl Drop for IncomingMessages {
    fn drop(&mut self) {
        self.half_sent.0.fetch_sub(self.held, Relaxed);
    }
}

impl Body for IncomingMessages {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let taken = frame.data_ref().map_or(Ok(()), |data| this.came(data));
                Poll::Ready(Some(taken.map(|()| frame).map_err(BoxError::from)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|frame| frame.map_err(BoxError::from))),
            Poll::Pending => this.poll_due(context).map(|late| Some(Err(late.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Parser state of one call: the prefix and the received bytes of its incomplete message.
#[derive(Debug, Default)]
struct Framing {
    prefix: [u8; PREFIX],
    /// Bytes of the incomplete message, including its prefix.
    held: usize,
}

impl Framing {
    /// Returns the length of the current message with its prefix, once the prefix is complete.
    fn length(&self) -> usize {
        let [_, length @ ..] = self.prefix;
        PREFIX + u32::from_be_bytes(length) as usize
    }

    /// Consumes these bytes. Returns whether a message was completed.
    fn take(&mut self, mut data: &[u8]) -> bool {
        let mut whole = false;
        while !data.is_empty() {
            if self.held < PREFIX {
                let count = data.len().min(PREFIX - self.held);
                self.prefix[self.held..self.held + count].copy_from_slice(&data[..count]);
                (self.held, data) = (self.held + count, &data[count..]);
            } else {
                let count = data.len().min(self.length() - self.held);
                (self.held, data) = (self.held + count, &data[count..]);
            }
            if self.held >= PREFIX && self.held == self.length() {
                (self.held, whole) = (0, true);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn message_framing_is_independent_of_read_boundaries(
            lengths in proptest::collection::vec(0_usize..300, 1..8),
            cuts in proptest::collection::vec(1_usize..64, 1..32),
        ) {
            let (mut octets, mut ends) = (Vec::new(), Vec::new());
            for length in &lengths {
                octets.push(0);
                octets.extend((*length as u32).to_be_bytes());
                octets.resize(octets.len() + length, 7);
                ends.push(octets.len());
            }
            let (mut framing, mut at, mut whole) = (Framing::default(), 0, 0);
            for cut in cuts.iter().cycle() {
                let to = (at + cut).min(octets.len());
                let became = framing.take(&octets[at..to]);
                let ended = ends.iter().filter(|end| **end > at && **end <= to).count();
                prop_assert_eq!(became, ended > 0);
                whole += ended;
                let last = ends.iter().filter(|end| **end <= to).max().copied().unwrap_or(0);
                prop_assert_eq!(framing.held, to - last);
                at = to;
                if at == octets.len() {
                    break;
                }
            }
            prop_assert_eq!((whole, framing.held), (lengths.len(), 0));
        }
    }
}
