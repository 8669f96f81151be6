//! A master key that only a hardware security module can decrypt.

use std::path::PathBuf;

use aws_lc_rs::rand;
use cryptoki::error::Error;
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::object::{Attribute, KeyType as Kind, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use zeroize::Zeroizing;

use super::token::{SessionMode, Token};
use crate::KeyringError;
use crate::master::{KEY, create_if_absent, read_private};
use crate::random::random;

const NONCE: usize = 12;
const TAG: usize = 16;
/// Bytes of the file: version, nonce, encrypted key and its tag.
const FILE: usize = 1 + NONCE + KEY + TAG;
const VERSION: u8 = 1;
/// Additional authenticated data. No other value that the AES key wraps can be used as a master key.
const PURPOSE: &[u8] = b"bulla master key 1";

/// A master key in a file, encrypted under an AES-256 key that cannot leave the module (CKM_AES_GCM).
#[derive(Clone, Debug)]
pub struct WrappedMasterKey {
    /// The token with the AES key.
    pub token: Token,
    /// The AES key's CKA_LABEL.
    pub key_label: String,
    /// Path of the file with the encrypted master key.
    pub path: PathBuf,
    /// Whether to create a missing AES key and a missing file.
    pub create: bool,
}

impl WrappedMasterKey {
    pub(crate) fn load(&self) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if self.create && !self.path.exists() {
            let wrapped = self.wrap(&random::<KEY>())?;
            create_if_absent(&self.path, &wrapped)?;
        }
        let wrapped = read_private(&self.path, FILE as u64)?;
        self.unwrap(&wrapped)
    }

    fn wrap(&self, key: &[u8; KEY]) -> Result<Vec<u8>, KeyringError> {
        let mut nonce = [0; NONCE];
        rand::fill(&mut nonce)
            .map_err(|_| KeyringError::Module("the operating system returned no random bytes".to_owned()))?;
        let label = self.key_label.clone();
        let wrapped = self.token.call_now(SessionMode::ReadWrite, |session| {
            let handle = match find(session, &label)? {
                Some(handle) => handle,
                None => make(session, &label)?,
            };
            let mut iv = nonce;
            session.encrypt(&gcm(&mut iv)?, handle, key)
        });
        let wrapped = wrapped.map_err(|error| KeyringError::Module(error.to_string()))?;
        Ok([&[VERSION], &nonce[..], &wrapped].concat())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if wrapped.len() != FILE || wrapped[0] != VERSION {
            return Err(KeyringError::NotKey(self.path.clone()));
        }
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&wrapped[1..=NONCE]);
        let opened = self.token.call_now(SessionMode::ReadOnly, |session| {
            let Some(handle) = find(session, &self.key_label)? else { return Ok(None) };
            let mut iv = nonce;
            session
                .decrypt(&gcm(&mut iv)?, handle, &wrapped[1 + NONCE..])
                .map(|key| Some(Zeroizing::new(key)))
        });
        let opened = opened.map_err(|error| KeyringError::Module(error.to_string()))?;
        let opened =
            opened.ok_or_else(|| KeyringError::Module(format!("no AES key {:?} found", self.key_label)))?;
        let mut key = Zeroizing::new([0; KEY]);
        if opened.len() != KEY {
            return Err(KeyringError::NotKey(self.path.clone()));
        }
        key.copy_from_slice(&opened);
        Ok(key)
    }
}

fn gcm(iv: &mut [u8; NONCE]) -> Result<Mechanism<'_>, Error> {
    Ok(Mechanism::AesGcm(GcmParams::new(iv, PURPOSE, (8 * TAG as u64).into())?))
}

fn find(session: &Session, label: &str) -> Result<Option<ObjectHandle>, Error> {
    let template = [
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(Kind::AES),
        Attribute::Label(label.as_bytes().to_vec()),
    ];
    Ok(session.find_objects(&template)?.first().copied())
}

fn make(session: &Session, label: &str) -> Result<ObjectHandle, Error> {
    let template = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Encrypt(true),
        Attribute::Decrypt(true),
        Attribute::ValueLen((KEY as u64).into()),
        Attribute::Label(label.as_bytes().to_vec()),
    ];
    session.generate_key(&Mechanism::AesKeyGen, &template)
}
