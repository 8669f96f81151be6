//! Tokens of the embedded issuer: JWTs (RFC 7519) that only this server accepts, so that CredHub clients can log in without another
//! component.
//!
//! The key that signs tokens (HS256) is derived from the master key, so that every node accepts them and no node stores them. A
//! token names the API token that it was issued for. Permissions are looked up by that API token, so the token has no permissions
//! after the API token was deleted.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flight::{Failed, Fresh};
use keys::Secret;
use keys::keyring::Keyring;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::live_tokens::TokenError;
use crate::tables;
use crate::{CredentialError, Credentials};

/// Lifetime of an access token, s.
const ACCESS_LIFETIME_S: i64 = 3_600;
/// Lifetime of a refresh token, s.
const REFRESH_LIFETIME_S: i64 = 30 * 86_400;
/// Maximum bytes of a token. Longer tokens are rejected.
const TOKEN_MAX: usize = 4_096;
/// Context string for the derivation of the signing key.
const PURPOSE: &str = "bulla credential token 1";
/// Time for which the result of a revocation check is cached.
const CACHE_LIFETIME: Duration = Duration::from_secs(5);

/// Subject of a token: the actor, the grant type, and the API token that the token was issued for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The actor, as named in permissions: `uaa-client:ci`.
    pub actor: String,
    /// Name of the client or user.
    pub name: String,
    /// Grant type of the token: `client_credentials` or `password`.
    pub grant_type: String,
    /// The hash by which the API token is looked up.
    pub key: [u8; 32],
}

/// An access token and its refresh token.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The access token, for requests.
    pub access: Secret,
    /// The refresh token, for a new access token.
    pub refresh: Secret,
    /// Remaining lifetime of the access token, in seconds.
    pub expires_in: i64,
    /// Id of the access token.
    pub id: Uuid,
}

#[derive(Deserialize, Serialize)]
struct Header {
    alg: String,
    typ: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Use {
    Access,
    Refresh,
}

#[derive(Deserialize, Serialize)]
struct Claims {
    jti: Uuid,
    /// For a refresh token: the access token that was issued with it. Both are revoked together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pair: Option<Uuid>,
    sub: String,
    client_id: String,
    user_name: Option<String>,
    user_id: Option<String>,
    grant_type: String,
    scope: Vec<String>,
    iss: String,
    aud: Vec<String>,
    iat: i64,
    exp: i64,
    token_use: Use,
    actor: String,
    key: String,
}

impl Credentials {
    /// Issues an access token and a refresh token; `issuer` is the URL of this server.
    #[must_use]
    pub fn issue_tokens(&self, grant: &Grant, issuer: &str) -> Tokens {
        let now = self.now_us() / 1_000_000;
        let id = Uuid::new_v4();
        let token = |jti, token_use, lifetime| {
            let user = (grant.grant_type == "password").then(|| grant.name.clone());
            let claims = Claims {
                jti,
                pair: (token_use == Use::Refresh).then_some(id),
                sub: grant.name.clone(),
                client_id: if user.is_some() { "credhub_cli".to_owned() } else { grant.name.clone() },
                user_id: user.clone(),
                user_name: user,
                grant_type: grant.grant_type.clone(),
                scope: vec!["credhub.read".to_owned(), "credhub.write".to_owned()],
                iss: issuer.to_owned(),
                aud: vec!["credhub".to_owned()],
                iat: now,
                exp: now + lifetime,
                token_use,
                actor: grant.actor.clone(),
                key: URL_SAFE_NO_PAD.encode(grant.key),
            };
            Secret::new(sign(self.keyring(), &claims))
        };
        Tokens {
            access: token(id, Use::Access, ACCESS_LIFETIME_S),
            refresh: token(Uuid::new_v4(), Use::Refresh, REFRESH_LIFETIME_S),
            expires_in: ACCESS_LIFETIME_S,
            id,
        }
    }

    /// Returns the subject and the id of a valid access token.
    ///
    /// # Errors
    /// [`TokenError`]
    #[crate::boxed]
    pub async fn access_token(&self, token: &str) -> Result<(Grant, Uuid), TokenError> {
        self.token(token, Use::Access).await
    }

    /// Returns the id of an access token of this server, even if it has expired. A logout with an expired token can then still
    /// revoke its refresh token.
    #[must_use]
    pub fn access_token_id(&self, token: &str) -> Option<Uuid> {
        read(self.keyring(), token).filter(|claims| claims.token_use == Use::Access).map(|claims| claims.jti)
    }

    /// Returns the expiry of an access token of this server, seconds since 1970-01-01 UTC; `None` for any other text.
    #[must_use]
    pub fn access_token_expiry(&self, token: &str) -> Option<i64> {
        read(self.keyring(), token).filter(|claims| claims.token_use == Use::Access).map(|claims| claims.exp)
    }

    /// Returns the subject of a refresh token. The token stays valid after use: the CLI of CredHub renews with the same refresh
    /// token before each command and stores none of the new tokens.
    ///
    /// # Errors
    /// [`TokenError`]
    #[crate::boxed]
    pub async fn refresh_token(&self, token: &str) -> Result<Grant, TokenError> {
        self.token(token, Use::Refresh).await.map(|(grant, _)| grant)
    }

    /// Revokes the access token with this id, and the refresh token that was issued with it. Also revokes the leases that were
    /// created with the access token.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn end_token(&self, id: Uuid) -> Result<(), CredentialError> {
        let until_us = self.now_us().saturating_add(REFRESH_LIFETIME_S * 1_000_000);
        tables::Credentials::of(self.store()).end_token(id, until_us).await?;
        self.live_tokens().invalidate(&id);
        self.end_leases_of_login(id).await
    }

    async fn token(&self, token: &str, token_use: Use) -> Result<(Grant, Uuid), TokenError> {
        let claims = read(self.keyring(), token).ok_or(TokenError::Invalid)?;
        if claims.token_use != token_use {
            return Err(TokenError::Invalid);
        }
        if claims.exp <= self.now_us() / 1_000_000 {
            return Err(TokenError::Expired);
        }
        for id in [Some(claims.jti), claims.pair].into_iter().flatten() {
            if self.is_revoked(id).await? {
                return Err(TokenError::Ended);
            }
        }
        let key = URL_SAFE_NO_PAD.decode(&claims.key).map_err(|_| TokenError::Invalid)?;
        let key = <[u8; 32]>::try_from(key).map_err(|_| TokenError::Invalid)?;
        let grant = Grant { actor: claims.actor, name: claims.sub, grant_type: claims.grant_type, key };
        Ok((grant, claims.jti))
    }

    async fn is_revoked(&self, id: Uuid) -> Result<bool, TokenError> {
        let store = self.store().clone();
        let load = move || async move {
            let ended = tables::Credentials::of(&store).is_token_revoked(id).await;
            ended
                .map(|value| Fresh { value, lifetime: CACHE_LIFETIME })
                .map_err(|_| Failed { error: TokenError::Unavailable, lifetime: Duration::ZERO })
        };
        self.live_tokens().fetch(&id, load).await
    }
}

fn sign(keyring: &Keyring, claims: &Claims) -> String {
    let header = Header { alg: "HS256".to_owned(), typ: "JWT".to_owned() };
    let part = |json: Result<Vec<u8>, serde_json::Error>| URL_SAFE_NO_PAD.encode(json.unwrap_or_default());
    let text = format!("{}.{}", part(serde_json::to_vec(&header)), part(serde_json::to_vec(claims)));
    let mac = keyring.mac(PURPOSE, text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac))
}

/// Verifies a token and returns its claims. Accepts HS256 only.
fn read(keyring: &Keyring, token: &str) -> Option<Claims> {
    if token.len() > TOKEN_MAX {
        return None;
    }
    let (text, mac) = token.rsplit_once('.')?;
    let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
    if !keyring.verify_mac(PURPOSE, text.as_bytes(), &mac) {
        return None;
    }
    let (header, claims) = text.split_once('.')?;
    let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    (header.alg == "HS256").then_some(())?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            jti: Uuid::nil(),
            pair: None,
            sub: "ci".to_owned(),
            client_id: "ci".to_owned(),
            user_name: None,
            user_id: None,
            grant_type: "client_credentials".to_owned(),
            scope: Vec::new(),
            iss: String::new(),
            aud: Vec::new(),
            iat: 0,
            exp: 1,
            token_use: Use::Access,
            actor: "uaa-client:ci".to_owned(),
            key: String::new(),
        }
    }

    #[test]
    fn only_tokens_signed_by_this_server_are_accepted() {
        let keyring = Keyring::ephemeral();
        let token = sign(&keyring, &claims());
        assert_eq!(read(&keyring, &token).unwrap().sub, "ci");
        assert!(read(&Keyring::ephemeral(), &token).is_none(), "of another server");
        let parts: Vec<&str> = token.split('.').collect();
        let none = URL_SAFE_NO_PAD.encode(br#"{"alg":"none","typ":"JWT"}"#);
        for bad in [
            format!("{none}.{}.", parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}x.{}", parts[0], parts[1], parts[2]),
            parts[1].to_owned(),
            String::new(),
            "..".to_owned(),
            "x".repeat(5_000),
        ] {
            assert!(read(&keyring, &bad).is_none(), "{bad}");
        }
    }
}
