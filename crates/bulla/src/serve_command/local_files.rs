//! Files that a server writes to the data folder for commands on the same machine.

use cli::connection::local;
use cli::exit::Outcome;
use secrecy::{ExposeSecret, SecretString};

use crate::data_folder::{folder, put};

/// Writes three files that only their owner can read: the server's address, the root of its certificate, and the credential store's
/// address (empty without a credential store).
pub(super) fn write(url: &str, root_pem: &str, credential_url: &str) -> Outcome<()> {
    let folder = folder()?;
    put(&folder.join(local::URL), url)?;
    put(&folder.join(local::ROOT), root_pem)?;
    put(&folder.join(local::CREDENTIAL_URL), credential_url)
}

/// Writes the file of roots that commands on this machine trust.
pub(super) fn write_root(root_pem: &str) -> Outcome<()> {
    put(&folder()?.join(local::ROOT), root_pem)
}

/// Writes the first token, readable by its owner only.
pub(super) fn write_token(token: &SecretString) -> Outcome<()> {
    put(&folder()?.join(local::TOKEN), token.expose_secret())
}

/// Returns the first token, if the data folder contains it.
pub(super) fn token() -> Outcome<Option<SecretString>> {
    let text = std::fs::read_to_string(folder()?.join(local::TOKEN)).map(zeroize::Zeroizing::new).ok();
    Ok(text.map(|text| SecretString::from(text.trim())))
}
