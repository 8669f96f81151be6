//! A small ACME client that can also misbehave.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::Peer;
use authority::acme::Acme;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self as aws, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use keys::{KeyType, PrivateKey, Signer as _};
use serde_json::{Value, json};
use x509::GeneralName;
use x509::build::{self, Extension};

pub(crate) const BASE: &str = "https://acme.test";

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> String {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"));
        value.to_str().unwrap().to_owned()
    }

    /// Returns the URLs of the `Link` headers with this relation.
    pub(crate) fn links(&self, relation: &str) -> Vec<String> {
        let end = format!(">;rel=\"{relation}\"");
        let all = self.headers.get_all("link").iter().filter_map(|link| link.to_str().ok());
        all.filter_map(|link| Some(link.strip_prefix('<')?.strip_suffix(&end)?.to_owned())).collect()
    }

    /// Returns the type of the problem without its prefix. Panics if the response is a success.
    pub(crate) fn problem(&self) -> String {
        assert!(!self.status.is_success(), "no problem: {self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        let kind = self.json()["type"].as_str().unwrap().to_owned();
        kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or_else(|| panic!("{kind}")).to_owned()
    }

    pub(crate) fn ok(self) -> Self {
        assert!(self.status.is_success(), "{} {:?}", self.status, self.body);
        self
    }
}

/// An account key of any supported type.
pub(crate) enum AccountKey {
    Ec(aws::EcdsaKeyPair, &'static str, &'static str),
    Rsa(aws::RsaKeyPair, &'static dyn aws::RsaEncoding, &'static str),
    Ed25519(aws::Ed25519KeyPair),
}

impl AccountKey {
    pub(crate) fn p256() -> Self {
        Self::Ec(
            aws::EcdsaKeyPair::generate(&aws::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            "P-256",
            "ES256",
        )
    }

    /// Returns one key for each algorithm.
    pub(crate) fn all() -> Vec<Self> {
        let rsa = || aws::RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        vec![
            Self::p256(),
            Self::Ec(
                aws::EcdsaKeyPair::generate(&aws::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(),
                "P-384",
                "ES384",
            ),
            Self::Ec(
                aws::EcdsaKeyPair::generate(&aws::ECDSA_P521_SHA512_FIXED_SIGNING).unwrap(),
                "P-521",
                "ES512",
            ),
            Self::Rsa(rsa(), &aws::RSA_PKCS1_SHA256, "RS256"),
            Self::Rsa(rsa(), &aws::RSA_PKCS1_SHA384, "RS384"),
            Self::Rsa(rsa(), &aws::RSA_PKCS1_SHA512, "RS512"),
            Self::Rsa(rsa(), &aws::RSA_PSS_SHA256, "PS256"),
            Self::Rsa(rsa(), &aws::RSA_PSS_SHA384, "PS384"),
            Self::Rsa(rsa(), &aws::RSA_PSS_SHA512, "PS512"),
            Self::Ed25519(aws::Ed25519KeyPair::generate().unwrap()),
        ]
    }

    pub(crate) fn alg(&self) -> &'static str {
        match self {
            Self::Ec(_, _, alg) | Self::Rsa(_, _, alg) => alg,
            Self::Ed25519(_) => "EdDSA",
        }
    }

    pub(crate) fn jwk(&self) -> Value {
        match self {
            Self::Ec(pair, curve, _) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": b64(x), "y": b64(y)})
            }
            Self::Rsa(pair, ..) => {
                let mut numbers = x509::der::Reader::new(pair.public_key().as_ref()).sequence().unwrap();
                let mut number = || {
                    let content = numbers.expect(x509::der::tag::INTEGER).unwrap().content;
                    b64(content.strip_prefix(&[0]).unwrap_or(content))
                };
                json!({"kty": "RSA", "n": number(), "e": number()})
            }
            Self::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key().as_ref())})
            }
        }
    }

    /// Returns the same key as a certificate key.
    pub(crate) fn as_private_key(&self) -> PrivateKey {
        let Self::Ec(pair, ..) = self else { panic!("only keys on curves") };
        PrivateKey::from_pkcs8_der(pair.to_pkcs8v1().unwrap().as_ref()).unwrap()
    }

    pub(crate) fn thumbprint(&self) -> String {
        authority::acme::jose::AccountKey::from_jwk(&self.jwk()).unwrap().thumbprint_text()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ec(pair, ..) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair, encoding, _) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// Returns a flattened JWS.
    pub(crate) fn jws(&self, header: &Value, payload: &str) -> Value {
        let (protected, payload) = (b64(header.to_string()), b64(payload));
        let signature = self.sign(format!("{protected}.{payload}").as_bytes());
        json!({"protected": protected, "payload": payload, "signature": b64(signature)})
    }
}

/// A client with one key, and an account if it is registered.
pub(crate) struct Client {
    pub(crate) acme: Acme,
    pub(crate) key: Arc<AccountKey>,
    pub(crate) kid: Option<String>,
    pub(crate) address: IpAddr,
    nonce: Mutex<Option<String>>,
}

impl Client {
    pub(crate) fn new(acme: &Acme) -> Self {
        Self::with_key(acme, AccountKey::p256())
    }

    pub(crate) fn with_key(acme: &Acme, key: AccountKey) -> Self {
        let key = Arc::new(key);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        Self { acme: acme.clone(), key, kid: None, address, nonce: Mutex::new(None) }
    }

    /// Returns a client with an account at the default directory.
    pub(crate) async fn registered(acme: &Acme) -> Self {
        let mut client = Self::new(acme);
        client
            .register(&format!("{BASE}/acme/new-account"), json!({"termsOfServiceAgreed": true}))
            .await
            .ok();
        client
    }

    /// Returns a client with the same account for another server.
    pub(crate) fn at(&self, acme: &Acme) -> Self {
        let (key, kid) = (Arc::clone(&self.key), self.kid.clone());
        Self { acme: acme.clone(), key, kid, address: self.address, nonce: Mutex::new(None) }
    }

    /// Sends newAccount; stores the account URL.
    pub(crate) async fn register(&mut self, url: &str, payload: Value) -> Answer {
        let answer = self.post_with_key(url, &payload.to_string()).await;
        if answer.status.is_success() {
            self.kid = Some(answer.header("location"));
        }
        answer
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.raw("GET", url, None, Vec::new()).await
    }

    /// Sends any request.
    pub(crate) async fn raw(
        &self,
        method: &str,
        url: &str,
        media_type: Option<&str>,
        body: Vec<u8>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(url.strip_prefix(BASE).unwrap_or(url));
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        let request = request.body(Bytes::from(body)).unwrap();
        let response = self.acme.handle(request, &Peer::at(self.address)).await;
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        // RFC 8555 section 6.5: the next request uses the nonce of the last response.
        *self.nonce.lock().unwrap() = Some(answer.header("replay-nonce"));
        answer
    }

    pub(crate) async fn nonce(&self) -> String {
        let cached = self.nonce.lock().unwrap().take();
        if let Some(nonce) = cached {
            return nonce;
        }
        let url = format!("{BASE}/acme/new-nonce");
        let nonce = self.raw("HEAD", &url, None, Vec::new()).await.header("replay-nonce");
        // Taking the nonce reserves it for this caller.
        self.nonce.lock().unwrap().take();
        nonce
    }

    pub(crate) async fn send(&self, url: &str, jws: &Value) -> Answer {
        self.raw("POST", url, Some("application/jose+json"), jws.to_string().into_bytes()).await
    }

    /// Sends a request signed with a key that is embedded in its header.
    pub(crate) async fn post_with_key(&self, url: &str, payload: &str) -> Answer {
        let header =
            json!({"alg": self.key.alg(), "jwk": self.key.jwk(), "nonce": self.nonce().await, "url": url});
        self.send(url, &self.key.jws(&header, payload)).await
    }

    /// Returns a JWS header that names the account.
    pub(crate) async fn header(&self, url: &str) -> Value {
        json!({"alg": self.key.alg(), "kid": self.kid, "nonce": self.nonce().await, "url": url})
    }

    /// Sends a request signed by the account.
    pub(crate) async fn post(&self, url: &str, payload: Value) -> Answer {
        let header = self.header(url).await;
        self.send(url, &self.key.jws(&header, &payload.to_string())).await
    }

    /// Sends a POST-as-GET request.
    pub(crate) async fn fetch(&self, url: &str) -> Answer {
        let header = self.header(url).await;
        self.send(url, &self.key.jws(&header, "")).await
    }

    /// Sends newOrder to the default directory.
    pub(crate) async fn order(&self, names: &[&str]) -> Answer {
        self.order_with(names, json!({})).await
    }

    pub(crate) async fn order_with(&self, names: &[&str], more: Value) -> Answer {
        let mut payload =
            json!({"identifiers": names.iter().map(|name| identifier(name)).collect::<Vec<_>>()});
        for (member, value) in more.as_object().unwrap() {
            payload[member] = value.clone();
        }
        self.post(&format!("{BASE}/acme/new-order"), payload).await
    }

    /// Returns the challenge of type `kind` from one authorization of an order.
    pub(crate) async fn challenge(&self, order: &Value, index: usize, kind: &str) -> Value {
        let authorization = self.fetch(order["authorizations"][index].as_str().unwrap()).await.ok().json();
        let all = authorization["challenges"].as_array().unwrap();
        all.iter()
            .find(|one| one["type"] == kind)
            .unwrap_or_else(|| panic!("no {kind}: {authorization}"))
            .clone()
    }

    pub(crate) fn key_authorization(&self, challenge: &Value) -> String {
        format!("{}.{}", challenge["token"].as_str().unwrap(), self.key.thumbprint())
    }

    /// Waits until the status of a resource is none of `statuses`; returns the resource.
    pub(crate) async fn until_not(&self, url: &str, statuses: &[&str]) -> Value {
        for _ in 0..3_000 {
            let found = self.fetch(url).await.ok().json();
            if !statuses.contains(&found["status"].as_str().unwrap()) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{url} stays one of {statuses:?}");
    }

    /// Returns the external account binding for newAccount.
    pub(crate) fn binding(&self, url: &str, kid: &str, secret: &str) -> Value {
        let secret = URL_SAFE_NO_PAD.decode(secret).unwrap();
        let protected = b64(json!({"alg": "HS256", "kid": kid, "url": url}).to_string());
        let payload = b64(self.key.jwk().to_string());
        let tag = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &secret),
            format!("{protected}.{payload}").as_bytes(),
        );
        json!({"protected": protected, "payload": payload, "signature": b64(tag)})
    }
}

pub(crate) fn identifier(name: &str) -> Value {
    let kind = if name.parse::<IpAddr>().is_ok() { "ip" } else { "dns" };
    json!({"type": kind, "value": name})
}

/// Returns a new certificate key and a CSR for these names.
pub(crate) fn csr(names: &[&str]) -> (PrivateKey, Vec<u8>) {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let der = csr_of(&key, names);
    (key, der)
}

pub(crate) fn csr_of(key: &PrivateKey, names: &[&str]) -> Vec<u8> {
    let names: Vec<GeneralName> = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    let extensions = [Extension::subject_alt_names(&names)];
    let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, key.spki(), &extensions, None);
    build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}
