//! Client data: the browser's statement about a ceremony, and its comparison with the server's expectations.

use aws_lc_rs::digest::{SHA256, digest};
use serde::Deserialize;

use crate::CLIENT_DATA_MAX;
use crate::authenticator_data::AuthenticatorData;
use crate::base64url::Base64Url;
use crate::error::Error;

/// Values that the server expects in a response.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The challenge that the server created for this ceremony.
    pub challenge: &'a [u8],
    /// Relying party identifier: the host name of the server.
    pub rp_id: &'a str,
    /// Origin of the server's pages, such as `https://bulla.example:9443`.
    pub origin: &'a str,
    /// Whether the authenticator must have verified the user by PIN or biometrics.
    pub user_verification: bool,
}

#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: Base64Url,
    origin: String,
    #[serde(rename = "crossOrigin", default)]
    cross_origin: bool,
    #[serde(rename = "topOrigin")]
    top_origin: Option<serde::de::IgnoredAny>,
}

impl Expected<'_> {
    /// Checks the client data, and returns its SHA-256.
    pub(crate) fn check_client_data(&self, json: &[u8], kind: &str) -> Result<[u8; 32], Error> {
        if json.len() > CLIENT_DATA_MAX {
            return Err(Error::Size);
        }
        let data: ClientData = serde_json::from_slice(json).map_err(|_| Error::ClientData)?;
        if data.kind != kind {
            return Err(Error::Type);
        }
        if data.challenge.0 != self.challenge {
            return Err(Error::Challenge);
        }
        if data.origin != self.origin || data.cross_origin || data.top_origin.is_some() {
            return Err(Error::Origin);
        }
        Ok(sha256(json))
    }

    /// Checks the relying party and the flags of authenticator data.
    pub(crate) fn check_authenticator(&self, data: &AuthenticatorData<'_>) -> Result<(), Error> {
        if data.rp_id_hash != sha256(self.rp_id.as_bytes()) {
            return Err(Error::RelyingParty);
        }
        if !data.user_present() {
            return Err(Error::UserPresence);
        }
        if self.user_verification && !data.user_verified() {
            return Err(Error::UserVerification);
        }
        Ok(())
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}
