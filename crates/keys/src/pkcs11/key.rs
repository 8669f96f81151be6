//! A private key of a token, used as a signer.

use std::fmt;

use aws_lc_rs::digest;
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::ObjectHandle;
use cryptoki::session::Session;
use futures_util::future::BoxFuture;
use zeroize::Zeroizing;

use super::objects::{self, TokenKey};
use super::token::{SessionMode, Token};
use crate::error::SignError;
use crate::signer::{CallLimit, Deadline, Destination, Signer};
use crate::verify::ecdsa_der;
use crate::{Hash, KeyType, Scheme};

/// Returns the prefix of a digest in its DigestInfo (RFC 8017 section 9.2, note 1).
fn digest_info(hash: Hash) -> Vec<u8> {
    let algorithm: &[u8] = match hash {
        Hash::Md5Sha1 => return Vec::new(),
        Hash::Sha1 => &[0x2b, 0x0e, 0x03, 0x02, 0x1a],
        Hash::Sha224 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x04],
        Hash::Sha256 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01],
        Hash::Sha384 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
        Hash::Sha512 => &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
    };
    // All lengths are below 128, so each takes one byte.
    let (oid, digest) = (algorithm.len() as u8, hash.octets() as u8);
    let head = [0x30, oid + digest + 8, 0x30, oid + 4, 0x06, oid];
    [&head[..], algorithm, &[0x05, 0x00, 0x04, digest]].concat()
}

/// A private key that cannot leave its token.
#[derive(Clone)]
pub struct Pkcs11Key {
    token: Token,
    found: TokenKey,
}

impl Pkcs11Key {
    pub(super) fn new(token: Token, found: TokenKey) -> Self {
        Self { token, found }
    }

    /// Returns the CKA_ID of the key.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.found.id
    }

    /// Returns the CKA_LABEL of the key.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.found.label
    }

    /// Returns the PKCS#11 URI (RFC 7512) of the key.
    #[must_use]
    pub fn locator(&self) -> String {
        objects::locator_of(self.token.label(), &self.found.id)
    }
}

impl Signer for Pkcs11Key {
    fn key_type(&self) -> KeyType {
        self.found.kind
    }

    fn spki(&self) -> &[u8] {
        &self.found.spki
    }

    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            let scheme = message_scheme(self.found.kind);
            let scheme = scheme.ok_or_else(|| {
                SignError::Failed("PKCS#11 tokens do not support this signature scheme".to_owned())
            })?;
            self.sign_by(scheme, &hashed(scheme, message), deadline).await
        })
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(self.sign_by(scheme, input, deadline))
    }

    fn decrypt_raw<'a>(
        &'a self,
        c: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SignError>> {
        Box::pin(self.decrypt_on_token(c.to_vec(), deadline))
    }

    fn destination(&self) -> Option<Destination<'_>> {
        let at_once = CallLimit::All(self.token.sessions());
        Some(Destination { name: self.token.destination(), at_once })
    }
}

impl Pkcs11Key {
    async fn sign_by(&self, scheme: Scheme, input: &[u8], deadline: Deadline) -> Result<Vec<u8>, SignError> {
        let kind = self.found.kind;
        let misfit = scheme.check(kind, input.len());
        misfit.map_err(|misfit| SignError::Failed(misfit.to_string()))?;
        if matches!(scheme, Scheme::RsaPss(Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224)) {
            return Err(SignError::Failed(
                "RSASSA-PSS is supported with SHA-256, SHA-384 and SHA-512 only".to_owned(),
            ));
        }
        let input = token_input(kind, scheme, input);
        let (handle, id) = (self.found.handle, self.found.id.clone());
        let signing = self.token.call(deadline.into(), SessionMode::ReadOnly, move |session| {
            sign(session, scheme, handle, &id, &input)
        });
        let raw = signing.await?;
        encoded(kind, raw)
            .ok_or_else(|| SignError::Failed("the token returned no valid signature".to_owned()))
    }

    /// Decrypts with CKM_RSA_X_509. The token refuses keys without CKA_DECRYPT.
    async fn decrypt_on_token(
        &self,
        c: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Zeroizing<Vec<u8>>, SignError> {
        let octets = self.found.kind.rsa_bits().map_or(0, |bits| bits as usize / 8);
        if octets == 0 || c.len() != octets {
            return Err(SignError::Failed(
                "only RSA keys can decrypt, and the input must be as long as the modulus".to_owned(),
            ));
        }
        let (handle, id) = (self.found.handle, self.found.id.clone());
        let decrypting = self.token.call(deadline.into(), SessionMode::ReadOnly, move |session| {
            with_handle(session, handle, &id, |handle| {
                session.decrypt(&Mechanism::RsaX509, handle, &c).map(Zeroizing::new)
            })
        });
        let clear = decrypting.await?;
        // Restores leading zeros, which some modules leave out.
        let missing = octets.checked_sub(clear.len());
        let missing =
            missing.ok_or_else(|| SignError::Failed("the token returned too many bytes".to_owned()))?;
        let mut whole = Zeroizing::new(vec![0; octets]);
        whole[missing..].copy_from_slice(&clear);
        Ok(whole)
    }
}

/// Returns the scheme in which a key of this type signs messages; see [`KeyType::algorithm`].
fn message_scheme(kind: KeyType) -> Option<Scheme> {
    match kind {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => Some(Scheme::RsaPkcs1(Hash::Sha256)),
        KeyType::P256 => Some(Scheme::Ecdsa(Hash::Sha256)),
        KeyType::P384 => Some(Scheme::Ecdsa(Hash::Sha384)),
        KeyType::P521 => Some(Scheme::Ecdsa(Hash::Sha512)),
        KeyType::Ed25519 => Some(Scheme::Ed25519),
        KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => None,
    }
}

/// Returns the hash of a message. For Ed25519, which signs whole messages only, returns the message.
fn hashed(scheme: Scheme, message: &[u8]) -> Vec<u8> {
    let algorithm = match scheme {
        Scheme::Ed25519 => return message.to_vec(),
        Scheme::Ecdsa(Hash::Sha384) => &digest::SHA384,
        Scheme::Ecdsa(Hash::Sha512) => &digest::SHA512,
        _ => &digest::SHA256,
    };
    digest::digest(algorithm, message).as_ref().to_vec()
}

/// Returns the input for the token: with its DigestInfo for PKCS #1, truncated to the length of the curve's order for ECDSA.
fn token_input(kind: KeyType, scheme: Scheme, input: &[u8]) -> Vec<u8> {
    let order = match kind {
        KeyType::P256 => 32,
        KeyType::P384 => 48,
        _ => 66,
    };
    match scheme {
        Scheme::RsaPkcs1(hash) => [&digest_info(hash), input].concat(),
        Scheme::Ecdsa(_) => input[..input.len().min(order)].to_vec(),
        Scheme::RsaPss(_) | Scheme::Ed25519 => input.to_vec(),
    }
}

fn mechanism(scheme: Scheme) -> Mechanism<'static> {
    let pss = |hash_alg, mgf, hash: Hash| {
        // At most 64 bytes.
        let s_len = (hash.octets() as u64).into();
        Mechanism::RsaPkcsPss(PkcsPssParams { hash_alg, mgf, s_len })
    };
    match scheme {
        Scheme::RsaPkcs1(_) => Mechanism::RsaPkcs,
        Scheme::RsaPss(hash @ Hash::Sha384) => pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, hash),
        Scheme::RsaPss(hash @ Hash::Sha512) => pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, hash),
        Scheme::RsaPss(hash) => pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, hash),
        Scheme::Ecdsa(_) => Mechanism::Ecdsa,
        Scheme::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)),
    }
}

fn sign(
    session: &Session,
    scheme: Scheme,
    handle: ObjectHandle,
    id: &[u8],
    input: &[u8],
) -> Result<Vec<u8>, Error> {
    let mechanism = mechanism(scheme);
    with_handle(session, handle, id, |handle| session.sign(&mechanism, handle, input))
}

/// Runs `work` with `handle`. If that handle is invalid, retries once with the key's current handle: a token may renumber its
/// objects after a login.
fn with_handle<T>(
    session: &Session,
    handle: ObjectHandle,
    id: &[u8],
    work: impl Fn(ObjectHandle) -> Result<T, Error>,
) -> Result<T, Error> {
    match work(handle) {
        Err(error @ Error::Pkcs11(RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid, _)) => {
            match objects::handle_of(session, id)? {
                Some(other) if other != handle => work(other),
                _ => Err(error),
            }
        }
        done => done,
    }
}

/// Encodes the result as DER. Tokens return ECDSA signatures as r and s, concatenated.
fn encoded(kind: KeyType, raw: Vec<u8>) -> Option<Vec<u8>> {
    match kind {
        KeyType::P256 | KeyType::P384 | KeyType::P521 => ecdsa_der(&raw),
        _ => Some(raw),
    }
}

impl fmt::Debug for Pkcs11Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pkcs11Key({}, {})", self.found.kind, self.locator())
    }
}
