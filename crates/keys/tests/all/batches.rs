//! OpenSSL verifies batch signatures; unsupported keys are signed singly.

use std::process::Command;

use keys::{
    BATCH, BATCH_MIN, Batches, EC_BATCH_MIN, Hash, KeyType, PrivateKey, Scheme, SignJob, Signer, Slice,
    is_batched, sign_slice,
};

use crate::software::key;
use testbed::openssl_verifies;

#[test]
fn openssl_verifies_rsa_batch_signatures() {
    let key = key(KeyType::Rsa2048);
    key.prepare();
    let digest: Vec<u8> = (0..64).map(|at| 0xff - at).collect();
    let schemes: Vec<Scheme> = [Hash::Sha256, Hash::Sha384, Hash::Sha512]
        .into_iter()
        .flat_map(|hash| [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash)])
        .collect();
    let octets = |scheme| match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) => hash.octets(),
        Scheme::Ecdsa(_) | Scheme::Ed25519 => 0,
    };
    let job = |scheme: &Scheme| SignJob { key: &key, scheme: *scheme, input: &digest[..octets(*scheme)] };
    let jobs: Vec<SignJob<'_>> = schemes.iter().map(job).collect();
    assert!((BATCH_MIN..=BATCH).contains(&jobs.len()), "one batch, not full");
    for (job, signed) in jobs.iter().zip(sign_slice(&jobs, Batches::All).signed) {
        let signed = signed.unwrap();
        assert!(openssl_verifies(key.spki(), job.scheme, job.input, &signed), "{:?}", job.scheme);
        let mut other = job.input.to_vec();
        other[0] ^= 1;
        assert!(!openssl_verifies(key.spki(), job.scheme, &other, &signed), "{:?}", job.scheme);
    }
}

#[test]
fn openssl_verifies_p256_batch_signatures() {
    let keys = [(); 2].map(|()| PrivateKey::generate(KeyType::P256).unwrap());
    keys.iter().for_each(PrivateKey::prepare);
    let digest: Vec<u8> = (0..64).map(|at| 0xff - at).collect();
    let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    let jobs: Vec<SignJob<'_>> = hashes
        .into_iter()
        .flat_map(|hash| keys.each_ref().map(|key| (key, hash)))
        .map(|(key, hash)| SignJob { key, scheme: Scheme::Ecdsa(hash), input: &digest[..hash.octets()] })
        .collect();
    assert!((EC_BATCH_MIN..=BATCH).contains(&jobs.len()), "one batch, not full");
    let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
    assert_eq!(batched, if is_batched(KeyType::P256, jobs[0].scheme, Batches::All) { jobs.len() } else { 0 });
    for (job, signed) in jobs.iter().zip(signed) {
        let signed = signed.unwrap();
        assert!(openssl_verifies(job.key.spki(), job.scheme, job.input, &signed), "{:?}", job.scheme);
        let mut other = job.input.to_vec();
        other[0] ^= 1;
        assert!(!openssl_verifies(job.key.spki(), job.scheme, &other, &signed), "{:?}", job.scheme);
    }
}

#[test]
fn openssl_verifies_ed25519_batch_signatures() {
    let keys = [(); BATCH].map(|()| PrivateKey::generate(KeyType::Ed25519).unwrap());
    keys.iter().for_each(PrivateKey::prepare);
    let message: Vec<u8> = (0..140).collect();
    let jobs = keys.each_ref().map(|key| SignJob { key, scheme: Scheme::Ed25519, input: &message });
    let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
    assert_eq!(batched, if is_batched(KeyType::Ed25519, Scheme::Ed25519, Batches::All) { BATCH } else { 0 });
    for (job, signed) in jobs.iter().zip(signed) {
        assert!(openssl_verifies(job.key.spki(), job.scheme, job.input, &signed.unwrap()));
    }
}

/// A public exponent of 3: the batch does not support it.
#[test]
fn rsa_key_with_exponent_3_is_signed_outside_the_batch() {
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        .args(["-pkeyopt", "rsa_keygen_pubexp:3"])
        .output();
    let made =
        made.unwrap_or_else(|error| panic!("this test needs openssl: apt-get install -y openssl ({error})"));
    let unusual = PrivateKey::from_pem(&String::from_utf8(made.stdout).unwrap()).unwrap();
    let usual = key(KeyType::Rsa2048);
    [&unusual, &usual].into_iter().for_each(PrivateKey::prepare);
    let (scheme, digest) = (Scheme::RsaPkcs1(Hash::Sha256), [0x5a; 32]);
    let keys = [&unusual, &usual, &usual, &unusual, &usual, &usual, &usual, &unusual];
    let jobs = keys.map(|key| SignJob { key, scheme, input: &digest });
    assert!(!unusual.is_batched(scheme, Batches::All));
    assert_eq!(usual.is_batched(scheme, Batches::All), is_batched(KeyType::Rsa2048, scheme, Batches::All));
    let Slice { signed, batched, .. } = sign_slice(&jobs, Batches::All);
    assert_eq!(batched, if usual.is_batched(scheme, Batches::All) { 5 } else { 0 });
    for (job, signed) in jobs.iter().zip(signed) {
        assert_eq!(signed, job.key.sign_digest_now(scheme, &digest));
        assert!(openssl_verifies(job.key.spki(), scheme, &digest, &signed.unwrap()));
    }
}
