//! What an operator has to be told. The process is another's, and has its standard error where its operators look: nginx
//! writes it into its error log.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Between two lines about signatures that were not made: a service that is away fails all of them.
const PAUSE_S: u64 = 5;

/// Says it.
pub(crate) fn say(what: impl Display) {
    // Nobody is left to be told that it cannot be said. One call, so that lines of several processes stay apart.
    let _ = std::io::stderr().write_all(format!("bulla-pkcs11: {what}\n").as_bytes());
}

/// Says it, unless the like was said within [`PAUSE_S`] seconds. No lock: a fork may come at any time.
pub(crate) fn say_seldom(what: impl Display) {
    static SAID_S: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let said = SAID_S.load(Ordering::Relaxed);
    let is_due = now.abs_diff(said) >= PAUSE_S;
    if is_due && SAID_S.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        say(what);
    }
}
