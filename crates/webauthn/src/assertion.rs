//! Assertions: signatures of registered credentials.

use serde::{Deserialize, Serialize};

use crate::authenticator_data::AuthenticatorData;
use crate::base64url::Base64Url;
use crate::client_data::Expected;
use crate::error::Error;
use crate::public_key::PublicKey;
use crate::{CREDENTIAL_ID_BYTES, SIGNATURE_MAX, USER_HANDLE_MAX};

/// The browser's response to `navigator.credentials.get`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Assertion {
    /// ID of the credential that signed.
    pub credential_id: Base64Url,
    /// JSON of the client data, whose SHA-256 the signature covers.
    pub client_data_json: Base64Url,
    /// Authenticator data (WebAuthn Level 3 section 6.1), which the signature covers.
    pub authenticator_data: Base64Url,
    /// The signature over authenticator data and the SHA-256 of the client data.
    pub signature: Base64Url,
    /// User handle of the credential, if the authenticator stores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_handle: Option<Base64Url>,
}

/// The stored part of a credential that an assertion is checked against.
#[derive(Clone, Copy, Debug)]
pub struct RegisteredKey<'a> {
    /// ID of the registered credential. An assertion by another credential is rejected.
    pub id: &'a [u8],
    /// The public key as `COSE_Key`.
    pub public_key: &'a [u8],
    /// The last seen signature counter.
    pub sign_count: u32,
    /// Whether the credential can be copied to other devices, as the authenticator reported at registration.
    pub backup_eligible: bool,
    /// The user handle that was given to the authenticator.
    pub user_handle: &'a [u8],
}

/// Data of a verified assertion: new signature counter, user verification, and backup state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verified {
    /// The new signature counter.
    pub sign_count: u32,
    /// Whether the authenticator verified the user by PIN or biometrics.
    pub user_verified: bool,
    /// Whether the credential is stored outside its authenticator.
    pub backed_up: bool,
}

impl Assertion {
    /// Verifies an assertion, as in WebAuthn Level 3 section 7.2.
    ///
    /// # Errors
    /// [`Error`]. A counter that did not increase is an error, unless both counters are zero.
    pub fn verify(&self, expected: &Expected<'_>, known: &RegisteredKey<'_>) -> Result<Verified, Error> {
        self.check_sizes()?;
        let handle_differs = |handle: &Base64Url| handle.0 != known.user_handle;
        if self.credential_id.0 != known.id || self.user_handle.as_ref().is_some_and(handle_differs) {
            return Err(Error::Credential);
        }
        let verified = self.verify_signature(expected, known.public_key)?;
        let data = AuthenticatorData::parse(&self.authenticator_data.0)?;
        if data.backup_eligible() != known.backup_eligible {
            return Err(Error::Credential);
        }
        let has_counter = verified.sign_count != 0 || known.sign_count != 0;
        if has_counter && verified.sign_count <= known.sign_count {
            return Err(Error::Counter);
        }
        Ok(verified)
    }

    /// Verifies the parts of an assertion that depend on nothing but the public key: client data, authenticator data, signature.
    ///
    /// # Errors
    /// [`Error`].
    pub fn verify_signature(&self, expected: &Expected<'_>, public_key: &[u8]) -> Result<Verified, Error> {
        self.check_sizes()?;
        let hash = expected.check_client_data(&self.client_data_json.0, "webauthn.get")?;
        let data = AuthenticatorData::parse(&self.authenticator_data.0)?;
        expected.check_authenticator(&data)?;
        let message = [self.authenticator_data.0.as_slice(), &hash].concat();
        PublicKey::parse(public_key)?.verify(&message, &self.signature.0)?;
        Ok(Verified {
            sign_count: data.sign_count,
            user_verified: data.user_verified(),
            backed_up: data.backed_up(),
        })
    }

    fn check_sizes(&self) -> Result<(), Error> {
        let handle = self.user_handle.as_ref().map_or(1, |handle| handle.0.len());
        let fits = CREDENTIAL_ID_BYTES.contains(&self.credential_id.0.len())
            && self.signature.0.len() <= SIGNATURE_MAX
            && (1..=USER_HANDLE_MAX).contains(&handle);
        if fits { Ok(()) } else { Err(Error::Size) }
    }
}
