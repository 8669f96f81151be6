//! SCRAM-SHA-256 verifiers of passwords (RFC 5803), as PostgreSQL stores them. With a verifier in the statement, neither the database
//! nor its log ever contains the password.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::CredentialError;

/// Iterations of the key derivation: the default of PostgreSQL. The passwords are random, so more iterations would add no
/// protection.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).unwrap();

/// Bytes of the salt: the default of PostgreSQL.
const SALT: usize = 16;

/// Returns the verifier of an ASCII password with a random salt.
pub(super) fn verifier(password: &str) -> Result<String, CredentialError> {
    let mut salt = [0_u8; SALT];
    rand::fill(&mut salt).map_err(|_| CredentialError::Internal("no randomness".to_owned()))?;
    Ok(with_salt(password, &salt))
}

fn with_salt(password: &str, salt: &[u8]) -> String {
    let mut salted = Zeroizing::new([0_u8; digest::SHA256_OUTPUT_LEN]);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, password.as_bytes(), salted.as_mut_slice());
    let key = hmac::Key::new(hmac::HMAC_SHA256, salted.as_slice());
    let client = hmac::sign(&key, b"Client Key");
    let stored = digest::digest(&digest::SHA256, client.as_ref());
    let server = hmac::sign(&key, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored.as_ref()),
        STANDARD.encode(server.as_ref())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677 section 3: its server signature and client proof follow from these keys.
    #[test]
    fn verifier_matches_the_example_of_the_rfc() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        assert_eq!(
            with_salt("pencil", &salt),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }
}
