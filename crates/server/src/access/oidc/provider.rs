//! The OpenID provider: its token endpoint and its logout endpoint.

use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use secrecy::ExposeSecret;
use serde::Deserialize;
use shared::Shared;

use super::OidcOptions;
use crate::access::issuer::{Description, Issuer, IssuerError, fetch_json, is_secure_url};
use crate::problem::Problem;

/// Reason why logins cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// The issuer's configuration is invalid.
    #[error("OIDC: {0}")]
    Issuer(#[from] IssuerError),
    /// The redirect URL is invalid.
    #[error("the OIDC redirect URL {0:?} is not a URL")]
    Redirect(String),
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// The login service with one issuer. Cheap to clone; a field of [`Components`](crate::Components).
#[derive(Clone)]
pub struct Oidc(Shared<OidcParts>);

struct OidcParts {
    options: OidcOptions,
    issuer: Issuer,
}

impl Oidc {
    /// Creates the provider without sending a request.
    ///
    /// # Errors
    /// [`OidcError`].
    pub fn new(options: OidcOptions) -> Result<Self, OidcError> {
        let issuer = Issuer::new(&options.issuer, true, &options.roots)?;
        if Url::parse(&options.redirect_url).is_err() {
            return Err(OidcError::Redirect(options.redirect_url));
        }
        Ok(Self(Shared::new(OidcParts { options, issuer })))
    }

    /// Returns the settings that the provider was created with.
    #[must_use]
    pub fn options(&self) -> &OidcOptions {
        &self.0.options
    }

    pub(super) fn issuer(&self) -> &Issuer {
        &self.0.issuer
    }

    pub(super) async fn description(&self) -> Result<Arc<Description>, Problem> {
        self.0.issuer.description().await
    }

    /// Returns the URL at which a browser ends the issuer's own session (RP-initiated logout); `None` if the issuer has no such
    /// URL, or does not respond.
    pub(crate) async fn end_session_url(&self) -> Option<String> {
        let description = self.description().await.ok()?;
        let parameters = [("client_id", &self.0.options.client_id)];
        let url = Url::parse_with_params(description.end_session_endpoint.as_deref()?, parameters).ok()?;
        is_secure_url(&url).then(|| url.into())
    }

    /// Exchanges a code for the ID token (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
    pub(super) async fn exchange(&self, code: &str, verifier: &str) -> Result<String, Problem> {
        let description = self.description().await?;
        let options = &self.0.options;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &options.redirect_url),
            ("code_verifier", verifier),
        ];
        let mut request = self.0.issuer.client().post(description.token_endpoint()?);
        let secret = options.client_secret.as_ref().map(ExposeSecret::expose_secret);
        match secret {
            Some(secret) if description.supports_basic_auth() => {
                request = request.basic_auth(form_encoded(&options.client_id), Some(form_encoded(secret)));
            }
            Some(secret) => {
                form.extend([("client_id", options.client_id.as_str()), ("client_secret", secret)]);
            }
            None => form.push(("client_id", &options.client_id)),
        }
        let tokens: Tokens = fetch_json(request.form(&form)).await?;
        Ok(tokens.id_token)
    }
}

/// Form-encodes a text. RFC 6749 section 2.3.1 requires this for the client ID and secret in Basic authentication.
fn form_encoded(text: &str) -> String {
    Url::parse_with_params("x:/", [("k", text)])
        .ok()
        .and_then(|url| url.query().and_then(|query| query.strip_prefix("k=")).map(str::to_owned))
        .unwrap_or_default()
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Oidc").field(&self.0.options).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_secrets_are_form_encoded() {
        assert_eq!(form_encoded("a b:c%&é"), "a+b%3Ac%25%26%C3%A9");
    }
}
