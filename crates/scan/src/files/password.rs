//! Passwords for key stores.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use super::error::FileError;
use super::open;

/// Maximum passwords tried on each store. Each costs up to a million rounds of hashing.
pub const PASSWORDS_MAX: usize = 1_000;

/// Passwords to try, in order. The empty password is always tried first: many stores use it.
#[derive(Clone, Debug, Default)]
pub struct Passwords(Vec<SecretString>);

impl Passwords {
    /// Reads passwords from a file, one per line; spaces are significant, empty lines are skipped.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read, is not UTF-8, or has more than [`PASSWORDS_MAX`] passwords.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = open::read_regular_file(path)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| invalid("passwords must be UTF-8"))?;
        let passwords = Self::from_lines(text);
        if passwords.0.len() > PASSWORDS_MAX {
            return Err(invalid("more than 1,000 passwords; keep only the passwords of these key stores"));
        }
        Ok(passwords)
    }

    /// Reads passwords from a text, one per line.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let lines = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line));
        Self(lines.filter(|line| !line.is_empty()).map(SecretString::from).collect())
    }

    /// Returns the number of passwords.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once("").chain(self.0.iter().map(ExposeSecret::expose_secret))
    }

    /// Returns the error when none of the passwords is correct.
    pub(super) fn no_match_error(&self) -> FileError {
        match self.count() {
            0 => FileError::PasswordNeeded,
            tried => FileError::WrongPassword { tried },
        }
    }
}

fn invalid(why: &str) -> FileError {
    std::io::Error::new(std::io::ErrorKind::InvalidData, why).into()
}
