//! Signatures in the format of minisign (<https://jedisct1.github.io/minisign/>), made by `openssl`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::{Failure, command, output_of, run as run_command};

use super::release;

/// Algorithm of public keys, and of signatures over a message itself: Ed25519.
const PURE: &[u8] = b"Ed";
/// Algorithm of signatures over a message's BLAKE2b-512: Ed25519.
const HASHED: &[u8] = b"ED";
/// Length of the identifier of a key. The identifier may be any text; here it is the beginning of the key's SHA-256.
const ID_BYTES: usize = 8;
/// Length of an Ed25519 public key, which is the end of its SubjectPublicKeyInfo.
const PUBLIC_BYTES: usize = 32;

/// Signs a file with an Ed25519 key (PEM). Returns the signature file's text and the public key as users type it.
///
/// # Errors
/// `openssl`, `sha256sum` or `base64` failed, or a file in the folder `work` cannot be written.
pub(super) fn sign(file: &Path, key: &Path, comment: &str, work: &Path) -> Result<(String, String), Failure> {
    let signing = Signing { key, work };
    let (id, public) = signing.public_key()?;
    let hash = work.join("hash");
    run_command(command("openssl").args(["dgst", "-blake2b512", "-binary", "-out"]).arg(&hash).arg(file))?;
    let signature = signing.sign(&hash)?;
    let with_comment = signing.written("commented", &[&signature, comment.as_bytes()].concat())?;
    let comment_signature = signing.sign(&with_comment)?;
    let text = format!(
        "untrusted comment: signature of a release of Bulla\n{}\ntrusted comment: {comment}\n{}\n",
        signing.base64(&[HASHED, &id, &signature].concat())?,
        signing.base64(&comment_signature)?,
    );
    Ok((text, signing.base64(&[PURE, &id, &public].concat())?))
}

/// Signs the bytes of a file with an Ed25519 key (PEM). `signature` is the file of the result: 64 bytes.
///
/// # Errors
/// `openssl` failed.
pub(super) fn sign_bytes(key: &Path, file: &Path, signature: &Path) -> Result<(), Failure> {
    let mut sign = command("openssl");
    sign.args(["pkeyutl", "-sign", "-rawin", "-inkey"]).arg(key).arg("-in").arg(file);
    run_command(sign.arg("-out").arg(signature))
}

/// A key, and the folder for files that the programs read and write.
struct Signing<'a> {
    key: &'a Path,
    work: &'a Path,
}

impl Signing<'_> {
    fn written(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Failure> {
        let path = self.work.join(name);
        fs::write(&path, bytes).map_err(|error| release::failed("write", &path, &error))?;
        Ok(path)
    }

    fn read(path: &Path) -> Result<Vec<u8>, Failure> {
        fs::read(path).map_err(|error| release::failed("read", path, &error))
    }

    /// Returns the identifier of the key, and its public key.
    fn public_key(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let der = self.work.join("public.der");
        let mut export = command("openssl");
        export.args(["pkey", "-pubout", "-outform", "DER", "-in"]).arg(self.key).arg("-out").arg(&der);
        run_command(&mut export)?;
        let der = Self::read(&der)?;
        let public = der[der.len().saturating_sub(PUBLIC_BYTES)..].to_vec();
        let digest = release::sha256(&self.written("public", &public)?)?;
        let digits = digest.as_bytes().chunks_exact(2).take(ID_BYTES);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let id: Option<Vec<u8>> = digits.map(byte).collect();
        let id = id.ok_or_else(|| Failure::Program("sha256sum printed no digest".to_owned()))?;
        Ok((id, public))
    }

    fn sign(&self, file: &Path) -> Result<Vec<u8>, Failure> {
        let signature = self.work.join("signature");
        sign_bytes(self.key, file, &signature)?;
        Self::read(&signature)
    }

    fn base64(&self, bytes: &[u8]) -> Result<String, Failure> {
        let file = self.written("binary", bytes)?;
        let text = output_of(command("base64").arg("--wrap=0").arg(&file));
        text.ok_or_else(|| Failure::Program("base64 failed".to_owned()))
    }
}
