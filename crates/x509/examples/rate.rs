//! Benchmark: cost of parsing, linting and verifying a chain: `cargo run --release -p x509 --example rate -- chain.pem roots.pem` (leaf
//! first).

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use x509::lint::{LintContext, lint};
use x509::verify::{MemorySignatureCache, TrustStore, verify_chain};
use x509::{Certificate, pem};

/// Number of rounds: enough that the resolution of the clock does not matter.
const ROUNDS: u32 = 20_000;

fn main() -> ExitCode {
    let mut files = std::env::args().skip(1).map(|path| std::fs::read(path).unwrap_or_default());
    let (chain, roots) = (files.next().unwrap_or_default(), files.next().unwrap_or_default());
    let ders: Vec<Vec<u8>> = pem::certificates(&chain).map(|(_, der)| der).collect();
    let chain: Vec<_> = ders.iter().filter_map(|der| Certificate::parse(der).ok()).map(Arc::new).collect();
    let [leaf, sent @ ..] = &chain[..] else {
        eprintln!("hint: give a PEM file with a chain, and one with roots");
        return ExitCode::from(2);
    };
    let mut store = TrustStore::new();
    pem::certificates(&roots).for_each(|(_, der)| drop(store.add_der(&der)));
    let now = leaf.not_before.plus(1);
    let context = LintContext { publicly_trusted: true, ..LintContext::for_private_leaf(now) };
    let signatures = MemorySignatureCache::bounded(1_000);
    println!("leaf of {} octets, {} sent, {} roots", leaf.der.len(), sent.len(), store.len());
    println!("{}", verify_chain(leaf, sent, &store, now, &signatures));
    let above = LintContext { leaf: false, ..context };
    for finding in sent.iter().flat_map(|c| lint(c, &above)).chain(lint(leaf, &context)) {
        println!("{}: {}", finding.rule.code, finding.evidence);
    }
    measure("parse", || drop(black_box(Certificate::parse(black_box(&leaf.der)))));
    measure("lint", || drop(black_box(lint(leaf, &context))));
    measure("verify, signatures remembered", || {
        drop(black_box(verify_chain(leaf, sent, &store, now, &signatures)));
    });
    ExitCode::SUCCESS
}

fn measure(what: &str, mut work: impl FnMut()) {
    let started = Instant::now();
    (0..ROUNDS).for_each(|_| work());
    println!("{what}: {:.2} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
}
