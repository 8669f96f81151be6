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
    received: usize,
    incomplete_bytes: IncompleteBytes,
    /// Timeout of a message, from the start of the wait until it is complete.
    message_timeout: Duration,
    due: Option<Pin<Box<Sleep>>>,
    /// Whether the timeout applies although no message has begun. A single call expects its message immediately; a stream may pause
    /// between messages for any time.
    awaits_message: bool,
}

impl IncomingMessages {
    pub(super) fn new(
        body: Incoming,
        incomplete_bytes: IncompleteBytes,
        message_timeout: Duration,
        is_stream: bool,
    ) -> Self {
        let framing = Framing::default();
        Self {
            body,
            framing,
            received: 0,
            incomplete_bytes,
            message_timeout,
            due: None,
            awaits_message: !is_stream,
        }
    }

    fn on_data(&mut self, data: &[u8]) -> Result<(), Status> {
        let whole = self.framing.take(data);
        if whole {
            (self.awaits_message, self.due) = (false, None);
        }
        let received = std::mem::replace(&mut self.received, self.framing.received);
        let before = self.incomplete_bytes.0.fetch_add(self.received, Relaxed);
        self.incomplete_bytes.0.fetch_sub(received, Relaxed);
        if before + self.received - received > HALF_SENT_MAX {
            let why = format!("more than {HALF_SENT_MAX} bytes of incomplete messages on one connection");
            return Err(Status::resource_exhausted(why));
        }
        Ok(())
    }

    /// Returns ready when a message has exceeded its timeout.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.received == 0 && !self.awaits_message {
            return Poll::Pending;
        }
        let message_timeout = self.message_timeout;
        let due = self.due.get_or_insert_with(|| Box::pin(tokio::time::sleep(message_timeout)));
        due.as_mut().poll(context).map(|()| {
            Status::deadline_exceeded(format!(
                "the message was incomplete after {} s",
                message_timeout.as_secs()
            ))
        })
    }
}

impl Drop for IncomingMessages {
    fn drop(&mut self) {
        self.incomplete_bytes.0.fetch_sub(self.received, Relaxed);
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
                let taken = frame.data_ref().map_or(Ok(()), |data| this.on_data(data));
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
    received: usize,
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
            if self.received < PREFIX {
                let count = data.len().min(PREFIX - self.received);
                self.prefix[self.received..self.received + count].copy_from_slice(&data[..count]);
                (self.received, data) = (self.received + count, &data[count..]);
            } else {
                let count = data.len().min(self.length() - self.received);
                (self.received, data) = (self.received + count, &data[count..]);
            }
            if self.received >= PREFIX && self.received == self.length() {
                (self.received, whole) = (0, true);
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
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            for length in &lengths {
                bytes.push(0);
                bytes.extend((*length as u32).to_be_bytes());
                bytes.resize(bytes.len() + length, 7);
                ends.push(bytes.len());
            }
            let (mut framing, mut at, mut whole) = (Framing::default(), 0, 0);
            for cut in cuts.iter().cycle() {
                let to = (at + cut).min(bytes.len());
                let became = framing.take(&bytes[at..to]);
                let ended = ends.iter().filter(|end| **end > at && **end <= to).count();
                prop_assert_eq!(became, ended > 0);
                whole += ended;
                let last = ends.iter().filter(|end| **end <= to).max().copied().unwrap_or(0);
                prop_assert_eq!(framing.received, to - last);
                at = to;
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!((whole, framing.received), (lengths.len(), 0));
        }
    }
}
