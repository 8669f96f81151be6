//! A master key that only one TPM 2.0 can open: sealed under its storage root key, with a policy.
//!
//! This module implements the nine commands that are needed; tpm2-tss would be a C library for all 120. The secret crosses the bus
//! to the TPM encrypted. Each session has a salt that is encrypted to the storage root key, so a passive listener on the bus learns
//! nothing. An attacker who can change the bus traffic could replace the TPM's key by another key; this is not detected.

mod command;
mod crypto;
mod error;
mod pcrs;
mod sealing;
mod session;
mod transport;
mod wire;

use std::fmt;
use std::str::FromStr;

use futures_util::future::{BoxFuture, FutureExt};
use zeroize::Zeroizing;

pub use error::TpmError;
pub use pcrs::Pcrs;
pub use transport::TpmAddress;

use crate::Wrapper;
use sealing::Policy;
use transport::Connection;

/// Maximum bytes of an authorization value: the length of SHA-256.
const AUTH_MAX: usize = 32;

/// A TPM that seals and opens a key. Each operation opens a connection, and leaves no object in the TPM.
pub struct Tpm {
    address: TpmAddress,
    policy: Policy,
}

impl Tpm {
    /// Creates a client for the TPM at this address. `pcrs` is used when a key is sealed; the sealed value contains the registers
    /// to check when it is opened. `auth` is a password of at most 32 bytes and may be empty. After wrong passwords the TPM refuses
    /// further attempts for a while.
    ///
    /// # Errors
    /// [`TpmError::AuthLength`] if `auth` is longer.
    pub fn new(address: TpmAddress, pcrs: Pcrs, auth: &[u8]) -> Result<Self, TpmError> {
        if auth.len() > AUTH_MAX {
            return Err(TpmError::AuthLength(auth.len()));
        }
        Ok(Self { address, policy: Policy { pcrs, auth: Zeroizing::new(auth.to_vec()) } })
    }

    /// Runs `work` with a connection, on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &Policy) -> Result<T, TpmError> + Send + 'static,
    ) -> Result<T, String> {
        let (address, policy) = (self.address.clone(), self.policy.clone());
        let done = tokio::task::spawn_blocking(move || work(&mut Connection::open(&address)?, &policy));
        let done = done.await.map_err(|error| error.to_string())?;
        done.map_err(|error| format!("{}: {}", self.address, error.message_with_causes()))
    }
}

impl fmt::Debug for Tpm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tpm")
            .field("address", &self.address)
            .field("pcrs", &self.policy.pcrs)
            .finish_non_exhaustive()
    }
}

impl Wrapper for Tpm {
    fn name(&self) -> &'static str {
        "tpm"
    }

    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let key = Zeroizing::new(key.to_vec());
        self.with(move |tpm, policy| sealing::seal(tpm, policy, &key)).boxed()
    }

    fn unwrap_key<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>> {
        let wrapped = wrapped.to_vec();
        self.with(move |tpm, policy| sealing::unseal(tpm, policy, &wrapped)).boxed()
    }
}

/// Parses `/dev/tpmrm0`, `unix:PATH` or `tcp:ADDRESS:PORT`. The last two forms connect to a software TPM.
impl FromStr for TpmAddress {
    type Err = TpmError;

    fn from_str(text: &str) -> Result<Self, TpmError> {
        let unknown = || TpmError::Address(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            return address.parse().map(Self::Tcp).map_err(|_| unknown());
        }
        if text.starts_with('/') { Ok(Self::Device(text.into())) } else { Err(unknown()) }
    }
}
