//! Discovery of the authorization server and login of clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The response of `GET /info`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InfoView {
    /// The authorization server at which clients log in.
    #[serde(rename = "auth-server")]
    pub auth_server: AuthServerView,
    /// Name and version of the server, as CredHub reports them.
    #[serde(default)]
    pub app: AppView,
    /// URLs that `login --sso` of the CredHub client reads from an authorization server.
    #[serde(default)]
    pub links: LinksView,
    /// Input fields that `login` of the CredHub client prompts for: the kind of input and the label of each form field.
    #[serde(default)]
    pub prompts: BTreeMap<String, [String; 2]>,
}

/// The authorization server at which clients of the credential store log in.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AuthServerView {
    /// URL of the authorization server.
    pub url: String,
}

/// Name and version of the server, as CredHub reports them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AppView {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
}

/// URLs of the login service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LinksView {
    /// URL of the login page.
    pub login: String,
}

/// The form of `POST /oauth/token` (RFC 6749 sections 4.3, 4.4 and 6). `S` is the type of secret values.
#[derive(Default, Deserialize, Serialize)]
pub struct TokenRequest<S> {
    /// Grant type: `client_credentials`, `password` or `refresh_token`.
    pub grant_type: Option<String>,
    /// The constant `token`, which a UAA requires.
    pub response_type: Option<String>,
    /// Client identifier; for the embedded issuer, the name of an API token.
    pub client_id: Option<String>,
    /// Secret of the client; for the embedded issuer, the API token.
    pub client_secret: Option<S>,
    /// Username, for the grant type `password`.
    pub username: Option<String>,
    /// Password, for the grant type `password`.
    pub password: Option<S>,
    /// Refresh token, for the grant type `refresh_token`.
    pub refresh_token: Option<S>,
}

/// Tokens: the response of `POST /oauth/token`. `S` is the type of secret values.
#[derive(Deserialize, Serialize)]
pub struct TokenView<S = String> {
    /// Access token, which requests send as a bearer token.
    pub access_token: S,
    /// The constant `bearer`.
    #[serde(default)]
    pub token_type: String,
    /// Lifetime of the access token in seconds.
    pub expires_in: Option<u64>,
    /// Scopes of the access token.
    #[serde(default)]
    pub scope: String,
    /// Identifier of the token.
    #[serde(default)]
    pub jti: String,
    /// The refresh token, if the grant provides one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<S>,
}
