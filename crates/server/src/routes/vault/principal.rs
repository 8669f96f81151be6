//! The principal of a request: authenticated by a token as in the CredHub API, in Vault's header or `Authorization`, or by a client
//! certificate.

use axum::extract::FromRequestParts;
use credentials::Requester;
use http::request::Parts;
use keys::Secret;

use super::super::credhub::context::Context;
use super::super::credhub::principal::{authenticate, bearer, by_token, count_failure};
use super::answer::Refused;

/// Maximum bytes of a token.
const TOKEN_MAX: usize = 8_192;

/// Vault's header for tokens.
const TOKEN: &str = "x-vault-token";

/// The authenticated principal of a request.
pub(super) struct Principal {
    pub(super) requester: Requester,
    /// The token; `None` for a client certificate.
    pub(super) token: Option<Secret>,
}

impl FromRequestParts<Context> for Principal {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Refused> {
        let header = parts.headers.get(TOKEN).map(|header| header.to_str().unwrap_or_default().to_owned());
        let Some(token) = header.filter(|token| !token.is_empty()) else {
            let requester = count_failure(parts, context, authenticate(parts, context).await)?;
            return Ok(Self { requester, token: bearer(parts).map(Secret::new) });
        };
        let short = if token.len() <= TOKEN_MAX { token.as_str() } else { "" };
        let requester = count_failure(parts, context, by_token(context, short).await)?;
        Ok(Self { requester, token: Some(Secret::new(token)) })
    }
}
