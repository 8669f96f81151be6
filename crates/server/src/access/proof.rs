//! The session that a request came with, and how long its person's proof of who they are counts.

use std::time::Duration;

use store::{Session, SignInMethod};

/// How long after its person proved who they are a session may do what is marked as dangerous.
pub const PROOF_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// [`PROOF_LIFETIME`] in µs.
pub(crate) const PROOF_LIFETIME_US: i64 = 15 * 60 * 1_000_000;

/// The session that a request came with.
#[derive(Clone)]
pub(crate) struct CallerSession {
    /// SHA-256 of its cookie's secret.
    pub(crate) hash: [u8; 32],
    /// How its person signed in.
    pub(crate) method: Option<SignInMethod>,
    /// When its person last proved who they are, µs; `None` where that is not known.
    pub(crate) proved_at_us: Option<i64>,
    /// When it ends whatever happens, µs.
    pub(crate) expires_at_us: i64,
    /// The client certificates of the request.
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

    /// Until when the session may do what is marked as dangerous, µs; `None` when it may not.
    pub(crate) fn proved_until(&self, now_us: i64) -> Option<i64> {
        let until = self.proved_at_us?.saturating_add(PROOF_LIFETIME_US);
        (now_us < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_for_a_while() {
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
