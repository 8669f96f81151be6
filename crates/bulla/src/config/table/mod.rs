//! Every configuration key with its meaning.

mod server;
mod services;

use cli::configuration::{Key, Kind};

/// Every key with its meaning, in the order of `bulla config show`. The variable of `scan.ports` is `BULLA_SCAN_PORTS`, and so on.
pub(super) const KEYS: &[Key] = &joined();

const PARTS: [&[Key]; 4] = [server::ROLES, discover::KEYS, server::KEYS, services::KEYS];

const COUNT: usize = PARTS[0].len() + PARTS[1].len() + PARTS[2].len() + PARTS[3].len();

const fn joined() -> [Key; COUNT] {
    let mut keys = [("", Kind::Text, ""); COUNT];
    let (mut part, mut at) = (0, 0);
    while part < PARTS.len() {
        let mut of_part = 0;
        while of_part < PARTS[part].len() {
            keys[at] = PARTS[part][of_part];
            at += 1;
            of_part += 1;
        }
        part += 1;
    }
    keys
}
