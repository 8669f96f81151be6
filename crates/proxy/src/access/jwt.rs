//! JSON Web Tokens (RFC 7519) of the configured issuers: service accounts of Kubernetes, jobs of GitHub Actions and GitLab.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flight::{Cache, Failed, Fresh};
use http_relay::client::JwtClaims;
use outbound::Deadline;
use outbound::http::{Client, SetupError};
use outbound::resolve::Resolver;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use x509::jwk::{Algorithm, JwkKey};

/// Maximum bytes of a token.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of a key set, and of an issuer's configuration.
const KEYS_BYTES_MAX: usize = 256 << 10;
/// Maximum keys of an issuer.
const KEYS_MAX: usize = 64;
/// Time for which fetched keys are used before they are fetched again.
const KEYS_FRESH: Duration = Duration::from_secs(600);
/// Time for which keys are used if they cannot be refreshed.
const KEYS_STALE: Duration = Duration::from_secs(86_400);
/// Minimum interval between two fetches that tokens with unknown keys cause.
const KEYS_AGAIN: Duration = Duration::from_secs(30);
/// Pause after a failed fetch of keys.
const KEYS_RETRY: Duration = Duration::from_secs(5);
/// Timeout of a request for an issuer's configuration or keys.
const FETCH_WITHIN: Duration = Duration::from_secs(5);
/// Tolerated clock difference in seconds, for the `nbf` claim.
const SKEW_S: i64 = 60;

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug)]
pub struct IssuerOptions {
    /// Name of the issuer in identities of the policy.
    pub name: String,
    /// Required `iss` claim of the tokens.
    pub issuer: String,
    /// Accepted values of `aud`; a token must contain one of them.
    pub audiences: Vec<String>,
    /// Source of the issuer's keys.
    pub keys: IssuerKeys,
    /// Trust anchors (DER) for the issuer's server. `None` uses the system's trust anchors.
    pub roots: Option<Vec<Vec<u8>>>,
}

/// Source of an issuer's keys: discovery, a URL or a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IssuerKeys {
    /// The `jwks_uri` in the issuer's `/.well-known/openid-configuration`.
    Discovered,
    /// An https URL of a key set (RFC 7517 section 5).
    Url(String),
    /// A file with a key set.
    File(PathBuf),
}

/// Reason why a token is rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum BadToken {
    #[error("not a signed JSON Web Token")]
    Malformed,
    #[error("the issuer is not in proxy.access.issuers, or the audience is not allowed for this issuer")]
    NotForUs,
    #[error("the token has expired or is not yet valid")]
    Time,
    #[error("the token is not signed with a key of its issuer")]
    Signature,
    #[error("cannot fetch the keys of {0}: {1}")]
    NoKeys(String, String),
}

/// The configured issuers, with a cache of their keys.
pub(super) struct Issuers {
    all: Vec<Arc<Issuer>>,
    keys: Cache<usize, Arc<KeySet>, String>,
}

struct Issuer {
    options: IssuerOptions,
    http: Client,
    last: Mutex<Option<Arc<KeySet>>>,
}

struct KeySet {
    read: Instant,
    keys: Vec<(Option<String>, JwkKey)>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// Returns whether a text looks like a token: three parts, the first of which starts like an encoded JSON object.
pub(super) fn is_jwt(text: &[u8]) -> bool {
    text.starts_with(b"ey") && text.iter().filter(|byte| **byte == b'.').count() == 2
}

impl Issuers {
    pub(super) fn new(options: &[IssuerOptions], resolver: &Resolver) -> Result<Self, SetupError> {
        let issuer = |options: &IssuerOptions| {
            let how = outbound::http::Options { roots: options.roots.clone(), ..Default::default() };
            let http = Client::new(resolver, &how)?;
            Ok(Arc::new(Issuer { options: options.clone(), http, last: Mutex::default() }))
        };
        let all = options.iter().map(issuer).collect::<Result<_, SetupError>>()?;
        Ok(Self { all, keys: Cache::with_entries_max(1_024) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Verifies `token` at the time `now` (Unix time, seconds).
    pub(super) async fn verify(&self, token: &str, now: i64) -> Result<JwtClaims, BadToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(BadToken::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(BadToken::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(BadToken::Malformed)?;
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Malformed);
        let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| BadToken::Malformed)?;
        let claims: Value = serde_json::from_slice(&decoded(claims)?).map_err(|_| BadToken::Malformed)?;
        let signature = decoded(signature)?;
        let algorithm = Algorithm::named(&header.alg).filter(|_| header.crit.is_none());
        let algorithm = algorithm.ok_or(BadToken::Malformed)?;
        let is_issuer = |issuer: &&Arc<Issuer>| issuer.is_for(&claims);
        let index = self.all.iter().position(|issuer| is_issuer(&issuer)).ok_or(BadToken::NotForUs)?;
        let issuer = self.all.get(index).ok_or(BadToken::NotForUs)?;
        let second = |name: &str| claims.get(name).and_then(Value::as_f64).map(|time| time as i64);
        let expires = second("exp").filter(|expires| *expires > now).ok_or(BadToken::Time)?;
        if claims.get("nbf").is_some() && second("nbf").is_none_or(|from| from > now + SKEW_S) {
            return Err(BadToken::Time);
        }
        let kid = header.kid.as_deref();
        let mut keys = self.keys(index, issuer).await?;
        if !keys.has(kid) && keys.read.elapsed() > KEYS_AGAIN {
            self.keys.invalidate(&index);
            keys = self.keys(index, issuer).await?;
        }
        match keys.signed(kid, algorithm, signed.as_bytes(), &signature) {
            true => Ok(JwtClaims { issuer: issuer.options.name.as_str().into(), expires, claims }),
            false => Err(BadToken::Signature),
        }
    }

    /// Returns the keys of an issuer. Concurrent requests share one fetch.
    async fn keys(&self, index: usize, issuer: &Arc<Issuer>) -> Result<Arc<KeySet>, BadToken> {
        let fetching = Arc::clone(issuer);
        let fetch = move || async move {
            match fetching.fetch().await {
                Ok(keys) => {
                    let keys = Arc::new(keys);
                    *fetching.last.lock() = Some(Arc::clone(&keys));
                    Ok(Fresh { value: keys, lifetime: KEYS_FRESH })
                }
                Err(error) => {
                    let name = &fetching.options.name;
                    tracing::warn!(issuer = name, error, "cannot fetch the keys of a token issuer");
                    let last = fetching.last.lock().clone();
                    match last.filter(|keys| keys.read.elapsed() < KEYS_STALE) {
                        Some(keys) => Ok(Fresh { value: keys, lifetime: KEYS_RETRY }),
                        None => Err(Failed { error, lifetime: KEYS_RETRY }),
                    }
                }
            }
        };
        let keys = self.keys.fetch(&index, fetch).await;
        keys.map_err(|error| BadToken::NoKeys(issuer.options.name.clone(), error))
    }
}

impl Issuer {
    fn is_for(&self, claims: &Value) -> bool {
        let is_ours = |audience: &Value| {
            audience
                .as_str()
                .is_some_and(|audience| self.options.audiences.iter().any(|ours| ours == audience))
        };
        let audiences = claims.get("aud");
        claims.get("iss").and_then(Value::as_str) == Some(&self.options.issuer)
            && match audiences {
                Some(Value::Array(all)) => all.iter().any(is_ours),
                Some(one) => is_ours(one),
                None => false,
            }
    }

    async fn fetch(&self) -> Result<KeySet, String> {
        let text = match &self.options.keys {
            IssuerKeys::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
                read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?
            }
            IssuerKeys::Url(url) => self.get(url).await?,
            IssuerKeys::Discovered => {
                let issuer = self.options.issuer.trim_end_matches('/');
                let found = self.get(&format!("{issuer}/.well-known/openid-configuration")).await?;
                let found: Discovery = serde_json::from_slice(&found).map_err(|error| error.to_string())?;
                if found.issuer != self.options.issuer {
                    return Err(format!("the discovery document is for the issuer {:?}", found.issuer));
                }
                self.get(&found.jwks_uri).await?
            }
        };
        KeySet::read(&text)
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        if !url.starts_with("https://") {
            return Err(format!("{url} is not an https URL"));
        }
        let deadline = Deadline::within(FETCH_WITHIN);
        let reply = self.http.get(url, &[], KEYS_BYTES_MAX, deadline).await;
        let reply = reply.map_err(|error| error.to_string())?;
        match reply.status.as_u16() {
            200 => Ok(reply.body.to_vec()),
            status => Err(format!("{url} returned status {status}")),
        }
    }
}

impl KeySet {
    /// Parses a key set. Skips unknown key types, and keys for encryption.
    fn read(text: &[u8]) -> Result<Self, String> {
        let jwks: Jwks =
            serde_json::from_slice(text).map_err(|error| format!("not a JSON Web Key Set: {error}"))?;
        let is_for_signatures =
            |jwk: &&Value| jwk.get("use").and_then(Value::as_str).is_none_or(|purpose| purpose == "sig");
        let key = |jwk: &Value| {
            let kid = jwk.get("kid").and_then(Value::as_str).map(str::to_owned);
            JwkKey::from_jwk(jwk).ok().map(|key| (kid, key))
        };
        let keys: Vec<_> =
            jwks.keys.iter().filter(is_for_signatures).filter_map(key).take(KEYS_MAX).collect();
        match keys.is_empty() {
            true => Err("the key set has no RSA, EC or Ed25519 key for signatures".to_owned()),
            false => Ok(Self { read: Instant::now(), keys }),
        }
    }

    fn has(&self, kid: Option<&str>) -> bool {
        kid.is_none() || self.keys.iter().any(|(of, _)| of.as_deref() == kid)
    }

    fn signed(&self, kid: Option<&str>, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let named = self.keys.iter().filter(|(of, _)| kid.is_none() || of.as_deref() == kid);
        named.map(|(_, key)| key).any(|key| key.signed(algorithm, message, signature))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    const ISSUER: &str = "https://kubernetes.default.svc";
    const NOW: i64 = 1_800_000_000;

    struct Key(EcdsaKeyPair);

    impl Key {
        fn new() -> Self {
            Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
        }

        fn jwk(&self, kid: &str) -> Value {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": kid, "x": text(x), "y": text(y) })
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", text(header), text(claims));
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn issuers(folder: &TempDir, jwks: &Value) -> Issuers {
        let file = folder.path().join("jwks.json");
        std::fs::write(&file, jwks.to_string()).unwrap();
        let options = IssuerOptions {
            name: "cluster".into(),
            issuer: ISSUER.into(),
            audiences: vec!["bulla".into()],
            keys: IssuerKeys::File(file),
            roots: None,
        };
        Issuers::new(&[options], &Resolver::system().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn token_requires_valid_issuer_signature_audience_and_time() {
        let (key, other) = (Key::new(), Key::new());
        let folder = TempDir::new().unwrap();
        let rsa_that_is_short = json!({ "kty": "RSA", "kid": "old", "n": "AQAB", "e": "AQAB" });
        let issuers = issuers(&folder, &json!({ "keys": [rsa_that_is_short, key.jwk("one")] }));
        let header = json!({ "alg": "ES256", "kid": "one" });
        let claims =
            json!({ "iss": ISSUER, "aud": ["x", "bulla"], "sub": "job", "exp": NOW + 600, "nbf": NOW });
        let with = |name: &str, value: Value| {
            let mut changed = claims.clone();
            changed[name] = value;
            changed
        };
        let right = key.token(&header, &claims);
        assert!(is_jwt(right.as_bytes()) && !is_jwt(b"token-of-ci"));
        let read = issuers.verify(&right, NOW).await.unwrap();
        assert_eq!((&*read.issuer, read.expires, &read.claims["sub"]), ("cluster", NOW + 600, &json!("job")));
        assert!(issuers.verify(&key.token(&header, &with("aud", json!("bulla"))), NOW).await.is_ok());
        assert!(issuers.verify(&key.token(&json!({ "alg": "ES256" }), &claims), NOW).await.is_ok());
        use BadToken::{Malformed, NotForUs, Signature, Time};
        for (token, wanted) in [
            (key.token(&header, &with("iss", json!("https://evil.test"))), NotForUs),
            (key.token(&header, &with("aud", json!("other"))), NotForUs),
            (key.token(&header, &with("aud", Value::Null)), NotForUs),
            (key.token(&header, &with("exp", json!(NOW))), Time),
            (key.token(&header, &with("exp", Value::Null)), Time),
            (key.token(&header, &with("exp", json!("2100"))), Time),
            (key.token(&header, &with("nbf", json!(NOW + 61))), Time),
            (other.token(&header, &claims), Signature),
            (key.token(&json!({ "alg": "ES256", "kid": "two" }), &claims), Signature),
            (key.token(&json!({ "alg": "RS256", "kid": "one" }), &claims), Signature),
            (key.token(&json!({ "alg": "none", "kid": "one" }), &claims), Malformed),
            (key.token(&json!({ "alg": "HS256", "kid": "one" }), &claims), Malformed),
            (key.token(&json!({ "alg": "ES256", "crit": ["b64"], "b64": false }), &claims), Malformed),
            (format!("{}.", right.rsplit_once('.').unwrap().0), Signature),
            (right.replacen('.', "..", 1), Malformed),
            ("x".repeat(TOKEN_BYTES_MAX + 1), Malformed),
        ] {
            assert_eq!(issuers.verify(&token, NOW).await.err(), Some(wanted), "{token}");
        }
    }

    #[tokio::test]
    async fn key_set_error_names_the_issuer() {
        let folder = TempDir::new().unwrap();
        let issuers = issuers(&folder, &json!({ "keys": [] }));
        let claims = json!({ "iss": ISSUER, "aud": "bulla", "exp": NOW + 1 });
        let token = Key::new().token(&json!({ "alg": "ES256" }), &claims);
        let error = issuers.verify(&token, NOW).await.err().unwrap().to_string();
        assert!(error.contains("cannot fetch the keys of cluster: the key set has no RSA"), "{error}");
    }
}
