//! Any octets, read as the answers of search services: no panic, and names stay bounded.
#![no_main]

use ct::search::{read_cert_spotter, read_crt_sh};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    for found in
        [read_cert_spotter(octets), read_crt_sh(octets, "example.com", Some("17"))].into_iter().flatten()
    {
        for issuance in found.issuances {
            assert!(issuance.names.len() <= ct::issuance::NAMES_MAX);
        }
    }
});
