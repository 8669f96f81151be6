//! Benchmark: cost of signatures that are made eight at a time, compared with the library's single signatures. Both run alternately on
//! one core, from the digest to the checked signature.
//!
//! `cargo run --release -p keys --example batch -- [--rounds 400]`

#![allow(clippy::unwrap_used, reason = "a benchmark ends by a panic where it cannot go on")]

use std::hint::black_box;
use std::time::Instant;

use keys::{BATCH, Batches, Hash, KeyType, PrivateKey, Scheme, SignJob, is_batched, sign_slice};

/// The measured cases, with repetitions per requested round. Short operations need more repetitions.
const CASES: [(&str, KeyType, Scheme, usize); 4] = [
    ("RSA-2048 PKCS #1", KeyType::Rsa2048, Scheme::RsaPkcs1(Hash::Sha256), 1),
    ("RSA-2048 PSS", KeyType::Rsa2048, Scheme::RsaPss(Hash::Sha256), 1),
    ("ECDSA P-256", KeyType::P256, Scheme::Ecdsa(Hash::Sha256), 10),
    ("Ed25519", KeyType::Ed25519, Scheme::Ed25519, 10),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--rounds");
    let rounds: usize = at.map_or(400, |at| arguments[at + 1].parse().unwrap());
    println!(
        "32 octets, {BATCH} keys; median of {rounds} rounds and more, µs a signature (a second and core)"
    );
    for (name, kind, scheme, more) in CASES {
        if is_batched(kind, scheme, Batches::All) {
            measure(name, kind, scheme, rounds * more);
        } else {
            println!("{name}: this processor has no AVX-512 IFMA: signatures are made one by one");
        }
    }
}

fn measure(name: &str, kind: KeyType, scheme: Scheme, rounds: usize) {
    let keys = [(); BATCH].map(|()| PrivateKey::generate(kind).unwrap());
    keys.iter().for_each(PrivateKey::prepare);
    let digests: [[u8; 32]; BATCH] = std::array::from_fn(|at| [at as u8; 32]);
    let jobs: [SignJob<'_>; BATCH] =
        std::array::from_fn(|at| SignJob { key: &keys[at], scheme, input: &digests[at] });
    let (mut alone, mut slices) = (Vec::new(), vec![Vec::new(); BATCH + 1]);
    for _ in 0..rounds {
        let began = Instant::now();
        for job in &jobs {
            black_box(job.key.sign_digest_now(job.scheme, job.input).unwrap());
        }
        alone.push(micros(began) / BATCH as f64);
        for (size, took) in slices.iter_mut().enumerate().skip(1) {
            let began = Instant::now();
            black_box(sign_slice(&jobs[..size], Batches::All));
            took.push(micros(began) / size as f64);
        }
    }
    let alone = median(alone);
    println!("{name:16} one by one   {alone:6.1} ({:6.0})", 1e6 / alone);
    for (size, took) in slices.into_iter().enumerate().skip(1) {
        // Fewer jobs than a batch are signed one by one.
        if sign_slice(&jobs[..size], Batches::All).batched == size {
            let batch = median(took);
            let (rate, ratio) = (1e6 / batch, alone / batch);
            println!("{name:16} {size} at a time  {batch:6.1} ({rate:6.0})  ratio {ratio:.2}");
        }
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
