//! ECDSA on P-256 in batches: the key, the nonces, the encoding.

use std::sync::Once;

use aws_lc_rs::rand;
use batch::{Kernel, P256Job, P256Key, SignatureOutcome};
use x509::der::{Reader, tag};
use zeroize::{Zeroizing, zeroize_stack};

use super::job::{BATCH, LaneJob, Outcome};
use super::nonce::{self, BYTES, FRESH};
use super::tables::are_sound;
use crate::digest::ecdsa_digest;
use crate::{KeyType, encoding, verify};

/// Bytes of stack that are wiped after computing nonces: several times as many as the library uses.
const STACK: usize = 16 * 1024;

/// Key material that batches use: 112 bytes.
pub(crate) struct Numbers {
    pub(super) key: Box<P256Key>,
    /// The private scalar d, from which nonces are derived.
    private: Box<Zeroizing<[u8; BYTES]>>,
}

impl Numbers {
    pub(super) fn of(pkcs8: &[u8]) -> Option<Self> {
        Self::with(pkcs8, P256Key::new(private(pkcs8)?)?)
    }

    /// Creates key material that derives nonces from the private key in `pkcs8` and signs with `key`. Only tests pass another key.
    pub(super) fn with(pkcs8: &[u8], key: Box<P256Key>) -> Option<Self> {
        let bytes = private(pkcs8)?;
        // Filled in its final location: a move leaves copies of the secret behind.
        let mut private = Box::new(Zeroizing::new([0; BYTES]));
        private.get_mut(BYTES.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
        Kernel::detect().is_none_or(prepare_tables).then_some(Self { key, private })
    }
}

/// Computes, once, the tables that every signature reads. Returns false if the tables are wrong and must not be used.
pub(super) fn prepare_tables(kernel: Kernel) -> bool {
    static LOGGED: Once = Once::new();
    are_sound(kernel.prepare_p256(), "P-256", &LOGGED)
}

/// Returns the privateKey field of the ECPrivateKey (RFC 5915 section 3) in a PrivateKeyInfo.
fn private(pkcs8: &[u8]) -> Option<&[u8]> {
    let mut fields = Reader::new(encoding::private_key_field(pkcs8)?).sequence().ok()?;
    fields.expect(tag::INTEGER).ok()?;
    fields.expect(tag::OCTET_STRING).ok().map(|number| number.content)
}

/// Makes the signatures of up to [`BATCH`] jobs with prepared keys, in DER.
pub(super) fn sign(kernel: Kernel, jobs: &[(&Numbers, LaneJob<'_>)]) -> Vec<Outcome> {
    let mut digests = [[0; BYTES]; BATCH];
    for (digest, (_, job)) in digests.iter_mut().zip(jobs) {
        let Some(number) = ecdsa_digest(KeyType::P256, job.input) else {
            return vec![Outcome::Refused; jobs.len()];
        };
        digest.copy_from_slice(number.as_ref());
    }
    let Some(nonces) = nonces(&digests, jobs) else {
        return vec![Outcome::Refused; jobs.len()];
    };
    let inputs = digests.iter().zip(nonces.iter());
    let jobs: Vec<P256Job<'_>> = inputs
        .zip(jobs)
        .map(|((digest, nonce), (numbers, _))| P256Job { key: &numbers.key, digest, nonce })
        .collect();
    let outcome = |made| match made {
        SignatureOutcome::Signature(bytes) => {
            verify::ecdsa_der(&bytes).map_or(Outcome::Refused, Outcome::Signed)
        }
        // A refusal counts as a fault too: nonces are in range, and r or s is zero with a probability of 2^-255.
        SignatureOutcome::Refused | SignatureOutcome::Faulty => Outcome::Faulty,
    };
    kernel.p256_signatures(&jobs).into_iter().map(outcome).collect()
}

/// Derives a nonce for each job. `None` if the library fails.
fn nonces(
    digests: &[[u8; BYTES]; BATCH],
    jobs: &[(&Numbers, LaneJob<'_>)],
) -> Option<Box<Zeroizing<[[u8; BYTES]; BATCH]>>> {
    let mut nonces = Box::new(Zeroizing::new([[0; BYTES]; BATCH]));
    let derived = derive(&mut nonces, digests, jobs);
    zeroize_stack::<STACK>();
    derived.map(|()| nonces)
}

/// Derives the nonces in its own stack frame, which can be wiped afterwards.
#[inline(never)]
fn derive(
    nonces: &mut [[u8; BYTES]; BATCH],
    digests: &[[u8; BYTES]; BATCH],
    jobs: &[(&Numbers, LaneJob<'_>)],
) -> Option<()> {
    let mut fresh = [0; FRESH * BATCH];
    rand::fill(&mut fresh).ok()?;
    for (at, (numbers, _)) in jobs.iter().enumerate() {
        let fresh = &fresh[FRESH * at..][..FRESH];
        nonce::nonce(nonces.get_mut(at)?, &numbers.private, digests.get(at)?, fresh)?;
    }
    Some(())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Hash, PrivateKey, Scheme, Signer as _};

    /// Bytes of stack that the test searches.
    const DEPTH: usize = 256 * 1024;

    /// Reads the memory below the caller's stack frame.
    #[inline(never)]
    fn below() -> Vec<u8> {
        let mut found = vec![0; DEPTH];
        let address = std::ptr::from_ref(&found).addr();
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        memory.read_exact_at(&mut found, (address - DEPTH) as u64).unwrap();
        found
    }

    /// Leaves bytes in a stack frame that is not wiped.
    #[inline(never)]
    fn leave(bytes: &[u8; 8]) {
        let mut frame = [0; 4096];
        std::hint::black_box(&mut frame)[1000..1008].copy_from_slice(bytes);
        std::hint::black_box(&frame);
    }

    #[test]
    fn stack_scan_finds_an_unwiped_secret() {
        let bytes = b"a secret";
        let memory = std::thread::spawn(|| {
            leave(bytes);
            below()
        });
        assert!(memory.join().unwrap().windows(8).any(|found| found == bytes));
    }

    #[test]
    fn signing_leaves_no_key_or_nonce_on_the_stack() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let numbers = Numbers::of(&key.to_pkcs8_der()).unwrap();
        let secrets = Zeroizing::new(numbers.private.to_vec());
        // Runs on a new thread, whose stack holds nothing else.
        let (memory, nonces) = std::thread::spawn(move || {
            let scheme = Scheme::Ecdsa(Hash::Sha256);
            let job = LaneJob { scheme, input: &[7; BYTES], spki: key.spki() };
            let nonces = nonces(&[[7; BYTES]; BATCH], &[(&numbers, job); BATCH]).unwrap();
            (below(), nonces)
        })
        .join()
        .unwrap();
        // Searches for eight consecutive bytes of a secret, in memory order and reversed as in a register.
        let secrets = [secrets.as_slice(), nonces.as_flattened()].concat();
        let word = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap());
        let secrets: Vec<u64> =
            secrets.chunks_exact(8).map(word).flat_map(|word| [word, word.swap_bytes()]).collect();
        let found = memory.windows(8).filter(|eight| secrets.contains(&word(eight))).count();
        assert_eq!(found, 0);
    }
}
