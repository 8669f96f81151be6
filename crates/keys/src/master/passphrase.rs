//! Master keys from passphrases, stretched by argon2id.

use std::path::PathBuf;

use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::error::{KeyringError, PASSPHRASE_MIN};
use super::file::{PARAMETERS_MAX, create_if_absent, field_of, read_private};
use super::id::{KEY, id_of};
use crate::random::random;

/// Bytes of argon2id's salt (RFC 9106 section 3.1 recommends 16).
const SALT: usize = 16;

/// Maximum memory of argon2id, in KiB. The limit prevents a parameters file from using all memory.
const MEMORY_KIB_MAX: u32 = 4 * 1024 * 1024;

/// Maximum passes, and maximum lanes, of argon2id.
const PASSES_MAX: u32 = 1000;

/// Cost parameters of argon2id (RFC 9106).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Argon2Cost {
    /// Memory in KiB, at least 8 for each lane.
    pub memory_kib: u32,
    /// Number of passes, at least 1.
    pub passes: u32,
    /// Number of lanes, at least 1.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// Returns the second recommended option of RFC 9106 section 4, for little memory: 64 MiB, 3 passes, 4 lanes.
    fn default() -> Self {
        Self { memory_kib: 64 * 1024, passes: 3, lanes: 4 }
    }
}

/// A passphrase, and the file with its stretching parameters.
#[derive(Clone, Debug)]
pub struct PassphraseSource {
    /// The passphrase, at least 12 characters.
    pub passphrase: SecretString,
    /// Path of the file with the salt, the cost and the key's id. The file is not secret, but the passphrase is useless without it.
    pub parameters: PathBuf,
    /// If set, a missing parameters file is created with this cost.
    pub create: Option<Argon2Cost>,
}

impl PassphraseSource {
    pub(super) fn load(&self) -> Result<Zeroizing<[u8; KEY]>, KeyringError> {
        if self.passphrase.expose_secret().chars().count() < PASSPHRASE_MIN {
            return Err(KeyringError::WeakPassphrase);
        }
        if let Some(cost) = self.create.filter(|_| !self.parameters.exists()) {
            let salt = random::<SALT>();
            let key = self.stretch(cost, &*salt)?;
            let text = Parameters { cost, salt: *salt, id: id_of(&key).to_string() }.to_text();
            create_if_absent(&self.parameters, text.as_bytes())?;
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

/// Content of the parameters file: one line for each field.
#[derive(Debug, Eq, PartialEq)]
struct Parameters {
    cost: Argon2Cost,
    salt: [u8; SALT],
    id: String,
}

impl Parameters {
    fn to_text(&self) -> String {
        let Argon2Cost { memory_kib, passes, lanes } = self.cost;
        let salt = HEXLOWER.encode(&self.salt);
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
            let value = field(name)?.parse::<u32>().map_err(|_| format!("{name} is not a number"))?;
            if value > max { Err(format!("{name} is above {max}")) } else { Ok(value) }
        };
        if field("kdf")? != "argon2id" {
            return Err("kdf is not argon2id".to_owned());
        }
        let cost = Argon2Cost {
            memory_kib: number("memory_kib", MEMORY_KIB_MAX)?,
            passes: number("passes", PASSES_MAX)?,
            lanes: number("lanes", PASSES_MAX)?,
        };
        let salt = HEXLOWER_PERMISSIVE.decode(field("salt")?.as_bytes()).ok();
        let salt = salt.and_then(|salt| salt.try_into().ok());
        let salt = salt.ok_or("salt is not 16 bytes in hexadecimal")?;
        Ok(Self { cost, salt, id: field("master_key")?.to_owned() })
    }
}
