//! Java's key stores, JKS and JCEKS (`sun.security.provider.JavaKeyStore` and
//! `com.sun.crypto.provider.JceKeyStore`): a list of entries, each with its length in front, and a
//! seal made with the password. Certificates are not encrypted.

use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

use super::{CertificateFound, Contents, FileError, Format, Passwords, shown};

const PRIVATE_KEY: u32 = 1;
const TRUSTED: u32 = 2;
const SECRET_KEY: u32 = 3;
/// Between password and content, in the order the seal is made.
const SEAL_SALT: &[u8] = b"Mighty Aphrodite";
const SEAL: usize = 20;

pub(super) fn read(bytes: &[u8], format: Format, passwords: &Passwords) -> Result<Contents, FileError> {
    let malformed = |why: String| FileError::Malformed { format, why };
    let sealed_part = bytes.len().saturating_sub(SEAL);
    let (content, seal) = bytes.split_at(sealed_part);
    let mut store = Store { rest: content.get(4..).unwrap_or_default(), version: 0 };
    let count = store.begin().ok_or_else(|| malformed("its head is cut off".into()))?;
    if !matches!(store.version, 1 | 2) {
        return Err(malformed(format!("version {} is not known", store.version)));
    }
    let mut contents = Contents::new(format);
    for entry in 0..count {
        match store.entry(entry, &mut contents.certificates) {
            Some(true) => {}
            // The length of a serialized Java object is known to Java alone.
            Some(false) => {
                contents.notes.push(format!(
                    "entry {entry} is a secret key, behind which nothing can be read: {} of {count} entries were not",
                    count - entry
                ));
                break;
            }
            None => {
                contents.notes.push(format!("entry {entry} of {count} is cut off"));
                break;
            }
        }
    }
    contents.seal_checked = passwords.iter().any(|password| seal_of(password, content) == seal);
    Ok(contents)
}

/// SHA-1 over the password as UTF-16, the salt, and everything before the seal.
fn seal_of(password: &str, content: &[u8]) -> [u8; SEAL] {
    let utf16: Zeroizing<Vec<u8>> =
        Zeroizing::new(password.encode_utf16().flat_map(u16::to_be_bytes).collect());
    let digest = Sha1::new().chain_update(&*utf16).chain_update(SEAL_SALT).chain_update(content);
    digest.finalize().into()
}

struct Store<'a> {
    rest: &'a [u8],
    version: u32,
}

impl<'a> Store<'a> {
    fn begin(&mut self) -> Option<u32> {
        self.version = self.number()?;
        self.number()
    }

    /// Reads one entry; `Some(false)` when it cannot be stepped over, `None` when it is cut off.
    fn entry(&mut self, entry: u32, found: &mut Vec<CertificateFound>) -> Option<bool> {
        let kind = self.number()?;
        let alias = self.text()?;
        let _created = self.take(8)?;
        let certificates = match kind {
            PRIVATE_KEY => {
                // The key is stepped over, encrypted as it is.
                let key = self.number()?;
                self.take(key as usize)?;
                self.number()?
            }
            TRUSTED => 1,
            SECRET_KEY => return Some(false),
            _ => return None,
        };
        for index in 0..certificates {
            let der = self.certificate()?.to_vec();
            found.push(CertificateFound { alias: Some(alias.clone()), entry, index, der });
        }
        Some(true)
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

    /// `DataOutput.writeUTF`: two octets of length, then nearly UTF-8.
    fn text(&mut self) -> Option<String> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        Some(shown(&String::from_utf8_lossy(self.take(length.into())?)))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}
