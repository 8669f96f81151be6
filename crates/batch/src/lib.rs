//! Signatures in batches of eight: one per 64-bit lane of AVX-512 registers, with the instructions for 52-bit products (IFMA). A
//! partial batch costs as much as a full one.
//!
//! - [`Kernel`]: computes the signatures. It can be created only on a processor with these instructions.
//! - [`Key`]: the numbers of an RSA-2048 key, for the private operation (RFC 8017 section 5.2.1). Eight operations together cost
//!   less than three separate ones.
//! - [`P256Key`]: the numbers of a P-256 key, for ECDSA (FIPS 186-5 section 6.4). Eight signatures cost little more than two.
//! - [`Ed25519Key`]: the numbers of an Ed25519 key (RFC 8032). A signature takes two calls, and the caller computes the hashes
//!   before each call.
//!
//! Callers own the keys, which are wiped when dropped.
//!
//! Execution time and memory addresses do not depend on keys, nonces or inputs: exponents and scalars are read in fixed windows,
//! tables are read whole, and there are no branches on secrets. Each result is checked before it is returned, because a faulty one
//! may reveal the key (Boneh, DeMillo and Lipton 1997). An RSA result is raised to the public exponent again; for the others see
//! [`Kernel::p256_signatures`] and [`Kernel::ed25519_responses`]. Intermediate values, the vector registers and the stack below the
//! call are wiped, as far as a compiler allows it.
//!
//! The package in `model/` compiles the same source with a model of the instructions (`batch_model`) and runs the same tests on
//! every machine.

#![cfg_attr(batch_model, allow(unused_unsafe, reason = "the model of the instructions is safe"))]
// Functions with target features cannot replace closures. The model's functions could, which the lint would report.
#![cfg_attr(batch_model, allow(clippy::redundant_closure))]

#[cfg(any(target_arch = "x86_64", batch_model))]
mod avx512;
mod ed25519;
mod kernel;
mod key;
mod lanes;
mod number;
mod p256;

pub use ed25519::{Ed25519Job, Ed25519Key, Ed25519Nonces};
pub use kernel::Kernel;
pub use key::{BYTES, Job, Key, Parts};
pub use lanes::LANES;
pub use p256::{P256Job, P256Key, SignatureOutcome};

impl Kernel {
    /// Raises the `input` of each job to the private exponent, modulo the modulus. Results are in the order of the jobs, which run
    /// [`LANES`] at a time. `None` where the check against the input fails: because of a hardware fault, an inconsistent key, or an
    /// input that is not below the modulus.
    #[must_use]
    pub fn private_operations(self, jobs: &[Job<'_>]) -> Vec<Option<[u8; BYTES]>> {
        let mut results = Vec::with_capacity(jobs.len());
        for eight in jobs.chunks(LANES) {
            #[cfg(any(target_arch = "x86_64", batch_model))]
            {
                // Lanes without a job repeat the first one.
                let lanes = std::array::from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]));
                results.extend(avx512::private_operations(self, &lanes).into_iter().take(eight.len()));
            }
            #[cfg(not(any(target_arch = "x86_64", batch_model)))]
            results.extend(eight.iter().map(|_| None));
        }
        results
    }

    /// Builds the tables for [`Self::p256_signatures`] once. This takes a millisecond, and the tables use 208 KB for the life of
    /// the process. Returns false if their checksum is wrong because of a hardware fault. Every signature is then
    /// [`SignatureOutcome::Faulty`].
    #[must_use]
    pub fn prepare_p256(self) -> bool {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        return avx512::p256::prepare(self);
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        false
    }

    /// Signs the jobs in their order, [`LANES`] at a time.
    ///
    /// Each signature is checked before it is returned:
    /// - k·G satisfies the curve equation, in the coordinates that give r. A fault in the point arithmetic leads off the curve. A
    ///   wrong table entry, sign or number of steps leads to another point of the curve. Tags detect that: each entry has its
    ///   multiple of G modulo 2^52 - 1, and the sum of the added tags must be k.
    /// - r is the x coordinate of that point modulo n.
    /// - s·k - r·d is the digest modulo n. This check uses another copy of d in another form, and k as it was multiplied with G,
    ///   not its inverse.
    ///
    /// A signature with one such fault could reveal bits of k or d. Two simultaneous faults, and faults in a nonce before the call,
    /// are not detected. Fresh randomness in each nonce ensures that an attacker never has a faulty and a correct signature with
    /// the same nonce.
    #[must_use]
    pub fn p256_signatures(self, jobs: &[P256Job<'_>]) -> Vec<SignatureOutcome> {
        let mut results = Vec::with_capacity(jobs.len());
        for eight in jobs.chunks(LANES) {
            #[cfg(any(target_arch = "x86_64", batch_model))]
            {
                // Lanes without a job repeat the first one.
                let lanes = std::array::from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]));
                results.extend(avx512::p256::signatures(self, &lanes).into_iter().take(eight.len()));
            }
            #[cfg(not(any(target_arch = "x86_64", batch_model)))]
            results.extend(eight.iter().map(|_| SignatureOutcome::Faulty));
        }
        results
    }

    /// Builds the tables for [`Self::ed25519_commitments`] once. This takes a millisecond, and the tables use 303 KB for the life
    /// of the process. Returns false if their checksum is wrong because of a hardware fault.
    #[must_use]
    pub fn prepare_ed25519(self) -> bool {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        return avx512::ed25519::prepare(self);
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        false
    }

    /// Computes the first half of up to [`LANES`] signatures: R for each nonce hash r, the SHA-512 of the key's prefix and the
    /// message. Also returns the state for the second half. A lane returns `None` if its encoded R is not on the curve, or if the
    /// tags of the table entries (see [`Self::p256_signatures`]) show that R is not the requested multiple.
    ///
    /// # Panics
    /// With more nonces than [`LANES`].
    #[must_use]
    pub fn ed25519_commitments(self, nonces: &[&[u8; 64]]) -> (Vec<Option<[u8; 32]>>, Box<Ed25519Nonces>) {
        assert!(nonces.len() <= LANES, "a nonce for each lane at most");
        let mut state = Box::new(Ed25519Nonces { scalars: Default::default(), points: Default::default() });
        let Some(first) = nonces.first() else { return (Vec::new(), state) };
        #[cfg(any(target_arch = "x86_64", batch_model))]
        let made = {
            let lanes = std::array::from_fn(|lane| *nonces.get(lane).unwrap_or(first));
            avx512::ed25519::commitments(self, &lanes, &mut state)
        };
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        let made: ed25519::Commitments = {
            let _ = (first, &mut state);
            [None; LANES]
        };
        (made.into_iter().take(nonces.len()).collect(), state)
    }

    /// Computes the second half S of each signature, for the nonces of the first half, in their order. Wipes the nonces.
    ///
    /// Ed25519 nonces are deterministic. So two signatures with the same nonce, one of them faulty in R, in its hash or in S,
    /// reveal the key. S is returned only where it matches r, recomputed hashes of the message, and another copy of the key. Other
    /// lanes return `None`.
    ///
    /// # Panics
    /// With more jobs than [`LANES`].
    #[must_use]
    #[allow(clippy::boxed_local, reason = "what is moved leaves copies behind")]
    pub fn ed25519_responses(
        self,
        jobs: &[Ed25519Job<'_>],
        nonces: Box<Ed25519Nonces>,
    ) -> Vec<Option<[u8; 32]>> {
        assert!(jobs.len() <= LANES, "a job for each lane at most");
        let Some(first) = jobs.first() else { return Vec::new() };
        #[cfg(any(target_arch = "x86_64", batch_model))]
        let made = {
            let lanes = std::array::from_fn(|lane| *jobs.get(lane).unwrap_or(first));
            avx512::ed25519::responses(self, &lanes, &nonces.scalars)
        };
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        let made: ed25519::Commitments = {
            let _ = (first, nonces);
            [None; LANES]
        };
        made.into_iter().take(jobs.len()).collect()
    }
}

/// Returns the kernel for tests. Fails the test where `BULLA_IFMA` is set but the instructions are missing.
#[cfg(all(test, any(target_arch = "x86_64", batch_model)))]
fn test_kernel() -> Option<Kernel> {
    let kernel = Kernel::detect();
    assert!(kernel.is_some() || std::env::var_os("BULLA_IFMA").is_none(), "no AVX-512 IFMA here");
    kernel
}
