//! RSA-2048 in batches: the key and its numbers.

use batch::{BYTES, Job, Kernel, Key, Parts};
use x509::der::{Reader, tag};

use super::job::{LaneJob, Outcome};
use crate::{encoding, padding};

/// Returns whether a 2,048-bit key is suitable for batches, as nearly all are: primes of 1,024 bits, public exponent 65,537.
pub(super) fn fits(pkcs8: &[u8]) -> bool {
    let is_full = |prime: &[u8]| matches!(prime, [0, rest @ ..] if rest.len() == 128 && rest[0] >> 7 == 1);
    parts(pkcs8).is_some_and(|parts| {
        parts.public_exponent == [1, 0, 1] && is_full(parts.first_prime) && is_full(parts.second_prime)
    })
}

/// Extracts the numbers of a key in the form that batches read.
pub(super) fn numbers(pkcs8: &[u8]) -> Option<Box<Key>> {
    Key::new(&parts(pkcs8)?)
}

pub(super) fn parts(pkcs8: &[u8]) -> Option<Parts<'_>> {
    let mut fields = Reader::new(encoding::private_key_field(pkcs8)?).sequence().ok()?;
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

/// Makes the signatures of these jobs with prepared keys.
pub(super) fn sign(kernel: Kernel, jobs: &[(&Key, LaneJob<'_>)]) -> Vec<Outcome> {
    let encoded = |(_, job): &(_, LaneJob<'_>)| padding::encoded(job.scheme, job.input);
    let inputs: Option<Vec<[u8; BYTES]>> = jobs.iter().map(encoded).collect();
    let Some(inputs) = inputs else { return vec![Outcome::Refused; jobs.len()] };
    let lanes: Vec<Job<'_>> = jobs.iter().zip(&inputs).map(|((key, _), input)| Job { key, input }).collect();
    // The library has validated the key, and the encoded message is below every modulus.
    let outcome = |made: Option<[u8; BYTES]>| match made {
        Some(bytes) => Outcome::Signed(bytes.to_vec()),
        None => Outcome::Faulty,
    };
    kernel.private_operations(&lanes).into_iter().map(outcome).collect()
}
