//! Who asks: the tokens of CredHub's side, in Vault's header or `Authorization`, or a client certificate.

use axum::extract::FromRequestParts;
use credentials::Asker;
use http::request::Parts;
use keys::Secret;

use super::super::credhub::asking::{ask, bearer, by_token, slowed};
use super::super::credhub::context::Context;
use super::answer::Refused;

/// Octets of a token that are looked at.
const TOKEN_MAX: usize = 8_192;

/// Vault's header for tokens.
const TOKEN: &str = "x-vault-token";

/// Who asks, known.
pub(super) struct Asking {
    pub(super) asker: Asker,
    /// By which token, unless by a certificate.
    pub(super) token: Option<Secret>,
}

impl FromRequestParts<Context> for Asking {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let header = parts.headers.get(TOKEN).map(|header| header.to_str().unwrap_or_default().to_owned());
        let Some(token) = header.filter(|token| !token.is_empty()) else {
            let asker = slowed(parts, context, ask(parts, context).await)?;
            return Ok(Self { asker, token: bearer(parts).map(Secret::new) });
        };
        let short = if token.len() <= TOKEN_MAX { token.as_str() } else { "" };
        let asker = slowed(parts, context, by_token(context, short).await)?;
        Ok(Self { asker, token: Some(Secret::new(token)) })
    }
}
