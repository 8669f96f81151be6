//! How clients find the authorization server and log in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The response of `GET /info`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InfoView {
    /// The authorization server.
    #[serde(rename = "auth-server")]
    pub auth_server: AuthServerView,
    /// The program.
    #[serde(default)]
    pub app: AppView,
    /// What `login --sso` of CredHub's client reads from an authorization server.
    #[serde(default)]
    pub links: LinksView,
    /// What `login` of CredHub's client asks for: by field of the form the kind of input and its label.
    #[serde(default)]
    pub prompts: BTreeMap<String, [String; 2]>,
}

/// The authorization server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AuthServerView {
    /// Its address.
    pub url: String,
}

/// The program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AppView {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// URLs of the login service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LinksView {
    /// The address.
    pub login: String,
}

/// The form of `POST /oauth/token` (RFC 6749 sections 4.3, 4.4 and 6). `S` is the type of secrets.
#[derive(Default, Deserialize, Serialize)]
pub struct TokenRequest<S> {
    /// `client_credentials`, `password` or `refresh_token`.
    pub grant_type: Option<String>,
    /// `token`; a UAA wants it.
    pub response_type: Option<String>,
    /// The client.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<S>,
    /// The person.
    pub username: Option<String>,
    /// The person's password.
    pub password: Option<S>,
    /// The refresh token.
    pub refresh_token: Option<S>,
}

/// Tokens: the response of `POST /oauth/token`. `S` is the type of secrets.
#[derive(Deserialize, Serialize)]
pub struct TokenView<S = String> {
    /// The access token.
    pub access_token: S,
    /// `bearer`.
    #[serde(default)]
    pub token_type: String,
    /// The lifetime of the access token, s.
    pub expires_in: Option<u64>,
    /// What the token is for.
    #[serde(default)]
    pub scope: String,
    /// The token's identity.
    #[serde(default)]
    pub jti: String,
    /// The refresh token, where the grant has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<S>,
}
