//! Logging in by OpenID Connect: code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).

mod flow;
mod id_token;
mod provider;

use std::fmt;

use secrecy::SecretString;

use crate::access::Scope;

pub use provider::{Oidc, OidcError};

pub(crate) use flow::{CallbackParams, LOGIN_COOKIE, Login};

/// How people log in.
#[derive(Clone)]
pub struct OidcOptions {
    /// The issuer, as its discovery document names it: `https://login.example.org/realms/staff`.
    pub issuer: String,
    /// What the issuer knows us as.
    pub client_id: String,
    /// The secret it gave us; none for a public client.
    pub client_secret: Option<SecretString>,
    /// Where the browser comes back to: `https://HOST/api/v1/auth/callback`, as registered with the issuer.
    pub redirect_url: String,
    /// Scopes to request in addition to `openid`.
    pub scopes: Vec<String>,
    /// The ID token's claim that holds a person's groups.
    pub groups_claim: String,
    /// The claim that a new person is named by; where it is absent the address is, and the subject where that is.
    pub name_claim: String,
    /// What groups may do. A group not named here may do nothing.
    pub groups: Vec<GroupGrant>,
    /// Roots (DER) that the issuer's certificate may lie below, in place of the system's.
    pub roots: Vec<Vec<u8>>,
}

/// What a group may do.
#[derive(Clone, Debug)]
pub struct GroupGrant {
    /// The group, exactly as the issuer names it.
    pub group: String,
    /// A role.
    pub role: String,
    /// The scope of the grant.
    pub scope: Scope,
}

impl OidcOptions {
    /// The usual claims and scopes.
    #[must_use]
    pub fn new(
        issuer: impl Into<String>,
        client_id: impl Into<String>,
        redirect_url: impl Into<String>,
    ) -> Self {
        Self {
            issuer: issuer.into(),
            client_id: client_id.into(),
            client_secret: None,
            redirect_url: redirect_url.into(),
            scopes: vec!["profile".to_owned(), "email".to_owned()],
            groups_claim: "groups".to_owned(),
            name_claim: "preferred_username".to_owned(),
            groups: Vec::new(),
            roots: Vec::new(),
        }
    }
}

impl fmt::Debug for OidcOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcOptions")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("redirect_url", &self.redirect_url)
            .finish_non_exhaustive()
    }
}
