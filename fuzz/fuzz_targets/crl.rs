//! Any octets, read as a revocation list: no panic, and every entry counted is there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::SerialNumber;
use x509::crl::Crl;

fuzz_target!(|octets: &[u8]| {
    let Ok(crl) = Crl::parse(octets) else { return };
    assert_eq!(crl.entries().count(), crl.len());
    let _ = crl.find(&SerialNumber::from_content(&[1]));
});
