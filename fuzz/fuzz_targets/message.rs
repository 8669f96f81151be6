//! Any octets, read as CMS messages, in DER and BER: no panic, and what is read is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::cms::{EnvelopedData, ITEMS_MAX, SignedData};

fuzz_target!(|octets: &[u8]| {
    if let Ok(signed) = SignedData::parse(octets) {
        assert!(signed.certificates.len() <= ITEMS_MAX);
        let total: usize = signed.certificates.iter().map(Vec::len).sum();
        assert!(total <= octets.len());
    }
    if let Ok(envelope) = EnvelopedData::parse(octets) {
        let again = EnvelopedData::parse(&envelope.encode()).map(|again| again.ciphertext);
        assert_eq!(again, Ok(envelope.ciphertext));
    }
});
