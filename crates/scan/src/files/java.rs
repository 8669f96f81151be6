//! Java key stores, JKS and JCEKS (`sun.security.provider.JavaKeyStore` and `com.sun.crypto.provider.JceKeyStore`): a list of
//! entries, and a password-based integrity hash. Certificates are not encrypted.

use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

use super::contents::{CertificateFound, Contents, Format, display_name};
use super::error::FileError;
use super::password::Passwords;

const PRIVATE_KEY: u32 = 1;
const TRUSTED: u32 = 2;
const SECRET_KEY: u32 = 3;
/// Start of a serialized Java object (Java Object Serialization Specification section 6.4.2).
const SERIALIZED: &[u8] = b"\xac\xed\x00\x05";
/// Constant hashed between password and content.
const INTEGRITY_SALT: &[u8] = b"Mighty Aphrodite";
const INTEGRITY_HASH_BYTES: usize = 20;

pub(super) fn read(bytes: &[u8], format: Format, passwords: &Passwords) -> Result<Contents, FileError> {
    let malformed = |why: String| FileError::Malformed { format, why };
    let content_length = bytes.len().saturating_sub(INTEGRITY_HASH_BYTES);
    let (content, integrity_hash) = bytes.split_at(content_length);
    let mut store = Store { rest: content.get(4..).unwrap_or_default(), version: 0 };
    let count = store.begin().ok_or_else(|| malformed("the header is truncated".into()))?;
    if !matches!(store.version, 1 | 2) {
        return Err(malformed(format!("unknown version {}", store.version)));
    }
    let mut contents = Contents::new(format);
    for entry in 0..count {
        let read = store.entry(entry, count - entry - 1, &mut contents.certificates);
        if read.is_none() {
            contents.notes.push(format!("entry {entry} of {count} and the entries after it cannot be read"));
            break;
        }
    }
    if contents.notes.is_empty() && !store.rest.is_empty() {
        contents.notes.push(format!("{} trailing bytes after the last entry", store.rest.len()));
    }
    contents.integrity_verified =
        passwords.iter().any(|password| keystore_hash(password, content) == integrity_hash);
    Ok(contents)
}

/// Returns the integrity hash: SHA-1 over the password as UTF-16, the constant, and everything before the hash.
fn keystore_hash(password: &str, content: &[u8]) -> [u8; INTEGRITY_HASH_BYTES] {
    let utf16: Zeroizing<Vec<u8>> =
        Zeroizing::new(password.encode_utf16().flat_map(u16::to_be_bytes).collect());
    let digest = Sha1::new().chain_update(&*utf16).chain_update(INTEGRITY_SALT).chain_update(content);
    digest.finalize().into()
}

#[derive(Clone, Copy)]
struct Store<'a> {
    rest: &'a [u8],
    version: u32,
}

impl<'a> Store<'a> {
    fn begin(&mut self) -> Option<u32> {
        self.version = self.number()?;
        self.number()
    }

    /// Reads one entry, which is followed by `remaining` further entries; `None` when it cannot be read.
    fn entry(&mut self, entry: u32, remaining: u32, found: &mut Vec<CertificateFound>) -> Option<()> {
        let (kind, alias) = self.entry_head()?;
        let certificates = match kind {
            PRIVATE_KEY => self.skip_private_key()?,
            TRUSTED => 1,
            _ => return self.skip_object(remaining),
        };
        for index in 0..certificates {
            let der = self.certificate()?.to_vec();
            found.push(CertificateFound { alias: Some(alias.clone()), entry, index, der });
        }
        Some(())
    }

    /// Reads the kind and the alias, and skips eight bytes of a date.
    fn entry_head(&mut self) -> Option<(u32, String)> {
        let kind = self.number().filter(|kind| matches!(*kind, PRIVATE_KEY | TRUSTED | SECRET_KEY))?;
        let alias = self.text()?;
        self.take(8)?;
        Some((kind, alias))
    }

    /// Skips an encrypted private key; returns the number of certificates in its chain.
    fn skip_private_key(&mut self) -> Option<u32> {
        let length = self.number()?;
        self.take(length as usize)?;
        self.number()
    }

    /// Skips a secret key: a serialized Java object of unknown length, which ends at the next readable entry.
    fn skip_object(&mut self, remaining: u32) -> Option<()> {
        if !self.rest.starts_with(SERIALIZED) {
            return None;
        }
        let end = match remaining {
            0 => self.rest.len(),
            _ => (SERIALIZED.len()..self.rest.len()).find(|&at| self.is_entry_at(at))?,
        };
        self.take(end).map(drop)
    }

    /// Returns whether an entry starts `at` bytes after the current position: its head, and then a certificate, an encrypted key or
    /// an object.
    fn is_entry_at(&self, at: usize) -> bool {
        let mut probe = Self { rest: &self.rest[at..], ..*self };
        let Some((kind, _)) = probe.entry_head() else { return false };
        match kind {
            PRIVATE_KEY => {
                let key = probe.rest.get(4);
                key == Some(&0x30) && probe.skip_private_key().is_some()
            }
            TRUSTED => probe.certificate().is_some_and(|der| der.starts_with(&[0x30])),
            _ => probe.rest.starts_with(SERIALIZED),
        }
    }

    fn certificate(&mut self) -> Option<&'a [u8]> {
        if self.version == 2 {
            let _type = self.text()?;
        }
        let length = self.number()?;
        self.take(length as usize)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Reads the format of `DataOutput.writeUTF`: a length of two bytes, then modified UTF-8.
    fn text(&mut self) -> Option<String> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        Some(display_name(&String::from_utf8_lossy(self.take(length.into())?)))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}
