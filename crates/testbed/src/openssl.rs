//! Verification of signatures with OpenSSL.

use std::process::Command;

use keys::{Hash, Scheme};

/// Returns whether OpenSSL accepts the signature. `input` is the digest, or for Ed25519 the message. ECDSA signatures are DER.
///
/// # Panics
/// openssl is not installed.
#[must_use]
pub fn openssl_verifies(spki: &[u8], scheme: Scheme, input: &[u8], signature: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("public", spki), ("input", input), ("signature", signature)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let digest = |hash| match hash {
        Hash::Md5Sha1 => "digest:md5-sha1",
        Hash::Sha1 => "digest:sha1",
        Hash::Sha224 => "digest:sha224",
        Hash::Sha256 => "digest:sha256",
        Hash::Sha384 => "digest:sha384",
        Hash::Sha512 => "digest:sha512",
    };
    let options = match scheme {
        Scheme::RsaPkcs1(hash) => vec!["-pkeyopt", digest(hash)],
        Scheme::RsaPss(hash) => vec![
            "-pkeyopt",
            "rsa_padding_mode:pss",
            "-pkeyopt",
            "rsa_pss_saltlen:digest",
            "-pkeyopt",
            digest(hash),
        ],
        Scheme::Ecdsa(_) => Vec::new(),
        Scheme::Ed25519 => vec!["-rawin"],
    };
    let command = "pkeyutl -verify -pubin -keyform DER -inkey public -in input -sigfile signature";
    let run = Command::new("openssl")
        .current_dir(folder.path())
        .args(command.split(' '))
        .args(options)
        .output()
        .unwrap_or_else(|error| panic!("this test needs openssl: apt-get install -y openssl ({error})"));
    run.status.success()
}
