//! Signatures eight at a time: one in each 64-bit lane of AVX-512's registers, by its instructions for 52-bit products (IFMA). A batch
//! that is not full costs as much as a full one.
//!
//! - [`Kernel`]: exists where the processor has the instructions, and makes the signatures.
//! - [`Key`]: the numbers of an RSA-2048 key in the form the kernel reads, for its private operation (RFC 8017 section 5.2.1). Eight
//!   together cost less than three made one by one.
//! - [`P256Key`]: the same of a key on P-256, for ECDSA (FIPS 186-5 section 6.4). Eight cost little more than two.
//! - [`Ed25519Key`]: the same of an Ed25519 key (RFC 8032). Its hashes are made outside, between two halves.
//!
//! Anyone who holds keys owns those; they are wiped when dropped.
//!
//! Time and memory addresses depend on no number of a key, on no nonce and on no input: exponents and scalars are read in the same
//! windows, tables are read whole, nothing is branched on. Each result is checked before it leaves, as a faulty one may give
//! the key away (Boneh, DeMillo and Lipton 1997): an RSA one is raised to the public exponent again, for the others see
//! [`Kernel::p256_signatures`] and [`Kernel::ed25519_responses`]. What was computed on the way is wiped, and with it the stack below
//! the call, as far as a compiler lets one know where it puts things, and the vector registers.
//!
//! The package in `model/` compiles the same source with a model of the instructions (`batch_model`) and runs the same tests, on every machine.

#![cfg_attr(batch_model, allow(unused_unsafe, reason = "the model of the instructions is safe"))]
// Functions of the processor's features are no closures' equals; the model's are.
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
pub use key::{Job, Key, OCTETS, Parts};
pub use lanes::LANES;
pub use p256::{P256Job, P256Key, SignatureOutcome};

impl Kernel {
    /// `input` to the private exponent, modulo the modulus, of each job; in their order, [`LANES`] at a time. `None` where the
    /// result does not lead back to the input: a fault of the machine, a key whose numbers do not belong together, or an
    /// input that is not below the modulus.
    #[must_use]
    pub fn private_operations(self, jobs: &[Job<'_>]) -> Vec<Option<[u8; OCTETS]>> {
        let mut results = Vec::with_capacity(jobs.len());
        for eight in jobs.chunks(LANES) {
            #[cfg(any(target_arch = "x86_64", batch_model))]
            {
                // Lanes without a job do the first one's.
                let lanes = std::array::from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]));
                results.extend(avx512::private_operations(self, &lanes).into_iter().take(eight.len()));
            }
            #[cfg(not(any(target_arch = "x86_64", batch_model)))]
            results.extend(eight.iter().map(|_| None));
        }
        results
    }

    /// Has the tables made that [`Self::p256_signatures`] reads, which takes a millisecond, once: 208 KB for as long as the process lives.
    /// False where they are not what they must be, by a checksum of all of them: a fault of the machine, after which every signature
    /// is [`SignatureOutcome::Faulty`].
    #[must_use]
    pub fn prepare_p256(self) -> bool {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        return avx512::p256::prepare(self);
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        false
    }

    /// The signatures of these jobs in their order, [`LANES`] at a time.
    ///
    /// Before one leaves it is held against this:
    /// - k·G satisfies the equation of the curve, in the coordinates of which r is made: a fault in the arithmetic of points leads off
    ///   it. A fault that makes k·G of a wrong table entry, sign, or number of steps leads to another point of the curve:
    ///   entries carry what multiple of G they are modulo 2^52 - 1, which is added up as each addition ends and must be k.
    /// - r is x of that point modulo n.
    /// - s·k - r·d is the digest modulo n, for another copy of d in another form than that with which s was made, and for k as it was
    ///   multiplied with G and not as it was inverted.
    ///
    /// Anyone who had a signature with one such fault could learn bits of k or d of it. What two faults at once could do, or one that
    /// strikes a nonce before it comes here, is not looked for; nonces with fresh randomness keep even those from being
    /// compared with a sound signature of the same nonce.
    #[must_use]
    pub fn p256_signatures(self, jobs: &[P256Job<'_>]) -> Vec<SignatureOutcome> {
        let mut results = Vec::with_capacity(jobs.len());
        for eight in jobs.chunks(LANES) {
            #[cfg(any(target_arch = "x86_64", batch_model))]
            {
                // Lanes without a job do the first one's.
                let lanes = std::array::from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]));
                results.extend(avx512::p256::signatures(self, &lanes).into_iter().take(eight.len()));
            }
            #[cfg(not(any(target_arch = "x86_64", batch_model)))]
            results.extend(eight.iter().map(|_| SignatureOutcome::Faulty));
        }
        results
    }

    /// Has the tables made that [`Self::ed25519_commitments`] reads, which takes a millisecond, once: 303 KB for as long as the process
    /// lives. False as [`Self::prepare_p256`].
    #[must_use]
    pub fn prepare_ed25519(self) -> bool {
        #[cfg(any(target_arch = "x86_64", batch_model))]
        return avx512::ed25519::prepare(self);
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        false
    }

    /// The first half of each of up to [`LANES`] signatures: R of r, of the SHA-512 of the key's prefix and the message; and what their
    /// second halves need. `None` for a lane where what was encoded is no point of the curve, or R not the multiple asked for, as
    /// tags of the tables' entries tell (see [`Self::p256_signatures`]).
    ///
    /// # Panics
    /// With more nonces than [`LANES`].
    #[must_use]
    pub fn ed25519_commitments(self, nonces: &[&[u8; 64]]) -> (Vec<Option<[u8; 32]>>, Box<Ed25519Nonces>) {
        assert!(nonces.len() <= LANES, "a nonce for each lane at most");
        let mut kept = Box::new(Ed25519Nonces { scalars: Default::default(), points: Default::default() });
        let Some(first) = nonces.first() else { return (Vec::new(), kept) };
        #[cfg(any(target_arch = "x86_64", batch_model))]
        let made = {
            let lanes = std::array::from_fn(|lane| *nonces.get(lane).unwrap_or(first));
            avx512::ed25519::commitments(self, &lanes, &mut kept)
        };
        #[cfg(not(any(target_arch = "x86_64", batch_model)))]
        let made: ed25519::Committed = {
            let _ = (first, &mut kept);
            [None; LANES]
        };
        (made.into_iter().take(nonces.len()).collect(), kept)
    }

    /// The second half of each: S, for the nonces that the first halves were made of, in their order; they are wiped by it.
    ///
    /// These nonces are the same whenever the same is signed, so that anyone who has two signatures of one nonce, of which one is faulty
    /// in R, in its hash or in S, has the key. S leaves only where r and S agree with hashes of the message that were made again
    /// after R was, and with another copy of the key; `None` for other lanes.
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
        let made: ed25519::Committed = {
            let _ = (first, nonces);
            [None; LANES]
        };
        made.into_iter().take(jobs.len()).collect()
    }
}

/// What tests of the kernel run on. Where `BULLA_IFMA` is set, as where the processor has the instructions, it is a failure that there
/// is none.
#[cfg(all(test, any(target_arch = "x86_64", batch_model)))]
fn tested() -> Option<Kernel> {
    let kernel = Kernel::detect();
    assert!(kernel.is_some() || std::env::var_os("BULLA_IFMA").is_none(), "no AVX-512 IFMA here");
    kernel
}
