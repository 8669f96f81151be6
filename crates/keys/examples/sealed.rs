//! Benchmark: cost of wrapping, unwrapping, sealing and opening, and of their parts.
//!
//! `cargo run --release -p keys --example sealed`

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519};
use aws_lc_rs::kem::{DecapsulationKey, ML_KEM_768};
use keys::sealed::{NodeKey, PolicyKey, SealContext, WrapContext, seal_key};
use keys::{KeyType, PrivateKey};

/// Repetitions of each operation, after the same number for warm-up. The mean of the faster half is printed.
const ROUNDS: usize = 500;

fn measure<T>(what: &str, mut work: impl FnMut() -> T) {
    let mut took: Vec<f64> = (0..2 * ROUNDS)
        .map(|_| {
            let began = Instant::now();
            black_box(work());
            began.elapsed().as_secs_f64() * 1e6
        })
        .skip(ROUNDS)
        .collect();
    took.sort_by(f64::total_cmp);
    let faster = &took[..ROUNDS / 2];
    println!("{what:<46} {:>8.1} µs", faster.iter().sum::<f64>() / faster.len() as f64);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (node, policy) = (NodeKey::generate()?, PolicyKey::generate()?);
    let wrapping = WrapContext { policy: [1; 16], generation: 1, node: [2; 16] };
    let wrap = policy.wrap_for(node.public(), &wrapping)?;
    measure("a pair of its seed", || PolicyKey::from_seed(&*policy.seed()));
    measure("wrap a seed to a node", || policy.wrap_for(node.public(), &wrapping));
    measure("unwrap a seed", || node.unwrap_seed(&wrap, &wrapping));
    for kind in [KeyType::P256, KeyType::Rsa2048] {
        let key = PrivateKey::generate(kind)?;
        let sealing =
            SealContext { policy: [1; 16], generation: 1, spki_sha256: *key.spki_hash().as_bytes() };
        let sealed = seal_key(policy.public(), &key, &sealing)?;
        let pkcs8 = key.to_pkcs8_der();
        println!("{kind}: {} octets sealed are {}", pkcs8.len(), sealed.len());
        measure("  seal", || seal_key(policy.public(), &key, &sealing));
        measure("  open", || policy.open_key(&sealed, &sealing));
        measure("  of which reading the key", || PrivateKey::from_pkcs8_der(&pkcs8));
    }
    println!("the parts, by aws-lc:");
    let lattice = DecapsulationKey::generate(&ML_KEM_768)?;
    let public = lattice.encapsulation_key()?;
    let (ciphertext, _) = public.encapsulate()?;
    let ciphertext = ciphertext.as_ref().to_vec();
    measure("  ML-KEM-768 pair", || DecapsulationKey::generate(&ML_KEM_768));
    measure("  ML-KEM-768 encapsulate", || public.encapsulate());
    measure("  ML-KEM-768 decapsulate", || lattice.decapsulate(ciphertext.as_slice().into()));
    let curve = agreement::PrivateKey::generate(&X25519)?;
    let theirs = agreement::PrivateKey::generate(&X25519)?.compute_public_key()?;
    measure("  X25519 pair", || agreement::PrivateKey::generate(&X25519).map(|key| key.compute_public_key()));
    measure("  X25519 agree", || {
        agreement::agree(&curve, UnparsedPublicKey::new(&X25519, theirs.as_ref()), (), |secret| Ok(secret[0]))
    });
    Ok(())
}
