//! The session of a request, and how long its user's last proof of identity is valid.

use std::time::Duration;

use store::{Session, SignInMethod};

/// Time for which a session may use permissions that are marked as dangerous, from its user's last proof of identity.
pub const PROOF_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// [`PROOF_LIFETIME`] in µs.
pub(crate) const PROOF_LIFETIME_US: i64 = 15 * 60 * 1_000_000;

/// Data of the session that authenticated a request: sign-in method, proof of identity and expiry.
#[derive(Clone)]
pub(crate) struct CallerSession {
    /// SHA-256 of the secret in the session cookie.
    pub(crate) hash: [u8; 32],
    /// Sign-in method of the user; `None` for a session that an older release created.
    pub(crate) method: Option<SignInMethod>,
    /// Time of the user's last proof of identity, µs since 1970-01-01 UTC; `None` if unknown.
    pub(crate) proved_at_us: Option<i64>,
    /// Absolute expiry, µs since 1970-01-01 UTC.
    pub(crate) expires_at_us: i64,
    /// Client certificates of the request that created the session.
    pub(crate) chain: Option<Vec<u8>>,
}

impl CallerSession {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            hash: session.token_hash,
            method: session.method,
            proved_at_us: session.proved_at_us,
            expires_at_us: session.expires_at_us,
            chain: session.chain.clone(),
        }
    }

    /// Returns the time until which the session may use permissions that are marked as dangerous, µs since 1970-01-01 UTC. `None`
    /// if it may not use them.
    pub(crate) fn proved_until(&self, now_us: i64) -> Option<i64> {
        let until = self.proved_at_us?.saturating_add(PROOF_LIFETIME_US);
        (now_us < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_proof_expires_after_its_lifetime() {
        assert_eq!(PROOF_LIFETIME_US, i64::try_from(PROOF_LIFETIME.as_micros()).unwrap());
        let session = |proved_at_us| CallerSession {
            hash: [0; 32],
            method: None,
            proved_at_us,
            expires_at_us: 0,
            chain: None,
        };
        assert_eq!(session(Some(5)).proved_until(PROOF_LIFETIME_US + 4), Some(PROOF_LIFETIME_US + 5));
        assert_eq!(session(Some(5)).proved_until(PROOF_LIFETIME_US + 5), None);
        assert_eq!(session(None).proved_until(0), None);
    }
}
