//! What an operator has to be told. The process is another's, and has its standard error where its operators look: nginx
//! writes it into its error log.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Between two lines of a kind: a service that is away fails all signatures.
const PAUSE_S: u64 = 5;

/// Says it.
pub(crate) fn say(what: impl Display) {
    // Nobody is left to be told that it cannot be said. One call, so that lines of several processes stay apart.
    let _ = std::io::stderr().write_all(format!("bulla-pkcs11: {what}\n").as_bytes());
}

/// A kind of line, and when the last one was said. Of one's own for each kind, so that none hides another. It has no lock;
/// standard error has.
pub(crate) struct Seldom(AtomicU64);

impl Seldom {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Says it, unless one of the kind was said within [`PAUSE_S`] seconds.
    pub(crate) fn say(&self, what: impl Display) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let said = self.0.load(Ordering::Relaxed);
        let is_due = now.abs_diff(said) >= PAUSE_S;
        if is_due && self.0.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            say(what);
        }
    }
}
