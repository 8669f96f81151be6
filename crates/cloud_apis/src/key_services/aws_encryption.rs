//! One KMS key that encrypts small values. The two calls `Encrypt` and `Decrypt` need only the SDK's credentials and signatures,
//! not the SDK of KMS.

use crate::auth::aws::{AwsOptions, JsonProtocol, JsonService};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::auth::http::HttpClient;
use clouds::ApiError;

/// A failed KMS encryption or decryption.
#[derive(Debug, thiserror::Error)]
pub enum KmsError {
    /// The call failed or was refused.
    #[error("KMS: {0}")]
    Call(#[from] ApiError),
    /// The response is malformed.
    #[error("KMS's response to {0} cannot be parsed")]
    Malformed(&'static str),
}

/// A KMS key that encrypts and decrypts up to 4,096 bytes. Decryption requires the same `purpose`, an encryption context that
/// appears in CloudTrail.
#[derive(Debug)]
pub struct KmsKey {
    key_id: String,
    purpose: &'static str,
    service: JsonService,
}

impl KmsKey {
    /// Creates a client for the key. Sends no request except those that look up credentials.
    #[crate::boxed]
    pub async fn new(
        key_id: &str,
        region: &str,
        purpose: &'static str,
        options: &AwsOptions,
        http: HttpClient,
    ) -> Self {
        let service = JsonService::new(JsonProtocol::KMS, region, options, http).await;
        Self { key_id: key_id.to_owned(), purpose, service }
    }

    /// Encrypts `plaintext`, at most 4,096 bytes.
    ///
    /// # Errors
    /// [`KmsError`]
    #[crate::boxed]
    pub async fn encrypt(&self, plaintext: &[u8]) -> Result<Vec<u8>, KmsError> {
        let plaintext = Zeroizing::new(STANDARD.encode(plaintext));
        let answer = self.call("Encrypt", json!({ "Plaintext": *plaintext })).await?;
        decode_member(&answer, "CiphertextBlob").ok_or(KmsError::Malformed("Encrypt"))
    }

    /// Decrypts the output of [`Self::encrypt`].
    ///
    /// # Errors
    /// [`KmsError`]
    #[crate::boxed]
    pub async fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, KmsError> {
        let answer = self.call("Decrypt", json!({ "CiphertextBlob": STANDARD.encode(ciphertext) })).await?;
        decode_member(&answer, "Plaintext").map(Zeroizing::new).ok_or(KmsError::Malformed("Decrypt"))
    }

    async fn call(&self, operation: &'static str, mut body: Value) -> Result<Value, KmsError> {
        body["KeyId"] = self.key_id.as_str().into();
        body["EncryptionContext"] = json!({ "purpose": self.purpose });
        Ok(self.service.call(operation, &body).await?)
    }
}

fn decode_member(answer: &Value, field: &str) -> Option<Vec<u8>> {
    STANDARD.decode(answer.get(field)?.as_str()?).ok()
}
