//! Files of every format: no octets break the readers. Mirrored on stable by the properties in
//! `scan::files`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scan::files::{Passwords, contents};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = contents(bytes, &Passwords::default()) {
        let chains: usize = found.chains().map(<[_]>::len).sum();
        assert_eq!(chains, found.certificates.len());
    }
});
