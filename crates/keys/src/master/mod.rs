//! Where master keys come from.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::keyring::{MasterKeyId, id_of, random};
use crate::wrapped::UnwrappedKey;

/// Octets of a master key.
const KEY: usize = 32;
/// Octets of argon2id's salt (RFC 9106 section 3.1 recommends 16).
const SALT: usize = 16;
/// Octets of the passphrase parameters file, at most.
const PARAMETERS_MAX: u64 = 4096;
/// Characters of a passphrase, at least: below this any cost is too little.
const PASSPHRASE_MIN: usize = 12;
/// Kibibytes argon2id may use at most: a parameters file cannot take all memory.
const MEMORY_KIB_MAX: u32 = 4 * 1024 * 1024;
/// Passes and lanes argon2id may use at most.
const PASSES_MAX: u32 = 1000;

/// Why there are no master keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file is not there.
    #[error("the master key file {0} does not exist; create one with 32 random octets, mode 0600")]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("the master key file {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Anybody on the host may read the key.
    #[error("{path} is open to everybody (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not 32 octets.
    #[error("{0} is not a master key: it must hold 32 octets, no text")]
    NotKey(PathBuf),
    /// The parameters file of a passphrase is not one.
    #[error("{path} does not hold the parameters of a passphrase: {what}")]
    NotParameters {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The passphrase is not the one the parameters were made with.
    #[error("the passphrase is not the one that {0} was made with")]
    WrongPassphrase(PathBuf),
    /// Too easy to guess.
    #[error("the passphrase has under {PASSPHRASE_MIN} characters; take a longer one")]
    WeakPassphrase,
    /// More master keys than a ring holds.
    #[error("more than {0} master keys at once; finish a rotation and forget the oldest")]
    TooMany(usize),
    /// The file does not hold a key that somebody else encrypted.
    #[error("{path} does not hold an encrypted master key: {what}")]
    NotWrapped {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Who encrypts the key did not give it.
    #[error("{by} did not give the master key: {why}")]
    Wrapper {
        /// Who was asked.
        by: String,
        /// In its words.
        why: String,
    },
    /// Who encrypts the key gave another one.
    #[error("{by} gave another key than the one that {path} was made with")]
    OtherKey {
        /// Who was asked.
        by: String,
        /// Which file.
        path: PathBuf,
    },
    /// The security module did not give the key.
    #[error("the security module: {0}")]
    Module(String),
}

/// How much work argon2id (RFC 9106) makes of a passphrase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Argon2Cost {
    /// Memory in kibibytes, 8 or more a lane.
    pub memory_kib: u32,
    /// Passes over it, 1 or more.
    pub passes: u32,
    /// Lanes, 1 or more.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// The second choice of RFC 9106 section 4, for where memory is scarce: 64 MiB, 3 passes, 4 lanes.
    fn default() -> Self {
        Self { memory_kib: 64 * 1024, passes: 3, lanes: 4 }
    }
}

/// A passphrase and the file that keeps how it was stretched.
#[derive(Clone, Debug)]
pub struct PassphraseSource {
    /// The passphrase, of 12 characters or more.
    pub passphrase: SecretString,
    /// Keeps salt, cost and the key's id; no secret, but without it the passphrase is of no use.
    pub parameters: PathBuf,
    /// Make the file with this cost if it is missing.
    pub create: Option<Argon2Cost>,
}

/// One master key, and where to get it.
#[derive(Clone, Debug)]
pub enum MasterKey {
    /// A file of 32 octets that only its owner (and group) may read.
    File {
        /// Which.
        path: PathBuf,
        /// Make it, mode 0600, if it is missing.
        create: bool,
    },
    /// A passphrase, stretched by argon2id.
    Passphrase(PassphraseSource),
    /// A key that somebody else encrypted and has given back: a KMS, a program.
    Unwrapped(UnwrappedKey),
    /// A file that holds the key encrypted under an AES key in a security module: without the module
    /// the file is of no use, and the module is asked once, at the start.
    #[cfg(feature = "pkcs11")]
    Pkcs11(crate::pkcs11::WrappedMaster),
}

impl MasterKey {
    pub(crate) fn load(&self) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        match self {
            Self::File { path, create } => load_file(path, *create),
            Self::Passphrase(source) => source.load(),
            Self::Unwrapped(key) => Ok(key.secret()),
            #[cfg(feature = "pkcs11")]
            Self::Pkcs11(source) => source.load(),
        }
    }

    /// The key's id, as it stands in what is sealed under it.
    ///
    /// # Errors
    /// As [`crate::Keyring::open`].
    pub fn id(&self) -> Result<MasterKeyId, KeyringError> {
        self.load().map(|secret| id_of(&secret))
    }
}

fn load_file(path: &Path, create: bool) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
    if create && !path.exists() {
        create_once(path, &*random::<KEY>())?;
    }
    let octets = read_private(path, KEY as u64)?;
    let mut key = Zeroizing::new([0; KEY]);
    if octets.len() != KEY {
        return Err(KeyringError::NotKey(path.to_owned()));
    }
    key.copy_from_slice(&octets);
    Ok(key)
}

impl PassphraseSource {
    fn load(&self) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if self.passphrase.expose_secret().chars().count() < PASSPHRASE_MIN {
            return Err(KeyringError::WeakPassphrase);
        }
        if let Some(cost) = self.create.filter(|_| !self.parameters.exists()) {
            let salt = random::<SALT>();
            let key = self.stretch(cost, &*salt)?;
            let text = Parameters { cost, salt: *salt, id: id_of(&key).to_string() }.to_text();
            create_once(&self.parameters, text.as_bytes())?;
        }
        let text = read_private(&self.parameters, PARAMETERS_MAX)?;
        let parameters = Parameters::parse(&String::from_utf8_lossy(&text)).map_err(|what| self.bad(what))?;
        let key = self.stretch(parameters.cost, &parameters.salt)?;
        if id_of(&key).to_string() != parameters.id {
            return Err(KeyringError::WrongPassphrase(self.parameters.clone()));
        }
        Ok(key)
    }

    fn stretch(&self, cost: Argon2Cost, salt: &[u8]) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(KEY));
        let params = params.map_err(|error| self.bad(error.to_string()))?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut key = Zeroizing::new([0; KEY]);
        let passphrase = self.passphrase.expose_secret().as_bytes();
        let done = argon.hash_password_into(passphrase, salt, &mut *key);
        done.map_err(|error| self.bad(error.to_string()))?;
        Ok(key)
    }

    fn bad(&self, what: String) -> KeyringError {
        KeyringError::NotParameters { path: self.parameters.clone(), what }
    }
}

/// What is kept of a passphrase: one line a field.
#[derive(Debug, Eq, PartialEq)]
struct Parameters {
    cost: Argon2Cost,
    salt: [u8; SALT],
    id: String,
}

impl Parameters {
    fn to_text(&self) -> String {
        let Argon2Cost { memory_kib, passes, lanes } = self.cost;
        let salt: String = self.salt.iter().map(|octet| format!("{octet:02x}")).collect();
        format!(
            "# How the master key is derived from its passphrase. Not secret; keep a copy.\n\
             kdf = argon2id\nmemory_kib = {memory_kib}\npasses = {passes}\nlanes = {lanes}\n\
             salt = {salt}\nmaster_key = {}\n",
            self.id
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let field = |name: &str| field_of(text, name);
        let number = |name: &str, max: u32| {
            let value = field(name)?.parse::<u32>().map_err(|_| format!("{name} is no number"))?;
            if value > max { Err(format!("{name} is over {max}")) } else { Ok(value) }
        };
        if field("kdf")? != "argon2id" {
            return Err("kdf is not argon2id".to_owned());
        }
        let cost = Argon2Cost {
            memory_kib: number("memory_kib", MEMORY_KIB_MAX)?,
            passes: number("passes", PASSES_MAX)?,
            lanes: number("lanes", PASSES_MAX)?,
        };
        let salt = octets_of_hex(field("salt")?).and_then(|salt| salt.try_into().ok());
        let salt = salt.ok_or("salt is not 16 octets in hexadecimal")?;
        Ok(Self { cost, salt, id: field("master_key")?.to_owned() })
    }
}

/// The value of a line `name = value`.
pub(crate) fn field_of<'a>(text: &'a str, name: &str) -> Result<&'a str, String> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    found.ok_or_else(|| format!("no {name}"))
}

fn octets_of_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?, 16).ok())
        .collect()
}

/// Reads a file that others must not read. `max` is what it may hold; one octet more is read, so
/// that a longer one is noticed.
pub(crate) fn read_private(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeyringError::Missing(path.to_owned()),
        _ => KeyringError::File { path: path.to_owned(), error },
    };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    // Group readers are allowed: that is how Kubernetes mounts a secret for a user that is not root.
    if mode & 0o007 != 0 {
        return Err(KeyringError::Open { path: path.to_owned(), mode });
    }
    let mut octets = Zeroizing::new(Vec::with_capacity(PARAMETERS_MAX as usize));
    file.take(max + 1).read_to_end(&mut octets).map_err(failed)?;
    Ok(octets)
}

/// Makes a file, mode 0600, whole or not at all; one that is there by now stays as it is: of two
/// processes that start at once both read the same key.
pub(crate) fn create_once(path: &Path, content: &[u8]) -> Result<(), KeyringError> {
    let failed = |error| KeyringError::File { path: path.to_owned(), error };
    let mut name = path.as_os_str().to_owned();
    let suffix: String = random::<8>().iter().map(|octet| format!("{octet:02x}")).collect();
    name.push(format!(".{suffix}.new"));
    let draft = PathBuf::from(name);
    let written = write_draft(&draft, content).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = fs::remove_file(&draft);
    written.and(removed).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(content)?;
    file.sync_all()
}
