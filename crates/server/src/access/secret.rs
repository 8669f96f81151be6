//! Secrets that callers hold, and the hashes that are stored of them.

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::problem::Problem;

/// What every API token begins with, so that scanners for leaked secrets know it.
pub const TOKEN_PREFIX: &str = "bulla_";

/// Characters of a token that are kept to recognise it by: the prefix and four of forty-three.
const LABEL_CHARS: usize = TOKEN_PREFIX.len() + 4;

/// 256 random bits in base64url.
pub(crate) fn random_text() -> Result<Zeroizing<String>, Problem> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    rand::fill(bytes.as_mut_slice())
        .map_err(|_| Problem::internal("the system's random numbers are not available"))?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice())))
}

/// A new API token.
pub(crate) fn new_token() -> Result<Zeroizing<String>, Problem> {
    Ok(Zeroizing::new(format!("{TOKEN_PREFIX}{}", random_text()?.as_str())))
}

/// To recognise a token by.
pub(crate) fn label_of(token: &str) -> String {
    token.chars().take(LABEL_CHARS).collect()
}

/// SHA-256 over texts, each preceded by its length; the first names the purpose.
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

/// What is stored of an API token.
pub(crate) fn token_hash(token: &str) -> [u8; 32] {
    hash(&["token", token])
}

/// What is stored of a session's cookie.
pub(crate) fn session_hash(cookie: &str) -> [u8; 32] {
    hash(&["session", cookie])
}

/// What is stored of a one-time code.
pub(crate) fn code_hash(code: &str) -> [u8; 32] {
    hash(&["sign-in code", code])
}

/// By what a person is found.
pub(crate) fn subject_hash(issuer: &str, subject: &str) -> [u8; 32] {
    hash(&["subject", issuer, subject])
}

/// By what a client certificate is found: `sha256:HEX`, `dns:NAME`, `email:ADDRESS`, `uri:URI`.
pub(crate) fn certificate_hash(matcher: &str) -> [u8; 32] {
    hash(&["certificate", matcher])
}

/// By what a certificate that our own CA issued by this profile is found, for its names.
pub(crate) fn profiled_certificate_hash(profile: &str, matcher: &str) -> [u8; 32] {
    hash(&["certificate of profile", profile, matcher])
}

/// By what an identity with a URI in its client certificate is found: for rooms that make such identities (agents).
#[must_use]
pub fn uri_identity_key(uri: &str) -> [u8; 32] {
    certificate_hash(&format!("uri:{uri}"))
}

/// The token against cross-site requests that goes with a session: derived, so that nothing more is stored.
pub(crate) fn csrf_of(cookie: &str) -> String {
    URL_SAFE_NO_PAD.encode(hash(&["csrf", cookie]))
}

/// Compares without telling where two texts differ.
pub(crate) fn same(a: &str, b: &str) -> bool {
    use subtle::ConstantTimeEq;
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (a, b) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(a.as_str(), b.as_str());
        assert_eq!(a.len(), TOKEN_PREFIX.len() + 43);
        assert!(a.starts_with(&label_of(&a)) && label_of(&a).len() == 10);
    }

    #[test]
    fn hashes_are_of_their_purpose_and_of_where_parts_end() {
        assert_ne!(token_hash("x"), session_hash("x"));
        assert_ne!(code_hash("x"), session_hash("x"));
        assert_ne!(subject_hash("ab", "c"), subject_hash("a", "bc"));
        assert!(same("a", "a") && !same("a", "b") && !same("a", "aa"));
    }
}
