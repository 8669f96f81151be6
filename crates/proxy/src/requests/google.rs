//! Tokens of a service account of Google Cloud: JSON Web Tokens that its key signs (RFC 7519), which Google's APIs accept without an
//! exchange (AIP-4111).

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use keys::{Hash, PrivateKey, Scheme, Secret};
use serde::Deserialize;
use serde_json::json;

use super::fetched::Fetched;
use super::unavailable::SecretUnavailable;

/// Lifetime of a token in seconds: the maximum that Google accepts.
const LIFE_S: i64 = 3_600;
/// Time for which a token is used. The rest of its lifetime is for requests in progress, and clocks that differ.
const USED_FOR: Duration = Duration::from_secs(45 * 60);
/// Seconds before now at which the validity of a token begins, for servers whose clocks are slow.
const EARLIER_S: i64 = 60;

/// The file of a service account's key. Unknown members are ignored.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key_id: String,
    private_key: Secret,
}

/// A cached token.
#[derive(Debug)]
pub(super) struct Token {
    /// SHA-256 of the key file.
    file: [u8; 32],
    made_at: Instant,
    fetched: Fetched,
}

impl Token {
    /// Returns the token if the key file has this digest, and the token need not be replaced yet.
    pub(super) fn current(&self, file: &[u8; 32]) -> Option<Fetched> {
        (self.file == *file && self.made_at.elapsed() < USED_FOR).then(|| self.fetched.clone())
    }

    /// Returns the token as a credential.
    pub(super) fn fetched(&self) -> Fetched {
        self.fetched.clone()
    }

    /// Creates a token for `scope`, signed at the time `now` with the key of a key file. The version is the ID of the key.
    pub(super) fn make(
        file: &Fetched,
        digest: [u8; 32],
        (scope, name): (&str, &str),
        now: Timestamp,
    ) -> Result<Self, SecretUnavailable> {
        let unusable = |why: &str| SecretUnavailable::Unusable(format!("{name}: {why}"));
        let document = file.values.first().map(Secret::expose).unwrap_or_default();
        // The parser's error is not shown, because it may quote the key file.
        let read: KeyFile = serde_json::from_str(document)
            .map_err(|_| unusable("not the JSON file of a service account's key"))?;
        if read.kind != "service_account" {
            return Err(unusable("not the key of a service account: its `type` is not service_account"));
        }
        let key = PrivateKey::from_pem(read.private_key.expose())
            .map_err(|error| unusable(&format!("its private_key is not usable: {error}")))?;
        let begin = now.as_second() - EARLIER_S;
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": read.private_key_id });
        let claims = json!({
            "iss": read.client_email, "sub": read.client_email, "scope": scope, "iat": begin, "exp": begin + LIFE_S,
        });
        let encoded = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature =
            rs256(&key, signed.as_bytes()).ok_or_else(|| unusable("its private_key is not an RSA key"))?;
        let token = Secret::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)));
        let fetched = Fetched { values: vec![token], version: Some(read.private_key_id) };
        Ok(Self { file: digest, made_at: Instant::now(), fetched })
    }
}

/// Signs with RSA and SHA-256 (RFC 7518 section 3.3); `None` for keys of other types.
fn rs256(key: &PrivateKey, message: &[u8]) -> Option<Vec<u8>> {
    key.sign_digest_now(Scheme::RsaPkcs1(Hash::Sha256), &Hash::Sha256.digest(message)?).ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use keys::{KeyType, Signer};
    use serde_json::Value;

    use super::*;

    fn file(kind: &str, key: &str) -> Fetched {
        let document = json!({
            "type": kind, "client_email": "bot@project.iam.gserviceaccount.com", "private_key_id": "k1", "private_key": key,
            "token_uri": "https://oauth2.googleapis.com/token",
        });
        Fetched { values: vec![Secret::new(document.to_string())], version: None }
    }

    #[test]
    fn token_has_the_claims_and_the_signature_of_the_service_account() {
        let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
        let file = file("service_account", &key.to_pkcs8_pem());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let token = Token::make(&file, [1; 32], ("scope-a scope-b", "/gcp"), now).unwrap();
        assert!(
            token.current(&[1; 32]).is_some() && token.current(&[2; 32]).is_none(),
            "another file, another token"
        );
        let text = token.fetched.values[0].expose();
        let (signed, signature) = text.rsplit_once('.').unwrap();
        let part = |at: usize| -> Value {
            let part = URL_SAFE_NO_PAD.decode(signed.split('.').nth(at).unwrap()).unwrap();
            serde_json::from_slice(&part).unwrap()
        };
        assert_eq!(part(0), json!({ "alg": "RS256", "typ": "JWT", "kid": "k1" }));
        let account = "bot@project.iam.gserviceaccount.com";
        let (begin, end) = (1_800_000_000 - 60, 1_800_000_000 + 3_540);
        assert_eq!(
            part(1),
            json!({ "iss": account, "sub": account, "scope": "scope-a scope-b", "iat": begin, "exp": end })
        );
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.spki());
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        assert!(!format!("{token:?}").contains(signature));
    }

    #[test]
    fn other_files_are_refused_without_their_text() {
        let ec = PrivateKey::generate(KeyType::P256).unwrap().to_pkcs8_pem();
        for (file, why) in [
            (file("authorized_user", "canary"), "not the key of a service account"),
            (file("service_account", "canary"), "private_key is not usable"),
            (file("service_account", &ec), "not an RSA key"),
            (Fetched { values: vec![Secret::new("canary")], version: None }, "not the JSON file"),
        ] {
            let error = Token::make(&file, [1; 32], ("scope", "/gcp"), Timestamp::UNIX_EPOCH)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why) && !error.contains("canary"), "{error}");
        }
    }
}
