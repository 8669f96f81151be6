//! Google Cloud KMS, without P-521: `getPublicKey`, and `asymmetricSign` with a digest, or with the data itself for Ed25519.
//!
//! The CRC32C checksums of input and signature are not sent: verifying the signature is the stronger check.

use crate::auth::gcp::{headers, standard};
use crate::auth::http::HttpClient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clouds::ApiError;
use futures_util::future::{BoxFuture, FutureExt};
use google_cloud_auth::credentials::Credentials;
use keys::{Hash, Scheme};
use outbound::pool::Verdict;
use serde_json::{Value, json};

use super::{Calls, CloudKey, CloudKeyError, KeyDescription, Kind, Service, description};

/// The maximum message length is not documented. Messages of Bulla's protocols are short; the service rejects longer ones.
const KIND: Kind = Kind {
    name: "Google Cloud KMS",
    short: "gcp-kms",
    needs: "the role roles/cloudkms.signerVerifier on the key",
    message_max: usize::MAX,
};
const ENDPOINT: &str = "https://cloudkms.googleapis.com";
/// Signature schemes with the start and the end of their algorithm names in KMS; the key size is between them. A key version has
/// one algorithm.
const ALGORITHMS: [(Scheme, &str, &str); 7] = [
    (Scheme::RsaPkcs1(Hash::Sha256), "RSA_SIGN_PKCS1_", "_SHA256"),
    (Scheme::RsaPkcs1(Hash::Sha512), "RSA_SIGN_PKCS1_", "_SHA512"),
    (Scheme::RsaPss(Hash::Sha256), "RSA_SIGN_PSS_", "_SHA256"),
    (Scheme::RsaPss(Hash::Sha512), "RSA_SIGN_PSS_", "_SHA512"),
    (Scheme::Ecdsa(Hash::Sha256), "EC_SIGN_P256", "_SHA256"),
    (Scheme::Ecdsa(Hash::Sha384), "EC_SIGN_P384", "_SHA384"),
    // Pure Ed25519, without prehashing.
    (Scheme::Ed25519, "EC_SIGN_ED25519", "_ED25519"),
];

/// A key version in Google Cloud KMS, by its resource name.
#[derive(Clone, Debug)]
pub struct GcpKey {
    /// Resource name of the key version: `projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/V`.
    pub version: String,
}

/// Configuration of access to Google Cloud; the same for all keys, which share credentials.
#[derive(Clone, Debug, Default)]
pub struct GcpOptions {
    /// Endpoint that replaces the default one, for tests and private networks.
    pub endpoint: Option<String>,
    /// Credentials that replace the application default credentials.
    pub credentials: Option<Credentials>,
}

/// Opens the key and fetches its public key.
///
/// # Errors
/// [`CloudKeyError`]
#[crate::boxed]
pub async fn open(
    key: GcpKey,
    options: &GcpOptions,
    http: HttpClient,
    calls: &Calls,
) -> Result<CloudKey, CloudKeyError> {
    if !is_key_version_name(&key.version) {
        let problem = "not projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/V";
        return Err(CloudKeyError::Name { key: key.version, problem });
    }
    let credentials = match &options.credentials {
        Some(given) => given.clone(),
        None => standard().map_err(|answer| CloudKeyError::Refused {
            service: KIND.name,
            key: key.version.clone(),
            answer,
            needs: KIND.needs,
        })?,
    };
    let endpoint = options.endpoint.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/');
    let version = Version { http, credentials, url: format!("{endpoint}/v1/{}", key.version) };
    let answer = description(KIND, &key.version, || version.ready(), || version.public_key()).await?;
    let found = found(&answer).ok_or_else(|| CloudKeyError::Unusable {
        service: KIND.name,
        key: key.version.clone(),
        problem: "has no readable public key".to_owned(),
    })?;
    // The fourth part of projects/P/locations/L/…
    let location = key.version.split('/').nth(3).unwrap_or_default().to_owned();
    CloudKey::new((key.version, &location), KIND, found, Box::new(version), calls)
}

fn is_key_version_name(name: &str) -> bool {
    const WORDS: [&str; 5] = ["projects", "locations", "keyRings", "cryptoKeys", "cryptoKeyVersions"];
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    parts.len() == 2 * WORDS.len()
        && parts.chunks(2).zip(WORDS).all(|(pair, word)| pair[0] == word && plain(pair[1]))
        && !parts.contains(&"..")
}

fn found(answer: &Value) -> Option<KeyDescription> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    let spki = STANDARD.decode(pem_body(text("pem")?)?).ok()?;
    let algorithm = text("algorithm")?;
    let is_it = |begin: &str, end: &str| algorithm.starts_with(begin) && algorithm.ends_with(end);
    let schemes = ALGORITHMS.iter().filter(|(_, begin, end)| is_it(begin, end)).map(|(scheme, ..)| *scheme);
    Some(KeyDescription { spki, schemes: schemes.collect() })
}

/// Returns the Base64 body of a PEM text with a single block.
fn pem_body(pem: &str) -> Option<String> {
    let body =
        pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----")?.strip_suffix("-----END PUBLIC KEY-----")?;
    Some(body.split_whitespace().collect())
}

#[derive(Debug)]
struct Version {
    http: HttpClient,
    credentials: Credentials,
    url: String,
}

impl Version {
    async fn public_key(&self) -> Result<Value, ApiError> {
        self.call(http::Request::get(format!("{}/publicKey", self.url)), Bytes::new()).await
    }

    async fn call(&self, request: http::request::Builder, body: Bytes) -> Result<Value, ApiError> {
        let mut request = request
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| ApiError::malformed(&error.to_string()))?;
        request.headers_mut().extend(headers(&self.credentials).await?);
        let answer = self.http.send(request).await.map_err(|error| ApiError::unreachable(&error))?;
        let status = answer.status().as_u16();
        let response_json: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if status == 200 && response_json.is_object() {
            return Ok(response_json);
        }
        let text = |name: &str| response_json.pointer(name).and_then(Value::as_str).unwrap_or_default();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let mut error =
            ApiError::of_status(status, text("/error/status"), text("/error/message"), retry_after);
        if status == 401 {
            // The token became invalid before it expired; the credentials fetch a new one in the background.
            error.verdict = Verdict::Transient;
        }
        Err(error)
    }
}

impl Service for Version {
    fn ready(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        async move { headers(&self.credentials).await.map(drop) }.boxed()
    }

    fn sign<'a>(&'a self, scheme: Scheme, input: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ApiError>> {
        async move {
            // The key version defines the padding.
            let input = STANDARD.encode(input);
            let payload = match scheme {
                Scheme::Ed25519 => json!({ "data": input }),
                Scheme::RsaPkcs1(Hash::Sha512) | Scheme::RsaPss(Hash::Sha512) => {
                    json!({ "digest": { "sha512": input } })
                }
                Scheme::Ecdsa(Hash::Sha384) => json!({ "digest": { "sha384": input } }),
                _ => json!({ "digest": { "sha256": input } }),
            };
            let request = http::Request::post(format!("{}:asymmetricSign", self.url));
            let answer = self.call(request, payload.to_string().into()).await?;
            let signature = answer.get("signature").and_then(Value::as_str);
            let signature = signature.and_then(|text| STANDARD.decode(text).ok());
            signature.ok_or_else(|| ApiError::malformed("the response has no signature"))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_key_version_names_are_accepted() {
        let whole = "projects/p-1/locations/europe-west1/keyRings/r/cryptoKeys/k_1/cryptoKeyVersions/1";
        assert!(is_key_version_name(whole));
        for other in [
            "",
            "projects/p",
            "projects/p/locations/l/keyRings/r/cryptoKeys/k",
            "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/",
            "projects/../locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
            "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1?x",
            "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1/x",
        ] {
            assert!(!is_key_version_name(other), "{other}");
        }
        assert_eq!(
            pem_body("-----BEGIN PUBLIC KEY-----\nAB\nCD\n-----END PUBLIC KEY-----\n").unwrap(),
            "ABCD"
        );
    }
}
