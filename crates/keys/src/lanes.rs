//! Signatures that are made eight at a time ([`batch`]), where the processor can.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batch::{Job, Kernel, Key, Parts};
use x509::der::{Reader, tag};

use crate::{Hash, KeyType, Scheme, SignJob, Signer, encoding, padding};

/// Signatures in a full batch.
pub const BATCH: usize = batch::LANES;

/// From so many on a batch is made: it costs as much as three to four signatures made one by one, full or not, and those wait for
/// each other that would not have.
pub const BATCH_MIN: usize = 5;

/// Set by the first faulty signature: whatever made it, this process makes no more batches.
static FAULTY: AtomicBool = AtomicBool::new(false);

/// Whether signatures like this are made in batches on this machine: by RSA keys of 2,048 bits, until one was faulty. A few of
/// those keys make none ([`crate::PrivateKey::is_batched`]).
#[must_use]
pub fn is_batched(kind: KeyType, scheme: Scheme) -> bool {
    let is_made = matches!(
        scheme,
        Scheme::RsaPkcs1(Hash::Sha256 | Hash::Sha384 | Hash::Sha512)
            | Scheme::RsaPss(Hash::Sha256 | Hash::Sha384 | Hash::Sha512)
    );
    kind == KeyType::Rsa2048 && is_made && are_made()
}

/// Whether batches are made on this machine, and none was faulty.
pub(crate) fn are_made() -> bool {
    Kernel::detect().is_some() && !FAULTY.load(Relaxed)
}

/// Whether an RSA key of 2,048 bits is as batches need it, as nearly all are: primes of 1,024 bits, public exponent 65,537.
pub(crate) fn fits(pkcs8: &[u8]) -> bool {
    let is_full = |prime: &[u8]| matches!(prime, [0, rest @ ..] if rest.len() == 128 && rest[0] >> 7 == 1);
    parts(pkcs8).is_some_and(|parts| {
        parts.public_exponent == [1, 0, 1] && is_full(parts.first_prime) && is_full(parts.second_prime)
    })
}

/// The numbers of an RSA key as batches read them.
pub(crate) fn numbers(pkcs8: &[u8]) -> Option<Box<Key>> {
    Key::new(&parts(pkcs8)?)
}

fn parts(pkcs8: &[u8]) -> Option<Parts<'_>> {
    let mut fields = Reader::new(encoding::inner_key(pkcs8)?).sequence().ok()?;
    fields.expect(tag::INTEGER).ok()?;
    let mut next = || fields.expect(tag::INTEGER).ok().map(|number| number.content);
    let (modulus, public_exponent, _private_exponent) = (next()?, next()?, next()?);
    let (first_prime, second_prime) = (next()?, next()?);
    let (first_exponent, second_exponent) = (next()?, next()?);
    let coefficient = next()?;
    Some(Parts {
        modulus,
        public_exponent,
        first_prime,
        second_prime,
        first_exponent,
        second_exponent,
        coefficient,
    })
}

/// The signatures that make batches, `None` for the other jobs; and how many were faulty, which are `None` as well.
pub(crate) fn sign(jobs: &[SignJob<'_>]) -> (Vec<Option<Vec<u8>>>, usize) {
    match Kernel::detect() {
        Some(kernel) => sign_by(kernel, jobs, &FAULTY),
        None => (vec![None; jobs.len()], 0),
    }
}

fn sign_by(kernel: Kernel, jobs: &[SignJob<'_>], is_faulty: &AtomicBool) -> (Vec<Option<Vec<u8>>>, usize) {
    let (mut signed, mut faulty) = (vec![None; jobs.len()], 0);
    let fits = |job: &SignJob<'_>| {
        let kind = job.key.key_type();
        job.key.is_batched(job.scheme) && job.scheme.check(kind, job.input.len()).is_ok()
    };
    let fitting: Vec<usize> = (0..jobs.len()).filter(|at| fits(&jobs[*at])).collect();
    for places in fitting.chunks(BATCH).filter(|places| places.len() >= BATCH_MIN) {
        let read = |at: &usize| {
            let SignJob { key, scheme, input } = jobs[*at];
            Some((*at, key.lanes()?, padding::encoded(scheme, input)?))
        };
        let read: Vec<_> = places.iter().filter_map(read).collect();
        if read.len() < BATCH_MIN || is_faulty.load(Relaxed) {
            continue;
        }
        let lanes: Vec<Job<'_>> = read.iter().map(|(_, key, input)| Job { key, input }).collect();
        for ((at, ..), signature) in read.iter().zip(kernel.private_operations(&lanes)) {
            // The library has found the key sound, and the encoded message is below every modulus.
            faulty += usize::from(signature.is_none());
            if signature.is_none() && !is_faulty.swap(true, Relaxed) {
                tracing::error!(key = ?jobs[*at].key, "a signature made in a batch was faulty: it is made again, and batches no more; look at this machine");
            }
            signed[*at] = signature.map(|octets| octets.to_vec());
        }
    }
    (signed, faulty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PrivateKey, Slice, sign_slice, verify::verifies};

    const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    #[test]
    fn a_batch_signs_as_the_library_does() {
        let keys = [KeyType::Rsa2048; 3].map(|kind| PrivateKey::generate(kind).unwrap());
        keys.iter().for_each(PrivateKey::prepare);
        let other = PrivateKey::generate(KeyType::P256).unwrap();
        let mut cases = Vec::new();
        for (number, hash) in HASHES.into_iter().cycle().take(9).enumerate() {
            let digest = vec![number as u8; hash.octets()];
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash)] {
                cases.push((&keys[number % 3], scheme, digest.clone()));
            }
            cases.push((&other, Scheme::Ecdsa(hash), digest));
        }
        let jobs: Vec<SignJob<'_>> =
            cases.iter().map(|(key, scheme, input)| SignJob { key, scheme: *scheme, input }).collect();
        if Kernel::detect().is_some() {
            let rsa = jobs.iter().map(|job| job.key.key_type() == KeyType::Rsa2048);
            // Eighteen: two full batches, and two that are not worth one.
            let (made, faulty) = sign(&jobs);
            assert_eq!(faulty, 0);
            let made: Vec<bool> = made.iter().map(Option::is_some).collect();
            assert_eq!(made.iter().filter(|made| **made).count(), 2 * BATCH);
            assert!(rsa.zip(made).all(|(rsa, made)| rsa || !made));
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

    /// What batches need of a key is made aside, never within a batch.
    #[test]
    fn a_key_makes_batches_once_it_is_prepared() {
        let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
        let scheme = Scheme::RsaPss(Hash::Sha256);
        let jobs = [SignJob { key: &key, scheme, input: &[7; 32] }; BATCH];
        assert!(!key.is_batched(scheme) && sign(&jobs).0.iter().all(Option::is_none));
        assert_eq!(key.wants_preparing(), Kernel::detect().is_some());
        key.prepare();
        assert!(!key.wants_preparing());
        assert_eq!(key.is_batched(scheme), is_batched(KeyType::Rsa2048, scheme));
        assert_eq!(sign(&jobs).0.iter().all(Option::is_some), Kernel::detect().is_some());
        let other = PrivateKey::generate(KeyType::P256).unwrap();
        other.prepare();
        assert!(!other.wants_preparing() && !other.is_batched(Scheme::Ecdsa(Hash::Sha256)));
    }

    #[test]
    fn after_a_fault_there_are_no_batches() {
        let Some(kernel) = Kernel::detect() else { return };
        let sound = PrivateKey::generate(KeyType::Rsa2048).unwrap();
        sound.prepare();
        let pkcs8 = sound.to_pkcs8_der();
        let wrong = Key::new(&Parts { coefficient: &[3], ..parts(&pkcs8).unwrap() }).unwrap();
        let unsound = PrivateKey::with_lanes(&pkcs8, wrong);
        let job = |key| SignJob { key, scheme: Scheme::RsaPkcs1(Hash::Sha256), input: &[7; 32] };
        let mut jobs = [job(&sound); BATCH];
        let faulty = AtomicBool::new(false);
        let made = |jobs: &[SignJob<'_>]| {
            let (made, count) = sign_by(kernel, jobs, &faulty);
            (made.iter().map(Option::is_some).collect::<Vec<_>>(), count)
        };
        assert_eq!(made(&jobs), (vec![true; BATCH], 0));
        assert!(!faulty.load(Relaxed));
        jobs[2] = job(&unsound);
        assert_eq!(made(&jobs), (vec![true, true, false, true, true, true, true, true], 1));
        assert!(faulty.load(Relaxed));
        assert_eq!(made(&[job(&sound); BATCH]), (vec![false; BATCH], 0));
    }

    #[test]
    fn too_few_make_no_batch_and_what_does_not_fit_is_refused() {
        let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
        key.prepare();
        let job = |scheme, input| SignJob { key: &key, scheme, input };
        let pss = job(Scheme::RsaPss(Hash::Sha256), &[7; 32]);
        assert!(sign(&[pss; BATCH_MIN - 1]).0.iter().all(Option::is_none));
        let Slice { signed, batched, .. } = sign_slice(&[pss; BATCH_MIN - 1]);
        assert_eq!(batched, 0);
        assert!(signed.iter().all(Result::is_ok));
        let mut jobs = vec![pss; BATCH];
        jobs[0] = job(Scheme::RsaPss(Hash::Sha1), &[7; 20]);
        jobs[1] = job(Scheme::RsaPkcs1(Hash::Sha256), &[7; 31]);
        jobs[2] = job(Scheme::Ecdsa(Hash::Sha256), &[7; 32]);
        let Slice { signed, batched, .. } = sign_slice(&jobs);
        assert_eq!(batched, if Kernel::detect().is_some() { 5 } else { 0 });
        let refused: Vec<bool> = signed.iter().map(Result::is_err).collect();
        assert_eq!(refused, [true, true, true, false, false, false, false, false]);
    }
}
