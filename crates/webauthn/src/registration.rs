//! Registration of a security key or passkey: verifies the browser's response, and returns the new credential.

use serde::Deserialize;

use crate::ATTESTATION_OBJECT_MAX;
use crate::authenticator_data::AuthenticatorData;
use crate::base64url::Base64Url;
use crate::cbor::{self, Value};
use crate::client_data::Expected;
use crate::error::Error;
use crate::public_key::Algorithm;

/// The browser's response to `navigator.credentials.create`.
#[derive(Clone, Debug, Deserialize)]
pub struct Registration {
    /// Client data as JSON: type, challenge and origin of the ceremony.
    pub client_data_json: Base64Url,
    /// Attestation object in CBOR, which contains the authenticator data with the new credential.
    pub attestation_object: Base64Url,
}

/// A verified new credential, to be stored for its user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Credential {
    /// The credential id, which the authenticator chose.
    pub id: Vec<u8>,
    /// The public key as `COSE_Key`.
    pub public_key: Vec<u8>,
    /// Signature algorithm of the public key.
    pub algorithm: Algorithm,
    /// The signature counter. Zero if the authenticator has none.
    pub sign_count: u32,
    /// Whether the authenticator verified the user by PIN or biometrics.
    pub user_verified: bool,
    /// Whether the credential can be copied to other devices.
    pub backup_eligible: bool,
    /// Whether the credential is stored outside its authenticator.
    pub backed_up: bool,
    /// Model of the authenticator; zeros if the authenticator does not report it.
    pub aaguid: [u8; 16],
}

impl Registration {
    /// Verifies a registration, as in WebAuthn Level 3 section 7.1. The attestation statement is skipped.
    ///
    /// The caller must check that no user has the credential yet.
    ///
    /// # Errors
    /// [`Error`].
    pub fn verify(&self, expected: &Expected<'_>) -> Result<Credential, Error> {
        expected.check_client_data(&self.client_data_json.0, "webauthn.create")?;
        let object = &self.attestation_object.0;
        if object.len() > ATTESTATION_OBJECT_MAX {
            return Err(Error::Size);
        }
        let object = cbor::read_all(object)?;
        let member = |name| object.get(&Value::Text(name));
        if member("fmt").and_then(Value::text).is_none() || !matches!(member("attStmt"), Some(Value::Map(_)))
        {
            return Err(Error::Cbor);
        }
        let data = member("authData").and_then(Value::bytes).ok_or(Error::Cbor)?;
        let data = AuthenticatorData::parse(data)?;
        expected.check_authenticator(&data)?;
        let new = data.credential.as_ref().ok_or(Error::AuthenticatorData)?;
        Ok(Credential {
            id: new.id.to_vec(),
            public_key: new.cose.to_vec(),
            algorithm: new.public_key.algorithm(),
            sign_count: data.sign_count,
            user_verified: data.user_verified(),
            backup_eligible: data.backup_eligible(),
            backed_up: data.backed_up(),
            aaguid: new.aaguid,
        })
    }
}
