//! Azure Key Vault and Managed HSM: reads a key as a JSON Web Key, and signs a digest with `sign`.

use std::sync::Arc;

use crate::auth::azure::{Tokens, standard};
use crate::auth::http::HttpClient;
use azure_core::credentials::TokenCredential;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use clouds::ApiError;
use futures_util::future::{BoxFuture, FutureExt};
use keys::verify::ecdsa_der;
use keys::{Hash, Scheme};
use outbound::pool::Verdict;
use serde_json::{Value, json};
use x509::der;

use super::{Calls, CloudKey, CloudKeyError, KeyDescription, Kind, Service, description};

const KIND: Kind = Kind {
    name: "Azure Key Vault",
    short: "azure-key-vault",
    needs: "the role Key Vault Crypto User, or keys/get and keys/sign in the vault's access policy",
    // The service signs digests only.
    message_max: 0,
};
const API: &str = "api-version=7.4";
/// Domains of vaults and managed HSMs, which are also the token audiences. A token is sent to no other host.
const DOMAINS: [&str; 6] = [
    "vault.azure.net",
    "managedhsm.azure.net",
    "vault.azure.cn",
    "managedhsm.azure.cn",
    "vault.usgovcloudapi.net",
    "managedhsm.usgovcloudapi.net",
];
/// Signature schemes and their JWA names (RFC 7518 section 3.1).
const ALGORITHMS: [(Scheme, &str); 9] = [
    (Scheme::RsaPkcs1(Hash::Sha256), "RS256"),
    (Scheme::RsaPkcs1(Hash::Sha384), "RS384"),
    (Scheme::RsaPkcs1(Hash::Sha512), "RS512"),
    (Scheme::RsaPss(Hash::Sha256), "PS256"),
    (Scheme::RsaPss(Hash::Sha384), "PS384"),
    (Scheme::RsaPss(Hash::Sha512), "PS512"),
    (Scheme::Ecdsa(Hash::Sha256), "ES256"),
    (Scheme::Ecdsa(Hash::Sha384), "ES384"),
    (Scheme::Ecdsa(Hash::Sha512), "ES512"),
];
/// Curves: the name in a JSON Web Key, the object identifier, and the size of a coordinate in bytes.
const CURVES: [(&str, &[u64], usize); 3] = [
    ("P-256", &[1, 2, 840, 10_045, 3, 1, 7], 32),
    ("P-384", &[1, 3, 132, 0, 34], 48),
    ("P-521", &[1, 3, 132, 0, 35], 66),
];

/// A key in Azure, by its URL.
#[derive(Clone, Debug)]
pub struct AzureKey {
    /// `https://VAULT.vault.azure.net/keys/NAME[/VERSION]`; without a version, the current version at startup.
    pub key: String,
}

/// Configuration of access to Azure; the same for all keys, which share credentials.
#[derive(Clone, Default)]
pub struct AzureOptions {
    /// Credentials that replace the standard chain.
    pub credential: Option<Arc<dyn TokenCredential>>,
    /// Token audience for all keys, whatever their host, for tests and private clouds.
    pub resource: Option<String>,
}

/// Opens the key and fetches its public key. The key version is fixed from then on.
///
/// # Errors
/// [`CloudKeyError`]
#[crate::boxed]
pub async fn open(
    key: AzureKey,
    options: &AzureOptions,
    http: HttpClient,
    calls: &Calls,
) -> Result<CloudKey, CloudKeyError> {
    let name = |problem| CloudKeyError::Name { key: key.key.clone(), problem };
    let not_one = "not https://VAULT.vault.azure.net/keys/NAME[/VERSION]";
    let (origin, path) = split(&key.key).ok_or_else(|| name(not_one))?;
    let resource = match &options.resource {
        Some(given) => given.clone(),
        None => resource_of(origin).ok_or_else(|| name(not_one))?,
    };
    let credential = match &options.credential {
        Some(given) => Arc::clone(given),
        None => standard(&http).map_err(|error| CloudKeyError::Refused {
            service: KIND.name,
            key: key.key.clone(),
            answer: ApiError::credentials(&error),
            needs: KIND.needs,
        })?,
    };
    let tokens = Tokens::new(credential, format!("{resource}/.default"));
    let mut vault = Vault { http, tokens, key: format!("{origin}/{path}") };
    let answer = description(KIND, &key.key, || vault.ready(), || vault.get()).await?;
    let unusable = |problem: &str| CloudKeyError::Unusable {
        service: KIND.name,
        key: key.key.clone(),
        problem: problem.to_owned(),
    };
    if answer.pointer("/attributes/enabled") == Some(&Value::Bool(false)) {
        return Err(unusable("is disabled"));
    }
    let kty = answer.pointer("/key/kty").and_then(Value::as_str).unwrap_or_default();
    if kty.starts_with("OKP") {
        return Err(unusable(
            "is on an Edwards curve (OKP), which the service does not support for signatures",
        ));
    }
    // The key URL must be in the same vault: requests to it carry the token.
    let kid = answer.pointer("/key/kid").and_then(Value::as_str).and_then(split);
    let (_, pinned) = kid
        .filter(|(of, kid)| *of == origin && (*kid == path || kid.starts_with(&format!("{path}/"))))
        .ok_or_else(|| unusable("has another name in the vault's response"))?;
    vault.key = format!("{origin}/{pinned}");
    let found = found(&answer).ok_or_else(|| unusable("cannot sign, or has no readable public key"))?;
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    CloudKey::new((key.key.clone(), host), KIND, found, Box::new(vault), calls)
}

/// Splits a key URL into its origin and its path `keys/NAME[/VERSION]`.
fn split(url: &str) -> Option<(&str, &str)> {
    let (origin, path) = url.split_once("/keys/")?;
    let named = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let parts = path.split('/').count();
    let is_path = (1..=2).contains(&parts) && path.split('/').all(named);
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"))?;
    let is_origin = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
    (is_path && is_origin).then(|| (origin, &url[origin.len() + 1..]))
}

/// Returns the token audience of the vault at `origin`.
fn resource_of(origin: &str) -> Option<String> {
    let (vault, domain) = origin.strip_prefix("https://")?.split_once('.')?;
    (!vault.is_empty() && DOMAINS.contains(&domain)).then(|| format!("https://{domain}"))
}

fn found(answer: &Value) -> Option<KeyDescription> {
    let key = answer.get("key")?;
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let decoded = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
    let signs = key.get("key_ops")?.as_array()?.iter().any(|operation| operation == "sign");
    let spki = match text("kty")? {
        "RSA" | "RSA-HSM" => rsa_spki(&decoded("n")?, &decoded("e")?),
        "EC" | "EC-HSM" => {
            let (_, curve, size) = CURVES.iter().find(|(name, ..)| Some(*name) == text("crv"))?;
            let (x, y) = (pad_left(&decoded("x")?, *size)?, pad_left(&decoded("y")?, *size)?);
            ec_spki(curve, &[&[4], &x[..], &y[..]].concat())
        }
        _ => return None,
    };
    // A vault key is not restricted to one scheme: all schemes of the service are listed.
    let schemes = ALGORITHMS.iter().map(|(scheme, _)| *scheme).collect();
    signs.then_some(KeyDescription { spki, schemes })
}

/// Pads a coordinate with leading zeros to `size` bytes. Some encoders omit leading zeros.
fn pad_left(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let zeros = size.checked_sub(number.len())?;
    Some([&vec![0; zeros][..], number].concat())
}

fn rsa_spki(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                w.oid(&[1, 2, 840, 113_549, 1, 1, 1]).null();
            });
            w.bits_containing(|w| {
                w.sequence(|w| {
                    w.unsigned(modulus).unsigned(exponent);
                });
            });
        });
    })
}

fn ec_spki(curve: &[u64], point: &[u8]) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                w.oid(&[1, 2, 840, 10_045, 2, 1]).oid(curve);
            });
            w.bits(point);
        });
    })
}

#[derive(Debug)]
struct Vault {
    http: HttpClient,
    tokens: Tokens,
    /// URL of the key, with the version once it is known.
    key: String,
}

impl Vault {
    async fn get(&self) -> Result<Value, ApiError> {
        self.call(http::Request::get(format!("{}?{API}", self.key)), Bytes::new()).await
    }

    async fn call(&self, request: http::request::Builder, body: Bytes) -> Result<Value, ApiError> {
        let token = self.tokens.current().await?;
        let request = request
            .header("authorization", format!("Bearer {}", token.token.secret()))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body)
            .map_err(|error| ApiError::malformed(&error.to_string()))?;
        let answer = self.http.send(request).await.map_err(|error| ApiError::unreachable(&error))?;
        let status = answer.status().as_u16();
        let response_json: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if status == 200 && response_json.is_object() {
            return Ok(response_json);
        }
        let text = |name: &str| response_json.pointer(name).and_then(Value::as_str).unwrap_or_default();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let mut error = ApiError::of_status(status, text("/error/code"), text("/error/message"), retry_after);
        if status == 401 {
            // The token became invalid before it expired.
            self.tokens.forget(&token);
            error.verdict = Verdict::Transient;
        }
        Err(error)
    }
}

impl Service for Vault {
    fn ready(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        async move { self.tokens.current().await.map(drop) }.boxed()
    }

    fn sign<'a>(&'a self, scheme: Scheme, digest: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ApiError>> {
        async move {
            let algorithm = ALGORITHMS.iter().find(|(of, _)| *of == scheme).map(|(_, name)| *name);
            let payload = json!({ "alg": algorithm, "value": URL_SAFE_NO_PAD.encode(digest) });
            let request = http::Request::post(format!("{}/sign?{API}", self.key));
            let answer = self.call(request, payload.to_string().into()).await?;
            let value = answer.get("value").and_then(Value::as_str);
            let value = value.and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
            let signature = match scheme {
                Scheme::Ecdsa(_) => value.and_then(|raw| ecdsa_der(&raw)),
                _ => value,
            };
            signature.ok_or_else(|| ApiError::malformed("the response has no signature"))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sent_to_azure_vault_hosts_only() {
        for (url, resource) in [
            ("https://v.vault.azure.net/keys/web", Some("https://vault.azure.net")),
            ("https://v.vault.azure.net/keys/web/0123abc", Some("https://vault.azure.net")),
            ("https://h.managedhsm.azure.net/keys/web", Some("https://managedhsm.azure.net")),
            ("https://v.vault.usgovcloudapi.net/keys/web", Some("https://vault.usgovcloudapi.net")),
            ("http://v.vault.azure.net/keys/web", None),
            ("https://vault.azure.net/keys/web", None),
            ("https://v.vault.azure.net.evil.example/keys/web", None),
            ("https://evil.example/x.vault.azure.net/keys/web", None),
            ("https://evil.example@v.vault.azure.net/keys/web", None),
            ("https://a.b.vault.azure.net/keys/web", None),
            ("https://v.vault.azure.net:444/keys/web", None),
            ("https://v.vault.azure.net/keys/", None),
            ("https://v.vault.azure.net/keys/a/b/c", None),
            ("https://v.vault.azure.net/keys/a?b", None),
            ("https://v.vault.azure.net/secrets/web", None),
        ] {
            let found = split(url).and_then(|(origin, _)| resource_of(origin));
            assert_eq!(found.as_deref(), resource, "{url}");
        }
        let (origin, path) = split("https://v.vault.azure.net/keys/web/01").unwrap();
        assert_eq!((origin, path), ("https://v.vault.azure.net", "keys/web/01"));
    }
}
