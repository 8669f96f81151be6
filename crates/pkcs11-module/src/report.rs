//! Messages for the operator, written to the standard error of the program. nginx, for example, redirects its standard error to its
//! error log.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Default seconds between two messages of a kind. Without a pause, an unreachable service would cause a message for each
/// signature.
const PAUSE_S: u64 = 5;

/// Writes a message to standard error.
pub(crate) fn log(what: impl Display) {
    // A failure to write cannot be reported. One call, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("bulla-pkcs11: {what}\n").as_bytes());
}

/// A kind of message, and the time of the last message of this kind. A message never suppresses messages of another kind. The time
/// needs no lock, unlike standard error.
pub(crate) struct ThrottledMessage {
    last_logged_s: AtomicU64,
    pause_s: u64,
}

impl ThrottledMessage {
    pub(crate) const fn new() -> Self {
        Self::every(PAUSE_S)
    }

    /// Creates a message kind that is written at most once in this many seconds.
    pub(crate) const fn every(pause_s: u64) -> Self {
        Self { last_logged_s: AtomicU64::new(0), pause_s }
    }

    /// Writes the message, unless a message of this kind was written less than `pause_s` seconds ago.
    pub(crate) fn log(&self, what: impl Display) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let last_logged_s = self.last_logged_s.load(Ordering::Relaxed);
        let is_due = now.abs_diff(last_logged_s) >= self.pause_s;
        if is_due
            && self
                .last_logged_s
                .compare_exchange(last_logged_s, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            log(what);
        }
    }
}
