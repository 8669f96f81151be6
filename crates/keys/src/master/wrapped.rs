//! Master keys that something outside encrypts: a KMS, a program of the operator's.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use zeroize::Zeroizing;

use super::error::KeyringError;
use super::file::{create_once, field_of, read_private};
use super::id::{KEY, id_of};
use crate::random::random;

/// Bytes of the file: a KMS's ciphertext of 32 bytes has some hundreds.
const FILE_MAX: u64 = 16 * 1024;

/// Something outside that encrypts a master key and gives it back. It is asked once, at the start, never for a value.
pub trait Wrapper: Send + Sync {
    /// Who it is, in one word: stands in the file, so that another's file is refused before anybody is asked.
    fn name(&self) -> &'static str;

    /// The key, encrypted.
    ///
    /// # Errors
    /// Why not, fit for people; nothing of the key is in it.
    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>>;

    /// The key of what [`Self::wrap`] gave.
    ///
    /// # Errors
    /// Why not, fit for people; nothing of the key is in it.
    fn give_back<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>>;
}

/// What happens when the file of a master key does not exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MissingFile {
    /// The file is created, with a new key.
    Create,
    /// An error: [`KeyringError::Missing`].
    Refuse,
}

/// A master key that a [`Wrapper`] gave back.
#[derive(Clone)]
pub struct UnwrappedKey(Zeroizing<[u8; KEY]>);

impl UnwrappedKey {
    /// Reads the encrypted key from the file and has the wrapper decrypt it.
    ///
    /// # Errors
    /// [`KeyringError`]
    pub async fn load(
        path: &Path,
        wrapper: &dyn Wrapper,
        missing: MissingFile,
    ) -> Result<Self, KeyringError> {
        if missing == MissingFile::Create && !path.exists() {
            let key = random::<KEY>();
            let wrapped = wrapper.wrap(&*key).await.map_err(|why| refused(wrapper, why))?;
            // Compared with what it gives back: a file that nobody can open must not seal anything.
            let file = Wrapped { by: wrapper.name().to_owned(), wrapped, id: id_of(&key).to_string() };
            file.open(path, wrapper).await?;
            create_once(path, file.to_text().as_bytes())?;
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

/// The file: one line a field.
struct Wrapped {
    by: String,
    wrapped: Vec<u8>,
    id: String,
}

impl Wrapped {
    fn to_text(&self) -> String {
        let wrapped = STANDARD.encode(&self.wrapped);
        format!(
            "# A master key, encrypted by somebody else. Of no use without them; keep a copy.\n\
             wrapped_by = {}\nwrapped = {wrapped}\nmaster_key = {}\n",
            self.by, self.id
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrapped = STANDARD.decode(field_of(text, "wrapped")?).map_err(|_| "wrapped is no base64")?;
        let id = field_of(text, "master_key")?.to_owned();
        Ok(Self { by: field_of(text, "wrapped_by")?.to_owned(), wrapped, id })
    }

    async fn open(&self, path: &Path, wrapper: &dyn Wrapper) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if self.by != wrapper.name() {
            let what = format!("it was made by {}, and {} is configured", self.by, wrapper.name());
            return Err(KeyringError::NotWrapped { path: path.to_owned(), what });
        }
        let given = wrapper.give_back(&self.wrapped).await.map_err(|why| refused(wrapper, why))?;
        let mut key = Zeroizing::new([0; KEY]);
        if given.len() != KEY {
            let count = given.len();
            let what = format!(
                "gave {count} octets where {KEY} are expected: nothing may follow them, not even a line's end"
            );
            return Err(refused(wrapper, what));
        }
        let other = || KeyringError::OtherKey { by: self.by.clone(), path: path.to_owned() };
        key.copy_from_slice(&given);
        if id_of(&key).to_string() == self.id { Ok(key) } else { Err(other()) }
    }
}
