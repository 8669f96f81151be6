//! Master keys that are encrypted by an external service: a KMS, or a program of the operator.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use zeroize::Zeroizing;

use super::error::KeyringError;
use super::file::{create_if_absent, field_of, read_private};
use super::id::{KEY, id_of};
use crate::random::random;

/// Maximum bytes of the file. The KMS ciphertext of 32 bytes has a few hundred bytes.
const FILE_MAX: u64 = 16 * 1024;

/// External service that encrypts and decrypts a master key. It is called once, at startup, and never for a single value.
pub trait Wrapper: Send + Sync {
    /// Returns the one-word name of the service. The file contains the name, so that a file of another service is rejected before a
    /// request is sent.
    fn name(&self) -> &'static str;

    /// Encrypts the key.
    ///
    /// # Errors
    /// A human-readable message. It reveals nothing of the key.
    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>>;

    /// Decrypts the output of [`Self::wrap`].
    ///
    /// # Errors
    /// A human-readable message. It reveals nothing of the key.
    fn unwrap_key<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>>;
}

/// Behavior if the file of a master key does not exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MissingFileAction {
    /// The file is created, with a new key.
    Create,
    /// The load fails with [`KeyringError::Missing`].
    Refuse,
}

/// A master key that a [`Wrapper`] decrypted.
#[derive(Clone)]
pub struct UnwrappedKey(Zeroizing<[u8; KEY]>);

impl UnwrappedKey {
    /// Reads the encrypted key from the file, and decrypts it with the wrapper.
    ///
    /// # Errors
    /// [`KeyringError`]
    pub async fn load(
        path: &Path,
        wrapper: &dyn Wrapper,
        missing: MissingFileAction,
    ) -> Result<Self, KeyringError> {
        if missing == MissingFileAction::Create && !path.exists() {
            let key = random::<KEY>();
            let wrapped = wrapper.wrap(&*key).await.map_err(|why| refused(wrapper, why))?;
            // Decrypts the new file as a check: a key that cannot be decrypted must not seal anything.
            let file = Wrapped { by: wrapper.name().to_owned(), wrapped, id: id_of(&key).to_string() };
            file.open(path, wrapper).await?;
            create_if_absent(path, file.to_text().as_bytes())?;
        }
        let text = read_private(path, FILE_MAX)?;
        let file = Wrapped::parse(&String::from_utf8_lossy(&text));
        let file = file.map_err(|what| KeyringError::NotWrapped { path: path.to_owned(), what })?;
        file.open(path, wrapper).await.map(Self)
    }

    pub(crate) fn secret(&self) -> Zeroizing<[u8; KEY]> {
        self.0.clone()
    }
}

impl fmt::Debug for UnwrappedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnwrappedKey(…)")
    }
}

fn refused(wrapper: &dyn Wrapper, why: String) -> KeyringError {
    KeyringError::Wrapper { by: wrapper.name().to_owned(), why }
}

/// Content of the file: one line for each field.
struct Wrapped {
    by: String,
    wrapped: Vec<u8>,
    id: String,
}

impl Wrapped {
    fn to_text(&self) -> String {
        let wrapped = STANDARD.encode(&self.wrapped);
        format!(
            "# A master key, encrypted by an external service. Unusable without that service; keep a copy.\nwrapped_by = \
             {}\nwrapped = {wrapped}\nmaster_key = {}\n",
            self.by, self.id
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrapped = STANDARD.decode(field_of(text, "wrapped")?).map_err(|_| "wrapped is not base64")?;
        let id = field_of(text, "master_key")?.to_owned();
        Ok(Self { by: field_of(text, "wrapped_by")?.to_owned(), wrapped, id })
    }

    async fn open(&self, path: &Path, wrapper: &dyn Wrapper) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if self.by != wrapper.name() {
            let what = format!("it was created with {}, but {} is configured", self.by, wrapper.name());
            return Err(KeyringError::NotWrapped { path: path.to_owned(), what });
        }
        let unwrapped = wrapper.unwrap_key(&self.wrapped).await.map_err(|why| refused(wrapper, why))?;
        let mut key = Zeroizing::new([0; KEY]);
        if unwrapped.len() != KEY {
            let count = unwrapped.len();
            let what = format!("returned {count} bytes, expected {KEY}; a trailing newline is not allowed");
            return Err(refused(wrapper, what));
        }
        let other = || KeyringError::OtherKey { by: self.by.clone(), path: path.to_owned() };
        key.copy_from_slice(&unwrapped);
        if id_of(&key).to_string() == self.id { Ok(key) } else { Err(other()) }
    }
}
