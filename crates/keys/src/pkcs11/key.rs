//! A private key of a token, as a signer.

use std::fmt;

use aws_lc_rs::digest;
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::ObjectHandle;
use cryptoki::session::Session;
use futures_util::future::BoxFuture;
use x509::der;

use super::objects::{self, Found};
use super::token::Token;
use crate::KeyType;
use crate::signer::{Deadline, SignError, Signer};

/// DigestInfo of SHA-256 (RFC 8017 section 9.2, note 1), before the hash.
const SHA256_INFO: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];

/// A private key that stays on its token.
#[derive(Clone)]
pub struct Pkcs11Key {
    token: Token,
    found: Found,
}

impl Pkcs11Key {
    pub(super) fn new(token: Token, found: Found) -> Self {
        Self { token, found }
    }

    /// CKA_ID.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.found.id
    }

    /// CKA_LABEL.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.found.label
    }

    /// A PKCS#11 URI (RFC 7512) by which it is found again.
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
            let (kind, input) = (self.found.kind, input_of(self.found.kind, message));
            let (handle, id) = (self.found.handle, self.found.id.clone());
            let signing = self
                .token
                .call(deadline.into(), false, move |session| sign(session, kind, handle, &id, &input));
            let raw = signing.await?;
            encoded(kind, raw).ok_or_else(|| SignError::Failed("the token gave no signature".to_owned()))
        })
    }
}

/// What goes to the token: hashes, not messages, except for Ed25519, which has no other way.
fn input_of(kind: KeyType, message: &[u8]) -> Vec<u8> {
    let hash = |algorithm| digest::digest(algorithm, message).as_ref().to_vec();
    match kind {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => {
            [SHA256_INFO, &hash(&digest::SHA256)].concat()
        }
        KeyType::P256 => hash(&digest::SHA256),
        KeyType::P384 => hash(&digest::SHA384),
        KeyType::P521 => hash(&digest::SHA512),
        KeyType::Ed25519 | KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => message.to_vec(),
    }
}

fn sign(
    session: &Session,
    kind: KeyType,
    handle: ObjectHandle,
    id: &[u8],
    input: &[u8],
) -> Result<Vec<u8>, Error> {
    let mechanism = match kind {
        KeyType::P256 | KeyType::P384 | KeyType::P521 => Mechanism::Ecdsa,
        KeyType::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)),
        _ => Mechanism::RsaPkcs,
    };
    match session.sign(&mechanism, handle, input) {
        // After a new login a token may number its objects anew.
        Err(error @ Error::Pkcs11(RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid, _)) => {
            match objects::handle_of(session, id)? {
                Some(other) if other != handle => session.sign(&mechanism, other, input),
                _ => Err(error),
            }
        }
        done => done,
    }
}

/// ECDSA comes as r and s side by side (PKCS#11 section 6.3.1) and goes out as DER (RFC 3279 section 2.2.3).
fn encoded(kind: KeyType, raw: Vec<u8>) -> Option<Vec<u8>> {
    if !matches!(kind, KeyType::P256 | KeyType::P384 | KeyType::P521) {
        return Some(raw);
    }
    if raw.is_empty() || raw.len() % 2 == 1 {
        return None;
    }
    let (r, s) = raw.split_at(raw.len() / 2);
    Some(der::write(|w| {
        w.sequence(|w| {
            w.unsigned(r).unsigned(s);
        });
    }))
}

impl fmt::Debug for Pkcs11Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pkcs11Key({}, {})", self.found.kind, self.locator())
    }
}
