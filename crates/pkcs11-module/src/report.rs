//! What an operator has to be told. The process is another's, and has its standard error where its operators look: nginx
//! writes it into its error log.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Between two lines of a kind, unless it has a time of its own: a service that is away fails all signatures.
const PAUSE_S: u64 = 5;

/// Says it.
pub(crate) fn say(what: impl Display) {
    // Nobody is left to be told that it cannot be said. One call, so that lines of several processes stay apart.
    let _ = std::io::stderr().write_all(format!("bulla-pkcs11: {what}\n").as_bytes());
}

/// A kind of line, and when the last one was said. Of one's own for each kind, so that none hides another. It has no lock;
/// standard error has.
pub(crate) struct ThrottledMessage {
    said: AtomicU64,
    pause_s: u64,
}

impl ThrottledMessage {
    pub(crate) const fn new() -> Self {
        Self::every(PAUSE_S)
    }

    /// One that is said every so many seconds.
    pub(crate) const fn every(pause_s: u64) -> Self {
        Self { said: AtomicU64::new(0), pause_s }
    }

    /// Says it, unless one of the kind was said within its pause.
    pub(crate) fn say(&self, what: impl Display) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let said = self.said.load(Ordering::Relaxed);
        let is_due = now.abs_diff(said) >= self.pause_s;
        if is_due && self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            say(what);
        }
    }
}
