//! A minimal ACME client, and the HTTP server that responds to its http-01 challenges.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keys::{KeyType, PrivateKey, Signer as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use x509::GeneralName;
use x509::build::{self, Extension};

use crate::Failure;

/// First pause between two polls. Each pause is twice as long as the previous one. Real clients wait for seconds.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Maximum number of pauses before the server counts as stuck: one and a half minutes in total.
const WAITS_MAX: u32 = 11;

/// Key authorizations by token.
pub(crate) type KeyAuthorizations = Arc<Mutex<HashMap<String, String>>>;

/// Responds to http-01 validations.
pub(crate) async fn prove(port: u16, proofs: KeyAuthorizations) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let proofs = proofs.clone();
        tokio::spawn(async move {
            let mut head = [0; 2_048];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let token = head.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            let body = proofs.lock().get(token).cloned().unwrap_or_default();
            let length = body.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            // The validating server may have disconnected.
            let _ = stream.write_all(answer.as_bytes()).await;
        });
    }
}

/// An ACME account with its own connection.
pub(crate) struct Client {
    http: reqwest::Client,
    directory: Value,
    pair: EcdsaKeyPair,
    kid: String,
    nonce: String,
    proofs: KeyAuthorizations,
}

struct Response {
    location: String,
    body: Vec<u8>,
}

impl Client {
    pub(crate) async fn registered(directory: &str, proofs: KeyAuthorizations) -> Result<Self, Failure> {
        // This program has started all servers itself.
        let http = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).http1_only().no_proxy();
        let http = http.tcp_nodelay(true).build()?;
        let found = http.get(directory).send().await?.bytes().await?;
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let directory = serde_json::from_slice(&found)?;
        let mut client = Self { http, directory, pair, kid: String::new(), nonce: String::new(), proofs };
        let first = client.http.head(text(&client.directory["newNonce"])).send().await?;
        client.nonce = first.headers()["replay-nonce"].to_str()?.to_owned();
        let agreed = json!({"termsOfServiceAgreed": true}).to_string();
        client.kid = client.post(&text(&client.directory["newAccount"]), &agreed).await?.location;
        Ok(client)
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y)})
    }

    fn key_authorization(&self, token: &str) -> Result<String, Failure> {
        let key = authority::acme::jose::AccountKey::from_jwk(&self.jwk())?;
        Ok(format!("{token}.{}", key.thumbprint_text()))
    }

    fn signed(&self, url: &str, payload: &str) -> Result<String, Failure> {
        let mut header = json!({"alg": "ES256", "nonce": self.nonce, "url": url});
        match self.kid.as_str() {
            "" => header["jwk"] = self.jwk(),
            kid => header["kid"] = json!(kid),
        }
        let (protected, payload) = (b64(header.to_string()), b64(payload));
        let signature = self.pair.sign(&SystemRandom::new(), format!("{protected}.{payload}").as_bytes())?;
        Ok(json!({"protected": protected, "payload": payload, "signature": b64(signature)}).to_string())
    }

    async fn post(&mut self, url: &str, payload: &str) -> Result<Response, Failure> {
        let request = self.http.post(url).header("content-type", "application/jose+json");
        let response = request.body(self.signed(url, payload)?).send().await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let location = header("location").unwrap_or_default().to_owned();
        self.nonce = header("replay-nonce").ok_or("an answer without a nonce")?.to_owned();
        let good = response.status().is_success();
        let body = response.bytes().await?.to_vec();
        if good {
            Ok(Response { location, body })
        } else {
            Err(String::from_utf8_lossy(&body).into_owned().into())
        }
    }

    async fn json(&mut self, url: &str, payload: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.post(url, payload).await?.body)?)
    }

    /// Runs one complete order.
    pub(crate) async fn order(&mut self, number: u64) -> Result<(), Failure> {
        let [_, a, b, c] = (number as u32).to_be_bytes();
        let address = IpAddr::from([127, a.saturating_add(1), b, c]);
        let identifier = json!({"identifiers": [{"type": "ip", "value": address}]}).to_string();
        let made = self.post(&text(&self.directory["newOrder"]), &identifier).await?;
        let order: Value = serde_json::from_slice(&made.body)?;
        if order["status"] == "pending" {
            self.authorize(&text(&order["authorizations"][0])).await?;
        }
        let csr = json!({"csr": b64(certificate_request(address)?)}).to_string();
        let mut done = self.json(&text(&order["finalize"]), &csr).await?;
        if done["status"] == "processing" {
            done = self.settled(&made.location, "processing").await?;
        }
        if done["status"] != "valid" {
            return Err(done.to_string().into());
        }
        let chain = self.post(&text(&done["certificate"]), "").await?;
        if chain.body.starts_with(b"-----BEGIN CERTIFICATE-----") {
            Ok(())
        } else {
            Err("no certificate".into())
        }
    }

    /// Completes an authorization with http-01.
    async fn authorize(&mut self, url: &str) -> Result<(), Failure> {
        let found = self.json(url, "").await?;
        let challenges = found["challenges"].as_array().into_iter().flatten();
        let challenge = challenges.into_iter().find(|one| one["type"] == "http-01").ok_or("no http-01")?;
        let token = text(&challenge["token"]);
        let proof = self.key_authorization(&token)?;
        self.proofs.lock().insert(token.clone(), proof);
        self.post(&text(&challenge["url"]), "{}").await?;
        let proven = self.settled(url, "pending").await?;
        self.proofs.lock().remove(&token);
        if proven["status"] == "valid" { Ok(()) } else { Err(proven.to_string().into()) }
    }

    /// Polls an object until its status is no longer `passing`, and returns the object.
    async fn settled(&mut self, url: &str, passing: &str) -> Result<Value, Failure> {
        for wait in 0..WAITS_MAX {
            let found = self.json(url, "").await?;
            if found["status"] != passing {
                return Ok(found);
            }
            tokio::time::sleep(FIRST_WAIT * 2_u32.pow(wait)).await;
        }
        Err(format!("{url} stays {passing}").into())
    }
}

/// Returns a CSR with a new key.
fn certificate_request(address: IpAddr) -> Result<Vec<u8>, Failure> {
    let key = PrivateKey::generate(KeyType::P256)?;
    let extensions = [Extension::subject_alt_names(&[GeneralName::Ip(address)]).critical(true)];
    let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, key.spki(), &extensions, None);
    Ok(build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs)?))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
