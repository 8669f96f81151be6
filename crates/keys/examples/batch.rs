//! What signatures cost that are made eight at a time, beside the library's one by one: both on one core, in turn, all from the
//! digest to the signature with its check.
//!
//! `cargo run --release -p keys --example batch -- [--rounds 400]`

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use keys::{BATCH, BATCH_MIN, Hash, KeyType, PrivateKey, Scheme, SignJob, is_batched, sign_slice};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--rounds");
    let rounds: usize = at.map_or(400, |at| arguments[at + 1].parse().unwrap());
    let schemes = [("PKCS #1", Scheme::RsaPkcs1(Hash::Sha256)), ("PSS", Scheme::RsaPss(Hash::Sha256))];
    if !is_batched(KeyType::Rsa2048, schemes[0].1) {
        println!("this processor has no AVX-512 IFMA: signatures are made one by one");
        return;
    }
    let keys = [(); BATCH].map(|()| PrivateKey::generate(KeyType::Rsa2048).unwrap());
    let digests: [[u8; 32]; BATCH] = std::array::from_fn(|at| [at as u8; 32]);
    println!(
        "RSA-2048, SHA-256, {BATCH} keys; median of {rounds} rounds, µs a signature (a second and core)"
    );
    for (name, scheme) in schemes {
        let jobs: [SignJob<'_>; BATCH] =
            std::array::from_fn(|at| SignJob { key: &keys[at], scheme, input: &digests[at] });
        keys.iter().for_each(PrivateKey::prepare);
        let (mut alone, mut batches) = (Vec::new(), vec![Vec::new(); BATCH + 1]);
        for _ in 0..rounds {
            let began = Instant::now();
            for job in &jobs {
                black_box(job.key.sign_digest_now(job.scheme, job.input).unwrap());
            }
            alone.push(micros(began) / BATCH as f64);
            for (size, took) in batches.iter_mut().enumerate().skip(BATCH_MIN) {
                let began = Instant::now();
                black_box(sign_slice(&jobs[..size]));
                took.push(micros(began) / size as f64);
            }
        }
        let alone = median(alone);
        println!("{name:8} one by one   {alone:6.1} ({:5.0})", 1e6 / alone);
        for (size, took) in batches.into_iter().enumerate().skip(BATCH_MIN) {
            let batch = median(took);
            println!(
                "{name:8} {size} at a time  {batch:6.1} ({:5.0})  ratio {:.2}",
                1e6 / batch,
                alone / batch
            );
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
