//! Every dialogue before TLS: no octets break it, and how they are cut changes no verdict.
//! Mirrored on stable by the properties in `scan::starttls`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scan::starttls::{Dialogue, Step, TlsFraming};
use scan::target::Protocol;

fuzz_target!(|input: &[u8]| {
    let [which, size, said @ ..] = input else { return };
    let protocol = Protocol::UPGRADED[usize::from(*which) % Protocol::UPGRADED.len()];
    let cut = verdict(protocol, said, usize::from(*size).max(1));
    assert_eq!(cut, verdict(protocol, said, said.len().max(1)));
    let mut wrapping = TlsFraming::new(Protocol::Mssql);
    for piece in said.chunks(usize::from(*size).max(1)) {
        let _ = wrapping.unwrap(piece);
    }
});

/// The kind of end; the words shown are those at hand when it came, so they are left out.
fn verdict(protocol: Protocol, said: &[u8], size: usize) -> String {
    let Some(mut dialogue) = Dialogue::new(protocol, "fuzz.example") else { return String::new() };
    let mut last = Step::More;
    for piece in said.chunks(size) {
        last = dialogue.receive(piece);
    }
    match last {
        Step::More | Step::Send(_) => "waiting".to_owned(),
        Step::Ready { injected, .. } => format!("ready {injected}"),
        Step::Failed(error) => format!("{:?}", std::mem::discriminant(&error)),
    }
}
