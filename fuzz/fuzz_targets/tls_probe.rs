//! The probe's parser: no octets break it, and how they are cut changes nothing of what was seen.
//! Mirrored on stable by the properties in `scan::tls`.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use scan::tls::{ClientHelloContent, Evidence, Handshake, KeyShares, Profile, Step};

static SHARES: LazyLock<Arc<KeyShares>> =
    LazyLock::new(|| Arc::new(KeyShares::generate().expect("randomness")));

fuzz_target!(|input: &[u8]| {
    let [choice, size, said @ ..] = input else { return };
    let profile = match choice % 3 {
        0 => Profile::Modern,
        1 => Profile::Compact,
        _ => Profile::Legacy,
    };
    let offer = ClientHelloContent { profile, finish: choice & 0x80 != 0, ..ClientHelloContent::default() };
    assert_eq!(seen(&offer, said, usize::from(*size).max(1)), seen(&offer, said, said.len().max(1)));
});

/// What was seen. Signatures and keys are random to each run, so proofs are left out.
fn seen(offer: &ClientHelloContent, said: &[u8], size: usize) -> Evidence {
    let Ok((mut handshake, _)) = Handshake::start(offer, &SHARES) else { return Evidence::default() };
    for piece in said.chunks(size) {
        if let Step::Done(_) | Step::Failed(_) = handshake.receive(piece) {
            break;
        }
    }
    Evidence { bytes_in: 0, proof: Default::default(), ..handshake.into_evidence() }
}
