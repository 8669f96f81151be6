//! Ed25519 in batches (RFC 8032 section 5.1.6): the key and the hashes.
//!
//! A nonce is a hash of the message, and is the same each time that message is signed, as Ed25519 specifies. If one of two
//! signatures with the same nonce is faulty, an attacker can compute the key from them. Therefore both hashes are computed a second
//! time, from memory, once R is known, and the batch compares its results with them ([`Kernel::ed25519_responses`]).

use std::sync::Once;

use aws_lc_rs::digest::{self, SHA512};
use batch::{Ed25519Job, Ed25519Key, Kernel};
use x509::der::{Reader, tag};
use zeroize::{Zeroizing, zeroize_stack};

use super::job::{BATCH, LaneJob, Outcome};
use super::tables::are_sound;
use crate::encoding;

/// Bytes of a seed, a prefix, a public key, and of either half of a signature.
const BYTES: usize = 32;
/// Bytes of the longest message that is signed in a batch. Longer messages cost more for the second hashes than the batch saves.
/// TLS signs 130 to 150 bytes.
const MESSAGE_MAX: usize = 512;
/// Bytes of stack that are wiped after hashing: several times as many as the library uses.
const STACK: usize = 16 * 1024;

/// One SHA-512 hash for each job.
type Hashes = [[u8; digest::SHA512_OUTPUT_LEN]; BATCH];

/// Key material that batches use: 144 bytes.
pub(crate) struct Numbers {
    key: Box<Ed25519Key>,
    prefix: Box<Zeroizing<[u8; BYTES]>>,
    public: [u8; BYTES],
}

impl Numbers {
    pub(super) fn of(pkcs8: &[u8], spki: &[u8]) -> Option<Self> {
        // Filled in its final location: a move leaves copies of the secret behind.
        let mut half = Zeroizing::new([0; BYTES]);
        let mut prefix = Box::new(Zeroizing::new([0; BYTES]));
        let expanded = expand(pkcs8, &mut half, &mut prefix);
        zeroize_stack::<STACK>();
        expanded?;
        let public = *spki.last_chunk()?;
        Kernel::detect().is_none_or(prepare_tables).then(|| Self {
            key: Ed25519Key::new(&half),
            prefix,
            public,
        })
    }

    /// Replaces the key material that signs, for tests.
    #[cfg(test)]
    pub(super) fn with(self, key: Box<Ed25519Key>) -> Self {
        Self { key, ..self }
    }

    pub(super) fn fits(input: &[u8]) -> bool {
        input.len() <= MESSAGE_MAX
    }
}

/// Computes, once, the tables that every signature reads. Returns false if the tables are wrong and must not be used.
pub(super) fn prepare_tables(kernel: Kernel) -> bool {
    static LOGGED: Once = Once::new();
    are_sound(kernel.prepare_ed25519(), "Ed25519", &LOGGED)
}

/// Returns both halves of the hash of the seed. The seed is the CurvePrivateKey (RFC 8410 section 7) in a PrivateKeyInfo. Runs in
/// its own stack frame, which can be wiped afterwards.
#[inline(never)]
fn expand(pkcs8: &[u8], half: &mut [u8; BYTES], prefix: &mut [u8; BYTES]) -> Option<()> {
    let seed = Reader::new(encoding::private_key_field(pkcs8)?).expect(tag::OCTET_STRING).ok()?.content;
    let hash = digest::digest(&SHA512, seed);
    half.copy_from_slice(hash.as_ref().get(..BYTES)?);
    prefix.copy_from_slice(hash.as_ref().get(BYTES..)?);
    Some(())
}

/// Makes the signatures of up to [`BATCH`] jobs. The keys must be prepared, and the messages must satisfy [`Numbers::fits`].
pub(super) fn sign(kernel: Kernel, jobs: &[(&Numbers, LaneJob<'_>)]) -> Vec<Outcome> {
    let first = nonces(jobs);
    let (points, nonce_state) =
        kernel.ed25519_commitments(&first.iter().take(jobs.len()).collect::<Vec<_>>());
    // R and the public key are also in memory twice.
    let given: Vec<[u8; BYTES]> = points.iter().map(|point| point.unwrap_or_default()).collect();
    let challenge = challenges(jobs, &given, |(numbers, _)| Some(numbers.public));
    let recomputed_challenge =
        challenges(jobs, nonce_state.points(), |(_, job)| job.spki.last_chunk().copied());
    let recomputed_nonce = nonces(jobs);
    let recomputed = challenge.iter().zip(&recomputed_challenge).zip(recomputed_nonce.iter());
    let lanes: Vec<Ed25519Job<'_>> = jobs
        .iter()
        .zip(recomputed)
        .map(|((numbers, _), ((challenge, recomputed_challenge), recomputed_nonce))| Ed25519Job {
            key: &numbers.key,
            challenge,
            recomputed_challenge,
            recomputed_nonce,
        })
        .collect();
    let responses = kernel.ed25519_responses(&lanes, nonce_state);
    let outcome = |(point, response): (&[u8; BYTES], Option<[u8; BYTES]>)| match response {
        Some(response) => Outcome::Signed([*point, response].concat()),
        None => Outcome::Faulty,
    };
    let made = given.iter().zip(responses).map(outcome);
    made.zip(points).map(|(outcome, point)| point.map_or(Outcome::Faulty, |_| outcome)).collect()
}

/// Computes SHA-512 of the prefix and message of each job.
fn nonces(jobs: &[(&Numbers, LaneJob<'_>)]) -> Box<Zeroizing<Hashes>> {
    let mut nonces = Box::new(Zeroizing::new([[0; digest::SHA512_OUTPUT_LEN]; BATCH]));
    hash_nonces(&mut nonces, jobs);
    zeroize_stack::<STACK>();
    nonces
}

/// Hashes the nonces in its own stack frame, which can be wiped afterwards.
#[inline(never)]
fn hash_nonces(nonces: &mut Hashes, jobs: &[(&Numbers, LaneJob<'_>)]) {
    // Reserves the full capacity first: a vector that grows leaves copies of the secret behind.
    let mut hashed = Zeroizing::new(Vec::with_capacity(BYTES + MESSAGE_MAX));
    for (nonce, (numbers, job)) in nonces.iter_mut().zip(jobs) {
        hashed.clear();
        hashed.extend_from_slice(numbers.prefix.as_slice());
        hashed.extend_from_slice(job.input);
        nonce.copy_from_slice(digest::digest(&SHA512, &hashed).as_ref());
    }
}

/// Computes SHA-512 of R, public key and message of each job.
fn challenges(
    jobs: &[(&Numbers, LaneJob<'_>)],
    points: &[[u8; BYTES]],
    public: impl Fn(&(&Numbers, LaneJob<'_>)) -> Option<[u8; BYTES]>,
) -> Hashes {
    let (mut challenges, mut hashed) = ([[0; digest::SHA512_OUTPUT_LEN]; BATCH], Vec::new());
    for ((challenge, job), point) in challenges.iter_mut().zip(jobs).zip(points) {
        hashed.clear();
        hashed.extend_from_slice(point);
        hashed.extend(public(job).into_iter().flatten());
        hashed.extend_from_slice(job.1.input);
        challenge.copy_from_slice(digest::digest(&SHA512, &hashed).as_ref());
    }
    challenges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, PrivateKey, Scheme, SignJob, Signer as _};

    fn lane_job<'a>(job: &SignJob<'a>) -> LaneJob<'a> {
        LaneJob { scheme: job.scheme, input: job.input, spki: job.key.spki() }
    }

    /// RFC 8032 section 7.1: seeds, public keys and messages of its tests, except the long one.
    const VECTORS: [(&str, &str, &str); 3] = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ];

    fn hex(digits: &str) -> Vec<u8> {
        data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).unwrap()
    }

    /// Returns the PKCS#8 encoding of a seed (RFC 8410 section 7).
    fn key(seed: &[u8]) -> PrivateKey {
        let head = hex("302e020100300506032b657004220420");
        PrivateKey::from_pkcs8_der(&[head, seed.to_vec()].concat()).unwrap()
    }

    #[test]
    fn signatures_equal_published_vectors() {
        let Some(kernel) = Kernel::detect() else { return };
        let keys = VECTORS.map(|(seed, ..)| key(&hex(seed)));
        let numbers = keys.each_ref().map(|key| Numbers::of(&key.to_pkcs8_der(), key.spki()).unwrap());
        let inputs = VECTORS.map(|(_, message, _)| hex(message));
        let jobs: Vec<SignJob<'_>> = keys
            .iter()
            .zip(&inputs)
            .map(|(key, input)| SignJob { key, scheme: Scheme::Ed25519, input })
            .collect();
        let batch: Vec<_> = numbers.iter().zip(jobs.iter().map(lane_job)).collect();
        for (made, (.., wanted)) in sign(kernel, &batch).into_iter().zip(VECTORS) {
            assert_eq!(made, Outcome::Signed(hex(wanted)));
        }
    }

    #[test]
    fn batch_signatures_equal_those_of_aws_lc() {
        let Some(kernel) = Kernel::detect() else { return };
        for round in 0..20_usize {
            let keys = [(); BATCH].map(|()| PrivateKey::generate(KeyType::Ed25519).unwrap());
            let numbers = keys.each_ref().map(|key| Numbers::of(&key.to_pkcs8_der(), key.spki()).unwrap());
            let input: Vec<u8> = (0..MESSAGE_MAX - round).map(|at| (at * (round + 1)) as u8).collect();
            let jobs: [SignJob<'_>; BATCH] = std::array::from_fn(|at| SignJob {
                key: &keys[at],
                scheme: Scheme::Ed25519,
                input: &input[at..],
            });
            let batch: Vec<_> = numbers.iter().zip(jobs.iter().map(lane_job)).collect();
            for (made, job) in sign(kernel, &batch).into_iter().zip(jobs) {
                assert_eq!(made, Outcome::Signed(job.key.sign_digest_now(job.scheme, job.input).unwrap()));
            }
        }
    }

    /// One bit of one copy of the public key is flipped. A signature with that challenge would reveal the key.
    #[test]
    fn signature_with_a_wrong_public_key_is_reported_as_faulty() {
        let Some(kernel) = Kernel::detect() else { return };
        let key = PrivateKey::generate(KeyType::Ed25519).unwrap();
        let of = || Numbers::of(&key.to_pkcs8_der(), key.spki()).unwrap();
        let (sound, mut broken) = (of(), of());
        broken.public[7] ^= 4;
        let job = lane_job(&SignJob { key: &key, scheme: Scheme::Ed25519, input: b"message" });
        let made = sign(kernel, &[(&sound, job), (&broken, job), (&sound, job)]);
        let alone = Outcome::Signed(key.sign_digest_now(Scheme::Ed25519, b"message").unwrap());
        assert_eq!(made, [alone.clone(), Outcome::Faulty, alone]);
    }
}
