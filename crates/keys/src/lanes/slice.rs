//! Several signatures in one call: in batches if the keys support it, otherwise one after the other.

use batch::Kernel;

use super::availability::{FAULTS, Faults};
use super::batches::Batches;
use super::job::{BATCH, BATCH_MIN, EC_BATCH_MIN, LaneJob, Outcome};
use super::numbers::Numbers;
use super::{ed25519, p256, rsa};
use crate::{KeyType, PrivateKey, Scheme, SignError, Signer as _};

/// One signature to make with a key in this process.
#[derive(Clone, Copy, Debug)]
pub struct SignJob<'a> {
    /// Key that signs.
    pub key: &'a PrivateKey,
    /// Signature scheme, which the key must support.
    pub scheme: Scheme,
    /// Input: a digest, or the message for Ed25519.
    pub input: &'a [u8],
}

/// Results of [`sign_slice`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    /// One result for each job, in the same order.
    pub signed: Vec<Result<Vec<u8>, SignError>>,
    /// Number of signatures that were made in batches.
    pub batched: usize,
    /// Number of signatures that failed the check of their batch and were made again one by one: see [`sign_slice`].
    pub faulty: usize,
}

/// Makes several signatures on this thread.
///
/// Jobs whose keys support batches ([`PrivateKey::is_batched`]) are signed [`crate::BATCH`] at a time, if there are at least
/// [`crate::BATCH_MIN`] with RSA keys, or [`crate::EC_BATCH_MIN`] with P-256 or Ed25519 keys. All other jobs are signed one by one.
/// Every result of a batch is checked before it is returned. After the first failed check, this process makes no more batches with
/// that type of key.
#[must_use]
pub fn sign_slice(jobs: &[SignJob<'_>], batches: Batches) -> Slice {
    let alone = |job: &SignJob<'_>| job.key.sign_digest_now(job.scheme, job.input);
    if jobs.len() < BATCH_MIN.min(EC_BATCH_MIN) {
        return Slice { signed: jobs.iter().map(alone).collect(), batched: 0, faulty: 0 };
    }
    let (made, faulty) = sign(jobs, batches);
    let batched = made.iter().flatten().count();
    let signed = jobs.iter().zip(made).map(|(job, made)| made.map_or_else(|| alone(job), Ok));
    Slice { signed: signed.collect(), batched, faulty }
}

/// Makes the batched signatures. Returns one entry for each job (`None` if it was not batched or was faulty), and the number of
/// faulty signatures.
fn sign(jobs: &[SignJob<'_>], batches: Batches) -> (Vec<Option<Vec<u8>>>, usize) {
    match Kernel::detect() {
        Some(kernel) => sign_by(kernel, jobs, batches, &FAULTS),
        None => (vec![None; jobs.len()], 0),
    }
}

fn sign_by(
    kernel: Kernel,
    jobs: &[SignJob<'_>],
    batches: Batches,
    faults: &Faults,
) -> (Vec<Option<Vec<u8>>>, usize) {
    let mut made = Progress { jobs, batches, faults, signed: vec![None; jobs.len()], faulty: 0 };
    made.sign(KeyType::Rsa2048, BATCH_MIN, Numbers::rsa, |batch| rsa::sign(kernel, batch));
    made.sign(KeyType::P256, EC_BATCH_MIN, Numbers::p256, |batch| p256::sign(kernel, batch));
    made.sign(KeyType::Ed25519, EC_BATCH_MIN, Numbers::ed25519, |batch| ed25519::sign(kernel, batch));
    (made.signed, made.faulty)
}

/// Jobs, and the signatures that batches have made so far.
struct Progress<'a> {
    jobs: &'a [SignJob<'a>],
    batches: Batches,
    faults: &'a Faults,
    signed: Vec<Option<Vec<u8>>>,
    faulty: usize,
}

impl<'a> Progress<'a> {
    /// Signs the jobs with one type of key in batches, while at least `least` jobs remain. `numbers` returns the key material if
    /// the key has this type and supports the input.
    fn sign<N>(
        &mut self,
        kind: KeyType,
        least: usize,
        numbers: fn(&'a Numbers, &[u8]) -> Option<&'a N>,
        sign: impl Fn(&[(&'a N, LaneJob<'a>)]) -> Vec<Outcome>,
    ) {
        let batches = self.batches;
        let fitting = |job: &'a SignJob<'a>| {
            let is_batched = job.key.key_type() == kind && job.key.is_batched(job.scheme, batches);
            let fits = is_batched && job.scheme.check(kind, job.input.len()).is_ok();
            let numbers = numbers(job.key.lanes().filter(|_| fits)?, job.input)?;
            Some((numbers, LaneJob { scheme: job.scheme, input: job.input, spki: job.key.spki() }))
        };
        let (indexes, batched): (Vec<usize>, Vec<_>) =
            self.jobs.iter().enumerate().filter_map(|(at, job)| Some((at, fitting(job)?))).unzip();
        for (indexes, batch) in indexes.chunks(BATCH).zip(batched.chunks(BATCH)) {
            if batch.len() < least || self.faults.contain(kind) {
                return;
            }
            self.take(kind, indexes, sign(batch));
        }
    }

    /// Stores the results of a batch. Discards the whole batch if one signature is faulty, because the same fault may have affected
    /// the others and their checks.
    fn take(&mut self, kind: KeyType, indexes: &[usize], outcomes: Vec<Outcome>) {
        let faulty = indexes.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Faulty);
        let faulty: Vec<usize> = faulty.map(|(at, _)| *at).collect();
        if let Some(at) = faulty.first() {
            self.faulty += faulty.len();
            if self.faults.add(kind) {
                tracing::error!(key = ?self.jobs[*at].key, %kind, "a signature of a batch was faulty: the batch is signed \
                 again one by one, and this process no longer signs in batches with this key type; check the hardware of \
                 this machine");
            }
            return;
        }
        for (at, outcome) in indexes.iter().zip(outcomes) {
            if let Outcome::Signed(signature) = outcome {
                self.signed[*at] = Some(signature);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use batch::{Ed25519Key, Key, P256Key, Parts};

    use super::*;
    use crate::verify::verifies;
    use crate::{Hash, is_batched};

    const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    /// Key types with batches, a scheme for each, and the minimum number of signatures.
    const KINDS: [(KeyType, Scheme, usize); 3] = [
        (KeyType::Rsa2048, Scheme::RsaPss(Hash::Sha256), BATCH_MIN),
        (KeyType::P256, Scheme::Ecdsa(Hash::Sha256), EC_BATCH_MIN),
        (KeyType::Ed25519, Scheme::Ed25519, EC_BATCH_MIN),
    ];

    fn prepared(kind: KeyType) -> PrivateKey {
        let key = PrivateKey::generate(kind).unwrap();
        key.prepare();
        key
    }

    /// With `BULLA_IFMA` set, the processor must have the instructions: tests fail instead of being skipped.
    #[test]
    fn kernel_is_detected_when_required_by_the_environment() {
        if std::env::var_os("BULLA_IFMA").is_some() {
            assert!(KINDS.into_iter().all(|(kind, scheme, _)| is_batched(kind, scheme, Batches::All)));
            let kernel = Kernel::detect().unwrap();
            assert!(p256::prepare_tables(kernel) && ed25519::prepare_tables(kernel));
        }
    }

    #[test]
    fn batch_signatures_match_single_signatures() {
        let keys = [KeyType::Rsa2048; 3].map(prepared);
        let curve_keys = [KeyType::P256; 3].map(prepared);
        let other = prepared(KeyType::P384);
        let mut cases = Vec::new();
        for (number, hash) in HASHES.into_iter().cycle().take(9).enumerate() {
            let digest = vec![0xf0 | number as u8; hash.octets()];
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash)] {
                cases.push((&keys[number % 3], scheme, digest.clone()));
            }
            cases.push((&curve_keys[(number / 3) % 3], Scheme::Ecdsa(hash), digest.clone()));
            cases.push((&other, Scheme::Ecdsa(hash), digest));
        }
        let jobs: Vec<SignJob<'_>> =
            cases.iter().map(|(key, scheme, input)| SignJob { key, scheme: *scheme, input }).collect();
        if Kernel::detect().is_some() {
            let (made, faulty) = sign(&jobs, Batches::All);
            assert_eq!(faulty, 0);
            let made = |kind| {
                let of_kind = |(job, _): &(&SignJob<'_>, _)| job.key.key_type() == kind;
                jobs.iter().zip(&made).filter(of_kind).filter(|(_, made)| made.is_some()).count()
            };
            // Eighteen jobs: two full batches, and two jobs that are too few for a batch. Nine jobs: one batch, and one job.
            let of_kinds = [KeyType::Rsa2048, KeyType::P256, KeyType::P384].map(made);
            assert_eq!(of_kinds, [2 * BATCH, BATCH, 0]);
        }
        for (job, signed) in jobs.iter().zip(sign_slice(&jobs, Batches::All).signed) {
            let signed = signed.unwrap();
            let kind = job.key.key_type();
            assert!(verifies(job.key.spki(), kind, job.scheme, job.input, &signed), "{:?}", job.scheme);
            if let Scheme::RsaPkcs1(_) = job.scheme {
                assert_eq!(Ok(signed), job.key.sign_digest_now(job.scheme, job.input));
            }
        }
    }

    #[test]
    fn digests_of_every_hash_are_signed_in_batches() {
        let key = prepared(KeyType::P256);
        let digests = Hash::ALL.map(|hash| (hash, vec![0xa5; hash.octets()]));
        let jobs = digests.each_ref().map(|(hash, input)| SignJob {
            key: &key,
            scheme: Scheme::Ecdsa(*hash),
            input,
        });
        let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
        assert_eq!(batched, if Kernel::detect().is_some() { jobs.len() } else { 0 });
        for (job, signed) in jobs.iter().zip(signed) {
            assert!(
                verifies(key.spki(), KeyType::P256, job.scheme, job.input, &signed.unwrap()),
                "{:?}",
                job.scheme
            );
        }
    }

    #[test]
    fn long_messages_are_signed_singly() {
        let key = prepared(KeyType::Ed25519);
        let message = vec![7; 513];
        let job = |input| SignJob { key: &key, scheme: Scheme::Ed25519, input };
        let mut jobs = vec![job(&message[1..]); BATCH];
        jobs[1] = job(&message);
        let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
        assert_eq!(batched, if Kernel::detect().is_some() { BATCH - 1 } else { 0 });
        for (job, signed) in jobs.iter().zip(signed) {
            assert_eq!(signed, key.sign_digest_now(job.scheme, job.input));
        }
    }

    /// Two signatures with the same nonce reveal the key.
    #[test]
    fn ecdsa_nonces_never_repeat() {
        let key = prepared(KeyType::P256);
        let job = SignJob { key: &key, scheme: Scheme::Ecdsa(Hash::Sha256), input: &[7; 32] };
        // The first half of a signature (r) depends only on the nonce.
        let halves = |jobs: &[SignJob<'_>]| -> Vec<Vec<u8>> {
            sign_slice(jobs, Batches::All)
                .signed
                .into_iter()
                .map(|signed| signed.unwrap()[5..35].to_vec())
                .collect()
        };
        let mut found = [halves(&[job; BATCH]), halves(&[job; BATCH])].concat();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 2 * BATCH);
    }

    /// A key is prepared separately, never during a batch.
    #[test]
    fn key_is_batched_only_after_preparation() {
        for (kind, scheme, _) in KINDS {
            let key = PrivateKey::generate(kind).unwrap();
            let jobs = [SignJob { key: &key, scheme, input: &[7; 32] }; BATCH];
            assert!(
                !key.is_batched(scheme, Batches::All)
                    && sign(&jobs, Batches::All).0.iter().all(Option::is_none)
            );
            assert_eq!(key.needs_preparation(Batches::All), Kernel::detect().is_some());
            key.prepare();
            assert!(!key.needs_preparation(Batches::All));
            assert_eq!(key.is_batched(scheme, Batches::All), is_batched(kind, scheme, Batches::All));
            assert_eq!(sign(&jobs, Batches::All).0.iter().all(Option::is_some), Kernel::detect().is_some());
        }
        let other = PrivateKey::generate(KeyType::P384).unwrap();
        other.prepare();
        assert!(
            !other.needs_preparation(Batches::All)
                && !other.is_batched(Scheme::Ecdsa(Hash::Sha256), Batches::All)
        );
    }

    /// Returns a valid key of this type, and a key whose signatures fail the check.
    fn sound_and_unsound(kind: KeyType) -> [PrivateKey; 2] {
        let sound = prepared(kind);
        let pkcs8 = sound.to_pkcs8_der();
        let wrong = match kind {
            KeyType::P256 => Numbers::P256(p256::Numbers::with(&pkcs8, P256Key::unsound()).unwrap()),
            KeyType::Ed25519 => {
                let numbers = ed25519::Numbers::of(&pkcs8, sound.spki()).unwrap();
                Numbers::Ed25519(numbers.with(Ed25519Key::unsound()))
            }
            _ => {
                let parts = Parts { coefficient: &[3], ..rsa::parts(&pkcs8).unwrap() };
                Numbers::Rsa(Key::new(&parts).unwrap())
            }
        };
        let unsound = PrivateKey::with_lanes(&pkcs8, wrong);
        [sound, unsound]
    }

    /// A fault stops batches with that type of key, and with no other type.
    #[test]
    fn fault_disables_batches_for_its_key_type_only() {
        let Some(kernel) = Kernel::detect() else { return };
        let pairs = KINDS.map(|(kind, ..)| sound_and_unsound(kind));
        for (faulty_kind, ..) in KINDS {
            let faults = Faults::default();
            let made = |jobs: &[SignJob<'_>]| {
                let (made, count) = sign_by(kernel, jobs, Batches::All, &faults);
                (made.iter().map(Option::is_some).collect::<Vec<_>>(), count)
            };
            for ([sound, unsound], (kind, scheme, _)) in pairs.iter().zip(KINDS) {
                let job = |key| SignJob { key, scheme, input: &[7; 32] };
                let mut jobs = [job(sound); BATCH];
                assert_eq!(made(&jobs), (vec![true; BATCH], 0));
                if kind == faulty_kind {
                    jobs[2] = job(unsound);
                    assert_eq!(made(&jobs), (vec![false; BATCH], 1));
                }
            }
            for ([sound, _], (kind, scheme, _)) in pairs.iter().zip(KINDS) {
                let job = SignJob { key: sound, scheme, input: &[7; 32] };
                let is_made = kind != faulty_kind;
                assert_eq!(
                    made(&[job; BATCH]),
                    (vec![is_made; BATCH], 0),
                    "{kind} after a faulty {faulty_kind}"
                );
                assert_eq!(faults.contain(kind), !is_made);
            }
        }
    }

    #[test]
    fn only_enabled_key_types_are_batched() {
        let keys = KINDS.map(|(kind, ..)| prepared(kind));
        let chosen =
            [(Batches::Off, [false; 3]), (Batches::Rsa, [true, false, false]), (Batches::All, [true; 3])];
        assert_eq!(Batches::default(), Batches::Rsa);
        for (batches, wanted) in chosen {
            for ((key, (kind, scheme, _)), wanted) in keys.iter().zip(KINDS).zip(wanted) {
                let wanted = wanted && Kernel::detect().is_some();
                let Slice { signed, batched, .. } =
                    sign_slice(&[SignJob { key, scheme, input: &[7; 32] }; BATCH], batches);
                assert_eq!(batched, if wanted { BATCH } else { 0 }, "{batches} {kind}");
                assert_eq!(key.is_batched(scheme, batches), wanted);
                for signed in signed {
                    assert!(verifies(key.spki(), kind, scheme, &[7; 32], &signed.unwrap()));
                }
                let unprepared = PrivateKey::generate(kind).unwrap();
                assert_eq!(unprepared.needs_preparation(batches), wanted);
            }
        }
    }

    #[test]
    fn small_batches_are_signed_singly_and_invalid_jobs_fail() {
        for (kind, scheme, least) in KINDS {
            let key = prepared(kind);
            let job = |scheme, input| SignJob { key: &key, scheme, input };
            let fitting = job(scheme, &[7; 32]);
            assert!(sign(&vec![fitting; least - 1], Batches::All).0.iter().all(Option::is_none));
            let batched = |count| {
                let Slice { signed, batched, .. } = sign_slice(&vec![fitting; count], Batches::All);
                assert!(signed.iter().all(Result::is_ok));
                batched
            };
            let are_made = Kernel::detect().is_some();
            assert_eq!([batched(least - 1), batched(least)], [0, if are_made { least } else { 0 }]);
            let mut jobs = vec![fitting; BATCH];
            jobs[0] = job(Scheme::RsaPss(Hash::Sha1), &[7; 20]);
            jobs[1] = job(Scheme::RsaPkcs1(Hash::Sha256), &[7; 31]);
            jobs[2] = job(Scheme::Ecdsa(Hash::Sha256), &[7; 31]);
            let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
            assert_eq!(batched, if are_made { 5 } else { 0 });
            let refused: Vec<bool> = signed.iter().map(Result::is_err).collect();
            assert_eq!(refused, [true, true, true, false, false, false, false, false]);
        }
    }

    /// Jobs of one type do not fill the batch of another type.
    #[test]
    fn minimum_batch_size_applies_per_key_type() {
        let keys = KINDS.map(|(kind, ..)| prepared(kind));
        let jobs: Vec<SignJob<'_>> = [(0, BATCH_MIN - 1), (1, EC_BATCH_MIN - 1), (2, EC_BATCH_MIN - 1)]
            .into_iter()
            .flat_map(|(at, count)| {
                vec![SignJob { key: &keys[at], scheme: KINDS[at].1, input: &[7; 32] }; count]
            })
            .collect();
        assert_eq!(sign_slice(&jobs, Batches::All).batched, 0);
    }
}
