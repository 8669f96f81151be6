//! Any octets, read as a name server's answer: no panic, and no lifetime past the cap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outbound::resolve::{LIFETIME_MAX, read_response};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(addresses) = read_response(bytes, "www.example") {
        assert!(addresses.iter().all(|(_, lifetime)| *lifetime <= LIFETIME_MAX));
        // Each address takes four octets at least.
        assert!(addresses.len() <= bytes.len() / 4);
    }
});
