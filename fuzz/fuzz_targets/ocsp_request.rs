//! Any octets, read as an OCSP request: no panic, bounds kept, and what is read survives writing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::ocsp::Request;

fuzz_target!(|octets: &[u8]| {
    let Ok(request) = Request::parse(octets) else { return };
    assert!((1..=Request::CERTIFICATES_MAX).contains(&request.certificates.len()));
    assert_eq!(Request::parse(&request.encode()), Ok(request));
});
