//! Every configuration key with its meaning.

mod server;
mod services;

use cli::configuration::{Key, Kind};

/// Every key with its meaning, in the order of `bulla config show`. The variable of `scan.ports` is `BULLA_SCAN_PORTS`, and so on.
pub(super) const KEYS: &[Key] = &joined();

const COUNT: usize = server::KEYS.len() + services::KEYS.len();

const fn joined() -> [Key; COUNT] {
    let mut keys = [("", Kind::Text, ""); COUNT];
    let mut at = 0;
    while at < COUNT {
        let from_server = at < server::KEYS.len();
        keys[at] = if from_server { server::KEYS[at] } else { services::KEYS[at - server::KEYS.len()] };
        at += 1;
    }
    keys
}
