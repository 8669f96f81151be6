//! Any octets, read as a file in age's format: no panic, and nothing opens but what was sealed.
#![no_main]

use std::io::Read as _;
use std::sync::LazyLock;

use keys::age::{AGE_LINE, Identity, Opening, decrypt};
use libfuzzer_sys::fuzz_target;

/// Made anew in each run: no input can have been sealed to it.
static OPENING: LazyLock<Opening> = LazyLock::new(|| Opening::Identities(vec![Identity::generate()]));

fuzz_target!(|octets: &[u8]| {
    check(octets);
    check(&[AGE_LINE.as_bytes(), b"\n", octets].concat());
});

fn check(octets: &[u8]) {
    if let Ok(mut reader) = decrypt(&OPENING, octets) {
        let mut content = Vec::new();
        assert!(reader.read_to_end(&mut content).is_err(), "a file that nobody sealed was opened");
    }
}
