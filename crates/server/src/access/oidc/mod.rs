//! Login with OpenID Connect: code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).

mod flow;
mod id_token;
mod provider;

use std::fmt;

use secrecy::SecretString;

use crate::access::Scope;

pub use provider::{Oidc, OidcError};

pub(crate) use flow::{CallbackParams, LOGIN_COOKIE, Login};

/// Settings of logins with OpenID Connect.
#[derive(Clone)]
pub struct OidcOptions {
    /// URL of the issuer, exactly as in its discovery document: `https://login.example.org/realms/staff`.
    pub issuer: String,
    /// Client ID that is registered with the issuer.
    pub client_id: String,
    /// Client secret; none for a public client.
    pub client_secret: Option<SecretString>,
    /// URL to which the issuer redirects the browser: `https://HOST/api/v1/auth/callback`, as registered with the issuer.
    pub redirect_url: String,
    /// Scopes to request in addition to `openid`.
    pub scopes: Vec<String>,
    /// Claim of the ID token with the user's groups.
    pub groups_claim: String,
    /// Claim with the name of a new user. Without this claim, the email address is the name. Without an email address, the subject
    /// is the name.
    pub name_claim: String,
    /// Grants of groups. A group without an entry has no permissions.
    pub groups: Vec<GroupGrant>,
    /// Roots (DER) that the issuer's TLS certificate must chain to, in place of the system's.
    pub roots: Vec<Vec<u8>>,
}

/// A rule that grants a role to the members of a group.
#[derive(Clone, Debug)]
pub struct GroupGrant {
    /// Name of the group, exactly as the issuer sends it.
    pub group: String,
    /// Name of the role that members of the group get.
    pub role: String,
    /// Objects to which the role applies.
    pub scope: Scope,
}

impl OidcOptions {
    /// Creates settings with the usual claims and scopes.
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
