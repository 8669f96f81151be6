//! After a batch, no secret remains on the thread's stack. The test reads the stack through the operating system.

use std::fs::File;
use std::os::unix::fs::FileExt;

use batch::{Ed25519Job, Ed25519Key, Job, P256Job, P256Key, SignatureOutcome};
use num_bigint::BigUint;

use crate::lanes::{KEYS, Numbers, bytes, kernel};

/// Bytes of stack that are searched: those that the calls used, and many more.
const DEPTH: usize = 256 * 1024;

/// Returns the memory below the caller's frame.
#[inline(never)]
fn below() -> Vec<u8> {
    let mut found = vec![0; DEPTH];
    let address = std::ptr::from_ref(&found).addr();
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut found, (address - DEPTH) as u64).unwrap();
    found
}

/// Returns the secrets of a key in every representation that the kernel writes, in the widths that it computes with.
fn secrets(of: &Numbers) -> Vec<(&'static str, u64)> {
    let one = BigUint::from(1_u8);
    let words = |number: &BigUint, bits: u32| -> Vec<u64> {
        let part = |at: u32| (number >> (at * bits)) & ((&one << bits) - &one);
        (2..14).map(|at| part(at).to_u64_digits().first().copied().unwrap_or(0)).collect()
    };
    let r = |times: u32| &one << (1040 * times);
    let mut secrets = Vec::new();
    for (prime, other) in [(&of.p, &of.q), (&of.q, &of.p)] {
        let exponent = &of.d % (prime - &one);
        let coefficient = other.modinv(prime).unwrap() * r(1) % prime;
        let numbers = [
            ("prime", prime.clone()),
            ("R", r(1) % prime),
            ("R²", r(2) % prime),
            ("R³", r(3) % prime),
            ("coefficient", coefficient),
            ("exponent", exponent),
        ];
        for (name, number) in numbers {
            secrets
                .extend([52, 64].into_iter().flat_map(|bits| words(&number, bits)).map(|word| (name, word)));
        }
    }
    secrets
}

fn left(memory: &[u8], secrets: &[(&'static str, u64)]) -> Vec<&'static str> {
    let words: std::collections::HashSet<u64> =
        memory.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    secrets.iter().filter(|(_, secret)| words.contains(secret)).map(|(name, _)| *name).collect()
}

/// Leaves a word on the stack, `depth` bytes below the caller's frame, and does not wipe it.
#[inline(never)]
fn leave(word: u64, depth: usize) {
    let mut frame = [0_u64; 512];
    std::hint::black_box(&mut frame)[100] = word;
    if depth > size_of_val(&frame) {
        leave(word, depth - size_of_val(&frame));
    }
    std::hint::black_box(&frame);
}

/// The search finds an unwiped secret, both near and far.
#[test]
fn stack_scan_finds_an_unwiped_secret() {
    for depth in [0, 32 * 1024, 128 * 1024] {
        let word = u64::from_be_bytes(*b"a secret");
        let memory = std::thread::spawn(move || {
            leave(word, depth);
            below()
        });
        let memory = memory.join().unwrap();
        assert_eq!(left(&memory, &[("word", word), ("another", word + 1)]), ["word"], "{depth}");
    }
}

#[test]
fn rsa_batch_leaves_no_secret_on_the_stack() {
    let Some(kernel) = kernel() else { return };
    let numbers = &KEYS[0];
    let key = batch::Key::new(&numbers.bytes().parts()).unwrap();
    let secrets = secrets(numbers);
    let input = bytes(&BigUint::from(0x1234_5678_u32));
    // Run on a new thread, whose stack holds nothing else.
    let memory = std::thread::spawn(move || {
        assert!(kernel.private_operations(&[Job { key: &key, input: &input }])[0].is_some());
        below()
    });
    assert_eq!(left(&memory.join().unwrap(), &secrets), [""; 0]);
}

#[test]
fn parsing_an_rsa_key_leaves_no_secret_on_the_stack() {
    let numbers = &KEYS[0];
    let parts = numbers.bytes();
    let secrets = secrets(numbers);
    let memory = std::thread::spawn(move || {
        let key = batch::Key::new(&parts.parts());
        let memory = below();
        assert!(key.is_some());
        memory
    });
    assert_eq!(left(&memory.join().unwrap(), &secrets), [""; 0]);
}

/// Returns the secrets of a P-256 signature: the key as given and as the kernel stores it, the nonce, and n minus each.
fn p256_secrets(private: &BigUint, nonce: &BigUint) -> Vec<(&'static str, u64)> {
    let n = &*crate::p256::N;
    let r = BigUint::from(1_u8) << 260_u32;
    let named = [
        ("key", private.clone()),
        ("key's rest", n - private),
        ("key, times R", private * &r % n),
        ("key's rest, times R", (n - private) * &r % n),
        ("nonce", nonce.clone()),
        ("nonce's rest", n - nonce),
        ("nonce, times R", nonce * &r % n),
        ("nonce's inverse", nonce.modinv(n).unwrap()),
    ];
    words(&named)
}

/// Returns the numbers in limbs and in words.
fn words(of: &[(&'static str, BigUint)]) -> Vec<(&'static str, u64)> {
    let mut found = Vec::new();
    for (name, number) in of {
        for bits in [52_u32, 64] {
            let part = |at: u32| (number >> (at * bits)) & ((BigUint::from(1_u8) << bits) - 1_u8);
            let words = (0..4).map(|at| part(at).to_u64_digits().first().copied().unwrap_or(0));
            found.extend(words.map(|word| (*name, word)));
        }
    }
    found
}

#[test]
fn p256_batch_leaves_no_secret_on_the_stack() {
    let Some(kernel) = kernel() else { return };
    assert!(kernel.prepare_p256());
    let (private, nonce) = (BigUint::from_bytes_be(&[0x5a; 32]), BigUint::from_bytes_be(&[0xc3; 32]));
    let secrets = p256_secrets(&private, &nonce);
    // Box the inputs, so that this thread's stack holds no copy. A copy on the heap does not belong to the batch.
    let given = Box::new((crate::p256::bytes(&private), crate::p256::bytes(&nonce)));
    let memory = std::thread::spawn(move || {
        let key = P256Key::new(&given.0).unwrap();
        let after_reading = below();
        let job = P256Job { key: &key, digest: &[7; 32], nonce: &given.1 };
        assert!(matches!(kernel.p256_signatures(&[job])[0], SignatureOutcome::Signature(_)));
        [after_reading, below()]
    });
    for memory in memory.join().unwrap() {
        assert_eq!(left(&memory, &secrets), [""; 0]);
    }
}

#[test]
fn ed25519_batch_leaves_no_secret_on_the_stack() {
    let Some(kernel) = kernel() else { return };
    assert!(kernel.prepare_ed25519());
    // The half of a hash, already clamped.
    let given = Box::new(([0x58; 32], [0xc3; 64], [0x11; 64]));
    let (l, private, nonce) =
        (&*crate::ed25519::L, BigUint::from_bytes_le(&given.0), BigUint::from_bytes_le(&given.1));
    let (r, k) = (&nonce % l, BigUint::from_bytes_le(&given.2) % l);
    let secrets = words(&[
        ("key", private.clone()),
        ("key's rest", l * 8_u8 - &private),
        ("hash", nonce.clone()),
        ("hash's rest", nonce >> 260_u32),
        ("nonce", r.clone()),
        ("nonce and L", &r + l),
        ("product", private * k % l),
    ]);
    let memory = std::thread::spawn(move || {
        let key = Ed25519Key::new(&given.0);
        let after_reading = below();
        let (points, state) = kernel.ed25519_commitments(&[&given.1]);
        let after_commitments = below();
        let job = Ed25519Job {
            key: &key,
            challenge: &given.2,
            recomputed_challenge: &given.2,
            recomputed_nonce: &given.1,
        };
        assert!(points[0].is_some() && kernel.ed25519_responses(&[job], state)[0].is_some());
        [after_reading, after_commitments, below()]
    });
    for memory in memory.join().unwrap() {
        assert_eq!(left(&memory, &secrets), [""; 0]);
    }
}
