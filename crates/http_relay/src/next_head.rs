//! How long a client's HTTP/1 connection waits for the next request: while nothing of it has come, and while its head is under way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The timeouts of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct HeadTimeouts {
    /// From the head's first byte to its last.
    pub head: Duration,
    /// From the end of the answer before, or from the beginning of the connection, to the head's first byte.
    pub keep_alive: Duration,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Awaited {
    /// The first byte of a request.
    Request,
    /// The rest of a head.
    Head,
}

/// A timeout that passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Late(pub(crate) Awaited);

/// The timer of the next head.
#[derive(Debug)]
pub(crate) struct NextHead {
    timeouts: HeadTimeouts,
    awaited: Option<Awaited>,
    /// Made when something is first waited for.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl NextHead {
    pub(crate) fn new(timeouts: HeadTimeouts) -> Self {
        Self { timeouts, awaited: None, sleep: None }
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.awaited = None;
    }

    /// Ready once `awaited` was waited for too long, without a break.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, awaited: Awaited) -> Poll<Late> {
        let limit = match awaited {
            Awaited::Request => self.timeouts.keep_alive,
            Awaited::Head => self.timeouts.head,
        };
        let until = Instant::now() + limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if self.awaited.replace(awaited) != Some(awaited) {
            sleep.as_mut().reset(until);
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Late(awaited))
    }
}
