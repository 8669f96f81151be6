//! Timeouts of an HTTP/1 client connection between requests: for the first byte of the next header, and for its rest.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Timeouts of a request's header.
#[derive(Clone, Copy, Debug)]
pub struct HeadTimeouts {
    /// Time from the header's first byte to its last.
    pub head: Duration,
    /// Time from the end of the previous response, or from the start of the connection, to the header's first byte.
    pub keep_alive: Duration,
}

/// The part of a request that a connection waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaitPhase {
    /// The first byte of a request.
    Request,
    /// The rest of a request's header.
    Head,
}

/// An expired timeout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HeadTimeout(pub(crate) WaitPhase);

/// Timer for the next request's header.
#[derive(Debug)]
pub(crate) struct HeadTimer {
    timeouts: HeadTimeouts,
    awaited: Option<WaitPhase>,
    /// Created by the first wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl HeadTimer {
    pub(crate) fn new(timeouts: HeadTimeouts) -> Self {
        Self { timeouts, awaited: None, sleep: None }
    }

    pub(crate) fn stop(&mut self) {
        self.awaited = None;
    }

    /// Completes when the wait for `awaited` has exceeded its timeout.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, awaited: WaitPhase) -> Poll<HeadTimeout> {
        let limit = match awaited {
            WaitPhase::Request => self.timeouts.keep_alive,
            WaitPhase::Head => self.timeouts.head,
        };
        let until = Instant::now() + limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if self.awaited.replace(awaited) != Some(awaited) {
            sleep.as_mut().reset(until);
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(HeadTimeout(awaited))
    }
}
