//! Enrolment tokens: generated here, shown once, used once, stored as a hash.

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// Number of random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Maximum lifetime of a token in seconds.
const TOKEN_SECONDS_MAX: i64 = 30 * 86_400;
/// Time in µs for which expired tokens are kept, so that the list shows their use.
pub const TOKEN_RETENTION_US: i64 = 30 * 86_400 * 1_000_000;

/// A new join token.
pub struct Token {
    /// The secret token, to be shown once.
    pub text: Zeroizing<String>,
    /// SHA-256 of the token, which is stored.
    pub hash: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Generates a random token that begins with `prefix`, so that secret scanners recognize it.
    ///
    /// # Errors
    /// A text when the operating system returns no random bytes.
    pub fn make(prefix: &str) -> Result<Self, String> {
        let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
        rand::fill(&mut *bytes).map_err(|_| "the system's random number generator failed".to_owned())?;
        let text = Zeroizing::new(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(*bytes)));
        let hash = hash_of(&text);
        Ok(Self { text, hash })
    }
}

/// Checks the lifetime of a token: at most 30 days.
///
/// # Errors
/// A text with the allowed range.
pub fn check_seconds(seconds: i64) -> Result<(), String> {
    if (1..=TOKEN_SECONDS_MAX).contains(&seconds) {
        return Ok(());
    }
    Err(format!("the lifetime of a token must be from 1 to {TOKEN_SECONDS_MAX} seconds"))
}

/// Returns the SHA-256 of a token. The database stores this hash instead of the token.
#[must_use]
pub fn hash_of(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}
