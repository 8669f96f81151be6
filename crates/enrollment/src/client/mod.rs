//! The host's side of enrolment: its trust anchors, its client certificate, and requests to the control plane.

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

pub use api::{Api, REQUEST_TIMEOUT};
pub use error::{ApiError, JoinError};
pub use identity::{Identity, IdentityFolder, bare_csr, read_key};

/// Initial bound of the pause after a failure. The bound doubles with each failure. The pause is random between a tenth of the
/// bound and the bound.
const BACKOFF: Duration = Duration::from_secs(2);
/// Maximum bound of the pause after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// Parameters for enrolling a host.
#[derive(Debug)]
pub struct JoinOptions {
    /// URL of the server, `https://HOST[:PORT]`.
    pub server: String,
    /// The single-use join token.
    pub token: Secret,
    /// PEM trust anchors for the server's certificate. Default: the host's trust store, unless `ca_sha256` is given.
    pub ca_pem: Option<String>,
    /// SHA-256 of the server's certificate, or of a CA certificate in the chain that it sends.
    pub ca_sha256: Option<Fingerprint>,
    /// Name of the agent or node. Default: chosen by the control plane.
    pub name: Option<String>,
    /// State directory on the host: its key and certificate are stored there.
    pub state: PathBuf,
}

impl JoinOptions {
    /// Returns the server's URL without a trailing slash.
    ///
    /// # Errors
    /// [`JoinError::Server`]
    pub fn server(&self) -> Result<String, JoinError> {
        trust::parse_server_url(&self.server)
    }

    /// Creates a client for the first request, which has no client certificate. `program` is its user agent.
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

    /// Stores the trust anchors for later requests: the anchors from the server's response and the anchors given by the user.
    /// Returns the pinned SHA-256, if there is one.
    ///
    /// # Errors
    /// [`JoinError::State`]
    pub fn store_trust_anchors(
        &self,
        folder: &IdentityFolder,
        server_anchors: &str,
    ) -> Result<Option<String>, JoinError> {
        let ca_pem = format!("{}{server_anchors}", self.ca_pem.as_deref().unwrap_or_default());
        folder.write_ca(&ca_pem)?;
        Ok(if ca_pem.is_empty() { self.ca_sha256.map(|pin| pin.to_string()) } else { None })
    }
}

/// Creates a client for all later requests. `pin` is the result of [`JoinOptions::store_trust_anchors`].
///
/// # Errors
/// [`JoinError`] when the directory cannot be read, or TLS cannot be set up with it.
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
        (true, Some(pin)) => Trust::Pinned(
            pin.parse().map_err(|_| JoinError::Trust(format!("{pin:?} is not a SHA-256 hash")))?,
        ),
        (true, None) => Trust::System,
    };
    Api::new(program, server, &trust, Some(identity))
}

/// Returns the pause after `failures` failures: exponential backoff with jitter, between a tenth of the bound and the bound. The
/// jitter prevents clients of the same server from reconnecting at the same time. The pause is at least `retry_after`, the delay that the
/// server requested, limited to five minutes.
#[must_use]
pub fn backoff(failures: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = BACKOFF.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let bound = doubled.min(BACKOFF_MAX);
    let mut bytes = [0; 4];
    // Without randomness, use the whole bound.
    let fraction = match rand::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    bound.mul_f64(0.1 + 0.9 * fraction).max(retry_after.unwrap_or_default().min(BACKOFF_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_maximum_and_obeys_retry_after() {
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
