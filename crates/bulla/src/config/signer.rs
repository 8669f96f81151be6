//! `[signer]`: CA keys in a separate process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};
use signer::SocketAccess;

/// Length of a SHA-256 in hexadecimal.
const HASH_DIGITS: usize = 64;

/// Configuration section `[signer]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SignerSettings {
    pub(crate) socket: PathBuf,
    pub(crate) users: Vec<String>,
    pub(crate) access: String,
    pub(crate) profiles: Vec<String>,
}

impl Default for SignerSettings {
    fn default() -> Self {
        let access = SocketAccess::Owner.name().to_owned();
        Self { socket: PathBuf::new(), users: Vec::new(), access, profiles: Vec::new() }
    }
}

impl SignerSettings {
    /// Returns whether the CA keys are in another process than the server.
    pub(crate) fn is_apart(&self) -> bool {
        !self.socket.as_os_str().is_empty()
    }

    pub(super) fn check(&self) -> Outcome<()> {
        if self.is_apart() && !self.socket.is_absolute() {
            return Err(Problem::usage(format_args!(
                "signer.socket: {} is not an absolute path",
                self.socket.display()
            ))
            .hint("give an absolute path, such as /run/bulla-signer/socket"));
        }
        self.access()?;
        self.pinned().map(drop)
    }

    /// Returns the access rights of the socket.
    pub(crate) fn access(&self) -> Outcome<SocketAccess> {
        self.access.parse().map_err(|error| {
            Problem::usage(format_args!("signer.access: {error}")).hint("write \"owner\" or \"group\"")
        })
    }

    /// Returns the only profiles that the signer signs for, each with the SHA-256 of its stored text.
    pub(crate) fn pinned(&self) -> Outcome<BTreeMap<String, String>> {
        let read = |text: &String| {
            let found = text.split_once('=').filter(|(name, hash)| {
                !name.is_empty()
                    && hash.len() == HASH_DIGITS
                    && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            let (name, hash) = found.ok_or_else(|| {
                Problem::usage(format_args!("signer.profiles: {text:?} is not NAME=SHA256"))
                    .hint("write NAME=SHA256 with 64 hexadecimal digits; when the signer refuses a profile that is not \
                     pinned, its error shows that line")
            })?;
            Ok((name.to_owned(), hash.to_ascii_lowercase()))
        };
        self.profiles.iter().map(read).collect()
    }
}
