//! Simulated key services of three clouds with the same keys. Requests are validated like in the real services and signed with real
//! keys.
//!
//! Paths: AWS KMS `/`, Key Vault `/keys/NAME/VERSION`, Google Cloud KMS `/v1/projects/…`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use x509::der::{Reader, tag};

use super::server::{Cloud, Gate};
use super::{CloudBehavior, CloudRequest, Fault, OperationCounts, Quota, Reply, Server};
use crate::FleetError;
use crate::key_kind::KeyKind;

/// Quota of each service, far above the load of any test. A 429 response has no `Retry-After`, like in all three services.
const QUOTA: Quota = Quota { per_second: Some(10_000), per_minute: None, retry_after: None };
/// Parent resource of the keys in Google Cloud.
const RING: &str = "projects/fleet/locations/global/keyRings/r/cryptoKeys";
/// The only version of each key in Azure.
const VERSION: &str = "0123456789abcdef0123456789abcdef";

/// A key in all three services, named after its type: `rsa-2048`, `p-256`, `p-384`, `p-521`, `ed25519`.
pub struct ServedKey {
    /// Name of the key in each service.
    pub name: &'static str,
    /// DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    pair: Pair,
}

enum Pair {
    Rsa(rsa::KeyPair),
    /// The same EC key twice: one creates DER signatures, the other fixed-length ones.
    Ec {
        der: EcdsaKeyPair,
        fixed: EcdsaKeyPair,
        curve: &'static str,
        hash: &'static digest::Algorithm,
    },
    Ed25519(Ed25519KeyPair),
}

/// The running services. They stop when this value is dropped.
pub struct KeyServices {
    server: Server,
    inner: Arc<KeysState>,
    tokens_issued: AtomicU64,
}

struct KeysState {
    keys: Vec<ServedKey>,
    /// Valid bearer tokens.
    tokens: Mutex<Vec<String>>,
    port: AtomicU64,
}

struct Services(Arc<KeysState>);

impl KeyServices {
    /// Creates the keys and starts serving.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(manners: &CloudBehavior) -> Result<Self, FleetError> {
        let keys = vec![
            ServedKey::rsa()?,
            ServedKey::ec(
                "p-256",
                "P-256",
                (&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_FIXED_SIGNING, &digest::SHA256),
            )?,
            ServedKey::ec(
                "p-384",
                "P-384",
                (&ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P384_SHA384_FIXED_SIGNING, &digest::SHA384),
            )?,
            ServedKey::ec(
                "p-521",
                "P-521",
                (&ECDSA_P521_SHA512_ASN1_SIGNING, &ECDSA_P521_SHA512_FIXED_SIGNING, &digest::SHA512),
            )?,
            ServedKey::ed25519()?,
        ];
        let inner = Arc::new(KeysState { keys, tokens: Mutex::default(), port: AtomicU64::new(0) });
        let server = Server::start(Services(Arc::clone(&inner)), manners.clone(), None)?;
        inner.port.store(server.port().into(), Relaxed);
        Ok(Self { server, inner, tokens_issued: AtomicU64::new(0) })
    }

    /// Returns the endpoint of all three services.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.inner.endpoint()
    }

    /// Returns the keys, which all three services have.
    #[must_use]
    pub fn keys(&self) -> &[ServedKey] {
        &self.inner.keys
    }

    /// Returns the URL of a key in Azure, without version.
    #[must_use]
    pub fn azure(&self, name: &str) -> String {
        format!("{}/keys/{name}", self.endpoint())
    }

    /// Returns the name of a key version in Google Cloud. Version 1 of RSA keys signs with PSS and SHA-256, version 2 with PKCS #1
    /// v1.5 and SHA-512.
    #[must_use]
    pub fn gcp(&self, name: &str, version: u32) -> String {
        format!("{RING}/{name}/cryptoKeyVersions/{version}")
    }

    /// Creates a token that is valid until a fault expires it.
    #[must_use]
    pub fn token(&self) -> String {
        let token = format!("token-{}", self.tokens_issued.fetch_add(1, Relaxed));
        self.inner.tokens.lock().push(token.clone());
        token
    }

    /// Sets the fault of all further requests.
    pub fn set_fault(&self, fault: Fault) {
        self.server.set_fault(fault);
    }

    /// Returns the counters by operation and service.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.server.counts()
    }

    /// Returns the number of connections and of requests so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        self.server.traffic()
    }
}

impl ServedKey {
    fn rsa() -> Result<Self, FleetError> {
        let failed = |_| FleetError::Key(KeyKind::Rsa2048);
        let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).map_err(failed)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(failed)?;
        Ok(Self { name: "rsa-2048", spki: spki.as_ref().to_vec(), pair: Pair::Rsa(pair) })
    }

    fn ec(
        name: &'static str,
        curve: &'static str,
        (der, fixed, hash): (
            &'static EcdsaSigningAlgorithm,
            &'static EcdsaSigningAlgorithm,
            &'static digest::Algorithm,
        ),
    ) -> Result<Self, FleetError> {
        let failed = |_| FleetError::Key(KeyKind::P256);
        let der = EcdsaKeyPair::generate(der).map_err(failed)?;
        let pkcs8 = der.to_pkcs8v1().map_err(failed)?;
        let fixed =
            EcdsaKeyPair::from_pkcs8(fixed, pkcs8.as_ref()).map_err(|_| FleetError::Key(KeyKind::P256))?;
        let spki: PublicKeyX509Der<'_> = der.public_key().as_der().map_err(failed)?;
        Ok(Self { name, spki: spki.as_ref().to_vec(), pair: Pair::Ec { der, fixed, curve, hash } })
    }

    fn ed25519() -> Result<Self, FleetError> {
        let failed = |_| FleetError::Key(KeyKind::Ed25519);
        let pair = Ed25519KeyPair::generate().map_err(failed)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(failed)?;
        Ok(Self { name: "ed25519", spki: spki.as_ref().to_vec(), pair: Pair::Ed25519(pair) })
    }

    /// Signs a digest (Ed25519: a message); an ECDSA signature is DER or of fixed length. `None` for an algorithm that the key does
    /// not support, or a digest with the wrong length.
    fn sign(&self, algorithm: Algorithm, input: &[u8], as_der: bool) -> Option<Vec<u8>> {
        let by_digest = |hash| Digest::import_less_safe(input, hash).ok();
        match (&self.pair, algorithm) {
            (Pair::Rsa(pair), Algorithm::Rsa(encoding, hash)) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(encoding, &by_digest(hash)?, &mut signature).ok()?;
                Some(signature)
            }
            (Pair::Ec { der, fixed, hash, .. }, Algorithm::Ec(requested)) if *hash == requested => {
                let pair = if as_der { der } else { fixed };
                Some(pair.sign_digest(&by_digest(requested)?).ok()?.as_ref().to_vec())
            }
            (Pair::Ed25519(pair), Algorithm::Ed25519) => Some(pair.sign(input).as_ref().to_vec()),
            _ => None,
        }
    }

    /// Returns the AWS names of the algorithms that this key supports.
    fn aws_algorithms(&self) -> Vec<&'static str> {
        let fits = |algorithm: &Algorithm| match (&self.pair, algorithm) {
            (Pair::Rsa(_), Algorithm::Rsa(..)) => true,
            (Pair::Ec { hash, .. }, Algorithm::Ec(of)) => hash == of,
            (Pair::Ed25519(_), Algorithm::Ed25519 | Algorithm::Ed25519ph) => true,
            _ => false,
        };
        let all = algorithms();
        all.iter().filter(|(_, _, algorithm)| fits(algorithm)).map(|(aws, ..)| *aws).collect()
    }

    fn jwk(&self, kid: &str) -> Option<Value> {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut key = json!({"kid": kid, "key_ops": ["sign", "verify"]});
        match &self.pair {
            Pair::Rsa(pair) => {
                let (n, e) = numbers(pair.public_key().as_ref())?;
                key["kty"] = "RSA".into();
                key["n"] = b64(n).into();
                key["e"] = b64(e).into();
            }
            Pair::Ec { der, curve, .. } => {
                let point = der.public_key().as_ref().get(1..)?;
                let (x, y) = point.split_at(point.len() / 2);
                key["kty"] = "EC".into();
                key["crv"] = (*curve).into();
                key["x"] = b64(x).into();
                key["y"] = b64(y).into();
            }
            // Azure has no Ed25519 keys; RFC 8037 section 2 defines this format.
            Pair::Ed25519(pair) => {
                key["kty"] = "OKP".into();
                key["crv"] = "Ed25519".into();
                key["x"] = b64(pair.public_key().as_ref()).into();
            }
        }
        Some(key)
    }
}

/// Returns modulus and exponent of an RSAPublicKey (RFC 8017 appendix A.1.1), without leading zeros.
fn numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(Reader::new(der).expect(tag::SEQUENCE).ok()?.content);
    let plain = |bytes: &'_ [u8]| bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
    let n = reader.expect(tag::INTEGER).ok()?.content;
    let e = reader.expect(tag::INTEGER).ok()?.content;
    Some((&n[plain(n)..], &e[plain(e)..]))
}

#[derive(Clone, Copy)]
enum Algorithm {
    Rsa(&'static dyn RsaEncoding, &'static digest::Algorithm),
    Ec(&'static digest::Algorithm),
    Ed25519,
    /// Ed25519 over a digest; Bulla does not use it.
    Ed25519ph,
}

/// Returns the algorithms with their names in AWS and in Azure, which lacks some of them.
fn algorithms() -> [(&'static str, Option<&'static str>, Algorithm); 11] {
    let rsa = |encoding, hash| Algorithm::Rsa(encoding, hash);
    let named = [
        ("RSASSA_PKCS1_V1_5_SHA_256", "RS256", rsa(&RSA_PKCS1_SHA256, &digest::SHA256)),
        ("RSASSA_PKCS1_V1_5_SHA_384", "RS384", rsa(&RSA_PKCS1_SHA384, &digest::SHA384)),
        ("RSASSA_PKCS1_V1_5_SHA_512", "RS512", rsa(&RSA_PKCS1_SHA512, &digest::SHA512)),
        ("RSASSA_PSS_SHA_256", "PS256", rsa(&RSA_PSS_SHA256, &digest::SHA256)),
        ("RSASSA_PSS_SHA_384", "PS384", rsa(&RSA_PSS_SHA384, &digest::SHA384)),
        ("RSASSA_PSS_SHA_512", "PS512", rsa(&RSA_PSS_SHA512, &digest::SHA512)),
        ("ECDSA_SHA_256", "ES256", Algorithm::Ec(&digest::SHA256)),
        ("ECDSA_SHA_384", "ES384", Algorithm::Ec(&digest::SHA384)),
        ("ECDSA_SHA_512", "ES512", Algorithm::Ec(&digest::SHA512)),
        ("ED25519_SHA_512", "", Algorithm::Ed25519),
        ("ED25519_PH_SHA_512", "", Algorithm::Ed25519ph),
    ];
    named.map(|(aws, azure, algorithm)| (aws, Some(azure).filter(|name| !name.is_empty()), algorithm))
}

impl KeysState {
    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.load(Relaxed))
    }

    fn key(&self, name: &str) -> Option<&ServedKey> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Returns whether the request has a valid token.
    fn has_token(&self, request: &CloudRequest) -> bool {
        let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let mut tokens = self.tokens.lock();
        if request.expired {
            tokens.retain(|good| Some(good.as_str()) != token);
        }
        token.is_some_and(|token| tokens.iter().any(|good| good == token))
    }

    fn aws(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let error_reply = |status, code: &str| {
            Reply::json(
                status,
                &json!({"__type": format!("com.amazonaws.kms#{code}"), "message": "the simulated reason"}),
            )
        };
        let authorization = request.header("authorization").unwrap_or_default();
        let is_signed = authorization.starts_with("AWS4-HMAC-SHA256 Credential=")
            && authorization.contains("/eu-west-1/kms/aws4_request")
            && authorization.contains("x-amz-target")
            && request.header("x-amz-date").is_some()
            && request.header("content-type") == Some("application/x-amz-json-1.1");
        if !is_signed {
            return error_reply(400, "IncompleteSignature");
        }
        if request.expired {
            return error_reply(400, "ExpiredTokenException");
        }
        let operation = request.header("x-amz-target").unwrap_or_default();
        if gate
            .enter(request, if operation == "TrentService.Sign" { "Sign" } else { "Get" }, "aws", QUOTA)
            .is_err()
        {
            return error_reply(400, "ThrottlingException");
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return error_reply(400, "ValidationException");
        };
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let id = text("KeyId");
        if id == "forbidden" {
            return error_reply(400, "AccessDeniedException");
        }
        let name = id.strip_prefix("alias/").or_else(|| id.rsplit_once(":key/").map(|(_, name)| name));
        let Some(key) = self.key(name.unwrap_or(id)) else { return error_reply(400, "NotFoundException") };
        let arn = format!("arn:aws:kms:eu-west-1:111122223333:key/{}", key.name);
        match operation {
            "TrentService.GetPublicKey" => Reply::json(
                200,
                &json!({"KeyId": arn, "KeyUsage": "SIGN_VERIFY", "PublicKey": STANDARD.encode(&key.spki),
                    "SigningAlgorithms": key.aws_algorithms()}),
            ),
            // Accepts only the ARN that was returned with the public key: an alias may point to another key by now.
            "TrentService.Sign" if id == arn => {
                // Ed25519 requires a message, all other algorithms a digest.
                let fits = |of: &Algorithm| match of {
                    Algorithm::Ed25519 => text("MessageType") == "RAW",
                    _ => text("MessageType") == "DIGEST",
                };
                let found = algorithms().into_iter().find(|(aws, ..)| *aws == text("SigningAlgorithm"));
                let found = found.filter(|(.., of)| fits(of));
                let message = STANDARD.decode(text("Message")).ok();
                let message = message.filter(|message| (1..=4_096).contains(&message.len()));
                let signature = found.zip(message).and_then(|((.., of), input)| key.sign(of, &input, true));
                match signature {
                    Some(signature) => Reply::json(
                        200,
                        &json!({"KeyId": arn, "Signature": STANDARD.encode(apply_signature_fault(request, signature)),
                            "SigningAlgorithm": text("SigningAlgorithm")}),
                    ),
                    None => error_reply(400, "ValidationException"),
                }
            }
            _ => error_reply(400, "ValidationException"),
        }
    }

    fn azure(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let problem = |status, code: &str| {
            Reply::json(status, &json!({"error": {"code": code, "message": "the simulated reason"}}))
        };
        if !self.has_token(request) {
            return problem(401, "Unauthorized").with(
                "www-authenticate",
                "Bearer authorization=\"https://login.example/tenant\", resource=\"https://vault.azure.net\"",
            );
        }
        let mut path = request.path.trim_start_matches("/keys/").split('/');
        let (name, version, action) = (path.next().unwrap_or_default(), path.next(), path.next());
        if gate.enter(request, if action == Some("sign") { "Sign" } else { "Get" }, "azure", QUOTA).is_err() {
            return problem(429, "Throttled");
        }
        if request.query.get("api-version").is_none_or(|version| version != "7.4") {
            return problem(400, "BadParameter");
        }
        if name == "forbidden" {
            return problem(403, "Forbidden");
        }
        let known = version.is_none_or(|version| version == VERSION);
        let Some(key) = self.key(name).filter(|_| known) else { return problem(404, "KeyNotFound") };
        let kid = format!("{}/keys/{name}/{VERSION}", self.endpoint());
        if action.is_none() && request.method == http::Method::GET {
            return match key.jwk(&kid) {
                Some(jwk) => Reply::json(200, &json!({"key": jwk, "attributes": {"enabled": true}})),
                None => problem(500, "InternalError"),
            };
        }
        let body = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let found = algorithms().into_iter().find(|(_, azure, _)| *azure == Some(text("alg")));
        let digest = URL_SAFE_NO_PAD.decode(text("value")).ok();
        let signature = found.zip(digest).and_then(|((.., of), digest)| key.sign(of, &digest, false));
        match signature
            .filter(|_| request.method == http::Method::POST && version.is_some() && action == Some("sign"))
        {
            Some(signature) => Reply::json(
                200,
                &json!({"kid": kid, "value": URL_SAFE_NO_PAD.encode(apply_signature_fault(request, signature))}),
            ),
            None => problem(400, "BadParameter"),
        }
    }

    fn gcp(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        let problem = |status: u16, code: &str| {
            Reply::json(
                status,
                &json!({"error": {"code": status, "status": code, "message": "the simulated reason"}}),
            )
        };
        if !self.has_token(request) {
            return problem(401, "UNAUTHENTICATED");
        }
        let signs = request.path.ends_with(":asymmetricSign");
        if gate.enter(request, if signs { "Sign" } else { "Get" }, "gcp", QUOTA).is_err() {
            return problem(429, "RESOURCE_EXHAUSTED");
        }
        let path =
            request.path.strip_prefix("/v1/").and_then(|path| path.strip_prefix(RING)).unwrap_or_default();
        let mut parts = path.trim_start_matches('/').split('/');
        let (name, _, last) =
            (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or_default());
        if name == "forbidden" {
            return problem(403, "PERMISSION_DENIED");
        }
        let Some(key) = self.key(name) else { return problem(404, "NOT_FOUND") };
        let second = last.starts_with('2');
        let (algorithm, of, field) = match (&key.pair, second) {
            (Pair::Rsa(_), false) => (
                "RSA_SIGN_PSS_2048_SHA256",
                Algorithm::Rsa(&RSA_PSS_SHA256, &digest::SHA256),
                "/digest/sha256",
            ),
            (Pair::Rsa(_), true) => (
                "RSA_SIGN_PKCS1_2048_SHA512",
                Algorithm::Rsa(&RSA_PKCS1_SHA512, &digest::SHA512),
                "/digest/sha512",
            ),
            (Pair::Ec { curve: "P-256", hash, .. }, _) => {
                ("EC_SIGN_P256_SHA256", Algorithm::Ec(hash), "/digest/sha256")
            }
            (Pair::Ec { curve: "P-384", hash, .. }, _) => {
                ("EC_SIGN_P384_SHA384", Algorithm::Ec(hash), "/digest/sha384")
            }
            (Pair::Ed25519(_), _) => ("EC_SIGN_ED25519", Algorithm::Ed25519, "/data"),
            // Google Cloud KMS has no keys on other curves.
            (Pair::Ec { .. }, _) => return problem(404, "NOT_FOUND"),
        };
        if parts.next() == Some("publicKey") && request.method == http::Method::GET {
            let pem = format!(
                "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
                STANDARD.encode(&key.spki)
            );
            return Reply::json(200, &json!({"pem": pem, "algorithm": algorithm, "protectionLevel": "HSM"}));
        }
        let body = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
        // The key version defines the hash; a request has either a digest or data.
        let is_one = body.get("digest").is_some() != body.get("data").is_some();
        let input = body.pointer(field).and_then(Value::as_str);
        let input = input.and_then(|text| STANDARD.decode(text).ok());
        match input.and_then(|input| key.sign(of, &input, true)).filter(|_| signs && is_one) {
            Some(signature) => Reply::json(
                200,
                &json!({"signature": STANDARD.encode(apply_signature_fault(request, signature)), "protectionLevel": "HSM"}),
            ),
            None => problem(400, "INVALID_ARGUMENT"),
        }
    }
}

/// Flips one bit of the signature if the fault requires it.
fn apply_signature_fault(request: &CloudRequest, mut signature: Vec<u8>) -> Vec<u8> {
    if request.wrong
        && let Some(last) = signature.last_mut()
    {
        *last ^= 1;
    }
    signature
}

impl Cloud for Services {
    fn answer(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        match request.path.as_str() {
            "/" => self.0.aws(request, gate),
            path if path.starts_with("/keys/") => self.0.azure(request, gate),
            _ => self.0.gcp(request, gate),
        }
    }
}
