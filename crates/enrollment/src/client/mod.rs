//! The host's side: its trust anchors, its client certificate, and requests to the control plane.

mod api;
mod error;
mod identity;
mod trust;

use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::rand;
use keys::Secret;
use x509::Fingerprint;

use trust::Trust;

pub use api::{Api, REQUEST};
pub use error::{ApiError, JoinError};
pub use identity::{Identity, IdentityFolder, bare_csr, read_key};

/// Waits after failures: full jitter from a tenth of the bound up, doubling.
const BACKOFF: Duration = Duration::from_secs(2);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// How to become a member.
#[derive(Debug)]
pub struct JoinOptions {
    /// `https://HOST[:PORT]`.
    pub server: String,
    /// Used once.
    pub token: Secret,
    /// Certificates the server's own stands below, PEM; the host's roots when neither this nor `ca_sha256` is given.
    pub ca_pem: Option<String>,
    /// SHA-256 of the server's certificate, or of one above it that it sends.
    pub ca_sha256: Option<Fingerprint>,
    /// The member's name; when absent the control plane finds one.
    pub name: Option<String>,
    /// Its folder.
    pub state: PathBuf,
}

impl JoinOptions {
    /// The server, without a slash at the end.
    ///
    /// # Errors
    /// [`JoinError::Server`]
    pub fn server(&self) -> Result<String, JoinError> {
        trust::server_of(&self.server)
    }

    /// A client for the first request, which is made without an identity. `program` is its user agent.
    ///
    /// # Errors
    /// [`JoinError::Server`], [`JoinError::Trust`]
    pub fn api(&self, program: &str) -> Result<Api, JoinError> {
        let trust = match (&self.ca_pem, self.ca_sha256) {
            (Some(pem), _) => Trust::roots(pem)?,
            (None, Some(pin)) => Trust::Pinned(pin),
            (None, None) => Trust::System,
        };
        Api::new(program, &self.server()?, &trust, None)
    }

    /// Stores what the server is trusted by from now on: the certificates it named, and those given. Returns the pin, if it is
    /// trusted by one.
    ///
    /// # Errors
    /// [`JoinError::State`]
    pub fn keep_trust(&self, folder: &IdentityFolder, told: &str) -> Result<Option<String>, JoinError> {
        let ca_pem = format!("{}{told}", self.ca_pem.as_deref().unwrap_or_default());
        folder.write_ca(&ca_pem)?;
        Ok(if ca_pem.is_empty() { self.ca_sha256.map(|pin| pin.to_string()) } else { None })
    }
}

/// A client for all further requests; `pin` is what [`JoinOptions::keep_trust`] returned.
///
/// # Errors
/// [`JoinError`] when the folder cannot be read, or TLS cannot be set up with it.
pub fn api_of(
    program: &str,
    folder: &IdentityFolder,
    server: &str,
    pin: Option<&str>,
    identity: &Identity,
) -> Result<Api, JoinError> {
    let ca = folder.ca()?;
    let trust = match (ca.is_empty(), pin) {
        (false, _) => Trust::roots(&ca)?,
        (true, Some(pin)) => {
            Trust::Pinned(pin.parse().map_err(|_| JoinError::Trust(format!("{pin:?} is no SHA-256")))?)
        }
        (true, None) => Trust::System,
    };
    Api::new(program, server, &trust, Some(identity))
}

/// The pause after so many failures, exponential with jitter: between a tenth of the bound and all of it, so that those who lost a server together do not return together.
#[must_use]
pub fn backoff(failures: u32, asked: Option<Duration>) -> Duration {
    let doubled = BACKOFF.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let bound = doubled.min(BACKOFF_MAX);
    let mut octets = [0; 4];
    // Without randomness: the whole bound.
    let fraction = match rand::fill(&mut octets) {
        Ok(()) => f64::from(u32::from_be_bytes(octets)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    bound.mul_f64(0.1 + 0.9 * fraction).max(asked.unwrap_or_default().min(BACKOFF_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_bound_and_heed_the_server() {
        for failures in [1, 2, 5, 9, 40, u32::MAX] {
            let bound =
                BACKOFF.saturating_mul(1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX)).min(BACKOFF_MAX);
            let pause = backoff(failures, None);
            assert!(pause >= bound.mul_f64(0.099) && pause <= bound, "{failures}: {pause:?}");
        }
        assert!(backoff(1, Some(Duration::from_secs(90))) >= Duration::from_secs(90));
        assert!(backoff(1, Some(Duration::from_secs(90_000))) <= BACKOFF_MAX);
    }
}
