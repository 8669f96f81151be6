//! Any octets, read as a certification request: no panic, and what is read has its parts inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use x509::csr::CertificateRequest;

fuzz_target!(|octets: &[u8]| {
    let Ok(request) = CertificateRequest::from_pem_or_der(octets) else { return };
    assert!(request.tbs().len() < request.der.len());
    assert!(!request.tbs().is_empty());
    let names = request.names();
    assert!(names.len() <= request.subject_alt_names.len() + request.subject.common_names.len());
    let _ = request.verify();
    let _ = format!("{request:?}");
});
