//! Messages of the Keyless protocol from strangers: no panic, and what is read survives writing.
#![no_main]

use keyless::wire::{HEADER, MessageItems, PADDED, TooLong, first};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let mut rest = octets;
    while let Some((header, body)) = first(rest) {
        rest = &rest[HEADER + body.len()..];
        let Ok(items) = MessageItems::parse(body) else { return };
        let mut out = Vec::new();
        match items.encode(header.id, &mut out) {
            Ok(()) => {
                assert!(out.len() >= PADDED);
                let (again, body) = first(&out).expect("a whole message");
                assert_eq!((again.id, MessageItems::parse(body)), (header.id, Ok(items)));
            }
            // Opcode and payload are written where there were none, too.
            Err(TooLong) => assert!(body.len() > 65_500),
        }
    }
});
