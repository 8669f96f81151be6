//! Any octets, read as a log's signed checkpoint: no panic, and nothing unsigned is believed. As a log list too.
#![no_main]

use ct::{LogKey, LogList};
use libfuzzer_sys::fuzz_target;

/// A P-256 key whose private half nobody kept.
const SPKI: &[u8] = include_bytes!("ct_checkpoint.spki");

fuzz_target!(|octets: &[u8]| {
    let Ok(key) = LogKey::new("https://log.example/2026/", SPKI) else { panic!("the key is one") };
    assert!(key.verify(octets).is_err());
    let _ = LogList::parse(octets);
});
