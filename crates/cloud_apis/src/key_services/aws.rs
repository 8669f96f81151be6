//! AWS KMS: `GetPublicKey`, and `Sign` with a digest, or with a message for Ed25519.

use std::sync::Arc;

use crate::auth::aws::{AwsOptions, JsonProtocol, JsonService};
use crate::auth::http::HttpClient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clouds::ApiError;
use futures_util::future::{BoxFuture, FutureExt};
use keys::{Hash, Scheme};
use serde_json::{Value, json};

use super::{Calls, CloudKey, CloudKeyError, KeyDescription, Kind, Service, description};

/// The AWS KMS service. The maximum length of a message is the limit of `Sign`.
const KIND: Kind = Kind {
    name: "AWS KMS",
    short: "aws-kms",
    needs: "kms:GetPublicKey and kms:Sign on the key",
    message_max: 4_096,
};
/// Signature schemes and their names in KMS. With MessageType DIGEST, the PSS salt is as long as the hash. Ed25519 (RFC 8032)
/// requires MessageType RAW.
const ALGORITHMS: [(Scheme, &str); 10] = [
    (Scheme::RsaPkcs1(Hash::Sha256), "RSASSA_PKCS1_V1_5_SHA_256"),
    (Scheme::RsaPkcs1(Hash::Sha384), "RSASSA_PKCS1_V1_5_SHA_384"),
    (Scheme::RsaPkcs1(Hash::Sha512), "RSASSA_PKCS1_V1_5_SHA_512"),
    (Scheme::RsaPss(Hash::Sha256), "RSASSA_PSS_SHA_256"),
    (Scheme::RsaPss(Hash::Sha384), "RSASSA_PSS_SHA_384"),
    (Scheme::RsaPss(Hash::Sha512), "RSASSA_PSS_SHA_512"),
    (Scheme::Ecdsa(Hash::Sha256), "ECDSA_SHA_256"),
    (Scheme::Ecdsa(Hash::Sha384), "ECDSA_SHA_384"),
    (Scheme::Ecdsa(Hash::Sha512), "ECDSA_SHA_512"),
    (Scheme::Ed25519, "ED25519_SHA_512"),
];

/// Client of KMS in one region, with credentials shared by all of its keys. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AwsKms {
    service: Arc<JsonService>,
    region: Arc<str>,
}

impl AwsKms {
    /// Creates a client for KMS in `region`. Sends no request except those that look up credentials.
    ///
    /// # Errors
    /// [`CloudKeyError::Name`] for an invalid region name.
    #[crate::boxed]
    pub async fn new(region: &str, options: &AwsOptions, http: HttpClient) -> Result<Self, CloudKeyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || !region.bytes().all(plain) {
            return Err(CloudKeyError::Name { key: region.to_owned(), problem: "not a valid region name" });
        }
        let service = JsonService::new(JsonProtocol::KMS, region, options, http).await;
        Ok(Self { service: Arc::new(service), region: region.into() })
    }

    /// Opens the key with this id, ARN or alias (`alias/NAME`) and fetches its public key. An alias is resolved only here: if it
    /// later points to another key, the opened key does not change.
    ///
    /// # Errors
    /// [`CloudKeyError`]
    #[crate::boxed]
    pub async fn open(&self, key: &str, calls: &Calls) -> Result<CloudKey, CloudKeyError> {
        if key.is_empty() {
            return Err(CloudKeyError::Name { key: "aws_kms".to_owned(), problem: "no key is named" });
        }
        let payload = json!({ "KeyId": key });
        let answer =
            description(KIND, key, || self.service.ready(), || self.service.call("GetPublicKey", &payload))
                .await?;
        let found = found(&answer).ok_or_else(|| CloudKeyError::Unusable {
            service: KIND.name,
            key: key.to_owned(),
            problem: "has no readable public key".to_owned(),
        })?;
        let key_id = answer.get("KeyId").and_then(Value::as_str).unwrap_or(key).to_owned();
        let service = Box::new(Kms { service: Arc::clone(&self.service), key_id });
        CloudKey::new((key.to_owned(), &self.region), KIND, found, service, calls)
    }
}

fn found(answer: &Value) -> Option<KeyDescription> {
    let spki = STANDARD.decode(answer.get("PublicKey")?.as_str()?).ok()?;
    let algorithms: Vec<&str> =
        answer.get("SigningAlgorithms")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let schemes = ALGORITHMS.iter().filter(|(_, name)| algorithms.contains(name)).map(|(scheme, _)| *scheme);
    Some(KeyDescription { spki, schemes: schemes.collect() })
}

#[derive(Debug)]
struct Kms {
    service: Arc<JsonService>,
    /// The key's ARN.
    key_id: String,
}

impl Service for Kms {
    fn ready(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        self.service.ready().boxed()
    }

    fn sign<'a>(&'a self, scheme: Scheme, input: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ApiError>> {
        async move {
            let algorithm = ALGORITHMS.iter().find(|(of, _)| *of == scheme).map(|(_, name)| *name);
            let of = if scheme == Scheme::Ed25519 { "RAW" } else { "DIGEST" };
            let payload = json!({ "KeyId": self.key_id, "Message": STANDARD.encode(input), "MessageType": of,
                "SigningAlgorithm": algorithm });
            let answer = self.service.call("Sign", &payload).await?;
            let signature = answer.get("Signature").and_then(Value::as_str);
            let signature = signature.and_then(|text| STANDARD.decode(text).ok());
            signature.ok_or_else(|| ApiError::malformed("the response has no signature"))
        }
        .boxed()
    }
}
