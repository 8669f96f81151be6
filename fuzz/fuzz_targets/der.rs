//! Any octets, read as DER and as the small formats in it: no panic, and elements stay inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::der::{Reader, first_sloppy_length, oid_text};

fuzz_target!(|octets: &[u8]| {
    for element in Reader::new(octets).flatten() {
        assert!(element.content.len() < element.whole.len());
        assert!(element.whole.len() <= octets.len());
        let _ = (element.text(), element.time(), element.integer(), element.bits());
        let _ = oid_text(element.content);
    }
    let _ = first_sloppy_length(octets);
    let _ = x509::ocsp::parse_response(octets);
    let _ = x509::sct::parse(octets);
    let _ = x509::PublicKey::parse(octets);
    let _ = x509::pem::certificates(octets).count();
});
