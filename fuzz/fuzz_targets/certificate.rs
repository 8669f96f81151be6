//! Any octets, read as a certificate and judged: no panic, and findings stay bounded.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use x509::lint::{FINDINGS_MAX, LintContext, lint};
use x509::verify::{TrustStore, chain_order, verify_chain};
use x509::{Certificate, ReferenceName, UnixTime};

const NOW: UnixTime = UnixTime(1_780_272_000);

fuzz_target!(|der: &[u8]| {
    let Ok(certificate) = Certificate::parse(der) else { return };
    let certificate = Arc::new(certificate);
    for leaf in [true, false] {
        let context = LintContext { leaf, publicly_trusted: leaf, ..LintContext::for_private_leaf(NOW) };
        assert!(lint(&certificate, &context).len() <= FINDINGS_MAX);
    }
    let sent = [certificate.clone()];
    let _ = verify_chain(&certificate, &sent, &TrustStore::new(), NOW, &());
    let _ = chain_order(&certificate, &sent);
    let _ = x509::matches_name(&certificate, &ReferenceName::Ip([127, 0, 0, 1].into()));
});
