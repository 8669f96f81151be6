//! One key of KMS, for a few octets: no SDK of KMS is needed for two calls, only the SDK's credentials and signature.

use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{AwsOptions, behavior, region_of};
use crate::clouds::error::chain;
use crate::clouds::http::{HttpClient, HttpError};

/// The media type of KMS's interface.
const MEDIA_TYPE: &str = "application/x-amz-json-1.1";

/// Why KMS did not do it.
#[derive(Debug, thiserror::Error)]
pub enum KmsError {
    /// The SDK's chain found none.
    #[error("no credentials for AWS: {0}")]
    Credentials(String),
    /// It did not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It refused.
    #[error("KMS refused ({code}): {message}")]
    Refused {
        /// `AccessDeniedException`, for one.
        code: String,
        /// In its words.
        message: String,
    },
    /// What it answered is none of its answers.
    #[error("KMS's answer to {0} cannot be understood")]
    Malformed(&'static str),
}

/// A key of KMS that encrypts and decrypts up to 4,096 octets. What it encrypts opens for the same `purpose` only (an
/// encryption context, which stands in CloudTrail).
pub struct KmsKey {
    key_id: String,
    region: String,
    endpoint: String,
    purpose: &'static str,
    config: SdkConfig,
    http: HttpClient,
}

impl KmsKey {
    /// Finds out how AWS is reached; asks nobody but for credentials.
    pub async fn new(
        key_id: &str,
        region: &str,
        purpose: &'static str,
        options: &AwsOptions,
        http: HttpClient,
    ) -> Self {
        let mut loader = aws_config::defaults(behavior()).http_client(http.clone()).region(region_of(region));
        if let Some((id, secret)) = &options.credentials {
            loader = loader.credentials_provider(Credentials::from_keys(id, secret, None));
        }
        let endpoint = match &options.endpoint {
            Some(given) => given.trim_end_matches('/').to_owned(),
            // The partition of China has a name of its own.
            None if region.starts_with("cn-") => format!("https://kms.{region}.amazonaws.com.cn"),
            None => format!("https://kms.{region}.amazonaws.com"),
        };
        let config = loader.load().await;
        Self { key_id: key_id.to_owned(), region: region.to_owned(), endpoint, purpose, config, http }
    }

    /// The octets, encrypted.
    ///
    /// # Errors
    /// [`KmsError`]
    pub async fn encrypt(&self, plaintext: &[u8]) -> Result<Vec<u8>, KmsError> {
        let plaintext = Zeroizing::new(STANDARD.encode(plaintext));
        let answer = self.call("Encrypt", json!({ "Plaintext": *plaintext })).await?;
        octets(&answer, "CiphertextBlob").ok_or(KmsError::Malformed("Encrypt"))
    }

    /// What [`Self::encrypt`] was given.
    ///
    /// # Errors
    /// [`KmsError`]
    pub async fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, KmsError> {
        let answer = self.call("Decrypt", json!({ "CiphertextBlob": STANDARD.encode(ciphertext) })).await?;
        octets(&answer, "Plaintext").map(Zeroizing::new).ok_or(KmsError::Malformed("Decrypt"))
    }

    async fn call(&self, operation: &'static str, mut body: Value) -> Result<Value, KmsError> {
        body["KeyId"] = self.key_id.as_str().into();
        body["EncryptionContext"] = json!({ "purpose": self.purpose });
        let answer = self.http.send(self.signed(operation, body.to_string().into()).await?).await?;
        let said: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if answer.status().is_success() {
            return Ok(said);
        }
        let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = text("__type").map(|code| code.rsplit('#').next().unwrap_or_default().to_owned());
        let message = text("message").or_else(|| text("Message")).unwrap_or_default();
        Err(KmsError::Refused { code: code.unwrap_or_else(|| answer.status().to_string()), message })
    }

    async fn signed(&self, operation: &str, body: Bytes) -> Result<http::Request<Bytes>, KmsError> {
        let none = |why: String| KmsError::Credentials(why);
        let provider =
            self.config.credentials_provider().ok_or_else(|| none("there is no chain".to_owned()))?;
        let credentials = provider.provide_credentials().await.map_err(|error| none(chain(&error)))?;
        let identity = credentials.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("kms")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(unsendable)?
            .into();
        let target = format!("TrentService.{operation}");
        let headers = [("content-type", MEDIA_TYPE), ("x-amz-target", &target)];
        let uri = format!("{}/", self.endpoint);
        let signable = SignableRequest::new("POST", &uri, headers.into_iter(), SignableBody::Bytes(&body));
        let signature = sign(signable.map_err(unsendable)?, &parameters).map_err(unsendable)?;
        let mut request = http::Request::post(&uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(body.clone()).map_err(unsendable)?;
        signature.into_parts().0.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

/// Of what could not be made into a signed request.
fn unsendable(error: impl std::error::Error + 'static) -> HttpError {
    HttpError::Request(chain(&error))
}

impl std::fmt::Debug for KmsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KmsKey")
            .field("key_id", &self.key_id)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

fn octets(answer: &Value, field: &str) -> Option<Vec<u8>> {
    STANDARD.decode(answer.get(field)?.as_str()?).ok()
}
