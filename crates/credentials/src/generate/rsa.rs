//! Permitted lengths of RSA keys.

use keys::KeyType;

use crate::CredentialError;

pub(crate) const BAD_KEY_LENGTH: &str =
    "The provided key length is not supported. Valid values include '2048', '3072' and '4096'.";

pub(crate) fn rsa_kind(bits: u32) -> Result<KeyType, CredentialError> {
    match bits {
        2_048 => Ok(KeyType::Rsa2048),
        3_072 => Ok(KeyType::Rsa3072),
        4_096 => Ok(KeyType::Rsa4096),
        _ => Err(CredentialError::bad(BAD_KEY_LENGTH)),
    }
}
