//! Encryption of the master key by the transit secrets engine of HashiCorp Vault or OpenBao.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callout::{HttpClient, HttpConfig, Request};
use futures_util::future::{BoxFuture, FutureExt};
use keys::{Secret, Wrapper};
use outbound::resolve::Resolver;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::error::IssuerError;
use crate::vault::check_path;

/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(30);

/// Server, key and token of a transit secrets engine.
#[derive(Clone, Debug)]
pub struct TransitConfig {
    /// URL of the server, such as `https://vault.example.net:8200`.
    pub url: String,
    /// Mount path of the engine, such as `transit`.
    pub mount: String,
    /// Name of the transit key.
    pub key: String,
    /// The namespace, if the server uses namespaces.
    pub namespace: Option<String>,
    /// Token with the capability `update` on `MOUNT/encrypt/KEY` and `MOUNT/decrypt/KEY`.
    pub token: Secret,
    /// PEM roots for the server's TLS certificate, instead of the system's.
    pub roots: Option<String>,
}

/// A key of Vault's transit secrets engine.
#[derive(Debug)]
pub struct Transit {
    config: TransitConfig,
    http: HttpClient,
}

#[derive(Deserialize)]
struct TransitResponse {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    ciphertext: Option<String>,
    plaintext: Option<Secret>,
}

impl Transit {
    /// Creates the client without sending a request.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`]
    pub fn new(config: TransitConfig, resolver: &Resolver) -> Result<Self, IssuerError> {
        let reach = HttpConfig { roots: config.roots.clone(), ..HttpConfig::default() };
        let http = HttpClient::new(&reach, resolver)?;
        http.guard().url(&config.url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        check_path(&config.mount)?;
        check_path(&config.key)?;
        Ok(Self { config, http })
    }

    async fn send_request(&self, what: &str, body: &serde_json::Value) -> Result<Data, String> {
        let TransitConfig { url, mount, key, .. } = &self.config;
        let url = format!("{}/v1/{mount}/{what}/{key}", url.trim_end_matches('/'));
        let mut request = Request::post_json(&url, body)
            .header("x-vault-request", "true")
            .header("x-vault-token", self.config.token.expose());
        if let Some(namespace) = &self.config.namespace {
            request = request.header("x-vault-namespace", namespace.as_str());
        }
        let reply = self.http.send(request, Instant::now() + LIMIT, "waiting for Vault").await;
        let reply = reply.map_err(|error| error.to_string())?;
        if !reply.status.is_success() {
            return Err(format!("{what}: Vault responded {}: {}", reply.status.as_u16(), reply.excerpt()));
        }
        // Errors must not contain the response: it may include the key.
        let answer: TransitResponse = serde_json::from_slice(&reply.body)
            .map_err(|_| format!("{what}: the response is not from Vault's transit engine"))?;
        Ok(answer.data)
    }

    async fn encrypt(&self, key: &[u8]) -> Result<Vec<u8>, String> {
        let plaintext = Zeroizing::new(STANDARD.encode(key));
        let data = self.send_request("encrypt", &json!({ "plaintext": *plaintext })).await?;
        Ok(data.ciphertext.ok_or("encrypt returned no ciphertext")?.into_bytes())
    }

    async fn decrypt(&self, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let ciphertext =
            std::str::from_utf8(wrapped).map_err(|_| "the wrapped key is not Vault ciphertext")?;
        let data = self.send_request("decrypt", &json!({ "ciphertext": ciphertext })).await?;
        let plaintext = data.plaintext.ok_or("decrypt returned no plaintext")?;
        let key = STANDARD.decode(plaintext.expose()).map_err(|_| "decrypt did not return base64")?;
        Ok(Zeroizing::new(key))
    }
}

impl Wrapper for Transit {
    fn name(&self) -> &'static str {
        "vault"
    }

    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        self.encrypt(key).boxed()
    }

    fn unwrap_key<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>> {
        self.decrypt(wrapped).boxed()
    }
}
