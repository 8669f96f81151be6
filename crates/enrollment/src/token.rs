//! Tokens: made here, shown once, used once, known by their hash.

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// Bytes of randomness in a token.
const TOKEN_OCTETS: usize = 32;
/// Seconds a token is good at most.
const TOKEN_SECONDS_MAX: i64 = 30 * 86_400;
/// How long tokens are kept after their end, so that the list shows what became of them. µs.
pub const TOKENS_KEPT_US: i64 = 30 * 86_400 * 1_000_000;

/// A new join token.
pub struct Token {
    /// To be shown once.
    pub text: Zeroizing<String>,
    /// The stored part, without the secret.
    pub hash: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A random token that begins with `prefix`, so that secret scanners recognize it.
    ///
    /// # Errors
    /// A text when the system gives no random numbers.
    pub fn make(prefix: &str) -> Result<Self, String> {
        let mut octets = Zeroizing::new([0; TOKEN_OCTETS]);
        rand::fill(&mut *octets).map_err(|_| "the system gives no random numbers".to_owned())?;
        let text = Zeroizing::new(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(*octets)));
        let hash = hash_of(&text);
        Ok(Self { text, hash })
    }
}

/// Checks for how long a token is to be valid: at most 30 days.
///
/// # Errors
/// A text that names the bounds.
pub fn check_seconds(seconds: i64) -> Result<(), String> {
    if (1..=TOKEN_SECONDS_MAX).contains(&seconds) {
        return Ok(());
    }
    Err(format!("a token is good for 1 to {TOKEN_SECONDS_MAX} seconds"))
}

/// SHA-256 of a token: what is stored of it.
#[must_use]
pub fn hash_of(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}
