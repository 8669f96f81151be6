//! The embedded issuer's tokens: JWTs (RFC 7519) that only this server reads, so that clients of CredHub can log in with
//! nothing else installed.
//!
//! They are signed by a key derived from the master key (HS256), so that every node reads them and nothing is kept. A token
//! names the API token it was given for: what may be done is looked up by that, so a token ends when the other does.

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

/// How long an access token is good.
const ACCESS_FOR: i64 = 3_600;
/// How long a refresh token is good.
const REFRESH_FOR: i64 = 30 * 86_400;
/// Bytes of a token that are looked at.
const TOKEN_MAX: usize = 4_096;
/// What the signing key is derived for.
const PURPOSE: &str = "bulla credential token 1";
/// How long it is believed without asking that a token was not ended elsewhere.
const BELIEVED: Duration = Duration::from_secs(5);

/// The holder and scope of a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// As permissions name them: `uaa-client:ci`.
    pub actor: String,
    /// The client's or user's name.
    pub name: String,
    /// `client_credentials` or `password`.
    pub grant_type: String,
    /// The hash by which the API token is found.
    pub key: [u8; 32],
}

/// An access token and the one it can be renewed by.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// For requests.
    pub access: Secret,
    /// For a new access token.
    pub refresh: Secret,
    /// Seconds that the access token is good.
    pub expires_in: i64,
    /// The access token's identity.
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
    /// Of a refresh token the access token that it was given with: it ends with that.
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
    /// Makes tokens; `issuer` is this server's URL.
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
            access: token(id, Use::Access, ACCESS_FOR),
            refresh: token(Uuid::new_v4(), Use::Refresh, REFRESH_FOR),
            expires_in: ACCESS_FOR,
            id,
        }
    }

    /// For whom an access token is, and its identity.
    ///
    /// # Errors
    /// [`TokenError`]
    #[crate::boxed]
    pub async fn access_token(&self, token: &str) -> Result<(Grant, Uuid), TokenError> {
        self.token(token, Use::Access).await
    }

    /// The identity of an access token of ours, though it may have ended: anyone who logs out with it an hour later ends its
    /// refresh token still.
    #[must_use]
    pub fn access_token_id(&self, token: &str) -> Option<Uuid> {
        read(self.keyring(), token).filter(|claims| claims.token_use == Use::Access).map(|claims| claims.jti)
    }

    /// When an access token of ours ends by itself, seconds; `None` for any other text.
    #[must_use]
    pub fn access_token_ends(&self, token: &str) -> Option<i64> {
        read(self.keyring(), token).filter(|claims| claims.token_use == Use::Access).map(|claims| claims.exp)
    }

    /// For whom a refresh token is. It stays good when it was used: CredHub's CLI renews by the same one with each command
    /// and keeps none of the tokens that it gets.
    ///
    /// # Errors
    /// [`TokenError`]
    #[crate::boxed]
    pub async fn refresh_token(&self, token: &str) -> Result<Grant, TokenError> {
        self.token(token, Use::Refresh).await.map(|(grant, _)| grant)
    }

    /// Ends the access token of this identity, and the refresh token that was given with it.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn end_token(&self, id: Uuid) -> Result<(), CredentialError> {
        let until_us = self.now_us().saturating_add(REFRESH_FOR * 1_000_000);
        tables::Credentials::of(self.store()).end_token(id, until_us).await?;
        self.live_tokens().invalidate(&id);
        Ok(())
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
            if self.was_ended(id).await? {
                return Err(TokenError::Ended);
            }
        }
        let key = URL_SAFE_NO_PAD.decode(&claims.key).map_err(|_| TokenError::Invalid)?;
        let key = <[u8; 32]>::try_from(key).map_err(|_| TokenError::Invalid)?;
        let grant = Grant { actor: claims.actor, name: claims.sub, grant_type: claims.grant_type, key };
        Ok((grant, claims.jti))
    }

    async fn was_ended(&self, id: Uuid) -> Result<bool, TokenError> {
        let store = self.store().clone();
        let ask = move || async move {
            let ended = tables::Credentials::of(&store).token_ended(id).await;
            ended
                .map(|value| Fresh { value, lifetime: BELIEVED })
                .map_err(|_| Failed { error: TokenError::Unavailable, lifetime: Duration::ZERO })
        };
        self.live_tokens().fetch(&id, ask).await
    }
}

fn sign(keyring: &Keyring, claims: &Claims) -> String {
    let header = Header { alg: "HS256".to_owned(), typ: "JWT".to_owned() };
    let part = |json: Result<Vec<u8>, serde_json::Error>| URL_SAFE_NO_PAD.encode(json.unwrap_or_default());
    let text = format!("{}.{}", part(serde_json::to_vec(&header)), part(serde_json::to_vec(claims)));
    let mac = keyring.mac(PURPOSE, text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac))
}

/// The claims of a token that is ours and was not changed. Only one algorithm is read, whatever the header says.
fn read(keyring: &Keyring, token: &str) -> Option<Claims> {
    if token.len() > TOKEN_MAX {
        return None;
    }
    let (text, mac) = token.rsplit_once('.')?;
    let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
    if !keyring.is_mac(PURPOSE, text.as_bytes(), &mac) {
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
    fn only_our_own_tokens_are_read() {
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
