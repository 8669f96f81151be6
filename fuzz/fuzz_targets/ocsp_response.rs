//! Any octets, read as an OCSP response: no panic, and what is read strictly is read leniently, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::ocsp::{BasicResponse, Outcome, parse_response};

fuzz_target!(|octets: &[u8]| {
    let lenient = parse_response(octets);
    let Ok(response) = BasicResponse::parse(octets) else { return };
    // Of a certificate named by another hash only the strict reader has an opinion.
    if let Some(first) = response.answers.first().filter(|answer| answer.id.is_some()) {
        assert_eq!(lenient.unwrap().status, Outcome::Status(first.status));
    }
});
