//! Secrets of callers, and their stored hashes.

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::problem::Problem;

/// Prefix of every API token, so that scanners for leaked secrets recognize it.
pub const TOKEN_PREFIX: &str = "bulla_";

/// Characters of a token that are stored as its label: the prefix and 4 of the 43 random characters.
const LABEL_CHARS: usize = TOKEN_PREFIX.len() + 4;

/// Returns 256 random bits in base64url.
pub(crate) fn random_text() -> Result<Zeroizing<String>, Problem> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    rand::fill(bytes.as_mut_slice())
        .map_err(|_| Problem::internal("the system's random number generator is not available"))?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice())))
}

/// Creates a new API token.
pub(crate) fn new_token() -> Result<Zeroizing<String>, Problem> {
    Ok(Zeroizing::new(format!("{TOKEN_PREFIX}{}", random_text()?.as_str())))
}

/// Returns the label by which a token is recognized.
pub(crate) fn label_of(token: &str) -> String {
    token.chars().take(LABEL_CHARS).collect()
}

/// Returns the SHA-256 over texts, each preceded by its length; the first text names the purpose.
pub(crate) fn hash(parts: &[&str]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Returns the stored hash of an API token.
pub(crate) fn token_hash(token: &str) -> [u8; 32] {
    hash(&["token", token])
}

/// Returns the stored hash of a session cookie.
pub(crate) fn session_hash(cookie: &str) -> [u8; 32] {
    hash(&["session", cookie])
}

/// Returns the stored hash of a one-time code.
pub(crate) fn code_hash(code: &str) -> [u8; 32] {
    hash(&["sign-in code", code])
}

/// Returns the stored hash of the secret of a ceremony of a security key.
pub(crate) fn ceremony_hash(secret: &str) -> [u8; 32] {
    hash(&["security key ceremony", secret])
}

/// Returns the lookup key of a user, from issuer and subject.
pub(crate) fn subject_hash(issuer: &str, subject: &str) -> [u8; 32] {
    hash(&["subject", issuer, subject])
}

/// Returns the lookup key of a client certificate: `sha256:HEX`, `dns:NAME`, `email:ADDRESS`, `uri:URI`.
pub(crate) fn certificate_hash(matcher: &str) -> [u8; 32] {
    hash(&["certificate", matcher])
}

/// Returns the lookup key of a name in certificates that this server's CA issued with this profile.
pub(crate) fn profiled_certificate_hash(profile: &str, matcher: &str) -> [u8; 32] {
    hash(&["certificate of profile", profile, matcher])
}

/// Returns the lookup key of an identity whose client certificate contains this URI, for components that create such identities
/// (agents).
#[must_use]
pub fn uri_identity_key(uri: &str) -> [u8; 32] {
    certificate_hash(&format!("uri:{uri}"))
}

/// Returns the CSRF token of a session. It is derived from the cookie, so that it need not be stored.
pub(crate) fn csrf_of(cookie: &str) -> String {
    URL_SAFE_NO_PAD.encode(hash(&["csrf", cookie]))
}

/// Compares two texts in constant time.
pub(crate) fn same(a: &str, b: &str) -> bool {
    use subtle::ConstantTimeEq;
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_unique_and_have_a_fixed_length_and_label() {
        let (a, b) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(a.as_str(), b.as_str());
        assert_eq!(a.len(), TOKEN_PREFIX.len() + 43);
        assert!(a.starts_with(&label_of(&a)) && label_of(&a).len() == 10);
    }

    #[test]
    fn hashes_differ_by_purpose_and_part_boundaries() {
        assert_ne!(token_hash("x"), session_hash("x"));
        assert_ne!(code_hash("x"), session_hash("x"));
        assert_ne!(subject_hash("ab", "c"), subject_hash("a", "bc"));
        assert!(same("a", "a") && !same("a", "b") && !same("a", "aa"));
    }
}
