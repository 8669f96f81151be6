//! Several signatures at once: those that make batches in batches, the others one after the other.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batch::Kernel;

use super::availability::FAULTY;
use super::job::{BATCH, BATCH_MIN, EC_BATCH_MIN, LaneJob, Outcome};
use super::numbers::Numbers;
use super::{ed25519, p256, rsa};
use crate::{PrivateKey, Scheme, SignError, Signer as _};

/// One signature to make by a key in this process.
#[derive(Clone, Copy, Debug)]
pub struct SignJob<'a> {
    /// By which key.
    pub key: &'a PrivateKey,
    /// How.
    pub scheme: Scheme,
    /// Over what: a digest, for Ed25519 a message.
    pub input: &'a [u8],
}

/// What became of several jobs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    /// One a job, in their order.
    pub signed: Vec<Result<Vec<u8>, SignError>>,
    /// How many of them were made in batches.
    pub batched: usize,
    /// How many were made in a batch, failed its check, and were made again by themselves: see [`sign_slice`].
    pub faulty: usize,
}

/// Makes several signatures, on this thread. Those whose keys make batches ([`PrivateKey::is_batched`]) are made so,
/// [`crate::BATCH`] at a time while there are [`crate::BATCH_MIN`] by RSA keys or [`crate::EC_BATCH_MIN`] by keys on P-256 or
/// Ed25519 keys; the others one after the other. What a batch made is checked
/// before it leaves; after the first that fails, this process makes no more batches.
#[must_use]
pub fn sign_slice(jobs: &[SignJob<'_>]) -> Slice {
    let alone = |job: &SignJob<'_>| job.key.sign_digest_now(job.scheme, job.input);
    if jobs.len() < BATCH_MIN.min(EC_BATCH_MIN) {
        return Slice { signed: jobs.iter().map(alone).collect(), batched: 0, faulty: 0 };
    }
    let (made, faulty) = sign(jobs);
    let batched = made.iter().flatten().count();
    let signed = jobs.iter().zip(made).map(|(job, made)| made.map_or_else(|| alone(job), Ok));
    Slice { signed: signed.collect(), batched, faulty }
}

/// The signatures that make batches, `None` for the other jobs; and how many were faulty, which are `None` as well.
fn sign(jobs: &[SignJob<'_>]) -> (Vec<Option<Vec<u8>>>, usize) {
    match Kernel::detect() {
        Some(kernel) => sign_by(kernel, jobs, &FAULTY),
        None => (vec![None; jobs.len()], 0),
    }
}

fn sign_by(kernel: Kernel, jobs: &[SignJob<'_>], is_faulty: &AtomicBool) -> (Vec<Option<Vec<u8>>>, usize) {
    let mut made = Batches { jobs, is_faulty, signed: vec![None; jobs.len()], faulty: 0 };
    made.sign(BATCH_MIN, Numbers::rsa, |batch| rsa::sign(kernel, batch));
    made.sign(EC_BATCH_MIN, Numbers::p256, |batch| p256::sign(kernel, batch));
    made.sign(EC_BATCH_MIN, Numbers::ed25519, |batch| ed25519::sign(kernel, batch));
    (made.signed, made.faulty)
}

/// Jobs, and what batches have made of them so far.
struct Batches<'a> {
    jobs: &'a [SignJob<'a>],
    is_faulty: &'a AtomicBool,
    signed: Vec<Option<Vec<u8>>>,
    faulty: usize,
}

impl<'a> Batches<'a> {
    /// Makes those of one kind of key, while there are `least`; `numbers` says whether a key's are of that kind, for what is signed.
    fn sign<N>(
        &mut self,
        least: usize,
        numbers: fn(&'a Numbers, &[u8]) -> Option<&'a N>,
        sign: impl Fn(&[(&'a N, LaneJob<'a>)]) -> Vec<Outcome>,
    ) {
        let fitting = |job: &'a SignJob<'a>| {
            let kind = job.key.key_type();
            let fits = job.key.is_batched(job.scheme) && job.scheme.check(kind, job.input.len()).is_ok();
            let numbers = numbers(job.key.lanes().filter(|_| fits)?, job.input)?;
            Some((numbers, LaneJob { scheme: job.scheme, input: job.input, spki: job.key.spki() }))
        };
        let (places, batched): (Vec<usize>, Vec<_>) =
            self.jobs.iter().enumerate().filter_map(|(at, job)| Some((at, fitting(job)?))).unzip();
        for (places, batch) in places.chunks(BATCH).zip(batched.chunks(BATCH)) {
            if batch.len() < least || self.is_faulty.load(Relaxed) {
                return;
            }
            self.take(places, sign(batch));
        }
    }

    /// Of a batch nothing where one of it was faulty: whatever struck that may have struck others, and their checks.
    fn take(&mut self, places: &[usize], outcomes: Vec<Outcome>) {
        let faulty = places.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Faulty);
        let faulty: Vec<usize> = faulty.map(|(at, _)| *at).collect();
        if let Some(at) = faulty.first() {
            self.faulty += faulty.len();
            if !self.is_faulty.swap(true, Relaxed) {
                tracing::error!(key = ?self.jobs[*at].key, "a signature made in a batch was faulty: all of the batch is made again, and batches no more; look at this machine");
            }
            return;
        }
        for (at, outcome) in places.iter().zip(outcomes) {
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
    use crate::{Hash, KeyType, is_batched};

    const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    /// Kinds that make batches, one way in which they sign, and from how many signatures on.
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

    /// Where `BULLA_IFMA` is set, as where the processor has the instructions, tests that cannot test are a failure.
    #[test]
    fn the_kernel_is_there_where_it_must_be() {
        if std::env::var_os("BULLA_IFMA").is_some() {
            assert!(KINDS.into_iter().all(|(kind, scheme, _)| is_batched(kind, scheme)));
            let kernel = Kernel::detect().unwrap();
            assert!(p256::prepare_tables(kernel) && ed25519::prepare_tables(kernel));
        }
    }

    #[test]
    fn a_batch_signs_as_the_library_does() {
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
            let (made, faulty) = sign(&jobs);
            assert_eq!(faulty, 0);
            let made = |kind| {
                let of_kind = |(job, _): &(&SignJob<'_>, _)| job.key.key_type() == kind;
                jobs.iter().zip(&made).filter(of_kind).filter(|(_, made)| made.is_some()).count()
            };
            // Eighteen: two full batches, and two that are not worth one. Nine: one, and one that is not.
            let of_kinds = [KeyType::Rsa2048, KeyType::P256, KeyType::P384].map(made);
            assert_eq!(of_kinds, [2 * BATCH, BATCH, 0]);
        }
        for (job, signed) in jobs.iter().zip(sign_slice(&jobs).signed) {
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
        let Slice { signed, batched, .. } = sign_slice(&jobs);
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
    fn long_messages_are_signed_one_by_one() {
        let key = prepared(KeyType::Ed25519);
        let message = vec![7; 513];
        let job = |input| SignJob { key: &key, scheme: Scheme::Ed25519, input };
        let mut jobs = vec![job(&message[1..]); BATCH];
        jobs[1] = job(&message);
        let Slice { signed, batched, .. } = sign_slice(&jobs);
        assert_eq!(batched, if Kernel::detect().is_some() { BATCH - 1 } else { 0 });
        for (job, signed) in jobs.iter().zip(signed) {
            assert_eq!(signed, key.sign_digest_now(job.scheme, job.input));
        }
    }

    /// What has the same nonce twice gives its key away.
    #[test]
    fn nonces_are_fresh() {
        let key = prepared(KeyType::P256);
        let job = SignJob { key: &key, scheme: Scheme::Ecdsa(Hash::Sha256), input: &[7; 32] };
        // r is the nonce's alone, and most of the first half of what is signed.
        let halves = |jobs: &[SignJob<'_>]| -> Vec<Vec<u8>> {
            sign_slice(jobs).signed.into_iter().map(|signed| signed.unwrap()[5..35].to_vec()).collect()
        };
        let mut found = [halves(&[job; BATCH]), halves(&[job; BATCH])].concat();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 2 * BATCH);
    }

    /// What batches need of a key is made aside, never within a batch.
    #[test]
    fn a_key_makes_batches_once_it_is_prepared() {
        for (kind, scheme, _) in KINDS {
            let key = PrivateKey::generate(kind).unwrap();
            let jobs = [SignJob { key: &key, scheme, input: &[7; 32] }; BATCH];
            assert!(!key.is_batched(scheme) && sign(&jobs).0.iter().all(Option::is_none));
            assert_eq!(key.wants_preparing(), Kernel::detect().is_some());
            key.prepare();
            assert!(!key.wants_preparing());
            assert_eq!(key.is_batched(scheme), is_batched(kind, scheme));
            assert_eq!(sign(&jobs).0.iter().all(Option::is_some), Kernel::detect().is_some());
        }
        let other = PrivateKey::generate(KeyType::P384).unwrap();
        other.prepare();
        assert!(!other.wants_preparing() && !other.is_batched(Scheme::Ecdsa(Hash::Sha256)));
    }

    #[test]
    fn after_a_fault_there_are_no_batches() {
        let Some(kernel) = Kernel::detect() else { return };
        for (kind, scheme, _) in KINDS {
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
            let job = |key| SignJob { key, scheme, input: &[7; 32] };
            let mut jobs = [job(&sound); BATCH];
            let faulty = AtomicBool::new(false);
            let made = |jobs: &[SignJob<'_>]| {
                let (made, count) = sign_by(kernel, jobs, &faulty);
                (made.iter().map(Option::is_some).collect::<Vec<_>>(), count)
            };
            assert_eq!(made(&jobs), (vec![true; BATCH], 0));
            assert!(!faulty.load(Relaxed));
            jobs[2] = job(&unsound);
            assert_eq!(made(&jobs), (vec![false; BATCH], 1));
            assert!(faulty.load(Relaxed));
            assert_eq!(made(&[job(&sound); BATCH]), (vec![false; BATCH], 0));
        }
    }

    #[test]
    fn too_few_make_no_batch_and_what_does_not_fit_is_refused() {
        for (kind, scheme, least) in KINDS {
            let key = prepared(kind);
            let job = |scheme, input| SignJob { key: &key, scheme, input };
            let fitting = job(scheme, &[7; 32]);
            assert!(sign(&vec![fitting; least - 1]).0.iter().all(Option::is_none));
            let batched = |count| {
                let Slice { signed, batched, .. } = sign_slice(&vec![fitting; count]);
                assert!(signed.iter().all(Result::is_ok));
                batched
            };
            let are_made = Kernel::detect().is_some();
            assert_eq!([batched(least - 1), batched(least)], [0, if are_made { least } else { 0 }]);
            let mut jobs = vec![fitting; BATCH];
            jobs[0] = job(Scheme::RsaPss(Hash::Sha1), &[7; 20]);
            jobs[1] = job(Scheme::RsaPkcs1(Hash::Sha256), &[7; 31]);
            jobs[2] = job(Scheme::Ecdsa(Hash::Sha256), &[7; 31]);
            let Slice { signed, batched, .. } = sign_slice(&jobs);
            assert_eq!(batched, if are_made { 5 } else { 0 });
            let refused: Vec<bool> = signed.iter().map(Result::is_err).collect();
            assert_eq!(refused, [true, true, true, false, false, false, false, false]);
        }
    }

    /// Neither kind fills up the other's batch.
    #[test]
    fn kinds_are_counted_apart() {
        let keys = KINDS.map(|(kind, ..)| prepared(kind));
        let jobs: Vec<SignJob<'_>> = [(0, BATCH_MIN - 1), (1, EC_BATCH_MIN - 1), (2, EC_BATCH_MIN - 1)]
            .into_iter()
            .flat_map(|(at, count)| {
                vec![SignJob { key: &keys[at], scheme: KINDS[at].1, input: &[7; 32] }; count]
            })
            .collect();
        assert_eq!(sign_slice(&jobs).batched, 0);
    }
}
